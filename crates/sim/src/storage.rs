//! Persistent volumes: claims are bound to volumes, volumes are made for claims, and neither goes while
//! it is used.
//!
//! | controller | what it does | its original |
//! |---|---|---|
//! | [`ClaimBinder`], [`VolumeBinder`] | bind claims to volumes; say how volumes are; reclaim them | persistentvolume-binder |
//! | [`Provisioner`] | makes simulated volumes for claims of its StorageClasses, and deletes them | an external provisioner |
//! | [`ClaimProtection`], [`VolumeProtection`] | let deleted claims and volumes go when nothing uses them | pvc-protection, pv-protection |
//! | [`EphemeralClaims`] | makes the claims of generic ephemeral volumes | ephemeral-volume |
//!
//! Simulated volumes hold no data and are reached from every node.

mod claim;
#[cfg(test)]
mod convergence;
mod ephemeral;
pub(crate) mod matching;
mod protection;
mod provisioner;
#[cfg(test)]
mod tests;
mod volume;

pub use claim::ClaimBinder;
pub use ephemeral::EphemeralClaims;
pub use protection::{ClaimProtection, VolumeProtection};
pub use provisioner::{PROVISIONER, Provisioner, default_class};
pub use volume::VolumeBinder;

use gantry_reconcile::{Meta, Part, View, Write};
use serde_json::{Value, json};

use crate::view::PersistentVolumeClaim;

/// Names of annotations.
pub(crate) mod annotation {
    /// Says that the binding of a claim is complete.
    pub(crate) const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
    /// Says that the binder chose the other side of a binding, and may undo it.
    pub(crate) const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
    /// Which provisioner made a volume.
    pub(crate) const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
    /// Which provisioner is to make a volume for a claim.
    pub(crate) const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
    /// The same for provisioners that have not learned the new name.
    pub(crate) const OLD_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";
    /// The node that was chosen for the first pod that uses a claim.
    pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
}

/// The name of the amount that volumes have and claims want.
const STORAGE: &str = "storage";

/// A claim as the volumes that are bound to it spell it.
pub(crate) fn reference_to(claim: &PersistentVolumeClaim) -> Value {
    let meta = &claim.metadata;
    json!({
        "kind": PersistentVolumeClaim::RESOURCE.kind,
        "apiVersion": "v1",
        "namespace": meta.namespace,
        "name": meta.name,
        "uid": meta.uid.as_str(),
        "resourceVersion": meta.resource_version.0.to_string(),
    })
}

/// Changes fields of an object, fenced by what was seen of it.
pub(crate) fn change<V: View>(meta: &Meta, part: Part, body: Value) -> Write {
    Write::Merge { resource: V::RESOURCE, key: meta.key(), part, fence: meta.fence(), body }
}
