//! Whose an object is: adopting what fits and nobody controls, giving up what fits no more.

use std::sync::Arc;

use gantry_reconcile::object::controlled_by;
use gantry_reconcile::{Meta, Owner, Reference, Step, View, Write};
use serde_json::{Value, json};

use super::writes;

/// What belongs to an object, and what must be written to make that so.
#[derive(Debug)]
pub(super) struct Claim<V> {
    /// What it controls and means.
    pub(super) mine: Vec<Arc<V>>,
    /// Adoptions and releases.
    pub(super) steps: Vec<Step>,
}

impl<V> Default for Claim<V> {
    fn default() -> Self {
        Self { mine: Vec::new(), steps: Vec::new() }
    }
}

impl<V: View> Claim<V> {
    /// What of `owned`, which `owner` controls, and of `orphans` belongs to it: all that it `means`.
    ///
    /// An owner that is going adopts and releases nothing, and nothing that is going is adopted.
    pub(super) fn of<O: View>(
        owner: &Meta,
        means: impl Fn(&V) -> bool,
        owned: Vec<Arc<V>>,
        orphans: Vec<Arc<V>>,
    ) -> Self {
        let mut claim = Self::default();
        for object in owned {
            if means(&object) {
                claim.mine.push(object);
            } else if !owner.is_going() {
                let meta = object.meta();
                let others = meta.owner_references.iter().filter(|it| it.uid != owner.uid);
                let others: Vec<Value> = others.map(reference).collect();
                claim.steps.push(Step::new(owners::<V>(meta, others)));
            }
        }
        for object in orphans {
            let meta = object.meta();
            if owner.is_going() || meta.is_going() || !means(&object) {
                continue;
            }
            let others = meta.owner_references.iter().filter(|it| it.uid != owner.uid);
            let mut all: Vec<Value> = others.map(reference).collect();
            all.push(controlled_by(&O::RESOURCE, owner));
            // What was let go by an owner that is deleted must not be taken back by those who do not
            // know of that yet: it would be deleted with it.
            let owner = Reference::to(&O::RESOURCE, owner);
            claim.steps.push(Step::new(owners::<V>(meta, all)).provided(owner));
        }
        claim
    }
}

fn owners<V: View>(meta: &Meta, owners: Vec<Value>) -> Write {
    let owners = if owners.is_empty() { Value::Null } else { Value::Array(owners) };
    writes::change::<V>(meta, json!({"metadata": {"ownerReferences": owners}}))
}

/// An owner as objects spell it.
pub(super) fn reference(owner: &Owner) -> Value {
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
