//! PersistentVolumeClaims, PersistentVolumes and StorageClasses.

use std::collections::BTreeMap;

use gantry_reconcile::world::IndexValue;
use gantry_reconcile::{Meta, Resource, Selector, Uid, View};
use serde::Deserialize;
use serde_json::Value;

use super::{NodeSelector, ResourceList};

/// The annotation that named the StorageClass before there was a field for it.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

/// A PersistentVolumeClaim.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PersistentVolumeClaim {
    /// Metadata.
    pub metadata: Meta,
    /// The desired state.
    pub spec: PersistentVolumeClaimSpec,
    /// The observed state.
    pub status: PersistentVolumeClaimStatus,
}

impl View for PersistentVolumeClaim {
    const RESOURCE: Resource =
        Resource::namespaced("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim");

    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn index_values(&self) -> Vec<IndexValue> {
        let owner = self.metadata.controller().map(|owner| IndexValue::owner(&owner.uid));
        let volume = Some(&self.spec.volume_name).filter(|it| !it.is_empty());
        let class = self.class().map(Self::of_class);
        owner.into_iter().chain(volume.map(|it| Self::of_volume(it))).chain(class).collect()
    }
}

impl PersistentVolumeClaim {
    /// Returns the index value of the claims that name a volume.
    #[must_use]
    pub fn of_volume(volume: &str) -> IndexValue {
        IndexValue { index: "volume", value: volume.to_owned() }
    }

    /// Returns the index value of the claims of a StorageClass.
    #[must_use]
    pub fn of_class(class: &str) -> IndexValue {
        IndexValue { index: "class", value: class.to_owned() }
    }

    /// Returns the StorageClass; empty if there is to be none, `None` if it is not set.
    #[must_use]
    pub fn class(&self) -> Option<&str> {
        let annotation = self.metadata.annotations.get(CLASS_ANNOTATION);
        annotation.or(self.spec.storage_class_name.as_ref()).map(String::as_str)
    }

    /// Returns whether it is bound and the binder has finished.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        self.status.phase == "Bound" && !self.spec.volume_name.is_empty()
    }
}

/// The spec of a PersistentVolumeClaim.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeClaimSpec {
    /// The requested access modes.
    pub access_modes: Vec<String>,
    /// The selector of matching volumes.
    pub selector: Option<Selector>,
    /// The requested capacity.
    pub resources: super::ResourceRequirements,
    /// The volume it is bound to; empty until then.
    pub volume_name: String,
    /// The StorageClass.
    pub storage_class_name: Option<String>,
    /// `Filesystem` or `Block`.
    pub volume_mode: String,
}

/// The status of a PersistentVolumeClaim.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeClaimStatus {
    /// `Pending`, `Bound` or `Lost`; empty for a new one.
    pub phase: String,
    /// The access modes of the volume.
    pub access_modes: Vec<String>,
    /// The capacity of the volume.
    pub capacity: ResourceList,
}

/// A PersistentVolume.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PersistentVolume {
    /// Metadata.
    pub metadata: Meta,
    /// The desired state.
    pub spec: PersistentVolumeSpec,
    /// The observed state.
    pub status: PersistentVolumeStatus,
}

impl View for PersistentVolume {
    const RESOURCE: Resource =
        Resource::namespaced("", "v1", "persistentvolumes", "PersistentVolume").cluster_scoped();

    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn index_values(&self) -> Vec<IndexValue> {
        let class = Some(Self::of_class(self.class()));
        let claim = self.spec.claim_ref.as_ref().map(|it| Self::of_claim(&it.namespace, &it.name));
        class.into_iter().chain(claim).collect()
    }
}

impl PersistentVolume {
    /// Returns the index value of the volumes of a StorageClass.
    #[must_use]
    pub fn of_class(class: &str) -> IndexValue {
        IndexValue { index: "class", value: class.to_owned() }
    }

    /// Returns the index value of the volumes that are bound to a claim, or reserved for it.
    #[must_use]
    pub fn of_claim(namespace: &str, name: &str) -> IndexValue {
        IndexValue { index: "claim", value: format!("{namespace}/{name}") }
    }

    /// Returns the StorageClass; empty for none.
    #[must_use]
    pub fn class(&self) -> &str {
        let annotation = self.metadata.annotations.get(CLASS_ANNOTATION);
        annotation.map_or(self.spec.storage_class_name.as_str(), String::as_str)
    }

    /// Returns whether it is reserved for a claim of this name, with any UID if it has none.
    #[must_use]
    pub fn is_reserved_for(&self, claim: &Meta) -> bool {
        self.spec.claim_ref.as_ref().is_some_and(|it| {
            it.namespace == claim.namespace
                && it.name == claim.name
                && (it.uid.as_str().is_empty() || it.uid == claim.uid)
        })
    }
}

/// The spec of a PersistentVolume.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeSpec {
    /// The access modes.
    pub access_modes: Vec<String>,
    /// The capacity.
    pub capacity: ResourceList,
    /// The claim it is bound to or reserved for.
    pub claim_ref: Option<ClaimReference>,
    /// What happens to it when its claim is deleted.
    pub persistent_volume_reclaim_policy: ReclaimPolicy,
    /// The StorageClass.
    pub storage_class_name: String,
    /// `Filesystem` or `Block`.
    pub volume_mode: String,
    /// The nodes that can access it.
    pub node_affinity: VolumeNodeAffinity,
    /// The CSI source, unparsed, if there is one.
    pub csi: Option<Value>,
}

/// The nodes that can access a volume.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct VolumeNodeAffinity {
    /// The required nodes; all if absent.
    pub required: Option<NodeSelector>,
}

/// The claim a volume is bound to or reserved for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ClaimReference {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID; empty if any claim of that name matches.
    pub uid: Uid,
}

/// What happens to a volume when its claim is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum ReclaimPolicy {
    /// The volume is deleted.
    Delete,
    /// The volume is emptied and available again; deprecated and not implemented.
    Recycle,
    /// The volume is kept.
    #[default]
    Retain,
}

/// The status of a PersistentVolume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PersistentVolumeStatus {
    /// `Pending`, `Available`, `Bound`, `Released` or `Failed`; empty for a new one.
    pub phase: String,
    /// The message.
    pub message: String,
    /// The reason.
    pub reason: String,
}

/// A StorageClass.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StorageClass {
    /// Metadata.
    pub metadata: Meta,
    /// The provisioner of its volumes.
    pub provisioner: String,
    /// What happens to a volume when its claim is deleted; `Delete` if absent.
    pub reclaim_policy: Option<ReclaimPolicy>,
    /// When claims are bound.
    pub volume_binding_mode: VolumeBindingMode,
    /// Options volumes are mounted with.
    pub mount_options: Vec<String>,
    /// The parameters of the provisioner.
    pub parameters: BTreeMap<String, String>,
    /// The allowed topologies, unparsed.
    pub allowed_topologies: Vec<Value>,
}

impl View for StorageClass {
    const RESOURCE: Resource =
        Resource::namespaced("storage.k8s.io", "v1", "storageclasses", "StorageClass")
            .cluster_scoped()
            .without_status();

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// When claims of a StorageClass are bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum VolumeBindingMode {
    /// Immediately.
    #[default]
    Immediate,
    /// When a pod that uses them is scheduled.
    WaitForFirstConsumer,
}
