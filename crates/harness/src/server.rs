//! A small model of an API server: what controllers rely on, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::outside::{Edge, Edges};
use gantry_reconcile::object::{Key, Reference, Resource, Revision};
use gantry_reconcile::write::{Fence, Outcome, PODS, Part, Propagation, Refusal, Write};

/// The finalizer of an object that goes after what belongs to it.
const FOREGROUND: &str = "foregroundDeletion";

/// Objects, and the news about them.
pub struct Server {
    objects: BTreeMap<(Resource, Key), Value>,
    revision: u64,
    identities: u64,
    now: Timestamp,
    defaults: fn(&Resource, &mut Value),
    news: BTreeMap<Resource, Vec<News>>,
    policy: Option<Policy>,
    pub(super) edges: Edges,
}

/// What becomes of writes that do not come through.
type Policy = Box<dyn Fn(&Write) -> Option<Outcome>>;

/// What a watch shows.
#[derive(Clone, Debug)]
pub(super) struct News {
    pub(super) text: Arc<str>,
    pub(super) end: bool,
}

impl Server {
    /// An empty server, for who makes runs of another kind than a
    /// [`Scenario`](super::Scenario) is.
    #[must_use]
    pub fn new(defaults: fn(&Resource, &mut Value), now: Timestamp) -> Self {
        Self {
            objects: BTreeMap::new(),
            revision: 1,
            identities: 0,
            now,
            defaults,
            news: BTreeMap::new(),
            policy: None,
            edges: Edges::default(),
        }
    }

    /// The peer outside the API that is called with this protocol.
    ///
    /// # Panics
    /// When there is none, or it is no `E`: a mistake of the scenario.
    #[must_use]
    pub fn edge<E: Edge>(&self, protocol: &str) -> &E {
        self.edges.get(protocol).expect("the scenario has this peer")
    }

    /// The same, for what happens to it on the way.
    ///
    /// # Panics
    /// As [`edge`](Server::edge).
    pub fn edge_mut<E: Edge>(&mut self, protocol: &str) -> &mut E {
        self.edges.get_mut(protocol).expect("the scenario has this peer")
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Lets it be this time.
    pub fn set_time(&mut self, now: Timestamp) {
        self.now = now;
        self.edges.pass(now);
    }

    pub(super) fn revision(&self) -> Revision {
        Revision(self.revision)
    }

    /// All that was ever told about a kind.
    pub(super) fn news(&self, resource: &Resource) -> &[News] {
        self.news.get(resource).map(Vec::as_slice).unwrap_or_default()
    }

    /// Refuses such writes from now on, as a quota would. What was refused before no longer is.
    pub fn refuse(&mut self, which: impl Fn(&Write) -> bool + 'static) {
        self.intercept(move |write| {
            let message = || format!("{} is forbidden: the test says so", write.key());
            which(write).then(|| refused(403, "Forbidden", message()))
        });
    }

    /// Answers such writes in this way from now on, and does nothing about them.
    pub fn intercept(&mut self, answer: impl Fn(&Write) -> Option<Outcome> + 'static) {
        self.policy = Some(Box::new(answer));
    }

    /// One object.
    #[must_use]
    pub fn get(&self, resource: &Resource, key: &Key) -> Option<&Value> {
        self.objects.get(&(resource.clone(), key.clone()))
    }

    /// Whether an object is there and not going.
    pub(super) fn has(&self, object: &Reference) -> bool {
        let found = self.get(&object.resource, &object.key);
        found.is_some_and(|it| text(it, "uid") == object.uid.as_str() && !is_going(it))
    }

    /// Whether an object is there, going or not.
    pub(super) fn stands(&self, object: &Reference) -> bool {
        let found = self.get(&object.resource, &object.key);
        found.is_some_and(|it| text(it, "uid") == object.uid.as_str())
    }

    /// Every state that objects of a kind ever had, in order, and whether it was the last one of its
    /// object: for what must hold at every moment and not in the end alone.
    pub fn history(&self, resource: &Resource) -> impl Iterator<Item = (&str, bool)> + use<'_> {
        self.news(resource).iter().map(|it| (it.text.as_ref(), it.end))
    }

