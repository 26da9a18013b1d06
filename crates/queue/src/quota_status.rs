//! Tells administrators what their quota trees have handed out: the status of QuotaSubtrees.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use gantry_api::queue::QuotaSubtreeStatus;
use gantry_reconcile::{
    Change, Controller, Held, Key, Kind, Part, Plan, Reference, Step, View, World, Write,
};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::quota::{BINDINGS, Forest, Problem, Standing, Subtree, bindings};

/// How long a tree rests after its objects were written. Administrators read them, and nobody decides by
/// them: with every job that comes and goes they would take as many requests as the jobs themselves. Once a
/// second was still one request in twelve, of those that a job takes where there are 50 a second.
const PACE: Duration = Duration::from_secs(5);

/// Writes to each QuotaSubtree what is charged to its children, one tree at a time.
///
/// `V` is the view of those that hold quota; which of them do, and how much, is given. Each tree is
/// decided about under a key that is its name, without a namespace, so that no object has it.
pub struct QuotaStatus<V> {
    holds: Arc<Holds<V>>,
    /// Whether an object may hold something else because of a change that `holds` does not see.
    changes: fn(&V, &V) -> bool,
}

/// What quota an object of a world holds, if any.
type Holds<V> = dyn Fn(&World, &V) -> Option<Standing> + Send + Sync;

impl<V: View> QuotaStatus<V> {
    /// Decides by what `holds` says about each object: what quota it holds, if any.
    pub fn new(holds: impl Fn(&World, &V) -> Option<Standing> + Send + Sync + 'static) -> Self {
        Self { holds: Arc::new(holds), changes: |_, _| false }
    }

    /// Decides anew too when an object has changed in this way: what it holds depends on others beside it.
    #[must_use]
    pub fn or_when(self, changes: fn(&V, &V) -> bool) -> Self {
        Self { changes, ..self }
    }

    fn standing(&self, world: &World, object: Option<&V>) -> Option<Standing> {
        object.and_then(|object| (self.holds)(world, object))
    }
}

impl<V> fmt::Debug for QuotaStatus<V> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("QuotaStatus")
    }
}

impl<V: View> Controller for QuotaStatus<V> {
    fn name(&self) -> &'static str {
        "quota-status"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Subtree>(), Kind::of::<V>()]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        if change.is::<Subtree>() {
            return change.both::<Subtree>().filter_map(Subtree::tree).map(Key::cluster).collect();
        }
        let (before, after) = (change.before::<V>(), change.after::<V>());
        let changes = before.zip(after).is_some_and(|(old, new)| (self.changes)(old, new));
        if !changes && self.standing(world, before) == self.standing(world, after) {
            return Vec::new();
        }
        let subtrees = world.shelf::<Subtree>().all();
        let trees: BTreeSet<&str> = subtrees.iter().filter_map(|it| it.tree()).collect();
        trees.into_iter().map(Key::cluster).collect()
    }

    fn plan(&self, world: &World, key: &Key, _: Timestamp) -> Plan {
        let mut subtrees = world.shelf::<Subtree>().all();
        subtrees.retain(|subtree| subtree.tree() == Some(key.name()));
        let holders = world.shelf::<V>().all();
        let holders = holders.iter().filter_map(|object| (self.holds)(world, object));
        plan(&subtrees, holders)
    }

    fn pace(&self) -> Duration {
        PACE
    }
}

/// What to say about the objects of one tree.
fn plan(subtrees: &[Arc<Subtree>], holders: impl Iterator<Item = Standing>) -> Plan {
    let mut plan = Plan::default();
    let (forest, problems) = Forest::standing(subtrees.iter().cloned(), holders);
    for problem in &problems {
        let about = subtrees.iter().find(|subtree| subtree.metadata.key() == problem.object);
        plan.held.extend(about.map(|subtree| held(subtree, problem)));
    }
    for subtree in subtrees {
        plan.held.extend(unreadable_bindings(subtree));
        plan.steps
            .extend(change(subtree, &forest.status(subtree)).map(|it| Step::new(it).can_wait()));
    }
    plan
}

/// The write that makes the status of an object say this, unless it does.
fn change(subtree: &Subtree, status: &QuotaSubtreeStatus) -> Option<Write> {
    let new = match *status == QuotaSubtreeStatus::default() {
        true => Value::Null,
        false => json!(status),
    };
    if new == subtree.status {
        return None;
    }
    Some(Write::Merge {
        resource: Subtree::RESOURCE,
        key: subtree.metadata.key(),
        part: Part::Main,
        fence: subtree.metadata.fence(),
        body: json!({"status": replacing(&subtree.status, new)}),
    })
}

/// A merge patch that leaves nothing of `old` where `new` has nothing.
fn replacing(old: &Value, new: Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (old, &new) else { return new };
    let gone = old.keys().filter(|name| !new.contains_key(*name));
    let mut patch: Map<String, Value> = gone.map(|name| (name.clone(), Value::Null)).collect();
    for (name, value) in new {
        let before = old.get(name).unwrap_or(&Value::Null);
        patch.insert(name.clone(), replacing(before, value.clone()));
    }
    Value::Object(patch)
}

/// What is wrong with the annotation that binds nodes of an object.
fn unreadable_bindings(subtree: &Subtree) -> Option<Held> {
    let error = bindings::read(subtree.bindings()?).err()?;
    Some(Held {
        about: Reference::to(&Subtree::RESOURCE, &subtree.metadata),
        reason: "UnreadableBindings".into(),
        message: format!(
            "annotation {BINDINGS} cannot be read, so nobody may use its nodes: {error}"
        ),
        until: None,
    })
}

fn held(subtree: &Subtree, problem: &Problem) -> Held {
    Held {
        about: Reference::to(&Subtree::RESOURCE, &subtree.metadata),
        reason: problem.fault.reason().into(),
        message: problem.to_string(),
        until: None,
    }
}

#[cfg(test)]
mod tests;
