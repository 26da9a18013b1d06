//! A small model of an API server: what controllers rely on, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::external::{SimulatedPeer, SimulatedPeers};
use super::object_json::{finalizers, is_terminating, merge, remove_nulls, stamp, text};
use gantry_reconcile::object::{Key, ObjectReference, Resource, Revision};
use gantry_reconcile::write::{Fence, Outcome, PODS, Propagation, Refusal, Subresource, Write};

/// The finalizer of an object that is deleted after its dependents.
const FOREGROUND_FINALIZER: &str = "foregroundDeletion";

/// The objects, and the watch events about them.
pub struct Server {
    objects: BTreeMap<(Resource, Key), Value>,
    revision: u64,
    last_uid: u64,
    now: Timestamp,
    defaults: fn(&Resource, &mut Value),
    watch_events: BTreeMap<Resource, Vec<WatchEvent>>,
    interceptor: Option<WriteInterceptor>,
    pub(super) peers: SimulatedPeers,
}

/// Decides the outcome of writes that are intercepted.
type WriteInterceptor = Box<dyn Fn(&Write) -> Option<Outcome>>;

/// An event of a watch.
#[derive(Clone, Debug)]
pub(super) struct WatchEvent {
    pub(super) text: Arc<str>,
    pub(super) is_deletion: bool,
}

impl Server {
    /// An empty server, for runs that are not made by a [`Scenario`](super::Scenario).
    #[must_use]
    pub fn new(defaults: fn(&Resource, &mut Value), now: Timestamp) -> Self {
        Self {
            objects: BTreeMap::new(),
            revision: 1,
            last_uid: 0,
            now,
            defaults,
            watch_events: BTreeMap::new(),
            interceptor: None,
            peers: SimulatedPeers::default(),
        }
    }

    /// The external system that is called with this protocol.
    ///
    /// # Panics
    /// If there is none, or it is not an `E`: a mistake in the scenario.
    #[must_use]
    pub fn peer<E: SimulatedPeer>(&self, protocol: &str) -> &E {
        self.peers.get(protocol).expect("the scenario has this peer")
    }

    /// The same, mutable.
    ///
    /// # Panics
    /// As [`peer`](Server::peer).
    pub fn peer_mut<E: SimulatedPeer>(&mut self, protocol: &str) -> &mut E {
        self.peers.get_mut(protocol).expect("the scenario has this peer")
    }

    /// The current time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Sets the time.
    pub fn set_time(&mut self, now: Timestamp) {
        self.now = now;
        self.peers.advance_to(now);
    }

    pub(super) fn revision(&self) -> Revision {
        Revision(self.revision)
    }

    /// All watch events of a kind so far.
    pub(super) fn watch_events(&self, resource: &Resource) -> &[WatchEvent] {
        self.watch_events.get(resource).map(Vec::as_slice).unwrap_or_default()
    }

    /// Refuses such writes from now on, as a quota would. It replaces the previous filter.
    pub fn refuse(&mut self, which: impl Fn(&Write) -> bool + 'static) {
        self.intercept(move |write| {
            let message = || format!("{} is forbidden: the test says so", write.key());
            which(write).then(|| refused(403, "Forbidden", message()))
        });
    }

    /// Responds to such writes in this way from now on, without executing them.
    pub fn intercept(&mut self, answer: impl Fn(&Write) -> Option<Outcome> + 'static) {
        self.interceptor = Some(Box::new(answer));
    }

    /// One object.
    #[must_use]
    pub fn get(&self, resource: &Resource, key: &Key) -> Option<&Value> {
        self.objects.get(&(resource.clone(), key.clone()))
    }

    /// Whether an object exists and is not terminating.
    pub(super) fn is_present(&self, object: &ObjectReference) -> bool {
        let found = self.get(&object.resource, &object.key);
        found.is_some_and(|it| text(it, "uid") == object.uid.as_str() && !is_terminating(it))
    }

    /// Whether an object exists, terminating or not.
    pub(super) fn exists(&self, object: &ObjectReference) -> bool {
        let found = self.get(&object.resource, &object.key);
        found.is_some_and(|it| text(it, "uid") == object.uid.as_str())
    }

