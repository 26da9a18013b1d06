//! A world for unit tests: objects as a server keeps them, and controllers that are called one by
//! one.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "it is part of tests, and they fail by panics"
)]

use std::collections::BTreeMap;
use std::fmt;

use gantry_reconcile::{
    Change, Controller, Event, Key, Observer, Plan, Resource, Subresource, View, World, Write,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{CONFLICTED_PREFIX, Failure, REFUSED_PREFIX, UNREADABLE_PREFIX};

/// The resource of pods.
const PODS: Resource = Resource::namespaced("", "v1", "pods", "Pod");

/// The time at which tests start.
#[must_use]
pub fn start_time() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

/// Objects, the time, and the events that were recorded.
pub struct TestWorld<'a> {
    /// What controllers read.
    pub world: World,
    /// The time.
    pub now: Timestamp,
    /// The events of the plans that were carried out.
    pub notes: Vec<Event>,
    objects: BTreeMap<(Resource, Key), Value>,
    controllers: Vec<&'a dyn Controller>,
    observers: Vec<&'a dyn Observer>,
    revision: u64,
    /// The scales that were written, the last one at the end.
    pub written_scales: Vec<i64>,
}

impl fmt::Debug for TestWorld<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "TestWorld({} objects at {})", self.objects.len(), self.now)
    }
}

