//! Publishes the devices of device plugins for DeviceClaims.

use std::collections::{BTreeMap, BTreeSet};

use gantry_api::devices::PoolSpec;
use gantry_api::devices::{Attribute, AttributeValue, Device, Taint, TaintEffect};
use gantry_kube_controllers::deterministic_random;
use gantry_reconcile::{Change, Controller, FactChange, FactKind, Key, Kind, Plan, View, World};
use jiff::Timestamp;
use serde_json::json;

use super::publish::Publisher;
use super::view::{DeviceDriver, DevicePool, Publication};
use crate::view::{PluginPool, RegisteredDevices, registered_devices};

/// The value of [`PUBLISHED_BY_LABEL`](super::PUBLISHED_BY_LABEL) on objects of device plugins.
const PUBLISHER_NAME: &str = "gantry-device-plugins";
/// The taint of devices that are still held although their plugin is gone.
const PLUGIN_GONE_TAINT: &str = "sim.gantry.dev/device-plugin-gone";
/// The most bytes of the names of a node and of a resource in the name of a pool.
const MAX_NAME_BYTES: (usize, usize) = (180, 58);

/// Publishes a DevicePool for the devices of every device plugin that names a driver, and registers
/// the driver. Its keys are `nodes/NAME` and `devicedrivers/NAME`.
#[derive(Clone, Debug)]
pub struct DevicePluginPools {
    publisher: Publisher,
}

impl Default for DevicePluginPools {
    fn default() -> Self {
        Self { publisher: Publisher { name: PUBLISHER_NAME.to_owned() } }
    }
}

impl Controller for DevicePluginPools {
    fn name(&self) -> &'static str {
        "device-plugin-pools"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<DevicePool>(), Kind::of::<DeviceDriver>()]
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        if change.is::<DeviceDriver>() {
            return vec![driver_key(change.key.name())];
        }
        let nodes = change.both::<DevicePool>().filter_map(|it| it.node_name().map(node_key));
        nodes.collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn facts(&self) -> Vec<FactKind> {
        vec![FactKind::of::<RegisteredDevices>()]
    }

    fn enqueue_for_fact(&self, _: &World, change: &FactChange) -> Vec<Key> {
        let Some(change) = change.of::<RegisteredDevices>().filter(|it| it.is_significant()) else {
            return Vec::new();
        };
        let values = [change.before, change.after].into_iter().flatten();
        let pools = values.filter_map(|it| it.value()?.pool.as_ref());
        let drivers = pools.map(|it| driver_key(&it.driver));
        drivers.chain([node_key(&change.subject.node)]).collect()
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        match key.name().split_once('/') {
            Some(("nodes", node)) => self.plan_pools(world, node, now, &mut plan),
            Some((_, driver)) => self.plan_driver(world, driver, &mut plan),
            None => {}
        }
        plan
    }
}

impl DevicePluginPools {
    fn plan_pools(&self, world: &World, node: &str, now: Timestamp, plan: &mut Plan) {
        let mut wanted: BTreeMap<String, PoolSpec> = BTreeMap::new();
        for devices in registered_devices(world, node).into_values() {
            if let Some(pool) = &devices.value.pool {
                let name = pool_name(node, &devices.value.resource);
                wanted.insert(name, pool_spec(node, &devices.value, pool));
            }
        }
        let pools = world.store::<DevicePool>();
        let found = pools.by_index(&DevicePool::of_node(node)).into_iter();
        let found: Vec<_> =
            found.filter(|it| self.publisher.is_published_here(&it.metadata)).collect();
        let mut names: BTreeSet<String> = wanted.keys().cloned().collect();
        names.extend(found.iter().map(|it| it.metadata.name.clone()));
        for name in names {
            let key = Key::cluster(&name);
            let found = pools.get(&key);
            // Devices that are still held stay in the pool, and are not given to new claims.
            let held = found.as_ref().filter(|it| !it.status.allocations.is_empty());
            let spec = wanted.remove(&name).or_else(|| tainted(held?));
            let publication = spec.and_then(|it| serde_json::to_value(it).ok()).map(|spec| {
                let object = json!({"metadata": {"name": name}, "spec": spec});
                Publication::new(&DevicePool::RESOURCE, object)
            });
            self.publisher.plan_pool(&key, publication.as_ref(), found, now, plan);
        }
    }

    /// Registers a driver for the types of its devices, unless somebody else has registered it.
    fn plan_driver(&self, world: &World, driver: &str, plan: &mut Plan) {
        let key = Key::cluster(driver);
        let found = world.store::<DeviceDriver>().get(&key);
        if found.as_ref().is_some_and(|it| !self.publisher.is_published_here(&it.metadata)) {
            return;
        }
        let registered = world.facts::<RegisteredDevices>().all();
        let registered = registered.iter().filter_map(|(_, it)| it.value());
        let own = registered.filter(|it| it.pool.as_ref().is_some_and(|it| it.driver == driver));
        let types: BTreeSet<String> = own.map(|it| device_type(&it.resource)).collect();
        let publication = (!types.is_empty()).then(|| {
            let object = json!({"metadata": {"name": driver}, "deviceTypes": types});
            Publication::new(&DeviceDriver::RESOURCE, object)
        });
        self.publisher.plan_driver(&key, publication.as_ref(), found.as_deref(), plan);
    }
}

fn node_key(node: &str) -> Key {
    Key::cluster(&format!("nodes/{node}"))
}

fn driver_key(driver: &str) -> Key {
    Publication::key(&DeviceDriver::RESOURCE, driver)
}

/// Returns the name of the pool of a resource on a node. The digest keeps names of other nodes and
/// resources apart.
fn pool_name(node: &str, resource: &str) -> String {
    let digest = deterministic_random::digest(&["device-plugin", node, resource]);
    let node = &node[..node.floor_char_boundary(MAX_NAME_BYTES.0)];
    format!("{node}-{}-{}", device_type(resource), &digest[..8]).replace(".-", "-")
}

/// Returns the type of the devices of a resource: its name without the domain, as a DNS label.
fn device_type(resource: &str) -> String {
    let name = resource.rsplit('/').next().unwrap_or(resource);
    let letters = name.bytes().map(|it| match it.is_ascii_alphanumeric() {
        true => char::from(it.to_ascii_lowercase()),
        false => '-',
    });
    let label: String = letters.take(MAX_NAME_BYTES.1).collect();
    label.trim_end_matches('-').to_owned()
}

fn pool_spec(node: &str, devices: &RegisteredDevices, pool: &PluginPool) -> PoolSpec {
    let device_type = device_type(&devices.resource);
    let device = |at| Device { name: format!("{device_type}-{at}"), ..Device::default() };
    let attribute = |(name, value): (&String, &String)| Attribute {
        name: name.clone(),
        value: AttributeValue::String(value.clone()),
    };
    PoolSpec {
        node_name: Some(node.to_owned()),
        driver: pool.driver.clone(),
        attributes: pool.attributes.iter().map(attribute).collect(),
        devices: (0..devices.count).map(device).collect(),
        device_type: Some(device_type),
        ..PoolSpec::default()
    }
}

/// Returns the spec of a pool with a taint on every device.
fn tainted(pool: &DevicePool) -> Option<PoolSpec> {
    let mut spec: PoolSpec = serde_json::from_value(pool.spec.clone()).ok()?;
    for device in &mut spec.devices {
        let key = PLUGIN_GONE_TAINT.to_owned();
        device.taints = vec![Taint { key, value: None, effect: TaintEffect::NoSchedule }];
    }
    Some(spec)
}

#[cfg(test)]
mod tests;
