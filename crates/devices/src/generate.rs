//! Generates example inventories, under the names that the original had for them.
//!
//! There are three families. `0` to `3` are nodes in the form of the oldest files; `zero` to
//! `three` and `foozer-barzer` are pools that only count their devices; `foozer-1000-tiny` and its
//! like are pools of devices with names.

mod nodes;
mod pools;
#[cfg(test)]
mod tests;

use gantry_api::devices::{Attribute, AttributeValue, DevicePool, NodeDevices};
use serde_json::Value;

/// How much of a shape to generate. Unset fields have the values of the original.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// How many nodes.
    pub nodes: Option<u32>,
    /// How many networks the cards of shapes `2` and `3` are on; one by default.
    pub nets: Option<u32>,
}

/// A generated inventory.
#[derive(Clone, Debug, PartialEq)]
pub enum Example {
    /// Nodes in the form of the oldest files: one list.
    Nodes(Vec<NodeDevices>),
    /// Pools: one object each.
    Pools(Vec<DevicePool>),
}

/// There is no such shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown shape \"{shape}\"; choose from {}", shapes().join(", "))]
pub struct UnknownShape {
    /// The requested shape.
    pub shape: String,
}

/// Generates a shape.
///
/// # Errors
/// If there is none of that name.
///
/// ```
/// use gantry_devices::generate::{Example, Extent, example};
///
/// let Example::Pools(pools) = example("zero", Extent::default())? else { panic!() };
/// let names: Vec<_> = pools.iter().filter_map(|pool| pool.metadata.name.as_deref()).collect();
/// assert_eq!(names, ["shape-zero-00-foozer-00", "shape-zero-01-foozer-00"]);
/// # Ok::<(), gantry_devices::generate::UnknownShape>(())
/// ```
pub fn example(shape: &str, extent: Extent) -> Result<Example, UnknownShape> {
    let bare = shape.strip_prefix("shape-").unwrap_or(shape);
    let nodes = nodes::shape(bare, extent).map(Example::Nodes);
    let pools = || pools::counted(bare, extent).or_else(|| pools::listed(shape, extent));
    nodes
        .or_else(|| pools().map(Example::Pools))
        .ok_or_else(|| UnknownShape { shape: shape.to_owned() })
}

/// Returns the names of all shapes.
#[must_use]
pub fn shapes() -> Vec<String> {
    let mut all: Vec<String> = nodes::SHAPES.map(str::to_owned).to_vec();
    all.extend(pools::COUNTED.map(str::to_owned));
    all.extend(pools::listed_shapes());
    all
}

impl Example {
    /// Returns the documents of a file with it.
    ///
    /// # Errors
    /// If something cannot be written as JSON.
    pub fn documents(&self) -> Result<Vec<Value>, serde_json::Error> {
        match self {
            Self::Nodes(nodes) => Ok(vec![serde_json::to_value(nodes)?]),
            Self::Pools(pools) => pools.iter().map(serde_json::to_value).collect(),
        }
    }
}

fn text(name: &str, value: &str) -> Attribute {
    Attribute { name: name.to_owned(), value: AttributeValue::String(value.to_owned()) }
}

fn version(name: &str, value: &str) -> Attribute {
    Attribute { name: name.to_owned(), value: AttributeValue::SemVer(value.to_owned()) }
}
