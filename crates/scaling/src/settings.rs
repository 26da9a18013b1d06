//! What the controller is told.

use std::time::Duration;

use gantry_reconcile::Key;

/// How nodes are bought, and where that is written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What may change while the controller runs.
    pub limits: Limits,
    /// Where nodes come from.
    pub backend: Backend,
    /// The ConfigMap that says what was granted.
    pub ledger: Key,
}

/// How much is bought, and how long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most nodes that are added in all.
    pub nodes: u32,
    /// How long new nodes may take to come before they are given up.
    pub provision: Duration,
    /// How long nodes stay after they are no longer needed.
    pub cooldown: Duration,
}

/// Where nodes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// MachineSets that are there are made larger.
    Reuse,
    /// MachineSets that are there are copied.
    Duplicate,
    /// Pools of a managed cluster.
    Pools(PoolKind),
    /// Groups of pretended nodes.
    Groups,
}

/// Which pools a managed cluster has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolKind {
    /// Machine pools, where the control plane is in the cluster.
    Machine,
    /// Node pools, where the control plane is hosted.
    Node,
}

impl PoolKind {
    /// How long the name of a pool may be.
    #[must_use]
    pub fn longest_name(self) -> usize {
        match self {
            Self::Machine => 30,
            Self::Node => 15,
        }
    }
}
