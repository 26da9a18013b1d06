//! Tracks which nodes are identical, updated with each hold.
//!
//! Devices, pools and nodes that differ in nothing but their names share a number, their shape. A
//! request that was tried on one node has the same outcome on every other of its shape, so a fleet
//! of equal machines costs a handful of searches.

use std::collections::HashMap;

use gantry_api::devices::{Sharing, TaintEffect};

use super::inventory::{
    Charge, CountedDevices, Device, DeviceCapacity, Node, Pool, PoolDevices, PoolResource,
    Signature,
};
use super::symbols::{Symbol, ValueSymbol};

/// How many shapes are kept though nothing has them any more, for each pool and in all. Devices
/// return to states they were in; beyond this the table of shapes is rebuilt.
const MAX_STALE_SHAPES: (usize, usize) = (16, 1 << 16);

/// The shapes of devices, pools and nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shapes {
    fixed: HashMap<FixedDeviceShape, u32>,
    devices: HashMap<DeviceShape, u32>,
    pools: HashMap<PoolShape, u32>,
    nodes: HashMap<Vec<u32>, u32>,
    of_device: Vec<Vec<(u32, u32)>>,
    of_pool: Vec<u32>,
    of_node: Vec<u32>,
    /// For each pool, the nodes that reach it.
    reached_by: Vec<Vec<usize>>,
    /// For each node, its position among all by name.
    rank: Vec<u32>,
}

