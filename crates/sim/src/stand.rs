//! A stand for tests: objects as a server would keep them, and controllers that are asked in turn.

use std::collections::BTreeMap;

use gantry_harness::{CONFLICTED, Failure, REFUSED, UNREADABLE};
use gantry_reconcile::{
    Change, Controller, Key, Note, Observer, Part, Plan, Resource, View, World, Write,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::view::Pod;

/// When tests begin.
pub(crate) fn start() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

/// Objects, the time, and what was told.
pub(crate) struct Stand<'a> {
    pub(crate) world: World,
    pub(crate) now: Timestamp,
    pub(crate) notes: Vec<Note>,
    objects: BTreeMap<(Resource, Key), Value>,
    controllers: Vec<&'a dyn Controller>,
    observers: Vec<&'a dyn Observer>,
    revision: u64,
    /// The scales that were written, the last one at the end.
    pub(crate) scaled: Vec<i64>,
}

impl<'a> Stand<'a> {
    pub(crate) fn new(controllers: &[&'a dyn Controller]) -> Self {
        Self::observed(controllers, &[])
    }

    /// With these, which are shown every change.
    pub(crate) fn observed(
        controllers: &[&'a dyn Controller],
        observers: &[&'a dyn Observer],
    ) -> Self {
        let kinds = controllers.iter().flat_map(|it| it.kinds());
        Self {
            world: World::new(kinds.chain(observers.iter().flat_map(|it| it.kinds()))),
            observers: observers.to_vec(),
            now: start(),
            notes: Vec::new(),
            objects: BTreeMap::new(),
            controllers: controllers.to_vec(),
            revision: 0,
            scaled: Vec::new(),
        }
    }

    /// Puts an object there. What is not said is filled in.
    pub(crate) fn put<V: View>(&mut self, mut object: Value) {
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
        let change = self.world.find(resource).unwrap().saw(&object.to_string()).unwrap();
        self.objects.insert((resource.clone(), key), object);
        self.show(change);
    }

    fn show(&self, change: Option<Change>) {
        if let Some(change) = change {
            self.observers.iter().for_each(|it| it.observe(&self.world, &change));
        }
    }

    /// Changes an object as a user would.
    pub(crate) fn edit<V: View>(&mut self, key: &Key, change: impl FnOnce(&mut Value)) {
        let mut object = self.object::<V>(key).unwrap().clone();
        change(&mut object);
        self.store(&V::RESOURCE, object);
    }

    pub(crate) fn object<V: View>(&self, key: &Key) -> Option<&Value> {
        self.objects.get(&(V::RESOURCE, key.clone()))
    }

    pub(crate) fn pod(&self, name: &str) -> std::sync::Arc<Pod> {
        self.world.shelf::<Pod>().get(&Key::new("default", name)).unwrap()
    }

    /// The status of a pod as it is stored.
    pub(crate) fn status(&self, name: &str) -> Value {
        self.object::<Pod>(&Key::new("default", name)).unwrap()["status"].clone()
    }

    /// One plan of one controller, which is not carried out.
    pub(crate) fn controllers_plan(&self, index: usize, key: &Key) -> Plan {
        self.controllers[index].plan(&self.world, key, self.now)
    }

    /// One plan of one controller, carried out.
    pub(crate) fn turn(&mut self, index: usize, key: &Key) -> Plan {
        let plan = self.controllers[index].plan(&self.world, key, self.now);
        self.notes.extend(plan.notes.iter().cloned());
        let mut steps: Vec<_> = plan.steps.iter().rev().collect();
        while let Some(step) = steps.pop() {
            self.apply(&step.write);
            self.notes.extend(step.done.iter().cloned());
            steps.extend(step.then.iter().rev());
        }
        plan
    }

    /// Lets time pass and asks one controller about one key until it has nothing to write.
    pub(crate) fn settle(&mut self, index: usize, key: &Key) -> Plan {
        for _ in 0..50 {
            let plan = self.turn(index, key);
            if plan.steps.is_empty() {
                return plan;
            }
        }
        panic!("{key} never settles");
    }

    pub(crate) fn pass(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    /// The reasons of what was told since this was last asked.
    pub(crate) fn told(&mut self) -> Vec<String> {
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
            Write::Merge { body, part: Part::Scale, .. } => {
                self.scaled.extend(body["spec"]["replicas"].as_i64());
            }
            Write::Merge { resource, body, part, fence, .. } => {
                let mut object = self.objects[&place].clone();
                assert_eq!(object["metadata"]["uid"], fence.uid.as_str());
                if let Some(revision) = fence.revision {
                    assert_eq!(object["metadata"]["resourceVersion"], revision.to_string());
                }
                assert_eq!(*part == Part::Status, !body["status"].is_null(), "{body}");
                merge(&mut object, body);
                self.store(resource, object);
            }
            Write::Delete { resource, grace, .. } => {
                let mut object = self.objects[&place].clone();
                let finalizers = object["metadata"]["finalizers"].as_array();
                let kept = finalizers.is_some_and(|it| !it.is_empty());
                if *grace == Some(0) && !kept {
                    self.objects.remove(&place);
                    let end = self.world.find(resource).unwrap().saw_end(&object.to_string());
                    self.show(end.unwrap());
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
            Write::Apply { .. } => panic!("nobody here applies"),
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

/// One object for each way to be wrong, from what makes good ones: writes to it are refused, come too
/// late, or it cannot be read because of what it says at `path`.
pub(crate) fn bad(
    what: &str,
    path: &str,
    make: impl Fn(&str) -> (Resource, Value),
) -> Vec<(Resource, Value)> {
    let [refused, conflicted, unreadable] =
        [REFUSED, CONFLICTED, UNREADABLE].map(|wrong| make(&format!("{wrong}-{what}")));
    let (resource, mut unreadable) = unreadable;
    // No field of any view is a number with a fraction.
    *unreadable.pointer_mut(path).unwrap() = json!(1.5);
    vec![refused, conflicted, (resource, unreadable)]
}

/// Whether a name is one of [`bad`], or of something made for one.
pub(crate) fn is_bad(name: &Value) -> bool {
    let name = name.as_str().unwrap_or_default();
    [REFUSED, CONFLICTED, UNREADABLE].iter().any(|it| name.starts_with(it))
}

/// What a proof says when it fails.
pub(crate) fn proven(proof: Result<(), Box<Failure>>) {
    if let Err(failure) = proof {
        panic!("{failure}");
    }
}