impl<'a> TestWorld<'a> {
    /// A world without objects.
    #[must_use]
    pub fn new(controllers: &[&'a dyn Controller]) -> Self {
        Self::with_observers(controllers, &[])
    }

    /// The same with observers, which are shown every change.
    #[must_use]
    pub fn with_observers(
        controllers: &[&'a dyn Controller],
        observers: &[&'a dyn Observer],
    ) -> Self {
        let kinds = controllers.iter().flat_map(|it| it.kinds());
        Self {
            world: World::new(kinds.chain(observers.iter().flat_map(|it| it.kinds()))),
            observers: observers.to_vec(),
            now: start_time(),
            notes: Vec::new(),
            objects: BTreeMap::new(),
            controllers: controllers.to_vec(),
            revision: 0,
            written_scales: Vec::new(),
        }
    }

    /// Stores an object. Missing metadata is filled in.
    pub fn put<V: View>(&mut self, mut object: Value) {
        let meta = &mut object["metadata"];
        let name = meta["name"].as_str().unwrap().to_owned();
        let fill = |meta: &mut Value, name: &str, value: Value| {
            if meta[name].is_null() {
                meta[name] = value;
            }
        };
        fill(meta, "uid", json!(format!("uid-{name}")));
        fill(meta, "creationTimestamp", json!(self.now.to_string()));
        fill(meta, "generation", json!(1));
        self.store(&V::RESOURCE, object);
    }

    fn store(&mut self, resource: &Resource, mut object: Value) {
        self.revision += 1;
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default();
        let key = Key::new(text("namespace"), text("name"));
        let change =
            self.world.single_store_for(resource).unwrap().observe(&object.to_string()).unwrap();
        self.objects.insert((resource.clone(), key), object);
        self.notify_observers(change);
    }

    fn notify_observers(&self, change: Option<Change>) {
        if let Some(change) = change {
            self.observers.iter().for_each(|it| it.observe(&self.world, &change));
        }
    }

    /// Changes an object as a user would.
    pub fn edit<V: View>(&mut self, key: &Key, change: impl FnOnce(&mut Value)) {
        let mut object = self.object::<V>(key).unwrap().clone();
        change(&mut object);
        self.store(&V::RESOURCE, object);
    }

    /// An object as it is stored.
    #[must_use]
    pub fn object<V: View>(&self, key: &Key) -> Option<&Value> {
        self.objects.get(&(V::RESOURCE, key.clone()))
    }

    /// The status of a pod of namespace `default` as it is stored.
    #[must_use]
    pub fn status(&self, name: &str) -> Value {
        self.objects[&(PODS, Key::new("default", name))]["status"].clone()
    }

    /// Returns one plan of one controller, without executing it.
    #[must_use]
    pub fn plan(&self, index: usize, key: &Key) -> Plan {
        self.controllers[index].plan(&self.world, key, self.now)
    }

    /// Makes and executes one plan of one controller.
    pub fn reconcile(&mut self, index: usize, key: &Key) -> Plan {
        let plan = self.controllers[index].plan(&self.world, key, self.now);
        self.notes.extend(plan.events.iter().cloned());
        let mut steps: Vec<_> = plan.steps.iter().rev().collect();
        while let Some(step) = steps.pop() {
            self.apply(&step.write);
            self.notes.extend(step.success_events.iter().cloned());
            steps.extend(step.then.iter().rev());
        }
        plan
    }

    /// Advances the time and reconciles one key of one controller until it has nothing to write.
    pub fn reconcile_until_stable(&mut self, index: usize, key: &Key) -> Plan {
        for _ in 0..50 {
            let plan = self.reconcile(index, key);
            if plan.steps.is_empty() {
                return plan;
            }
        }
        panic!("{key} never settles");
    }

    /// Moves the clock on.
    pub fn advance_time(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    /// The events since the last call, as `reason: message`.
    pub fn take_events(&mut self) -> Vec<String> {
        self.notes.drain(..).map(|it| format!("{}: {}", it.reason, it.message)).collect()
    }

    fn apply(&mut self, write: &Write) {
        let place = (write.resource().clone(), write.key());
        match write {
            Write::Create { resource, body } => {
                assert!(!self.objects.contains_key(&place), "{} is there", write.key());
                let mut body = body.clone();
                body["metadata"]["uid"] = json!(format!("uid-{}", write.key()));
                self.store(resource, body);
            }
            Write::Merge { body, subresource: Subresource::Scale, .. } => {
                self.written_scales.extend(body["spec"]["replicas"].as_i64());
            }
            Write::Merge { resource, body, subresource: part, fence, .. } => {
                let mut object = self.objects[&place].clone();
                assert_eq!(object["metadata"]["uid"], fence.uid.as_str());
                if let Some(revision) = fence.revision {
                    assert_eq!(object["metadata"]["resourceVersion"], revision.to_string());
                }
                assert_eq!(*part == Subresource::Status, !body["status"].is_null(), "{body}");
                merge(&mut object, body);
                self.store(resource, object);
            }
            Write::Delete { resource, grace, .. } => {
                let mut object = self.objects[&place].clone();
                let finalizers = object["metadata"]["finalizers"].as_array();
                let kept = finalizers.is_some_and(|it| !it.is_empty());
                if *grace == Some(0) && !kept {
                    self.objects.remove(&place);
                    let end = self
                        .world
                        .single_store_for(resource)
                        .unwrap()
                        .observe_deletion(&object.to_string());
                    self.notify_observers(end.unwrap());
                    return;
                }
                let grace = grace.unwrap_or(30);
                let at = self.now + SignedDuration::from_secs(grace.into());
                object["metadata"]["deletionTimestamp"] = json!(at.to_string());
                object["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
                self.store(resource, object);
            }
            Write::Bind { node, .. } => {
                let mut object = self.objects[&place].clone();
                assert!(object["spec"]["nodeName"].is_null(), "{} is placed", write.key());
                object["spec"]["nodeName"] = json!(node);
                self.store(write.resource(), object);
            }
            Write::Apply { .. } => panic!("the controllers under test do not apply"),
            Write::Evict { .. } => panic!("the controllers under test do not evict"),
        }
    }
}

fn merge(into: &mut Value, from: &Value) {
    let Value::Object(from) = from else {
        *into = from.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    for (name, value) in from {
        if value.is_null() {
            into.as_object_mut().unwrap().remove(name);
        } else {
            merge(&mut into[name], value);
        }
    }
}

/// Returns one object for each kind of fault, from a function that builds good ones: writes to it
/// are rejected, conflict, or it cannot be read because of its value at `path`.
#[must_use]
pub fn faulty_objects(
    what: &str,
    path: &str,
    make: impl Fn(&str) -> (Resource, Value),
) -> Vec<(Resource, Value)> {
    let [refused, conflicted, unreadable] = [REFUSED_PREFIX, CONFLICTED_PREFIX, UNREADABLE_PREFIX]
        .map(|wrong| make(&format!("{wrong}-{what}")));
    let (resource, mut unreadable) = unreadable;
    // No field of any view is a fractional number.
    *unreadable.pointer_mut(path).unwrap() = json!(1.5);
    vec![refused, conflicted, (resource, unreadable)]
}

/// Returns whether a name is one of [`faulty_objects`], or of an object created for one.
#[must_use]
pub fn is_faulty(name: &Value) -> bool {
    let name = name.as_str().unwrap_or_default();
    [REFUSED_PREFIX, CONFLICTED_PREFIX, UNREADABLE_PREFIX].iter().any(|it| name.starts_with(it))
}

/// Panics with the story of a proof that failed.
pub fn assert_proof(proof: Result<(), Box<Failure>>) {
    if let Err(failure) = proof {
        panic!("{failure}");
    }
}