/// The properties of a device that do not change with its holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct FixedDeviceShape {
    signature: Signature,
    attributes: Vec<(Symbol, ValueSymbol)>,
    charges: Vec<Charge>,
    entries: Vec<DeviceCapacity>,
    access: Option<Symbol>,
    allows: [bool; 3],
    taints: Vec<(String, Option<String>, u8)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct DeviceShape {
    fixed: u32,
    holders: [u32; 4],
    charged: bool,
    used: Vec<i128>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PoolShape {
    fault: Option<String>,
    resources: Vec<PoolResource>,
    devices: Vec<u32>,
    counted: Option<CountedDevices>,
}

impl Shapes {
    pub(crate) fn new(pools: &[Pool], nodes: &[Node]) -> Self {
        let mut shapes = Self {
            reached_by: vec![Vec::new(); pools.len()],
            rank: vec![0; nodes.len()],
            ..Self::default()
        };
        for (at, node) in nodes.iter().enumerate() {
            for pool in &node.pools {
                if let Some(reached_by) = shapes.reached_by.get_mut(*pool) {
                    reached_by.push(at);
                }
            }
        }
        let mut by_name: Vec<usize> = (0..nodes.len()).collect();
        by_name.sort_by(|one, other| nodes[*one].name.cmp(&nodes[*other].name));
        for (rank, at) in by_name.into_iter().enumerate() {
            shapes.rank[at] = count(rank);
        }
        shapes.rebuild(pools, nodes);
        shapes
    }

    /// Rebuilds the table of shapes.
    fn rebuild(&mut self, pools: &[Pool], nodes: &[Node]) {
        self.fixed.clear();
        self.devices.clear();
        self.pools.clear();
        self.nodes.clear();
        self.of_device = pools
            .iter()
            .map(|pool| match &pool.devices {
                PoolDevices::Listed(devices) => {
                    let shapes = devices.iter().map(|device| {
                        let fixed = number(&mut self.fixed, FixedDeviceShape::of(device));
                        (fixed, number(&mut self.devices, DeviceShape::of(fixed, device)))
                    });
                    shapes.collect()
                }
                PoolDevices::Counted(_) => Vec::new(),
            })
            .collect();
        self.of_pool = pools
            .iter()
            .zip(&self.of_device)
            .map(|(pool, devices)| number(&mut self.pools, PoolShape::of(pool, devices)))
            .collect();
        let shape = |node: &Node| -> Vec<u32> { node_shape(&self.of_pool, node) };
        self.of_node = nodes.iter().map(|node| number(&mut self.nodes, shape(node))).collect();
    }

    /// Updates the shapes after a device of a pool, or a pool that only counts, has changed.
    pub(crate) fn update(
        &mut self,
        pools: &[Pool],
        nodes: &[Node],
        pool: usize,
        device: Option<usize>,
    ) {
        if let (PoolDevices::Listed(devices), Some(device)) = (&pools[pool].devices, device) {
            let (fixed, shape) = &mut self.of_device[pool][device];
            *shape = number(&mut self.devices, DeviceShape::of(*fixed, &devices[device]));
        }
        let shape = PoolShape::of(&pools[pool], &self.of_device[pool]);
        self.of_pool[pool] = number(&mut self.pools, shape);
        for node in &self.reached_by[pool] {
            let shape = node_shape(&self.of_pool, &nodes[*node]);
            self.of_node[*node] = number(&mut self.nodes, shape);
        }
        let (each, all) = MAX_STALE_SHAPES;
        let most = pools.len() * each + all;
        if self.devices.len() > most || self.pools.len() > most || self.nodes.len() > most {
            self.rebuild(pools, nodes);
        }
    }

    /// Returns how many shapes of nodes there are.
    pub(crate) fn count(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the shape of a node, below [`Shapes::count`].
    pub(crate) fn of_node(&self, node: usize) -> Option<usize> {
        self.of_node.get(node).and_then(|shape| usize::try_from(*shape).ok())
    }

    /// Returns the position of a node among all by name.
    pub(crate) fn rank(&self, node: usize) -> u32 {
        self.rank.get(node).copied().unwrap_or(u32::MAX)
    }
}

fn node_shape(of_pool: &[u32], node: &Node) -> Vec<u32> {
    node.pools.iter().map(|pool| of_pool.get(*pool).copied().unwrap_or(u32::MAX)).collect()
}

/// Returns the number of a key, the next one if it is new.
fn number<K: std::hash::Hash + Eq>(numbers: &mut HashMap<K, u32>, key: K) -> u32 {
    let next = count(numbers.len());
    *numbers.entry(key).or_insert(next)
}

fn count(count: usize) -> u32 {
    u32::try_from(count).expect("an inventory fits in memory, which holds fewer than 2^32 of them")
}

impl FixedDeviceShape {
    fn of(device: &Device) -> Self {
        let unused = |entry: &DeviceCapacity| DeviceCapacity { used: 0, ..entry.clone() };
        let taints = device.taints.iter().map(|taint| {
            let effect = match taint.effect {
                TaintEffect::NoSchedule => 0,
                TaintEffect::NoExecute => 1,
                TaintEffect::None => 2,
            };
            (taint.key.clone(), taint.value.clone(), effect)
        });
        Self {
            signature: device.signature,
            attributes: device.attributes.clone(),
            charges: device.charges.clone(),
            entries: device.capacities.iter().map(unused).collect(),
            access: device.access,
            allows: [
                device.sharing.allow_read_only_shared,
                device.sharing.allow_read_write_shared,
                device.sharing.allow_write_exclusive,
            ],
            taints: taints.collect(),
        }
    }
}

impl DeviceShape {
    fn of(fixed: u32, device: &Device) -> Self {
        let Sharing {
            read_only_shared,
            read_write_shared,
            write_exclusive,
            read_write_exclusive,
            ..
        } = device.sharing;
        Self {
            fixed,
            holders: [read_only_shared, read_write_shared, write_exclusive, read_write_exclusive],
            charged: device.holds > 0,
            used: device.capacities.iter().map(|entry| entry.used).collect(),
        }
    }
}

impl PoolShape {
    fn of(pool: &Pool, devices: &[(u32, u32)]) -> Self {
        Self {
            fault: pool.invalid_reason.clone(),
            resources: pool.resources.clone(),
            devices: devices.iter().map(|(_, shape)| *shape).collect(),
            counted: match &pool.devices {
                PoolDevices::Listed(_) => None,
                PoolDevices::Counted(counted) => Some(counted.clone()),
            },
        }
    }
}
