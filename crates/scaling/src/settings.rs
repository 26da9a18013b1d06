//! Settings of the scaling controller.

use std::time::Duration;

use gantry_reconcile::Key;

/// How nodes are bought, and where grants are recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What may change while the controller runs.
    pub limits: Limits,
    /// Where nodes come from.
    pub backend: Backend,
    /// The ConfigMap that records what was granted.
    pub grant_record: Key,
}

/// How much is bought, and how long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of nodes that are added in all.
    pub max_nodes: u32,
    /// How long new nodes may take to become ready before they are released.
    pub provision_timeout: Duration,
    /// How long nodes stay after they are no longer needed.
    pub cooldown: Duration,
}

/// Where nodes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Existing MachineSets are scaled up.
    Reuse,
    /// Existing MachineSets are copied.
    Duplicate,
    /// Pools of a managed cluster.
    Pools(PoolKind),
    /// Groups of simulated nodes.
    Groups,
}

/// Which kind of pools a managed cluster has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolKind {
    /// Machine pools, where the control plane is in the cluster.
    Machine,
    /// Node pools, where the control plane is hosted.
    Node,
}

impl PoolKind {
    /// Returns the maximum length of the name of a pool.
    #[must_use]
    pub fn max_name_length(self) -> usize {
        match self {
            Self::Machine => 30,
            Self::Node => 15,
        }
    }
}