    /// Every state that objects of a kind ever had, in order, and whether it was the last one of
    /// its object: for properties that must hold at every moment and not only in the end.
    pub fn history(&self, resource: &Resource) -> impl Iterator<Item = (&str, bool)> + use<'_> {
        self.watch_events(resource).iter().map(|it| (it.text.as_ref(), it.is_deletion))
    }

    /// All objects of a kind.
    #[must_use]
    pub fn list(&self, resource: &Resource) -> Vec<&Value> {
        let all = self.objects.iter().filter(|((kind, _), _)| kind == resource);
        all.map(|(_, object)| object).collect()
    }

    /// Creates an object, as a user would.
    pub fn create(&mut self, resource: &Resource, body: Value) -> Outcome {
        self.apply(&Write::Create { resource: resource.clone(), body })
    }

    /// Changes an object, as a user would; does nothing when it does not exist.
    pub fn edit(&mut self, resource: &Resource, key: &Key, change: impl FnOnce(&mut Value)) {
        if let Some(old) = self.get(resource, key) {
            let mut new = old.clone();
            change(&mut new);
            self.store(resource, key, new);
        }
    }

    /// Deletes an object, as a user would.
    pub fn delete(&mut self, resource: &Resource, key: &Key, propagation: Propagation) {
        self.remove(resource, key, None, Some(propagation));
    }

    /// Executes a write.
    pub fn apply(&mut self, write: &Write) -> Outcome {
        if let Some(outcome) = self.interceptor.as_ref().and_then(|policy| policy(write)) {
            return outcome;
        }
        let key = write.key();
        if let Some(outcome) = self.check_fence(write.resource(), &key, write.fence()) {
            return outcome;
        }
        match write {
            Write::Create { resource, body } => self.create_object(resource, &key, body),
            Write::Merge { resource, subresource: part, body, .. } => {
                self.merge(resource, &key, *part, body)
            }
            Write::Apply { resource, subresource: part, body, fence, .. } => {
                match self.get(resource, &key).is_some() {
                    true => self.merge(resource, &key, *part, body),
                    false if fence.is_none() => self.create_object(resource, &key, body),
                    false => Outcome::NotFound,
                }
            }
            Write::Delete { resource, grace, propagation, .. } => {
                self.remove(resource, &key, *grace, *propagation)
            }
            Write::Bind { uid, node, annotations, .. } => {
                self.bind(&key, uid.as_str(), node, annotations)
            }
            // Budgets are the interceptor's: see `Server::intercept`.
            Write::Evict { .. } => {
                match self.remove(&PODS, &key, None, Some(Propagation::Background)) {
                    // The response has no object.
                    Outcome::Done(_) => Outcome::Done(None),
                    other => other,
                }
            }
        }
    }

    /// Collects garbage, as the server does in the background: deletes one object whose owners are
    /// gone. Returns whether there was one.
    pub fn collect_garbage(&mut self) -> bool {
        let alive: BTreeSet<String> =
            self.objects.values().map(|it| text(it, "uid").to_owned()).collect();
        let leaving: BTreeSet<String> = self
            .objects
            .values()
            .filter(|it| finalizers(it).contains(&FOREGROUND_FINALIZER) && is_terminating(it))
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
            orphaned && !is_terminating(object)
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
            finalizers(&object).into_iter().filter(|it| *it != FOREGROUND_FINALIZER).collect();
        let left = json!(left);
        object["metadata"]["finalizers"] = left;
        self.store(&resource, &key, object);
        true
    }

    /// The conflict of a write with its fence; `None` when it matches.
    fn check_fence(
        &self,
        resource: &Resource,
        key: &Key,
        fence: Option<&Fence>,
    ) -> Option<Outcome> {
        let fence = fence?;
        let Some(object) = self.get(resource, key) else { return Some(Outcome::NotFound) };
        if text(object, "uid") != fence.uid.as_str() {
            return Some(Outcome::Conflict("another object has the name".to_owned()));
        }
        let revision = fence.revision.map(|it| it.to_string());
        match revision.is_some_and(|it| it != text(object, "resourceVersion")) {
            true => Some(Outcome::Conflict("the object has been modified".to_owned())),
            false => None,
        }
    }

    fn create_object(&mut self, resource: &Resource, key: &Key, body: &Value) -> Outcome {
        if self.get(resource, key).is_some() {
            return Outcome::Conflict(format!("{resource} {key} already exists"));
        }
        let mut object = body.clone();
        if resource.has_status
            && let Some(fields) = object.as_object_mut()
        {
            fields.remove("status");
        }
        self.last_uid += 1;
        object["kind"] = json!(resource.kind);
        object["apiVersion"] = json!(resource.api_version());
        object["metadata"]["uid"] = json!(format!("uid-{}", self.last_uid));
        object["metadata"]["creationTimestamp"] = json!(self.stamp());
        object["metadata"]["generation"] = json!(1);
        (self.defaults)(resource, &mut object);
        self.save_object(resource, key, object)
    }

    fn merge(
        &mut self,
        resource: &Resource,
        key: &Key,
        part: Subresource,
        body: &Value,
    ) -> Outcome {
        let Some(old) = self.get(resource, key) else { return Outcome::NotFound };
        let mut new = old.clone();
        match part {
            Subresource::Main => {
                merge(&mut new, body);
                if resource.has_status {
                    new["status"] = old["status"].clone();
                }
            }
            // As kinds without scale paths of their own have it.
            Subresource::Scale => merge(&mut new["spec"], &body["spec"]),
            Subresource::Status => {
                merge(&mut new["status"], &body["status"]);
                // Built-in kinds accept metadata along with a status.
                if let Some(metadata) = body.get("metadata") {
                    merge(&mut new["metadata"], metadata);
                }
            }
        }
        self.store(resource, key, new)
    }

    /// Stores a changed object, or deletes it when it waits for nothing any more.
    fn store(&mut self, resource: &Resource, key: &Key, mut new: Value) -> Outcome {
        let Some(old) = self.get(resource, key) else { return Outcome::NotFound };
        for field in ["uid", "name", "namespace", "creationTimestamp", "deletionTimestamp"] {
            new["metadata"][field] = old["metadata"][field].clone();
        }
        remove_nulls(&mut new);
        (self.defaults)(resource, &mut new);
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
        if new["spec"] != old["spec"] {
            let generation = old["metadata"]["generation"].as_i64().unwrap_or_default();
            new["metadata"]["generation"] = json!(generation + 1);
        }
        remove_nulls(&mut new);
        if new == *old {
            return Outcome::Done(Some(new));
        }
        if is_terminating(&new)
            && finalizers(&new).is_empty()
            && !has_grace_period_left(resource, &new)
        {
            return self.finish_deletion(resource, key);
        }
        self.save_object(resource, key, new)
    }

    fn remove(
        &mut self,
        resource: &Resource,
        key: &Key,
        grace: Option<u32>,
        propagation: Option<Propagation>,
    ) -> Outcome {
        let Some(object) = self.get(resource, key) else { return Outcome::NotFound };
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
                if !list.contains(&FOREGROUND_FINALIZER) {
                    list.push(FOREGROUND_FINALIZER);
                }
                let list = json!(list);
                object["metadata"]["finalizers"] = list;
            }
            Some(Propagation::Foreground | Propagation::Background) | None => {}
        }
        if grace == 0 && finalizers(&object).is_empty() {
            return self.finish_deletion(resource, key);
        }
        let before = object["metadata"]["deletionGracePeriodSeconds"].as_u64();
        if is_terminating(&object) && before.is_some_and(|before| before <= grace) {
            return Outcome::Done(Some(object));
        }
        let seconds = i64::try_from(grace).unwrap_or(i64::MAX);
        let until = self.now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(self.now);
        object["metadata"]["deletionTimestamp"] = json!(stamp(until));
        object["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        self.save_object(resource, key, object)
    }

    fn bind(
        &mut self,
        key: &Key,
        uid: &str,
        node: &str,
        annotations: &BTreeMap<String, String>,
    ) -> Outcome {
        let Some(pod) = self.get(&PODS, key) else { return Outcome::NotFound };
        let bound = !pod["spec"]["nodeName"].as_str().unwrap_or_default().is_empty();
        if text(pod, "uid") != uid || bound || is_terminating(pod) {
            return Outcome::Conflict(format!(
                "pod {key} is already assigned to a node, or is terminating"
            ));
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
        self.save_object(&PODS, key, pod);
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

    /// Stores an object and adds a watch event.
    fn save_object(&mut self, resource: &Resource, key: &Key, mut object: Value) -> Outcome {
        self.revision += 1;
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        remove_nulls(&mut object);
        let text = object.to_string().into();
        self.watch_events
            .entry(resource.clone())
            .or_default()
            .push(WatchEvent { text, is_deletion: false });
        self.objects.insert((resource.clone(), key.clone()), object.clone());
        Outcome::Done(Some(object))
    }

    /// Removes an object and adds a watch event.
    fn finish_deletion(&mut self, resource: &Resource, key: &Key) -> Outcome {
        self.revision += 1;
        if let Some(mut object) = self.objects.remove(&(resource.clone(), key.clone())) {
            object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
            let text = object.to_string().into();
            self.watch_events
                .entry(resource.clone())
                .or_default()
                .push(WatchEvent { text, is_deletion: true });
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

/// A refusal.
pub(super) fn refused(code: u16, reason: &str, message: String) -> Outcome {
    Outcome::Refused(Refusal { code, reason: reason.to_owned(), message })
}

/// Whether a terminating object is within its grace period.
fn has_grace_period_left(resource: &Resource, object: &Value) -> bool {
    *resource == PODS
        && object["metadata"]["deletionGracePeriodSeconds"].as_u64().is_some_and(|it| it > 0)
}
