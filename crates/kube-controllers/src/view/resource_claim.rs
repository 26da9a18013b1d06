//! ResourceClaims of dynamic resource allocation, and their templates and classes.

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
    /// The desired state.
    pub spec: ResourceClaimSpec,
    /// The observed state.
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
    /// The most consumers of a claim.
    pub const MAX_CONSUMERS: usize = 256;

    /// Returns whether it is reserved for the pod with this UID.
    #[must_use]
    pub fn is_reserved_for(&self, pod: &Uid) -> bool {
        self.status.reserved_for.iter().any(|it| it.uid == *pod)
    }
}

/// The spec of a ResourceClaim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ResourceClaimSpec {
    /// The requested devices.
    pub devices: DeviceClaim,
}

/// The devices a claim requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct DeviceClaim {
    /// The requests.
    pub requests: Vec<DeviceRequest>,
}

/// One request for devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceRequest {
    /// Its name in the claim.
    pub name: String,
    /// The one way to fulfil the request.
    pub exactly: Option<ExactDeviceRequest>,
    /// The alternatives; the first that is available is used.
    pub first_available: Vec<DeviceSubRequest>,
}

/// A request for devices of one class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExactDeviceRequest {
    /// The DeviceClass.
    pub device_class_name: String,
}

/// One of several alternatives to fulfil a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceSubRequest {
    /// Its name in the request.
    pub name: String,
    /// The DeviceClass.
    pub device_class_name: String,
}

/// The status of a ResourceClaim.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceClaimStatus {
    /// The allocation; `None` until then.
    pub allocation: Option<AllocationResult>,
    /// The consumers of the claim.
    pub reserved_for: Vec<ClaimConsumer>,
}

/// The allocation of a claim.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AllocationResult {
    /// The nodes that can access the devices; all if absent.
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
    /// The driver of the device.
    pub driver: String,
    /// The pool it is in.
    pub pool: String,
    /// The device.
    pub device: String,
}

/// An object that uses a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimConsumer {
    /// Its group; empty for the core group.
    pub api_group: String,
    /// Its kind, as paths have it.
    pub resource: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: Uid,
}

/// A ResourceClaimTemplate.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ResourceClaimTemplate {
    /// Metadata.
    pub metadata: Meta,
    /// The spec of the claims, unparsed.
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
            .cluster_scoped()
            .without_status();

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}
