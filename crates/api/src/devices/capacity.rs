//! Capacities: the resources of a pool or a device.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::AccessMode;
use crate::finding::Findings;
use crate::quantity::Quantity;
use gantry_yaml::node::Path;

/// An amount of one resource. It has exactly one shape: `capacity` (with or without `blockSize`),
/// `counter`, `quantity`, `block` or `accessMode`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceCapacity {
    /// Name by which requests refer to the resource, such as `memory`.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// How much there is, and in what portions it is handed out.
    #[serde(flatten)]
    #[schemars(with = "ShapeFields")]
    pub shape: Shape,
    /// The topologies this part of the resource belongs to, one per type. A resource may be listed
    /// several times, once per combination. Not with `capacity`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub topologies: Vec<Topology>,
}

/// How much of a resource there is, and in what portions it is handed out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
pub enum Shape {
    /// Multiples of a block, one unit unless said otherwise.
    Capacity {
        /// The amount.
        capacity: Quantity,
        /// The block; absent means 1.
        #[serde(skip_serializing_if = "Option::is_none")]
        block_size: Option<Quantity>,
    },
    /// Whole numbers.
    Counter {
        /// The amount.
        counter: Counter,
    },
    /// Any amount.
    Quantity {
        /// The amount.
        quantity: QuantityCapacity,
    },
    /// Multiples of a block.
    Block {
        /// The amount and the block.
        block: Block,
    },
    /// One holder at a time, or several, depending on how they use the device.
    AccessMode {
        /// What is allowed and what is held.
        access_mode: Sharing,
    },
}

impl Shape {
    /// The fields that make up each shape.
    pub(super) const FIELDS: [&str; 5] = ["capacity", "counter", "quantity", "block", "accessMode"];
}

/// How [`Shape`] looks in a schema.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "only its schema is used")]
struct ShapeFields {
    /// The amount, handed out in multiples of `blockSize`.
    capacity: Option<Quantity>,
    /// What `capacity` is handed out in multiples of; 1 if absent. Requests are rounded up to it.
    block_size: Option<Quantity>,
    /// A whole number of things that are handed out one by one.
    counter: Option<Counter>,
    /// An amount of which any part may be handed out.
    quantity: Option<QuantityCapacity>,
    /// An amount that is handed out in blocks.
    block: Option<Block>,
    /// Access to the device itself, alone or together with others.
    access_mode: Option<Sharing>,
}

/// A whole number of things.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counter {
    /// How many there are.
    #[schemars(range(min = 0))]
    pub capacity: i64,
}

/// An amount of which any part may be handed out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QuantityCapacity {
    /// How much there is.
    pub capacity: Quantity,
}

/// An amount that is handed out in blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Block {
    /// How much there is.
    pub capacity: Quantity,
    /// The block: requests are rounded up to a multiple of it.
    pub size: Quantity,
}

/// Which kinds of access a device allows, and how many holders of each it has.
///
/// A request for a mode that is not allowed is upgraded to the next stricter one that is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Sharing {
    /// Whether readers may share the device with readers and writers.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub allow_read_only_shared: bool,
    /// Whether writers may share the device.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub allow_read_write_shared: bool,
    /// Whether a single writer may share the device with readers.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub allow_write_exclusive: bool,
    /// Holders that read beside others.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(range(max = 2_147_483_647))]
    pub read_only_shared: u32,
    /// Holders that read and write beside others.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(range(max = 2_147_483_647))]
    pub read_write_shared: u32,
    /// Holders that are the only writer.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(range(max = 2_147_483_647))]
    pub write_exclusive: u32,
    /// Holders that are alone.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(range(max = 2_147_483_647))]
    pub read_write_exclusive: u32,
}

