//! Reports to administrators what their quota trees have allocated: the status of QuotaSubtrees.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use gantry_api::queue::QuotaSubtreeStatus;
use gantry_reconcile::{
    Change, Controller, Held, Key, Kind, ObjectReference, Plan, Step, Subresource, View, World,
    Write,
};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::quota::{BINDINGS_ANNOTATION, Forest, QuotaHolder, QuotaProblem, Subtree, bindings};

/// How long a tree is not written again after its objects were written. Administrators read the
/// statuses, and no controller decides by them: written with every job that comes and goes they
/// would take as many requests as the jobs themselves. Once a second was still one request in
/// twelve, of those that a job takes where there are 50 a second.
const STATUS_WRITE_INTERVAL: Duration = Duration::from_secs(5);

/// Writes to each QuotaSubtree what is charged to its children, one tree at a time.
///
/// `V` is the view of the objects that hold quota; which of them do, and how much, is given. Each
/// tree is reconciled under a key that is its name, without a namespace, so that it is the key of
/// no object.
pub struct QuotaStatus<V> {
    held_quota: Arc<HeldQuotaFn<V>>,
    /// Whether a change may alter what an object holds in a way that `holds` does not see.
    changes: fn(&V, &V) -> bool,
}

/// Returns what quota an object of a world holds, if any.
type HeldQuotaFn<V> = dyn Fn(&World, &V) -> Option<QuotaHolder> + Send + Sync;

impl<V: View> QuotaStatus<V> {
    /// Creates the controller; `holds` returns what quota an object holds, if any.
    pub fn new(holds: impl Fn(&World, &V) -> Option<QuotaHolder> + Send + Sync + 'static) -> Self {
        Self { held_quota: Arc::new(holds), changes: |_, _| false }
    }

    /// Reconciles also when an object has changed in this way: what it holds depends on other
    /// objects.
    #[must_use]
    pub fn or_on_change(self, changes: fn(&V, &V) -> bool) -> Self {
        Self { changes, ..self }
    }

    fn held_quota(&self, world: &World, object: Option<&V>) -> Option<QuotaHolder> {
        object.and_then(|object| (self.held_quota)(world, object))
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
        if !changes && self.held_quota(world, before) == self.held_quota(world, after) {
            return Vec::new();
        }
        let subtrees = world.store::<Subtree>().list();
        let trees: BTreeSet<&str> = subtrees.iter().filter_map(|it| it.tree()).collect();
        trees.into_iter().map(Key::cluster).collect()
    }

    fn plan(&self, world: &World, key: &Key, _: Timestamp) -> Plan {
        let mut subtrees = world.store::<Subtree>().list();
        subtrees.retain(|subtree| subtree.tree() == Some(key.name()));
        let holders = world.store::<V>().list();
        let holders = holders.iter().filter_map(|object| (self.held_quota)(world, object));
        plan(&subtrees, holders)
    }

    fn min_plan_interval(&self) -> Duration {
        STATUS_WRITE_INTERVAL
    }
}

/// Plans the status writes of the objects of one tree.
fn plan(subtrees: &[Arc<Subtree>], holders: impl Iterator<Item = QuotaHolder>) -> Plan {
    let mut plan = Plan::default();
    let (forest, problems) = Forest::rebuild(subtrees.iter().cloned(), holders);
    for problem in &problems {
        let about = subtrees.iter().find(|subtree| subtree.metadata.key() == problem.object);
        plan.held.extend(about.map(|subtree| held_problem(subtree, problem)));
    }
    for subtree in subtrees {
        plan.held.extend(unreadable_bindings(subtree));
        plan.steps.extend(
            status_write(subtree, &forest.status(subtree)).map(|it| Step::new(it).deferrable()),
        );
    }
    plan
}

/// Returns the write that sets the status of an object, unless it is up to date.
fn status_write(subtree: &Subtree, status: &QuotaSubtreeStatus) -> Option<Write> {
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
        subresource: Subresource::Main,
        fence: subtree.metadata.fence(),
        body: json!({"status": replacement_patch(&subtree.status, new)}),
    })
}

/// Returns a merge patch that removes everything of `old` that `new` lacks.
fn replacement_patch(old: &Value, new: Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (old, &new) else { return new };
    let gone = old.keys().filter(|name| !new.contains_key(*name));
    let mut patch: Map<String, Value> = gone.map(|name| (name.clone(), Value::Null)).collect();
    for (name, value) in new {
        let before = old.get(name).unwrap_or(&Value::Null);
        patch.insert(name.clone(), replacement_patch(before, value.clone()));
    }
    Value::Object(patch)
}

/// Returns what is wrong with the annotation that binds nodes of an object.
fn unreadable_bindings(subtree: &Subtree) -> Option<Held> {
    let error = bindings::read(subtree.bindings()?).err()?;
    Some(Held {
        about: ObjectReference::to(&Subtree::RESOURCE, &subtree.metadata),
        reason: "UnreadableBindings".into(),
        message: format!(
            "annotation {BINDINGS_ANNOTATION} cannot be read, so its nodes cannot be used: {error}"
        ),
        until: None,
    })
}

fn held_problem(subtree: &Subtree, problem: &QuotaProblem) -> Held {
    Held {
        about: ObjectReference::to(&Subtree::RESOURCE, &subtree.metadata),
        reason: problem.fault.reason().into(),
        message: problem.to_string(),
        until: None,
    }
}

#[cfg(test)]
mod tests;
