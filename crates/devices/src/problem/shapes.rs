//! Which nodes are alike, kept up to date hold by hold.
//!
//! Devices, pools and nodes that differ in nothing but their names share a number, their shape. A
//! request that was tried on one node has the same answer on every other of its shape, so a fleet
//! of equal machines costs a handful of searches.

use std::collections::HashMap;

use gantry_api::devices::{Sharing, TaintEffect};

use super::inventory::{Charge, Counted, Device, Entry, Node, Pool, Pooled, Signature, Stock};
use super::symbols::{Symbol, ValueSymbol};

/// Shapes that are remembered though nothing has them any more, for each pool and in all. Devices
/// come back to states they were in; beyond this the book of shapes is begun anew.
const STALE_SHAPES: (usize, usize) = (16, 1 << 16);

/// The shapes of devices, pools and nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shapes {
    fixed: HashMap<Fixed, u32>,
    devices: HashMap<DeviceShape, u32>,
    pools: HashMap<PoolShape, u32>,
    nodes: HashMap<Vec<u32>, u32>,
    of_device: Vec<Vec<(u32, u32)>>,
    of_pool: Vec<u32>,
    of_node: Vec<u32>,
    /// For each pool, the nodes that reach it.
    reached_by: Vec<Vec<usize>>,
    /// For each node, its place among all by name.
    rank: Vec<u32>,
}

/// What of a device does not change with its holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Fixed {
    signature: Signature,
    attributes: Vec<(Symbol, ValueSymbol)>,
    charges: Vec<Charge>,
    entries: Vec<Entry>,
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
    resources: Vec<Pooled>,
    devices: Vec<u32>,
    counted: Option<Counted>,
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
        shapes.draw(pools, nodes);
        shapes
    }

    /// Begins the book of shapes anew.
    fn draw(&mut self, pools: &[Pool], nodes: &[Node]) {
        self.fixed.clear();
        self.devices.clear();
        self.pools.clear();
        self.nodes.clear();
        self.of_device = pools
            .iter()
            .map(|pool| match &pool.stock {
                Stock::Listed(devices) => {
                    let shapes = devices.iter().map(|device| {
                        let fixed = number(&mut self.fixed, Fixed::of(device));
                        (fixed, number(&mut self.devices, DeviceShape::of(fixed, device)))
                    });
                    shapes.collect()
                }
                Stock::Counted(_) => Vec::new(),
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

    /// A device of a pool, or a pool that only counts, has changed.
    pub(crate) fn changed(
        &mut self,
        pools: &[Pool],
        nodes: &[Node],
        pool: usize,
        device: Option<usize>,
    ) {
        if let (Stock::Listed(devices), Some(device)) = (&pools[pool].stock, device) {
            let (fixed, shape) = &mut self.of_device[pool][device];
            *shape = number(&mut self.devices, DeviceShape::of(*fixed, &devices[device]));
        }
        let shape = PoolShape::of(&pools[pool], &self.of_device[pool]);
        self.of_pool[pool] = number(&mut self.pools, shape);
        for node in &self.reached_by[pool] {
            let shape = node_shape(&self.of_pool, &nodes[*node]);
            self.of_node[*node] = number(&mut self.nodes, shape);
        }
        let (each, all) = STALE_SHAPES;
        let most = pools.len() * each + all;
        if self.devices.len() > most || self.pools.len() > most || self.nodes.len() > most {
            self.draw(pools, nodes);
        }
    }

    /// How many shapes of nodes there are.
    pub(crate) fn count(&self) -> usize {
        self.nodes.len()
    }

    /// The shape of a node, below [`Shapes::count`].
    pub(crate) fn of_node(&self, node: usize) -> Option<usize> {
        self.of_node.get(node).and_then(|shape| usize::try_from(*shape).ok())
    }

    /// The place of a node among all by name.
    pub(crate) fn rank(&self, node: usize) -> u32 {
        self.rank.get(node).copied().unwrap_or(u32::MAX)
    }
}

fn node_shape(of_pool: &[u32], node: &Node) -> Vec<u32> {
    node.pools.iter().map(|pool| of_pool.get(*pool).copied().unwrap_or(u32::MAX)).collect()
}

/// The number of a key, the next one if it is new.
fn number<K: std::hash::Hash + Eq>(numbers: &mut HashMap<K, u32>, key: K) -> u32 {
    let next = count(numbers.len());
    *numbers.entry(key).or_insert(next)
}

fn count(count: usize) -> u32 {
    u32::try_from(count).expect("an inventory fits in memory, which holds fewer than 2^32 of them")
}

impl Fixed {
    fn of(device: &Device) -> Self {
        let unused = |entry: &Entry| Entry { used: 0, ..entry.clone() };
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
            entries: device.entries.iter().map(unused).collect(),
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
            used: device.entries.iter().map(|entry| entry.used).collect(),
        }
    }
}

impl PoolShape {
    fn of(pool: &Pool, devices: &[(u32, u32)]) -> Self {
        Self {
            fault: pool.fault.clone(),
            resources: pool.resources.clone(),
            devices: devices.iter().map(|(_, shape)| *shape).collect(),
            counted: match &pool.stock {
                Stock::Listed(_) => None,
                Stock::Counted(counted) => Some(counted.clone()),
            },
        }
    }
}