    /// All objects of a kind.
    #[must_use]
    pub fn list(&self, resource: &Resource) -> Vec<&Value> {
        let all = self.objects.iter().filter(|((kind, _), _)| kind == resource);
        all.map(|(_, object)| object).collect()
    }

    /// Makes an object, as a user would.
    pub fn create(&mut self, resource: &Resource, body: Value) -> Outcome {
        self.apply(&Write::Create { resource: resource.clone(), body })
    }

    /// Changes an object, as a user would; does nothing when it is not there.
    pub fn edit(&mut self, resource: &Resource, key: &Key, change: impl FnOnce(&mut Value)) {
        if let Some(old) = self.get(resource, key) {
            let mut new = old.clone();
            change(&mut new);
            self.store(resource, key, new);
        }
    }

    /// Asks for an object to go, as a user would.
    pub fn delete(&mut self, resource: &Resource, key: &Key, propagation: Propagation) {
        self.remove(resource, key, None, Some(propagation));
    }

    /// Does what a write says.
    pub fn apply(&mut self, write: &Write) -> Outcome {
        if let Some(outcome) = self.policy.as_ref().and_then(|policy| policy(write)) {
            return outcome;
        }
        let key = write.key();
        if let Some(outcome) = self.outside(write.resource(), &key, write.fence()) {
            return outcome;
        }
        match write {
            Write::Create { resource, body } => self.make(resource, &key, body),
            Write::Merge { resource, part, body, .. } => self.merge(resource, &key, *part, body),
            Write::Apply { resource, part, body, fence, .. } => {
                match self.get(resource, &key).is_some() {
                    true => self.merge(resource, &key, *part, body),
                    false if fence.is_none() => self.make(resource, &key, body),
                    false => Outcome::Absent,
                }
            }
            Write::Delete { resource, grace, propagation, .. } => {
                self.remove(resource, &key, *grace, *propagation)
            }
            Write::Bind { uid, node, annotations, .. } => {
                self.bind(&key, uid.as_str(), node, annotations)
            }
        }
    }

    /// What the server itself does in the background: one thing that belongs to nothing goes.
    /// Returns whether there was one.
    pub fn collect(&mut self) -> bool {
        let alive: BTreeSet<String> =
            self.objects.values().map(|it| text(it, "uid").to_owned()).collect();
        let leaving: BTreeSet<String> = self
            .objects
            .values()
            .filter(|it| finalizers(it).contains(&FOREGROUND) && is_going(it))
            .map(|it| text(it, "uid").to_owned())
            .collect();
        let owners = |object: &Value| -> Vec<String> {
            let list = object["metadata"]["ownerReferences"].as_array();
            let list = list.map(Vec::as_slice).unwrap_or_default();
            list.iter().filter_map(|it| it["uid"].as_str().map(str::to_owned)).collect()
        };
        let lost = self.objects.iter().find(|(_, object)| {
            let owners = owners(object);
            let orphaned = !owners.is_empty()
                && owners.iter().all(|it| !alive.contains(it) || leaving.contains(it));
            orphaned && !is_going(object)
        });
        if let Some(((resource, key), _)) = lost {
            let (resource, key) = (resource.clone(), key.clone());
            self.remove(&resource, &key, None, Some(Propagation::Background));
            return true;
        }
        let owned: BTreeSet<String> = self.objects.values().flat_map(owners).collect();
        let alone = |object: &Value| {
            leaving.contains(text(object, "uid")) && !owned.contains(text(object, "uid"))
        };
        let done = self.objects.iter().find(|(_, object)| alone(object));
        let Some(((resource, key), object)) = done else { return false };
        let (resource, key, mut object) = (resource.clone(), key.clone(), object.clone());
        let left: Vec<&str> =
            finalizers(&object).into_iter().filter(|it| *it != FOREGROUND).collect();
        let left = json!(left);
        object["metadata"]["finalizers"] = left;
        self.store(&resource, &key, object);
        true
    }

    /// Why a write does not find what it must; `None` when it does.
    fn outside(&self, resource: &Resource, key: &Key, fence: Option<&Fence>) -> Option<Outcome> {
        let fence = fence?;
        let Some(object) = self.get(resource, key) else { return Some(Outcome::Absent) };
        if text(object, "uid") != fence.uid.as_str() {
            return Some(Outcome::Stale("another object has the name".to_owned()));
        }
        let revision = fence.revision.map(|it| it.to_string());
        match revision.is_some_and(|it| it != text(object, "resourceVersion")) {
            true => Some(Outcome::Stale("the object has been modified".to_owned())),
            false => None,
        }
    }

