//! Statuses of claims: the allocated devices, their pools, and the pods that use them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::NodeSelector;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{AccessMode, TopologyAssignment};
use crate::kubernetes;
use crate::quantity::Quantity;

/// What a claim got.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimStatus {
    /// The devices the claim holds: one entry per device, or one per pool for pools that only count
    /// theirs. Written by the scheduler; while it is not empty, the spec cannot change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allocations: Vec<DeviceAllocation>,
    /// The node the devices are on. Absent if every node reaches them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// The nodes that reach the devices, when none of them is bound to a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "kubernetes::node_selector")]
    pub node_selector: Option<NodeSelector>,
    /// For each entry of the claim with `oneOf`, the place of the alternative that was taken,
    /// counted from 0.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub selected: BTreeMap<String, u32>,
    /// What the objects named by the classes' `configs` said when the claim was allocated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "snapshots")]
    pub class_configs: Vec<Value>,
    /// What the objects named by the claim's `configs` said when it was allocated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "snapshots")]
    pub claim_configs: Vec<Value>,
    /// The pods that may use the devices. The allocation ends with the last of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 256),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["uid"])
    )]
    pub reserved_for: Vec<Consumer>,
    /// Names of the pods in `reservedFor`, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pod_names: Vec<String>,
    /// What the drivers report about each device.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        extend(
            "x-kubernetes-list-type" = "map",
            "x-kubernetes-list-map-keys" = ["devicePoolName", "deviceName"]
        )
    )]
    pub device_statuses: Vec<DeviceStatus>,
    /// Whether the claim is allocated, and if not, why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "kubernetes::conditions")]
    pub conditions: Vec<Condition>,
}

/// A device, or a number of devices of one pool, that a claim holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeviceAllocation {
    /// The entry of the claim it serves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_name: Option<String>,
    /// The pool it comes from.
    pub device_pool_name: String,
    /// The device, if the pool lists its devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_name: Option<String>,
    /// How many devices, if the pool only counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 2_147_483_647))]
    pub device_count: Option<u32>,
    /// How the device is shared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_mode: Option<AccessMode>,
    /// What was taken of the device's resources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allocations: Vec<ResourceAllocation>,
}

/// A part of a device's resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResourceAllocation {
    /// Name of the resource.
    pub name: String,
    /// How much was taken, after rounding to whole blocks.
    pub allocation: Quantity,
    /// Where it was taken from, one place per topology type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topologies: Vec<TopologyAssignment>,
}

/// A pod that uses a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Consumer {
    /// Name of the pod.
    pub name: String,
    /// UID of the pod: a pod recreated under the same name is another one.
    pub uid: String,
}

/// What a driver reports about an allocated device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeviceStatus {
    /// The pool of the device.
    pub device_pool_name: String,
    /// The device.
    pub device_name: String,
    /// The state of the device, in the driver's words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "kubernetes::conditions")]
    pub conditions: Vec<Condition>,
    /// The first address in `deviceIPs`.
    #[serde(rename = "deviceIP", skip_serializing_if = "Option::is_none")]
    pub device_ip: Option<String>,
    /// The addresses of the device, if it is a network device.
    #[serde(rename = "deviceIPs", default, skip_serializing_if = "Vec::is_empty")]
    pub device_ips: Vec<DeviceAddress>,
    /// Whatever else the driver wants to tell, at most 10 KiB each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "raw_list")]
    pub device_info: Vec<Value>,
    /// What of the device's resources is in use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allocations: Vec<ResourceAllocation>,
}

/// An address of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceAddress {
    /// The address.
    pub ip: String,
}

/// Objects as they were at one moment.
pub(super) fn snapshots(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    list_of(kubernetes::embedded_object(generator))
}

fn raw_list(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    list_of(kubernetes::raw(generator))
}

fn list_of(items: schemars::Schema) -> schemars::Schema {
    let mut list = schemars::json_schema!({"type": "array", "x-kubernetes-list-type": "atomic"});
    list.insert("items".to_owned(), items.to_value());
    list
}
