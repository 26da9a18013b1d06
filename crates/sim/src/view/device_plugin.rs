//! Devices that device plugins registered with the kubelet of their node.

use std::collections::BTreeMap;
use std::sync::Arc;

use gantry_reconcile::{Fact, Observed, World};

/// The devices that a device plugin offers: it runs, and its kernel module is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisteredDevices {
    /// The extended resource, such as `example.com/gpu`.
    pub resource: String,
    /// The number of devices.
    pub count: u32,
    /// How they are published for DeviceClaims, if they are.
    pub pool: Option<PluginPool>,
}

/// How the devices of a device plugin are published for DeviceClaims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginPool {
    /// The driver that publishes them.
    pub driver: String,
    /// The attributes that all of them have.
    pub attributes: BTreeMap<String, String>,
}

/// A registration of a device plugin with the kubelet of a node. Those of a node are in the order
/// in which they were made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DevicePluginKey {
    /// The node.
    pub node: String,
    /// The number of the registration, which no other one in this process has: a plugin that ends
    /// late must not remove what its successor registered.
    pub number: u64,
}

impl Fact for RegisteredDevices {
    type Subject = DevicePluginKey;
    const NAME: &'static str = "registered-devices";
}

/// Returns the devices of a node by resource. Where several device plugins offer one resource, the
/// one that registered last counts, as with kubelets.
#[must_use]
pub fn registered_devices(
    world: &World,
    node: &str,
) -> BTreeMap<String, Arc<Observed<RegisteredDevices>>> {
    let key = |number| DevicePluginKey { node: node.to_owned(), number };
    let known = world.facts::<RegisteredDevices>().range(key(0)..=key(u64::MAX));
    let known = known.into_iter().filter_map(|(_, state)| state.observed.clone());
    known.map(|it| (it.value.resource.clone(), it)).collect()
}
