//! PersistentVolumeClaims, PersistentVolumes and StorageClasses.

use std::collections::BTreeMap;

use gantry_reconcile::world::Tag;
use gantry_reconcile::{Meta, Resource, Selector, Uid, View};
use serde::Deserialize;
use serde_json::Value;

use super::{Amounts, NodeSelector};

/// The annotation that named the StorageClass before there was a field for it.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

/// A PersistentVolumeClaim.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PersistentVolumeClaim {
    /// Metadata.
    pub metadata: Meta,
    /// What is wanted.
    pub spec: VolumeClaimSpec,
    /// What is.
    pub status: VolumeClaimStatus,
}

impl View for PersistentVolumeClaim {
    const RESOURCE: Resource =
        Resource::namespaced("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim");

    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn tags(&self) -> Vec<Tag> {
        let owner = self.metadata.controller().map(|owner| Tag::owner(&owner.uid));
        let volume = Some(&self.spec.volume_name).filter(|it| !it.is_empty());
        let class = self.class().map(Self::of_class);
        owner.into_iter().chain(volume.map(|it| Self::of_volume(it))).chain(class).collect()
    }
}

impl PersistentVolumeClaim {
    /// What the claims that name a volume are filed under.
    #[must_use]
    pub fn of_volume(volume: &str) -> Tag {
        Tag { index: "volume", value: volume.to_owned() }
    }

    /// What the claims of a StorageClass are filed under.
    #[must_use]
    pub fn of_class(class: &str) -> Tag {
        Tag { index: "class", value: class.to_owned() }
    }

    /// The StorageClass; empty if there is to be none, absent if none is named.
    #[must_use]
    pub fn class(&self) -> Option<&str> {
        let annotation = self.metadata.annotations.get(CLASS_ANNOTATION);
        annotation.or(self.spec.storage_class_name.as_ref()).map(String::as_str)
    }

    /// Whether it is bound and the binder has finished.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        self.status.phase == "Bound" && !self.spec.volume_name.is_empty()
    }
}

/// What is wanted of a PersistentVolumeClaim.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeClaimSpec {
    /// In which ways the volume is used.
    pub access_modes: Vec<String>,
    /// Which volumes will do.
    pub selector: Option<Selector>,
    /// How much is wanted.
    pub resources: super::Resources,
    /// The volume it is bound to; empty until then.
    pub volume_name: String,
    /// The StorageClass.
    pub storage_class_name: Option<String>,
    /// `Filesystem` or `Block`.
    pub volume_mode: String,
}

/// What is true of a PersistentVolumeClaim.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeClaimStatus {
    /// `Pending`, `Bound` or `Lost`; empty for one that is new.
    pub phase: String,
    /// In which ways the volume may be used.
    pub access_modes: Vec<String>,
    /// How much the volume has.
    pub capacity: Amounts,
}

/// A PersistentVolume.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PersistentVolume {
    /// Metadata.
    pub metadata: Meta,
    /// What is wanted.
    pub spec: PersistentVolumeSpec,
    /// What is.
    pub status: PersistentVolumeStatus,
}

impl View for PersistentVolume {
    const RESOURCE: Resource =
        Resource::namespaced("", "v1", "persistentvolumes", "PersistentVolume").cluster_wide();

    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn tags(&self) -> Vec<Tag> {
        let class = Some(Self::of_class(self.class()));
        let claim = self.spec.claim_ref.as_ref().map(|it| Self::of_claim(&it.namespace, &it.name));
        class.into_iter().chain(claim).collect()
    }
}

impl PersistentVolume {
    /// What the volumes of a StorageClass are filed under.
    #[must_use]
    pub fn of_class(class: &str) -> Tag {
        Tag { index: "class", value: class.to_owned() }
    }

    /// What the volumes that are bound to a claim, or reserved for it, are filed under.
    #[must_use]
    pub fn of_claim(namespace: &str, name: &str) -> Tag {
        Tag { index: "claim", value: format!("{namespace}/{name}") }
    }

    /// The StorageClass; empty for none.
    #[must_use]
    pub fn class(&self) -> &str {
        let annotation = self.metadata.annotations.get(CLASS_ANNOTATION);
        annotation.map_or(self.spec.storage_class_name.as_str(), String::as_str)
    }

    /// Whether it is reserved for a claim of this name, of whatever identity if it says none.
    #[must_use]
    pub fn is_for(&self, claim: &Meta) -> bool {
        self.spec.claim_ref.as_ref().is_some_and(|it| {
            it.namespace == claim.namespace
                && it.name == claim.name
                && (it.uid.as_str().is_empty() || it.uid == claim.uid)
        })
    }
}

/// What is wanted of a PersistentVolume.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeSpec {
    /// In which ways it may be used.
    pub access_modes: Vec<String>,
    /// How much it has.
    pub capacity: Amounts,
    /// The claim it is bound to or reserved for.
    pub claim_ref: Option<ClaimReference>,
    /// What becomes of it after its claim.
    pub persistent_volume_reclaim_policy: ReclaimPolicy,
    /// The StorageClass.
    pub storage_class_name: String,
    /// `Filesystem` or `Block`.
    pub volume_mode: String,
    /// From which nodes it is reached.
    pub node_affinity: VolumeNodeAffinity,
    /// The driver that serves it, as it is written, if one does.
    pub csi: Option<Value>,
}

/// From which nodes a volume is reached.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct VolumeNodeAffinity {
    /// From these; from all if absent.
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
    /// Its identity; empty if any claim of that name will do.
    pub uid: Uid,
}

/// What becomes of a volume after its claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum ReclaimPolicy {
    /// It goes too.
    Delete,
    /// It is emptied and free again; nobody does that any more.
    Recycle,
    /// It stays.
    #[default]
    Retain,
}

/// What is true of a PersistentVolume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PersistentVolumeStatus {
    /// `Pending`, `Available`, `Bound`, `Released` or `Failed`; empty for one that is new.
    pub phase: String,
    /// Why.
    pub message: String,
    /// Why, in one word.
    pub reason: String,
}

/// A StorageClass.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StorageClass {
    /// Metadata.
    pub metadata: Meta,
    /// What makes volumes of it.
    pub provisioner: String,
    /// What becomes of a volume after its claim; `Delete` if absent.
    pub reclaim_policy: Option<ReclaimPolicy>,
    /// When claims are bound.
    pub volume_binding_mode: BindingMode,
    /// Options volumes are mounted with.
    pub mount_options: Vec<String>,
    /// What the provisioner is told.
    pub parameters: BTreeMap<String, String>,
    /// Where volumes may be, as it is written.
    pub allowed_topologies: Vec<Value>,
}

impl View for StorageClass {
    const RESOURCE: Resource =
        Resource::namespaced("storage.k8s.io", "v1", "storageclasses", "StorageClass")
            .cluster_wide()
            .without_status();

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// When claims of a StorageClass are bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum BindingMode {
    /// At once.
    #[default]
    Immediate,
    /// When a pod that uses them is scheduled.
    WaitForFirstConsumer,
}
