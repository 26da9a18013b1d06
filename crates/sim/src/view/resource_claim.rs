//! ResourceClaims of dynamic resource allocation, and what they are made from.

use gantry_reconcile::{Meta, Resource, Uid, View};
use serde::Deserialize;
use serde_json::Value;

use super::NodeSelector;

/// A ResourceClaim.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ResourceClaim {
    /// Metadata.
    pub metadata: Meta,
    /// What is wanted.
    pub spec: ResourceClaimSpec,
    /// What is.
    pub status: ResourceClaimStatus,
}

impl View for ResourceClaim {
    const RESOURCE: Resource =
        Resource::namespaced("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim");

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl ResourceClaim {
    /// How many may use a claim at once.
    pub const MOST_CONSUMERS: usize = 256;

    /// Whether it is reserved for the pod of this identity.
    #[must_use]
    pub fn is_reserved_for(&self, pod: &Uid) -> bool {
        self.status.reserved_for.iter().any(|it| it.uid == *pod)
    }
}

/// What is wanted of a ResourceClaim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ResourceClaimSpec {
    /// The devices.
    pub devices: DeviceClaim,
}

/// The devices a claim asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct DeviceClaim {
    /// Each request.
    pub requests: Vec<DeviceRequest>,
}

/// One request for devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceRequest {
    /// Its name in the claim.
    pub name: String,
    /// Exactly this.
    pub exactly: Option<ExactDeviceRequest>,
    /// The first of these that can be had.
    pub first_available: Vec<DeviceSubRequest>,
}

/// A request for devices of one class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExactDeviceRequest {
    /// The DeviceClass.
    pub device_class_name: String,
}

/// One of several ways to fulfil a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceSubRequest {
    /// Its name in the request.
    pub name: String,
    /// The DeviceClass.
    pub device_class_name: String,
}

/// What is true of a ResourceClaim.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceClaimStatus {
    /// What was allocated; absent until then.
    pub allocation: Option<AllocationResult>,
    /// What may use it.
    pub reserved_for: Vec<ClaimConsumer>,
}

/// What was allocated for a claim.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AllocationResult {
    /// From which nodes the devices are reached; from all if absent.
    pub node_selector: Option<NodeSelector>,
    /// The devices.
    pub devices: AllocatedDevices,
}

/// The devices that were allocated for a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct AllocatedDevices {
    /// One for each device.
    pub results: Vec<AllocatedDevice>,
}

/// A device that was allocated for a request of a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct AllocatedDevice {
    /// The request.
    pub request: String,
    /// Whose device it is.
    pub driver: String,
    /// The pool it is in.
    pub pool: String,
    /// The device.
    pub device: String,
}

/// An object that may use a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimConsumer {
    /// Its group; empty for the core group.
    pub api_group: String,
    /// Its kind, as paths have it.
    pub resource: String,
    /// Its name.
    pub name: String,
    /// Its identity.
    pub uid: Uid,
}

/// A ResourceClaimTemplate.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ResourceClaimTemplate {
    /// Metadata.
    pub metadata: Meta,
    /// What claims are made from, as it is written.
    pub spec: Value,
}

impl View for ResourceClaimTemplate {
    const RESOURCE: Resource = Resource::namespaced(
        "resource.k8s.io",
        "v1",
        "resourceclaimtemplates",
        "ResourceClaimTemplate",
    )
    .without_status();

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// A DeviceClass, of which only the name matters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct DeviceClass {
    /// Metadata.
    pub metadata: Meta,
}

impl View for DeviceClass {
    const RESOURCE: Resource =
        Resource::namespaced("resource.k8s.io", "v1", "deviceclasses", "DeviceClass")
            .cluster_wide()
            .without_status();

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}
