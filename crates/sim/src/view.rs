//! What the controllers here read of each kind.
//!
//! Only what somebody decides by. Templates of pods are kept as they are, because they are copied.

mod node;
mod pod;

pub use node::{Node, NodeCondition, NodeSpec, NodeStatus, Taint, TaintEffect};
pub use pod::{
    Affinity, Condition, Container, ContainerState, ContainerStatus, Named, NodeAffinity,
    NodeSelector, NodeSelectorTerm, Phase, Pod, PodAffinity, PodAffinityTerm, PodSpec, PodStatus,
    Port, Preferred, Resources, RestartPolicy, SpreadConstraint, Terminated, Toleration, Truth,
    Waiting, Weighted,
};

use std::collections::BTreeMap;

use gantry_api::quantity::Quantity;

/// Amounts by the name of what is counted: `cpu`, `memory`, `example.com/gpu`.
pub type Amounts = BTreeMap<String, Quantity>;
