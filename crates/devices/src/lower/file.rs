//! Reads files from before there were API kinds.

use gantry_api::devices::{
    CapacityClaim, Device, DevicePool, NodeDevices, NodePool, PodCapacityClaim, PoolSpec,
};
use gantry_api::meta::ObjectMeta;

use super::node_selection::NodeLabels;

/// Returns the nodes and pools of an inventory file, in its order.
#[must_use]
pub fn file_pools(nodes: &[NodeDevices]) -> (Vec<NodeLabels>, Vec<DevicePool>) {
    let labels =
        nodes.iter().map(|node| NodeLabels { name: node.name.clone(), ..NodeLabels::default() });
    let pools =
        nodes.iter().flat_map(|node| node.pools.iter().map(|pool| object(&node.name, pool)));
    (labels.collect(), pools.collect())
}

fn object(node: &str, pool: &NodePool) -> DevicePool {
    let devices = pool.devices.iter().map(|device| Device {
        name: device.name.clone(),
        attributes: device.attributes.clone(),
        resources: device.capacities.clone(),
        ..Device::default()
    });
    let spec = PoolSpec {
        node_name: Some(node.to_owned()),
        driver: pool.driver.clone(),
        attributes: pool.attributes.clone(),
        devices: devices.collect(),
        ..PoolSpec::default()
    };
    let metadata = ObjectMeta { name: Some(pool.name.clone()), ..ObjectMeta::default() };
    DevicePool { metadata, spec, ..DevicePool::default() }
}

/// Returns the claims of a pod in the order in which they choose: the pod's own, then its
/// containers'.
#[must_use]
pub fn file_claims(pod: &PodCapacityClaim) -> Vec<&CapacityClaim> {
    pod.pod_claim.iter().chain(&pod.container_claims).collect()
}
