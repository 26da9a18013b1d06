//! Persistent volumes: claims are bound to volumes, volumes are provisioned for claims, and neither
//! is deleted while it is in use.
//!
//! - [`ClaimBinder`] and [`VolumeBinder`] bind claims to volumes, set the phase of volumes and
//!   reclaim them (persistentvolume-binder);
//! - [`VolumeProvisioner`] provisions simulated volumes for claims of its StorageClasses, and
//!   deletes them (an external provisioner);
//! - [`PvcProtectionController`] and [`PvProtectionController`] release deleted claims and volumes
//!   when nothing uses them (pvc-protection, pv-protection);
//! - [`EphemeralVolumeController`] creates the claims of generic ephemeral volumes
//!   (ephemeral-volume).
//!
//! Simulated volumes hold no data and are accessible from every node.

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
pub use ephemeral::EphemeralVolumeController;
pub use protection::{PvProtectionController, PvcProtectionController};
pub use provisioner::{PROVISIONER, VolumeProvisioner, default_class};
pub use volume::VolumeBinder;

use gantry_reconcile::{Meta, Subresource, View, Write};
use serde_json::{Value, json};

use crate::view::PersistentVolumeClaim;

/// Names of annotations.
pub(crate) mod annotation {
    /// The binding of a claim is complete.
    pub(crate) const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
    /// The binder selected the other side of a binding, and may undo it.
    pub(crate) const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
    /// The provisioner that created a volume.
    pub(crate) const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
    /// The provisioner that is to create a volume for a claim.
    pub(crate) const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
    /// The same for provisioners that only know the beta name.
    pub(crate) const BETA_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";
    /// The node that was selected for the first pod that uses a claim.
    pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
}

/// The name of the resource that volumes have and claims request.
const STORAGE_RESOURCE: &str = "storage";

/// Returns the reference to a claim, as the volumes that are bound to it spell it.
pub(crate) fn claim_reference(claim: &PersistentVolumeClaim) -> Value {
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

/// Patches fields of an object, fenced by its observed revision.
pub(crate) fn object_patch<V: View>(meta: &Meta, part: Subresource, body: Value) -> Write {
    Write::Merge {
        resource: V::RESOURCE,
        key: meta.key(),
        subresource: part,
        fence: meta.fence(),
        body,
    }
}
