//! Ownership: adopts matching orphans, and releases what no longer matches.

use std::sync::Arc;

use gantry_reconcile::object::controller_reference;
use gantry_reconcile::{Meta, ObjectReference, OwnerReference, Step, View, Write};
use serde_json::{Value, json};

use super::writes;

/// The objects of an owner, and the writes that adopt and release.
#[derive(Debug)]
pub(super) struct ClaimedObjects<V> {
    /// The objects it controls and matches.
    pub(super) owned: Vec<Arc<V>>,
    /// The adoptions and releases.
    pub(super) steps: Vec<Step>,
}

impl<V> Default for ClaimedObjects<V> {
    fn default() -> Self {
        Self { owned: Vec::new(), steps: Vec::new() }
    }
}

impl<V: View> ClaimedObjects<V> {
    /// Returns which of `owned`, which `owner` controls, and of `orphans` belong to it: all that it
    /// `means`.
    ///
    /// An owner that is being deleted adopts and releases nothing, and nothing that is being
    /// deleted is adopted.
    pub(super) fn of<O: View>(
        owner: &Meta,
        means: impl Fn(&V) -> bool,
        owned: Vec<Arc<V>>,
        orphans: Vec<Arc<V>>,
    ) -> Self {
        let mut claim = Self::default();
        for object in owned {
            if means(&object) {
                claim.owned.push(object);
            } else if !owner.is_terminating() {
                let meta = object.meta();
                let others = meta.owner_references.iter().filter(|it| it.uid != owner.uid);
                let others: Vec<Value> = others.map(owner_reference).collect();
                claim.steps.push(Step::new(owners_patch::<V>(meta, others)));
            }
        }
        for object in orphans {
            let meta = object.meta();
            if owner.is_terminating() || meta.is_terminating() || !means(&object) {
                continue;
            }
            let others = meta.owner_references.iter().filter(|it| it.uid != owner.uid);
            let mut all: Vec<Value> = others.map(owner_reference).collect();
            all.push(controller_reference(&O::RESOURCE, owner));
            // An object that was orphaned by a deleted owner must not be adopted again with an
            // outdated view of that owner: it would be deleted with it.
            let owner = ObjectReference::to(&O::RESOURCE, owner);
            claim.steps.push(Step::new(owners_patch::<V>(meta, all)).require_present(owner));
        }
        claim
    }
}

fn owners_patch<V: View>(meta: &Meta, owners: Vec<Value>) -> Write {
    let owners = if owners.is_empty() { Value::Null } else { Value::Array(owners) };
    writes::patch::<V>(meta, json!({"metadata": {"ownerReferences": owners}}))
}

/// Returns an owner reference as objects spell it.
pub(super) fn owner_reference(owner: &OwnerReference) -> Value {
    let mut reference = json!({
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": owner.name,
        "uid": owner.uid.as_str(),
    });
    for (field, value) in
        [("controller", owner.controller), ("blockOwnerDeletion", owner.block_owner_deletion)]
    {
        if value {
            reference[field] = json!(true);
        }
    }
    reference
}
