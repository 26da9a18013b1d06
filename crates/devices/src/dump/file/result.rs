//! The results for the claims of a file. Fields are in the order in which they are printed.

use gantry_api::devices::{AccessMode, TopologyAssignment};
use gantry_api::quantity::Quantity;
use serde::Serialize;

/// The result for a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FileResult {
    /// The results for the pod, then for each of its containers.
    pub capacity_claim_results: Vec<CapacityClaimResult>,
    /// Name of the node.
    pub node_name: String,
    /// The score, from 1 to 100; 0 if not all claims are satisfied.
    #[serde(skip)]
    pub score: u32,
    /// Whether all claims are satisfied.
    #[serde(skip)]
    pub outcome: FileOutcome,
}

/// The outcome of the claims of a pod on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileOutcome {
    /// All are satisfied.
    #[default]
    Succeeded,
    /// Some are not.
    Failed,
    /// The search ended without a result.
    Undecided,
}

/// The result for a pod or a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CapacityClaimResult {
    /// Its name.
    pub claim_name: String,
    /// The result for each of its claims.
    pub device_claim_results: Vec<FileClaimResult>,
    /// The score, from 1 to 100; 0 if not all are satisfied.
    #[serde(skip)]
    pub score: u32,
}

/// The result for a claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FileClaimResult {
    /// The pool that serves it, by its index in `pool_results`; -1 if none does.
    pub best: i64,
    /// Its name.
    pub claim_name: String,
    /// Why none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// The result for each pool of the node.
    pub pool_results: Vec<FilePoolResult>,
    /// The score, from 1 to 100; 0 if it is not satisfied.
    #[serde(skip)]
    pub score: u32,
}

/// What a pool offers for a claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FilePoolResult {
    /// The device that serves it, or would, by its index in `device_results`; -1 if none does.
    pub best: i64,
    /// The result for each device; `None` if they were not checked.
    pub device_results: Option<Vec<DeviceResult>>,
    /// Why the pool offers nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// Name of the pool.
    pub pool_name: String,
    /// The score of its best device.
    #[serde(skip)]
    pub score: u32,
}

/// What a device offers for a claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceResult {
    /// The result for each request, in parts if it is split; `None` if they were not checked.
    pub capacity_results: Option<Vec<CapacityResult>>,
    /// Name of the device.
    pub device_name: String,
    /// Why it does not serve the claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// The score, from 1 to 100; 0 if it does not serve the claim.
    pub score: u32,
}

/// What a device gives to a request, or would have to.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CapacityResult {
    /// Access to the device, as it is granted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_mode: Option<RequestedAmount<AccessMode>>,
    /// The capacity.
    pub capacity: String,
    /// An integer amount.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counter: Option<RequestedAmount<i64>>,
    /// Why it cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// An amount, rounded as it is allocated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantity: Option<RequestedAmount<Quantity>>,
    /// The topology domains it is taken from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub topologies: Vec<TopologyAssignment>,
}

/// An amount, at the field where files write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RequestedAmount<T> {
    /// The amount.
    pub request: T,
}