    fn make(&mut self, resource: &Resource, key: &Key, body: &Value) -> Outcome {
        if self.get(resource, key).is_some() {
            return Outcome::Stale(format!("{resource} {key} already exists"));
        }
        let mut object = body.clone();
        if resource.status
            && let Some(fields) = object.as_object_mut()
        {
            fields.remove("status");
        }
        self.identities += 1;
        object["kind"] = json!(resource.kind);
        object["apiVersion"] = json!(resource.api_version());
        object["metadata"]["uid"] = json!(format!("uid-{}", self.identities));
        object["metadata"]["creationTimestamp"] = json!(self.stamp());
        object["metadata"]["generation"] = json!(1);
        (self.defaults)(resource, &mut object);
        self.show(resource, key, object)
    }

    fn merge(&mut self, resource: &Resource, key: &Key, part: Part, body: &Value) -> Outcome {
        let Some(old) = self.get(resource, key) else { return Outcome::Absent };
        let mut new = old.clone();
        match part {
            Part::Main => {
                merge(&mut new, body);
                if resource.status {
                    new["status"] = old["status"].clone();
                }
            }
            // As kinds without paths of their own have it.
            Part::Scale => merge(&mut new["spec"], &body["spec"]),
            Part::Status => {
                merge(&mut new["status"], &body["status"]);
                // Built-in kinds take metadata along with a status.
                if let Some(metadata) = body.get("metadata") {
                    merge(&mut new["metadata"], metadata);
                }
            }
        }
        self.store(resource, key, new)
    }

    /// Keeps a changed object, unless that ends it.
    fn store(&mut self, resource: &Resource, key: &Key, mut new: Value) -> Outcome {
        let Some(old) = self.get(resource, key) else { return Outcome::Absent };
        for field in ["uid", "name", "namespace", "creationTimestamp", "deletionTimestamp"] {
            new["metadata"][field] = old["metadata"][field].clone();
        }
        strip(&mut new);
        (self.defaults)(resource, &mut new);
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
        if new["spec"] != old["spec"] {
            let generation = old["metadata"]["generation"].as_i64().unwrap_or_default();
            new["metadata"]["generation"] = json!(generation + 1);
        }
        strip(&mut new);
        if new == *old {
            return Outcome::Done(Some(new));
        }
        if is_going(&new) && finalizers(&new).is_empty() && !waits(resource, &new) {
            return self.end(resource, key);
        }
        self.show(resource, key, new)
    }

