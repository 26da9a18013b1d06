//! The claims that pods use: PersistentVolumeClaims and ResourceClaims.

use std::borrow::Cow;

use serde::Deserialize;

use super::{ConfigMapVolume, DownwardVolume, ProjectedVolume, SecretVolume};

/// A volume of a pod: what it is made of, as far as somebody decides by it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Volume {
    /// Its name in the pod.
    pub name: String,
    /// The claim it is, if it is one.
    pub persistent_volume_claim: Option<ClaimSource>,
    /// The claim that is made for it, if there is to be one.
    pub ephemeral: Option<EphemeralSource>,
    /// The Secret it is made of, if it is.
    pub secret: Option<Box<SecretVolume>>,
    /// The ConfigMap it is made of, if it is.
    pub config_map: Option<Box<ConfigMapVolume>>,
    /// The fields of the pod it is made of, if it is.
    #[serde(rename = "downwardAPI")]
    pub downward_api: Option<Box<DownwardVolume>>,
    /// The sources it is made of, if there are several.
    pub projected: Option<Box<ProjectedVolume>>,
    /// An empty directory, if it is one.
    pub empty_dir: Option<EmptyDir>,
}

/// A volume that is an empty directory at first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct EmptyDir {}

/// A volume that is a PersistentVolumeClaim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimSource {
    /// The claim.
    pub claim_name: String,
}

/// A generic ephemeral volume: a PersistentVolumeClaim that belongs to the pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EphemeralSource {
    /// What the claim is made from, as it is written.
    pub volume_claim_template: serde_json::Value,
}

/// A PersistentVolumeClaim that a pod uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsedClaim<'a> {
    /// The name of the volume in the pod.
    pub volume: &'a str,
    /// The name of the claim, in the namespace of the pod.
    pub claim: Cow<'a, str>,
    /// Whether the claim is made for the pod and belongs to it.
    pub ephemeral: bool,
}

/// A ResourceClaim that a pod uses: one of the two names says which.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodResourceClaim {
    /// Its name in the pod.
    pub name: String,
    /// The claim, if somebody else makes it.
    pub resource_claim_name: Option<String>,
    /// The template, if a claim is made for the pod.
    pub resource_claim_template_name: Option<String>,
}

/// Which claim was made for a pod from a template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodResourceClaimStatus {
    /// The name in the pod.
    pub name: String,
    /// The claim; absent if none is needed.
    pub resource_claim_name: Option<String>,
}
