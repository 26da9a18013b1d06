//! The objects and facts the driver reads.

use gantry_reconcile::world::IndexValue;
use gantry_reconcile::{Fact, Key, Meta, Resource, View};
use serde::Deserialize;
use serde_json::Value;

const fn resource(plural: &'static str, kind: &'static str) -> Resource {
    Resource::namespaced("devmgmtproto.k8s.io", "v1alpha1", plural, kind)
}

/// An object that is to be published, from the file of the driver.
#[derive(Clone, Debug, PartialEq)]
pub struct Publication {
    /// The key: the plural of the kind and the name of the object.
    pub key: Key,
    /// The object.
    pub object: Value,
}

impl Publication {
    /// Creates the fact that an object is to be published.
    #[must_use]
    pub fn new(resource: &Resource, object: Value) -> Self {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        Self { key: Self::key(resource, name), object }
    }

    /// Returns the key of the fact about an object. No object's name has a slash.
    #[must_use]
    pub fn key(resource: &Resource, name: &str) -> Key {
        Key::cluster(&format!("{}/{name}", resource.plural))
    }
}

impl Fact for Publication {
    type Subject = Key;
    const NAME: &'static str = "publication";
}

/// A driver's registration.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceDriver {
    /// Metadata.
    pub metadata: Meta,
    /// The device types it handles.
    pub device_types: Vec<String>,
}

impl View for DeviceDriver {
    const RESOURCE: Resource = resource("devicedrivers", "DeviceDriver").cluster_scoped();

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// A device pool.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DevicePool {
    /// Metadata.
    pub metadata: Meta,
    /// The published spec, unparsed: others write it in other ways.
    pub spec: Value,
    /// The status of the pool.
    pub status: PoolStatus,
}

/// The status of a device pool.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PoolStatus {
    /// The number of devices that can be allocated.
    pub available_devices: Option<u64>,
    /// The allocations of its devices.
    pub allocations: Vec<Value>,
}

impl DevicePool {
    /// The driver that publishes it.
    #[must_use]
    pub fn driver(&self) -> &str {
        self.spec["driver"].as_str().unwrap_or_default()
    }

    /// The node that its devices are attached to, if it is one.
    #[must_use]
    pub fn node_name(&self) -> Option<&str> {
        self.spec["nodeName"].as_str()
    }

    /// Returns the index value of the pools of a node.
    #[must_use]
    pub fn of_node(node: &str) -> IndexValue {
        IndexValue { index: "node", value: node.to_owned() }
    }
}

impl View for DevicePool {
    const RESOURCE: Resource = resource("devicepools", "DevicePool").cluster_scoped();

    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn index_values(&self) -> Vec<IndexValue> {
        self.node_name().map(Self::of_node).into_iter().collect()
    }
}

/// A claim, as far as drivers need it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct DeviceClaim {
    /// Metadata.
    pub metadata: Meta,
    /// The allocated devices, and the statuses that drivers report.
    pub status: ClaimStatus,
}

/// The status of a claim.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimStatus {
    /// The allocated devices.
    pub allocations: Vec<Allocation>,
    /// The device statuses that drivers report.
    pub device_statuses: Vec<Value>,
}

/// A device that is allocated to a claim.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Allocation {
    /// Its pool.
    pub device_pool_name: String,
    /// The device; `None` if the pool only counts.
    pub device_name: Option<String>,
    /// The allocated resources of the device.
    pub allocations: Vec<Value>,
}

impl DeviceClaim {
    /// Returns the index value of claims with devices of a pool, or with statuses of them.
    #[must_use]
    pub fn of_pool(pool: &str) -> IndexValue {
        IndexValue { index: "pool", value: pool.to_owned() }
    }
}

impl View for DeviceClaim {
    const RESOURCE: Resource = resource("deviceclaims", "DeviceClaim");

    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn index_values(&self) -> Vec<IndexValue> {
        let ClaimStatus { allocations, device_statuses } = &self.status;
        let held = allocations.iter().map(|it| it.device_pool_name.as_str());
        let recorded = device_statuses.iter().filter_map(|it| it["devicePoolName"].as_str());
        let mut pools: Vec<&str> = held.chain(recorded).collect();
        pools.sort_unstable();
        pools.dedup();
        pools.into_iter().map(Self::of_pool).collect()
    }
}
