//! What is told about the claims of a file. Fields are in the order in which they are printed.

use gantry_api::devices::{AccessMode, TopologyAssignment};
use gantry_api::quantity::Quantity;
use serde::Serialize;

/// What was found on a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FileResult {
    /// For the pod, then for each of its containers.
    pub capacity_claim_results: Vec<CapacityClaimResult>,
    /// Name of the node.
    pub node_name: String,
    /// From 1 to 100; 0 if not all claims are satisfied.
    #[serde(skip)]
    pub score: u32,
    /// Whether they are.
    #[serde(skip)]
    pub standing: Standing,
}

/// What became of the claims of a pod on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// All are satisfied.
    #[default]
    Succeeded,
    /// Some are not.
    Failed,
    /// The search ended before it knew.
    Undecided,
}

/// What was found for a pod or a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CapacityClaimResult {
    /// Its name.
    pub claim_name: String,
    /// For each of its claims.
    pub device_claim_results: Vec<FileClaimResult>,
    /// From 1 to 100; 0 if not all are satisfied.
    #[serde(skip)]
    pub score: u32,
}

/// What was found for a claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FileClaimResult {
    /// The pool that serves it, by place in `pool_results`; -1 if none does.
    pub best: i64,
    /// Its name.
    pub claim_name: String,
    /// Why none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// For each pool of the node.
    pub pool_results: Vec<FilePoolResult>,
    /// From 1 to 100; 0 if it is not satisfied.
    #[serde(skip)]
    pub score: u32,
}

/// What a pool has for a claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FilePoolResult {
    /// The device that serves it, or would, by place in `device_results`; -1 if none does.
    pub best: i64,
    /// For each device; none if they were not looked at.
    pub device_results: Option<Vec<DeviceResult>>,
    /// Why the pool has nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// Name of the pool.
    pub pool_name: String,
    /// The score of its best device.
    #[serde(skip)]
    pub score: u32,
}

/// What a device has for a claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceResult {
    /// For each request, in parts if it is split; none if they were not looked at.
    pub capacity_results: Option<Vec<CapacityResult>>,
    /// Name of the device.
    pub device_name: String,
    /// Why it does not serve the claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// From 1 to 100; 0 if it does not.
    pub score: u32,
}

/// What a device gives to a request, or would have to.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CapacityResult {
    /// Access to the device, as it is granted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_mode: Option<Asked<AccessMode>>,
    /// The capacity.
    pub capacity: String,
    /// A whole number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counter: Option<Asked<i64>>,
    /// Why it cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// An amount, rounded as it is handed out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantity: Option<Asked<Quantity>>,
    /// Where it is taken from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub topologies: Vec<TopologyAssignment>,
}

/// An amount, in the place where files write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Asked<T> {
    /// The amount.
    pub request: T,
}
