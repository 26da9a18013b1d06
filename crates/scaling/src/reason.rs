//! Why a job has no nodes, or not all of them.

use std::borrow::Cow;

use gantry_reconcile::{Held, Key, ObjectReference};
use jiff::Timestamp;

use crate::demand::Demand;
use crate::grant_record::GrantRecordError;
use crate::machine_set::MalformedMachineSet;

/// Why nothing more is done about a job for now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// More nodes are needed than may be added, or than are left of the limit.
    Limit {
        /// What is needed.
        demand: Demand,
        /// The most nodes that may be added in all.
        most: u32,
    },
    /// Nothing provides nodes of a type.
    NoSource {
        /// The type.
        instance: String,
        /// What would provide them: a MachineSet, a node group.
        source: &'static str,
    },
    /// A MachineSet that may provide the type cannot be read.
    Malformed(MalformedMachineSet),
    /// A group cannot become so large.
    GroupFull {
        /// The group.
        group: String,
        /// The most nodes it may have.
        most: u32,
    },
    /// Another job has the same owner labels.
    ConflictingJob(Key),
    /// The required name is taken by an object that was not created for the job.
    NameTaken {
        /// The kind of the object.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// Nodes are being provisioned.
    Provisioning {
        /// How many are ready.
        ready: u32,
        /// How many there will be.
        wanted: u32,
        /// When provisioning times out.
        until: Timestamp,
    },
    /// Nodes were not ready in time and were released.
    GaveUp {
        /// What was needed.
        demand: Demand,
    },
    /// The job is over, and its nodes stay for a while.
    Cooldown {
        /// When the cooldown ends.
        until: Timestamp,
    },
    /// The job is over, and its nodes are being released.
    Releasing,
    /// The pools of the cluster are not listed yet.
    PoolsUnknown,
    /// The grant record cannot be read.
    GrantRecord(GrantRecordError),
}

impl Reason {
    /// Returns the reason, for programs.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Limit { .. } => "ScaleOutLimit",
            Self::NoSource { .. } => "NoInstanceType",
            Self::Malformed(_) => "MachineSetUnreadable",
            Self::GroupFull { .. } => "NodeGroupFull",
            Self::ConflictingJob(_) => "MarksTaken",
            Self::NameTaken { .. } => "NameTaken",
            Self::Provisioning { .. } => "Provisioning",
            Self::GaveUp { .. } => "ProvisioningTimedOut",
            Self::Cooldown { .. } => "CoolingDown",
            Self::Releasing => "GivingBack",
            Self::PoolsUnknown => "PoolsUnknown",
            Self::GrantRecord(_) => "LedgerUnreadable",
        }
    }

    /// Returns the reason as a sentence that says what to do about it.
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
            Self::Malformed(malformed) => format!("{malformed}; correct it"),
            Self::GroupFull { group, most } => format!(
                "node group {group:?} may have {most} nodes and no more; waits until others have \
                 given theirs back"
            ),
            Self::ConflictingJob(other) => format!(
                "AppWrapper {other} has the same labels on its nodes; waits until it is over"
            ),
            Self::NameTaken { kind, name } => {
                format!("{kind} {name:?} exists and was not created for this job; remove it")
            }
            Self::Provisioning { ready, wanted, .. } => {
                format!("{ready} of {wanted} nodes are ready")
            }
            Self::GaveUp { demand } => format!(
                "the nodes it needs ({demand}) were not ready in time and are released; remove the \
                 annotation {} to try again",
                crate::owner_labels::GAVE_UP_ANNOTATION
            ),
            Self::Cooldown { .. } => {
                "the job is over, and its nodes are kept for the next one".to_owned()
            }
            Self::Releasing => "the job is over, and not all of its nodes are released".to_owned(),
            Self::PoolsUnknown => "the pools of the cluster are not known yet".to_owned(),
            Self::GrantRecord(error) => {
                format!("{error}; nothing is bought or released until it is corrected")
            }
        }
    }

    /// Returns whether the reason is written to the job itself: its author can act on it, or waits
    /// for it.
    #[must_use]
    pub fn is_reported_on_job(&self) -> bool {
        match self {
            Self::Limit { .. }
            | Self::NoSource { .. }
            | Self::Malformed(_)
            | Self::GroupFull { .. }
            | Self::ConflictingJob(_)
            | Self::NameTaken { .. }
            | Self::GaveUp { .. } => true,
            Self::Provisioning { .. }
            | Self::Cooldown { .. }
            | Self::Releasing
            | Self::PoolsUnknown
            | Self::GrantRecord(_) => false,
        }
    }

    /// Returns the held reason about a job.
    #[must_use]
    pub fn held(&self, about: ObjectReference) -> Held {
        let until = match self {
            Self::Provisioning { until, .. } | Self::Cooldown { until } => Some(*until),
            Self::Limit { .. }
            | Self::NoSource { .. }
            | Self::Malformed(_)
            | Self::GroupFull { .. }
            | Self::ConflictingJob(_)
            | Self::NameTaken { .. }
            | Self::GaveUp { .. }
            | Self::Releasing
            | Self::PoolsUnknown
            | Self::GrantRecord(_) => None,
        };
        Held { about, reason: Cow::Borrowed(self.as_str()), message: self.message(), until }
    }
}
