//! The claims that pods use: PersistentVolumeClaims and ResourceClaims.

use std::borrow::Cow;

use serde::Deserialize;

use super::{
    ConfigMapVolumeSource, DownwardApiVolumeSource, ProjectedVolumeSource, SecretVolumeSource,
};

/// A volume of a pod, with the sources that a controller decides by.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Volume {
    /// Its name in the pod.
    pub name: String,
    /// The PersistentVolumeClaim it refers to, if any.
    pub persistent_volume_claim: Option<PersistentVolumeClaimSource>,
    /// The template of the claim that is created for it, if any.
    pub ephemeral: Option<EphemeralVolumeSource>,
    /// The Secret it contains, if any.
    pub secret: Option<Box<SecretVolumeSource>>,
    /// The ConfigMap it contains, if any.
    pub config_map: Option<Box<ConfigMapVolumeSource>>,
    /// The fields of the pod it contains, if any.
    #[serde(rename = "downwardAPI")]
    pub downward_api: Option<Box<DownwardApiVolumeSource>>,
    /// The sources it combines, if there are several.
    pub projected: Option<Box<ProjectedVolumeSource>>,
    /// An empty directory, if it is one.
    pub empty_dir: Option<EmptyDir>,
    /// The directory of the node it is, if any.
    pub host_path: Option<HostPath>,
}

/// A volume that is a directory of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct HostPath {
    /// The directory.
    pub path: String,
}

/// A volume that starts as an empty directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct EmptyDir {}

/// A volume that refers to a PersistentVolumeClaim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeClaimSource {
    /// The claim.
    pub claim_name: String,
}

/// A generic ephemeral volume: a PersistentVolumeClaim that belongs to the pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EphemeralVolumeSource {
    /// The template of the claim, as it is written.
    pub volume_claim_template: serde_json::Value,
}

/// A PersistentVolumeClaim that a pod uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsedVolumeClaim<'a> {
    /// The name of the volume in the pod.
    pub volume: &'a str,
    /// The name of the claim, in the namespace of the pod.
    pub claim: Cow<'a, str>,
    /// Whether the claim is created for the pod and owned by it.
    pub ephemeral: bool,
}

/// A ResourceClaim that a pod uses, given by one of the two names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodResourceClaim {
    /// Its name in the pod.
    pub name: String,
    /// The claim, if it is created independently of the pod.
    pub resource_claim_name: Option<String>,
    /// The template, if a claim is created for the pod.
    pub resource_claim_template_name: Option<String>,
}

/// The claim that was created for a pod from a template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodResourceClaimStatus {
    /// The name in the pod.
    pub name: String,
    /// The claim; absent if none is needed.
    pub resource_claim_name: Option<String>,
}
