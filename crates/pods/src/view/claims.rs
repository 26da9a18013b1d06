//! The claims that pods use: PersistentVolumeClaims and ResourceClaims.

use std::borrow::Cow;

use serde::Deserialize;

/// A volume of a pod. Only those that need a PersistentVolumeClaim matter here.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Volume {
    /// Its name in the pod.
    pub name: String,
    /// The claim it is, if it is one.
    pub persistent_volume_claim: Option<ClaimSource>,
    /// The claim that is made for it, if there is to be one.
    pub ephemeral: Option<EphemeralSource>,
}

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
