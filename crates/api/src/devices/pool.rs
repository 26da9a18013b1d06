//! DevicePool: devices of one driver, and the ledger of their allocations.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::NodeSelector;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::attribute::check_attributes;
use super::capacity::{check_amount, check_capacities};
use super::{
    AccessMode, Attribute, ResourceAllocation, ResourceCapacity, check_device_type, check_driver,
    normalise, serve,
};
use crate::alias::{Alias, AliasNotice};
use crate::finding::Findings;
use crate::kind::{Column, Trust};
use crate::kubernetes;
use crate::object::object;
use crate::quantity::Quantity;
use gantry_yaml::node::Path;

object! {
    /// DevicePool publishes devices of one driver, usually those of one model on one node. Drivers
    /// write the spec; the scheduler keeps its books in the status.
    pub struct DevicePool {
        /// The devices, and the nodes that reach them.
        pub spec: PoolSpec,
        /// Who holds which device.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub status: Option<PoolStatus>,
    }
    group: "devmgmtproto.k8s.io",
    version: "v1alpha1",
    plural: "devicepools",
    scope: Cluster,
    short_names: &["dpool"],
    status: true,
    columns: &[
        Column::new("Node", "string", ".spec.nodeName"),
        Column::new("Driver", "string", ".spec.driver"),
        Column::new("Type", "string", ".spec.deviceType"),
        Column::new("Available", "integer", ".status.availableDevices"),
        Column::wide("Count", "integer", ".spec.deviceCount"),
        Column::wide("Valid", "string", ".status.conditions[?(@.type==\"Valid\")].status"),
        Column::AGE,
    ],
    trust: Trust::Administrator,
    any_case: true,
    aliases: &ALIASES,
    serve: serve_pool,
    normalise: |node, findings| {
        if let Some(spec) = node.get_mut("spec") {
            normalise::pool_spec(spec, &Path::of("spec"), findings);
        }
    },
}

/// The devices of a pool. They are either listed in `devices` or only counted in `deviceCount`.
///
/// At most one of `nodeName`, `nodeSelector` and `allNodes` is set; a pool with none of them is
/// never used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolSpec {
    /// Name of the node the devices are attached to.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub node_name: Option<String>,
    /// The nodes that reach the devices over a network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "kubernetes::node_selector")]
    pub node_selector: Option<NodeSelector>,
    /// Whether every node reaches the devices.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all_nodes: bool,
    /// Name of the driver that manages the devices.
    #[schemars(length(min = 1, max = 63))]
    pub driver: String,
    /// Which of the driver's types these devices are. If absent, they count as each of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub device_type: Option<String>,
    /// Attributes that all devices have in common.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 32),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub attributes: Vec<Attribute>,
    /// Resources that the devices share. Each device takes what its `requests` say while it is
    /// held, so that overlapping partitions of one card cannot be held together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub resources: Vec<ResourceCapacity>,
    /// The devices, one by one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 1024),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub devices: Vec<Device>,
    /// How many devices there are, if they are interchangeable and have no names. If `devices` is
    /// set as well, the numbers must agree.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 2_147_483_647))]
    pub device_count: Option<u32>,
}

/// One device, or one way to partition a card.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Device {
    /// Name of the device, unique in the pool.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Attributes of this device. They override those of the pool with the same name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 32),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub attributes: Vec<Attribute>,
    /// What the device takes of the pool's `resources` while it is held.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "charges")]
    pub requests: BTreeMap<String, Quantity>,
    /// What the device itself has to give to the claims that share it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub resources: Vec<ResourceCapacity>,
    /// Reasons to keep claims away from the device, unless they tolerate them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub taints: Vec<Taint>,
}

/// A reason to keep claims away from a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Taint {
    /// What kind of reason it is.
    #[schemars(length(min = 1, max = 317))]
    pub key: String,
    /// Details that a toleration may compare.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub value: Option<String>,
    /// What follows from it.
    pub effect: TaintEffect,
}

/// What follows from a taint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TaintEffect {
    /// The device is not given to new claims.
    NoSchedule,
    /// Pods that use the device are removed, too.
    NoExecute,
    /// Nothing; it informs.
    None,
}

/// The state of a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolStatus {
    /// Free devices as last seen by the driver. For people; scheduling does not look at it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 2_147_483_647))]
    pub available_devices: Option<u32>,
    /// The ledger: every hold on devices of the pool. Written by schedulers, each write checked
    /// against the last, so that no device is given away twice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allocations: Vec<LedgerEntry>,
    /// Nodes that refused pods with devices of the pool. Until then they are not chosen again for
    /// pods of the same owner.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub refusals: Vec<NodeRefusal>,
    /// `Valid`: the pool can be used. `AmbiguousDeviceType`: the driver has several types and the
    /// pool names none. `Overcommitted`: more is held than published.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "kubernetes::conditions")]
    pub conditions: Vec<Condition>,
}

/// A node that the scheduler of a pod would not give it to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeRefusal {
    /// The identity of the object that controls the pod, and makes another in its place.
    pub owner_uid: String,
    /// The node.
    pub node_name: String,
    /// When the node may be tried again.
    #[schemars(extend("format" = "date-time"), with = "String")]
    pub until: Time,
}