impl Sharing {
    /// Returns the mode that a request for `wanted` gets: the first stricter or equal one that is
    /// allowed. The strictest always is.
    #[must_use]
    pub const fn upgrade(&self, wanted: AccessMode) -> AccessMode {
        match wanted {
            AccessMode::ReadOnlyShared if self.allow_read_only_shared => wanted,
            AccessMode::ReadOnlyShared => self.upgrade(AccessMode::ReadWriteShared),
            AccessMode::ReadWriteShared if self.allow_read_write_shared => wanted,
            AccessMode::ReadWriteShared => self.upgrade(AccessMode::WriteExclusive),
            AccessMode::WriteExclusive if self.allow_write_exclusive => wanted,
            AccessMode::WriteExclusive | AccessMode::ReadWriteExclusive => {
                AccessMode::ReadWriteExclusive
            }
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes the field by reference")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// A place in the machine that a part of a resource belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Topology {
    /// Kind of place, such as `numa` or `pci`.
    #[schemars(length(min = 1, max = 63))]
    pub r#type: String,
    /// Which place of that kind, such as `numa-0`.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Whether one request may be served from this part and others together. True if absent.
    #[serde(default = "groups_by_default", skip_serializing_if = "Clone::clone")]
    pub group_in_device: bool,
}

fn groups_by_default() -> bool {
    true
}

/// The place that an allocated part came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TopologyAssignment {
    /// Kind of place, such as `numa`.
    #[schemars(length(min = 1, max = 63))]
    pub r#type: String,
    /// Which place of that kind.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

impl ResourceCapacity {
    /// Returns the key of this entry among others of the same device: `memory;numa=numa-0`.
    #[must_use]
    pub fn key(&self) -> String {
        let mut places: Vec<_> = self
            .topologies
            .iter()
            .map(|place| format!(";{}={}", place.r#type, place.name))
            .collect();
        places.sort_unstable();
        format!("{}{}", self.name, places.concat())
    }
}

pub(super) fn check_capacities(
    capacities: &[ResourceCapacity],
    path: &Path,
    findings: &mut Findings,
) {
    let mut seen = BTreeSet::new();
    for (index, capacity) in capacities.iter().enumerate() {
        let path = path.index(index);
        check_shape(capacity, &path, findings);
        let mut types = BTreeSet::new();
        for (place, topology) in capacity.topologies.iter().enumerate() {
            if !types.insert(&topology.r#type) {
                findings.error(
                    &path.key("topologies").index(place).key("type"),
                    format!("Duplicate value: \"{}\": one place per type", topology.r#type),
                );
            }
        }
        let key = capacity.key();
        if seen.contains(&key) {
            findings.error(&path, format!("Duplicate value: \"{key}\""));
        }
        seen.insert(key);
    }
}

fn check_shape(capacity: &ResourceCapacity, path: &Path, findings: &mut Findings) {
    match &capacity.shape {
        Shape::Capacity { capacity: amount, block_size } => {
            check_amount(*amount, &path.key("capacity"), findings);
            if let Some(block) = block_size {
                check_block(*block, &path.key("blockSize"), findings);
            }
            if !capacity.topologies.is_empty() {
                findings.error(
                    &path.key("topologies"),
                    "Forbidden: `capacity` has no topologies; use `quantity` or `block`",
                );
            }
        }
        Shape::Quantity { quantity } => {
            check_amount(quantity.capacity, &path.join("quantity.capacity"), findings);
        }
        Shape::Block { block } => {
            check_amount(block.capacity, &path.join("block.capacity"), findings);
            check_block(block.size, &path.join("block.size"), findings);
        }
        // Their numbers cannot be negative in the schema.
        Shape::Counter { .. } | Shape::AccessMode { .. } => {}
    }
}

pub(super) fn check_amount(amount: Quantity, path: &Path, findings: &mut Findings) {
    if amount.is_negative() {
        findings.error(path, format!("Invalid value: \"{amount}\": cannot be negative"));
    }
}

fn check_block(block: Quantity, path: &Path, findings: &mut Findings) {
    if block.sign() <= 0 {
        findings.error(path, format!("Invalid value: \"{block}\": a block must be above 0"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_that_is_not_allowed_is_upgraded() {
        let table = [
            (
                "allowed as asked",
                (true, true, true),
                AccessMode::ReadOnlyShared,
                AccessMode::ReadOnlyShared,
            ),
            (
                "the next one",
                (true, false, true),
                AccessMode::ReadWriteShared,
                AccessMode::WriteExclusive,
            ),
            (
                "nothing is shared",
                (false, false, false),
                AccessMode::ReadOnlyShared,
                AccessMode::ReadWriteExclusive,
            ),
            (
                "never downgraded",
                (true, true, true),
                AccessMode::ReadWriteExclusive,
                AccessMode::ReadWriteExclusive,
            ),
        ];
        for (why, (read, write, single), wanted, given) in table {
            let sharing = Sharing {
                allow_read_only_shared: read,
                allow_read_write_shared: write,
                allow_write_exclusive: single,
                ..Sharing::default()
            };
            assert_eq!(sharing.upgrade(wanted), given, "{why}");
        }
    }

    #[test]
    fn the_key_sorts_topologies() {
        let place = |kind: &str, name: &str| Topology {
            r#type: kind.to_owned(),
            name: name.to_owned(),
            group_in_device: true,
        };
        let capacity = ResourceCapacity {
            name: "interfaces".to_owned(),
            shape: Shape::Counter { counter: Counter { capacity: 1 } },
            topologies: vec![place("pci", "pci-1"), place("numa", "numa-0")],
        };
        assert_eq!(capacity.key(), "interfaces;numa=numa-0;pci=pci-1");
    }
}
