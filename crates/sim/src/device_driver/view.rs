//! What the driver looks at.

use gantry_reconcile::world::Tag;
use gantry_reconcile::{Fact, Key, Meta, Resource, View};
use serde::Deserialize;
use serde_json::Value;

const fn resource(plural: &'static str, kind: &'static str) -> Resource {
    Resource::namespaced("devmgmtproto.k8s.io", "v1alpha1", plural, kind)
}

/// An object that is to be published, as the file of the driver says.
#[derive(Clone, Debug, PartialEq)]
pub struct Publication {
    /// Which: the plural of the kind and the name of the object.
    pub key: Key,
    /// The object.
    pub object: Value,
}

impl Publication {
    /// The fact that an object is to be published.
    #[must_use]
    pub fn new(resource: &Resource, object: Value) -> Self {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        Self { key: Self::key(resource, name), object }
    }

    /// The subject of the fact about an object. No object's name has a slash.
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
    /// The types it handles.
    pub device_types: Vec<String>,
}

impl View for DeviceDriver {
    const RESOURCE: Resource = resource("devicedrivers", "DeviceDriver").cluster_wide();

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// A pool.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DevicePool {
    /// Metadata.
    pub metadata: Meta,
    /// What is published, as it is: others write it in other ways.
    pub spec: Value,
    /// What is known of it.
    pub status: PoolStatus,
}

/// What is known of a pool.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PoolStatus {
    /// How many devices can be used.
    pub available_devices: Option<u64>,
    /// Who holds them.
    pub allocations: Vec<Value>,
}

impl DevicePool {
    /// The driver that publishes it.
    #[must_use]
    pub fn driver(&self) -> &str {
        self.spec["driver"].as_str().unwrap_or_default()
    }
}

impl View for DevicePool {
    const RESOURCE: Resource = resource("devicepools", "DevicePool").cluster_wide();

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// A claim, as far as drivers are concerned.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct DeviceClaim {
    /// Metadata.
    pub metadata: Meta,
    /// What it got, and what drivers say about that.
    pub status: ClaimStatus,
}

/// What a claim got.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimStatus {
    /// The devices.
    pub allocations: Vec<Allocation>,
    /// What drivers say about them.
    pub device_statuses: Vec<Value>,
}

/// A device that a claim got.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Allocation {
    /// Its pool.
    pub device_pool_name: String,
    /// The device; none if the pool only counts.
    pub device_name: Option<String>,
    /// What of it.
    pub allocations: Vec<Value>,
}

impl DeviceClaim {
    /// What claims with devices of a pool, or statuses of them, are filed under.
    #[must_use]
    pub fn of_pool(pool: &str) -> Tag {
        Tag { index: "pool", value: pool.to_owned() }
    }
}

impl View for DeviceClaim {
    const RESOURCE: Resource = resource("deviceclaims", "DeviceClaim");

    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn tags(&self) -> Vec<Tag> {
        let ClaimStatus { allocations, device_statuses } = &self.status;
        let held = allocations.iter().map(|it| it.device_pool_name.as_str());
        let told = device_statuses.iter().filter_map(|it| it["devicePoolName"].as_str());
        let mut pools: Vec<&str> = held.chain(told).collect();
        pools.sort_unstable();
        pools.dedup();
        pools.into_iter().map(Self::of_pool).collect()
    }
}