    fn remove(
        &mut self,
        resource: &Resource,
        key: &Key,
        grace: Option<u32>,
        propagation: Option<Propagation>,
    ) -> Outcome {
        let Some(object) = self.get(resource, key) else { return Outcome::Absent };
        let mut object = object.clone();
        let own = object["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap_or(30);
        let unbound = object["spec"]["nodeName"].as_str().unwrap_or_default().is_empty();
        let over = matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        let grace = match *resource == PODS {
            true if unbound || over => 0,
            true => grace.map_or(own, u64::from),
            false => 0,
        };
        match propagation {
            Some(Propagation::Orphan) => self.orphan(text(&object, "uid")),
            Some(Propagation::Foreground) if self.has_dependents(text(&object, "uid")) => {
                let mut list = finalizers(&object);
                if !list.contains(&FOREGROUND) {
                    list.push(FOREGROUND);
                }
                let list = json!(list);
                object["metadata"]["finalizers"] = list;
            }
            Some(Propagation::Foreground | Propagation::Background) | None => {}
        }
        if grace == 0 && finalizers(&object).is_empty() {
            return self.end(resource, key);
        }
        let before = object["metadata"]["deletionGracePeriodSeconds"].as_u64();
        if is_going(&object) && before.is_some_and(|before| before <= grace) {
            return Outcome::Done(Some(object));
        }
        let seconds = i64::try_from(grace).unwrap_or(i64::MAX);
        let until = self.now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(self.now);
        object["metadata"]["deletionTimestamp"] = json!(stamp(until));
        object["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        self.show(resource, key, object)
    }

    fn bind(
        &mut self,
        key: &Key,
        uid: &str,
        node: &str,
        annotations: &BTreeMap<String, String>,
    ) -> Outcome {
        let Some(pod) = self.get(&PODS, key) else { return Outcome::Absent };
        let bound = !pod["spec"]["nodeName"].as_str().unwrap_or_default().is_empty();
        if text(pod, "uid") != uid || bound || is_going(pod) {
            return Outcome::Stale(format!("pod {key} is already assigned to a node, or going"));
        }
        let mut pod = pod.clone();
        pod["spec"]["nodeName"] = json!(node);
        for (name, text) in annotations {
            pod["metadata"]["annotations"][name] = json!(text);
        }
        let scheduled = json!({"type": "PodScheduled", "status": "True"});
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let others = conditions.into_iter().filter(|it| it["type"] != "PodScheduled");
        let conditions: Vec<Value> = others.chain([scheduled]).collect();
        pod["status"]["conditions"] = json!(conditions);
        self.show(&PODS, key, pod);
        Outcome::Done(None)
    }

    fn has_dependents(&self, uid: &str) -> bool {
        let owned = |it: &Value| {
            let owners = it["metadata"]["ownerReferences"].as_array();
            owners.is_some_and(|owners| owners.iter().any(|owner| owner["uid"] == uid))
        };
        self.objects.values().any(owned)
    }

    fn orphan(&mut self, uid: &str) {
        let uid = uid.to_owned();
        let keys: Vec<(Resource, Key)> = self.objects.keys().cloned().collect();
        for (resource, key) in keys {
            self.edit(&resource, &key, |object| {
                if let Some(owners) = object["metadata"]["ownerReferences"].as_array_mut() {
                    owners.retain(|owner| owner["uid"] != uid.as_str());
                }
            });
        }
    }

    /// Keeps an object and tells of it.
    fn show(&mut self, resource: &Resource, key: &Key, mut object: Value) -> Outcome {
        self.revision += 1;
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        strip(&mut object);
        let text = object.to_string().into();
        self.news.entry(resource.clone()).or_default().push(News { text, end: false });
        self.objects.insert((resource.clone(), key.clone()), object.clone());
        Outcome::Done(Some(object))
    }

    /// Takes an object away and tells of it.
    fn end(&mut self, resource: &Resource, key: &Key) -> Outcome {
        self.revision += 1;
        if let Some(mut object) = self.objects.remove(&(resource.clone(), key.clone())) {
            object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
            let text = object.to_string().into();
            self.news.entry(resource.clone()).or_default().push(News { text, end: true });
        }
        Outcome::Done(None)
    }

    fn stamp(&self) -> String {
        stamp(self.now)
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Server")
            .field("revision", &self.revision)
            .field("objects", &self.objects.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// A no.
pub(super) fn refused(code: u16, reason: &str, message: String) -> Outcome {
    Outcome::Refused(Refusal { code, reason: reason.to_owned(), message })
}

/// A time as objects have it, in whole seconds.
fn stamp(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second()).unwrap_or(at).to_string()
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

fn is_going(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Whether an object that goes still has time.
fn waits(resource: &Resource, object: &Value) -> bool {
    *resource == PODS
        && object["metadata"]["deletionGracePeriodSeconds"].as_u64().is_some_and(|it| it > 0)
}

fn finalizers(object: &Value) -> Vec<&str> {
    let list = object["metadata"]["finalizers"].as_array();
    list.map(|list| list.iter().filter_map(Value::as_str).collect()).unwrap_or_default()
}

/// JSON merge patch.
fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = Value::Object(Map::new());
    }
    let Value::Object(target) = into else { return };
    for (name, value) in fields {
        match value.is_null() {
            true => {
                target.shift_remove(name);
            }
            false => merge(target.entry(name.clone()).or_insert(Value::Null), value),
        }
    }
}

/// Takes away what reading an absent field has left behind.
fn strip(object: &mut Value) {
    let absent = |fields: &mut Map<String, Value>| fields.retain(|_, value| !value.is_null());
    if let Some(fields) = object.as_object_mut() {
        absent(fields);
    }
    if let Some(fields) = object["metadata"].as_object_mut() {
        absent(fields);
    }
}