/// A hold on a device, or on a number of devices of a pool that does not list them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LedgerEntry {
    /// The claim that holds.
    pub claim_ref: ClaimReference,
    /// The entry of the claim that it holds for.
    pub term: String,
    /// The device, if the pool lists its devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_name: Option<String>,
    /// How many devices, if the pool only counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 2_147_483_647))]
    pub count: Option<u32>,
    /// How the device is shared.
    pub access_mode: AccessMode,
    /// What was taken of the device's resources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allocations: Vec<ResourceAllocation>,
    /// How far the hold has come.
    pub state: HoldState,
    /// When the entry was written.
    #[schemars(extend("format" = "date-time"), with = "String")]
    pub since: Time,
}

/// The claim behind a hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClaimReference {
    /// Namespace of the claim.
    pub namespace: String,
    /// Name of the claim.
    pub name: String,
    /// UID of the claim: a claim recreated under the same name is another one.
    pub uid: String,
}

/// How far a hold has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HoldState {
    /// Set aside while the claim's status is being written.
    Reserved,
    /// The claim's status says so, too.
    Bound,
}

const ALIASES: [Alias; 4] = [
    Alias { within: "spec", old: "count", new: "deviceCount", notice: AliasNotice::Silent },
    Alias { within: "spec", old: "NodeName", new: "nodeName", notice: AliasNotice::Rename },
    Alias { within: "spec", old: "Driver", new: "driver", notice: AliasNotice::Rename },
    Alias {
        within: "spec.devices[]",
        old: "capacities",
        new: "resources",
        notice: AliasNotice::Silent,
    },
];

fn serve_pool(schema: &mut Value) {
    let spec = serve::schema_of(schema, "spec");
    serve::driver_names(spec);
    for list in ["attributes", "devices[].attributes"] {
        serve::attribute(serve::schema_of(spec, &format!("{list}[]")));
    }
    for list in ["resources", "devices[].resources", "devices[].capacities"] {
        serve::capacity(serve::schema_of(spec, &format!("{list}[]")));
    }
    serve::not_negative(serve::schema_of(spec, "devices[].requests"));
    serve::refuse_conflicting_aliases(spec, &ALIASES[..3]);
    serve::rule(spec, "has(self.driver) || has(self.Driver)", "driver is required");
    serve::rule(
        spec,
        "[has(self.nodeName) || has(self.NodeName), has(self.nodeSelector), has(self.allNodes) && \
         self.allNodes].filter(set, set).size() <= 1",
        "set at most one of nodeName, nodeSelector and allNodes",
    );
    serve::rule(
        spec,
        "!has(self.devices) || (has(self.deviceCount) ? self.deviceCount : has(self.count) ? \
         self.count : size(self.devices)) == size(self.devices)",
        "deviceCount must be the number of devices",
    );
}

impl DevicePool {
    /// Checks the rules that span several fields.
    pub fn validate(&self, findings: &mut Findings) {
        let path = Path::of("spec");
        let spec = &self.spec;
        check_driver(&spec.driver, &path.key("driver"), findings);
        if let Some(device_type) = &spec.device_type {
            check_device_type(device_type, &path.key("deviceType"), findings);
        }
        let ways = [
            ("nodeName", spec.node_name.is_some()),
            ("nodeSelector", spec.node_selector.is_some()),
            ("allNodes", spec.all_nodes),
        ];
        let ways: Vec<_> = ways.into_iter().filter(|(_, set)| *set).collect();
        if let [(first, _), (second, _), ..] = ways.as_slice() {
            let text =
                format!("set beside \"{first}\"; keep one of nodeName, nodeSelector, allNodes");
            findings.error(&path.key(second), text);
        }
        check_attributes(&spec.attributes, &path.key("attributes"), findings);
        check_capacities(&spec.resources, &path.key("resources"), findings);
        if let Some(count) = spec.device_count
            && !spec.devices.is_empty()
            && usize::try_from(count) != Ok(spec.devices.len())
        {
            let listed = spec.devices.len();
            let text = format!("Invalid value: {count}: spec.devices lists {listed}");
            findings.error(&path.key("deviceCount"), text);
        }
        let shared: BTreeSet<_> = spec.resources.iter().map(|resource| &resource.name).collect();
        let mut seen = BTreeSet::new();
        for (index, device) in spec.devices.iter().enumerate() {
            let path = path.key("devices").index(index);
            if !seen.insert(&device.name) {
                findings.error(&path.key("name"), format!("Duplicate value: \"{}\"", device.name));
            }
            device.validate(&shared, &path, findings);
        }
    }
}

impl Device {
    fn validate(&self, shared: &BTreeSet<&String>, path: &Path, findings: &mut Findings) {
        check_attributes(&self.attributes, &path.key("attributes"), findings);
        check_capacities(&self.resources, &path.key("resources"), findings);
        for (name, amount) in &self.requests {
            let path = path.key("requests").key(name);
            check_amount(*amount, &path, findings);
            if !shared.contains(name) {
                let text = format!(
                    "spec.resources has no \"{name}\"; the pool is not used until it has, or this \
                     is removed"
                );
                findings.warn(&path, text);
            }
        }
    }
}

fn charges(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let mut schema = BTreeMap::<String, Quantity>::json_schema(generator);
    schema.insert("maxProperties".to_owned(), 32.into());
    schema
}
