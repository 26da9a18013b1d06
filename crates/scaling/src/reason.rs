//! Why a job has no nodes, or not all of them.

use std::borrow::Cow;

use gantry_reconcile::{Held, Key, Reference};
use jiff::Timestamp;

use crate::demand::Demand;
use crate::ledger::LedgerError;
use crate::machine_set::Malformed;

/// Why nothing more is done about a job for now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// More nodes are needed than may be added, or than are left of that.
    Limit {
        /// What is needed.
        demand: Demand,
        /// The most nodes that may be added in all.
        most: u32,
    },
    /// Nothing gives nodes of a type.
    NoSource {
        /// The type.
        instance: String,
        /// What would: a MachineSet, a node group.
        source: &'static str,
    },
    /// A MachineSet that may be the one that is needed cannot be read.
    Malformed(Malformed),
    /// A group cannot become so large.
    GroupFull {
        /// The group.
        group: String,
        /// The most nodes it may have.
        most: u32,
    },
    /// Another job has the same marks.
    Rival(Key),
    /// Something that was not made for the job has the name that is needed.
    NameTaken {
        /// What it is.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// Nodes are on their way.
    Provisioning {
        /// How many are there.
        ready: u32,
        /// How many there will be.
        wanted: u32,
        /// When they are given up.
        until: Timestamp,
    },
    /// Nodes did not come in time and were given up.
    GaveUp {
        /// What was needed.
        demand: Demand,
    },
    /// The job is over, and its nodes stay for a while.
    Cooldown {
        /// How long.
        until: Timestamp,
    },
    /// The job is over, and not everything is given back.
    Returning,
    /// The pools of the cluster were not heard of yet.
    PoolsUnknown,
    /// Nobody knows what was granted.
    Ledger(LedgerError),
}

impl Reason {
    /// Why, in one word.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Limit { .. } => "ScaleOutLimit",
            Self::NoSource { .. } => "NoInstanceType",
            Self::Malformed(_) => "MachineSetUnreadable",
            Self::GroupFull { .. } => "NodeGroupFull",
            Self::Rival(_) => "MarksTaken",
            Self::NameTaken { .. } => "NameTaken",
            Self::Provisioning { .. } => "Provisioning",
            Self::GaveUp { .. } => "ProvisioningTimedOut",
            Self::Cooldown { .. } => "CoolingDown",
            Self::Returning => "GivingBack",
            Self::PoolsUnknown => "PoolsUnknown",
            Self::Ledger(_) => "LedgerUnreadable",
        }
    }

    /// Why, in a sentence that says what to do about it.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Self::Limit { demand, most } if demand.total() > *most => format!(
                "needs {demand}, and no more than {most} nodes may be added at all; ask for less, \
                 or raise instascale.maxScaleoutAllowed"
            ),
            Self::Limit { demand, most } => format!(
                "needs {demand}, and no more than {most} nodes may be added in all; waits until \
                 others have given theirs back"
            ),
            Self::NoSource { instance, source } => format!(
                "there is no {source} of type {instance:?}; add one, or correct the label \
                 orderedinstance"
            ),
            Self::Malformed(malformed) => format!("{malformed}; mend it"),
            Self::GroupFull { group, most } => format!(
                "node group {group:?} may have {most} nodes and no more; waits until others have \
                 given theirs back"
            ),
            Self::Rival(other) => format!(
                "AppWrapper {other} has the same labels on its nodes; waits until it is over"
            ),
            Self::NameTaken { kind, name } => {
                format!("{kind} {name:?} is there and was not made for this job; remove it")
            }
            Self::Provisioning { ready, wanted, .. } => {
                format!("{ready} of {wanted} nodes are ready")
            }
            Self::GaveUp { demand } => format!(
                "the nodes it needs ({demand}) did not come in time and were given up; remove the \
                 annotation {} to try again",
                crate::marks::GAVE_UP
            ),
            Self::Cooldown { .. } => {
                "it is over, and its nodes are kept for the next one".to_owned()
            }
            Self::Returning => "it is over, and not all of its nodes are given back".to_owned(),
            Self::PoolsUnknown => "the pools of the cluster are not known yet".to_owned(),
            Self::Ledger(error) => {
                format!("{error}; nothing is bought or given back until it is mended")
            }
        }
    }

    /// Whether it is said on the job itself: what its author can do something about, or waits for.
    #[must_use]
    pub fn is_told(&self) -> bool {
        match self {
            Self::Limit { .. }
            | Self::NoSource { .. }
            | Self::Malformed(_)
            | Self::GroupFull { .. }
            | Self::Rival(_)
            | Self::NameTaken { .. }
            | Self::GaveUp { .. } => true,
            Self::Provisioning { .. }
            | Self::Cooldown { .. }
            | Self::Returning
            | Self::PoolsUnknown
            | Self::Ledger(_) => false,
        }
    }

    /// The reason as what is held about a job.
    #[must_use]
    pub fn held(&self, about: Reference) -> Held {
        let until = match self {
            Self::Provisioning { until, .. } | Self::Cooldown { until } => Some(*until),
            Self::Limit { .. }
            | Self::NoSource { .. }
            | Self::Malformed(_)
            | Self::GroupFull { .. }
            | Self::Rival(_)
            | Self::NameTaken { .. }
            | Self::GaveUp { .. }
            | Self::Returning
            | Self::PoolsUnknown
            | Self::Ledger(_) => None,
        };
        Held { about, reason: Cow::Borrowed(self.word()), message: self.message(), until }
    }
}
