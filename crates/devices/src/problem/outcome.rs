//! The outcomes of the allocator, and their reasons.

use std::fmt;

use super::inventory::Hold;
use super::request::Refusal;

/// Whether a pod's claims can be allocated on a node.
#[derive(Clone, Debug, PartialEq)]
pub enum AllocationOutcome {
    /// They can; this is how.
    Allocated(Allocation),
    /// They cannot, whatever is tried; this is why.
    Unsatisfiable(UnsatisfiableReport),
    /// The search ended without a result. This must not be treated as unsatisfiable.
    Indeterminate(Undecided),
}

/// Why a search ended without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undecided {
    /// The budget was used up after so many steps.
    Steps(u64),
    /// The node has more devices, or a device more ways to serve a request, than are searched.
    TooLarge,
    /// It was stopped.
    Stopped,
}

/// What each claim gets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Allocation {
    /// The claims, in the order of the request.
    pub claims: Vec<ClaimAllocation>,
    /// The score, from 1 to 100, the mean of the claims; 100 without claims.
    pub score: u32,
    /// The number of search steps.
    pub steps: u64,
}

/// What a claim gets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClaimAllocation {
    /// The terms, in the order of the claim.
    pub terms: Vec<TermAllocation>,
    /// The score, from 1 to 100, the mean of the terms.
    pub score: u32,
}

/// What a term gets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TermAllocation {
    /// The index of its alternative.
    pub alternative: usize,
    /// The score, from 1 to 100.
    pub score: u32,
    /// One hold for each device, by position of the pool in the node's list, then by device.
    pub holds: Vec<Hold>,
}

impl Allocation {
    /// Returns every hold, in order.
    pub fn holds(&self) -> impl Iterator<Item = &Hold> {
        self.claims.iter().flat_map(|claim| &claim.terms).flat_map(|term| &term.holds)
    }
}

/// Why a request cannot be satisfied on a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UnsatisfiableReport {
    /// For each claim whether it can be satisfied beside those before it that can; `None` if that
    /// was not decided within the budget.
    pub claims: Vec<Option<bool>>,
    /// What each term found, in the order of the request.
    pub terms: Vec<TermReport>,
    /// The number of search steps.
    pub steps: u64,
}

/// What a term found on a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TermReport {
    /// Index of the claim in the request.
    pub claim: usize,
    /// Index of the term in the claim.
    pub term: usize,
    /// What each of its alternatives found.
    pub alternatives: Vec<AlternativeReport>,
}

/// What an alternative found on a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AlternativeReport {
    /// How many devices it needs at least.
    pub wanted: u64,
    /// How many candidates there are.
    pub candidates: u64,
    /// What it found in each pool of the node, in its order.
    pub pools: Vec<PoolReport>,
}

/// What an alternative found in a pool.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolReport {
    /// The pool, as an index in the inventory.
    pub pool: usize,
    /// How many of its devices are candidates.
    pub candidates: u64,
    /// Why none is.
    pub reason: Option<Reason>,
    /// Why each of the other devices is none, in listed order; empty for pools that only count.
    pub devices: Vec<DeviceReport>,
}

/// Why a device is not a candidate.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceReport {
    /// The device, as an index in its pool.
    pub device: usize,
    /// The reason.
    pub reason: Reason,
}

/// Why a pool or a device cannot be used. Of equally frequent reasons the first one is reported.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// There is no device, or each is held in a mode that does not allow another holder.
    NoneAvailable,
    /// Driver, type or constraints do not match.
    Refused(Refusal),
    /// The driver published something inconsistent.
    Invalid(String),
    /// A taint is not tolerated.
    Tainted {
        /// Its key.
        key: String,
    },
    /// A requested name is not published.
    NoCapacity {
        /// The name.
        name: String,
        /// The device.
        device: String,
    },
    /// A request and a capacity are of different kinds.
    Mismatch {
        /// The name.
        name: String,
        /// The device.
        device: String,
        /// The problem.
        problem: String,
    },
    /// One device would have to give more than it has.
    Insufficient {
        /// The name.
        name: String,
        /// The device.
        device: String,
    },
    /// The pool lacks a resource that the device charges.
    PoolExhausted {
        /// The pool's resource.
        name: String,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoneAvailable => f.write_str("no available devices"),
            Self::Refused(Refusal::Driver) => f.write_str("claim and pool driver do not match"),
            Self::Refused(Refusal::DeviceType) => {
                f.write_str("claim and pool device type do not match")
            }
            Self::Refused(Refusal::Error(text)) => {
                write!(f, "error evaluating constraints: {text}")
            }
            Self::Refused(Refusal::Constraints) => f.write_str("constraints not met"),
            Self::Invalid(text) => write!(f, "pool is invalid: {text}"),
            Self::Tainted { key } => write!(f, "taint \"{key}\" is not tolerated"),
            Self::NoCapacity { name, device } => {
                write!(f, "no capacity \"{name}\" present in device \"{device}\"")
            }
            Self::Mismatch { name, device, problem } => {
                write!(f, "error evaluating capacity \"{name}\" in device \"{device}\": {problem}")
            }
            Self::Insufficient { name, device } => {
                write!(f, "insufficient capacity \"{name}\" present in device \"{device}\"")
            }
            Self::PoolExhausted { name } => {
                write!(f, "not enough \"{name}\" is left in the pool for the device")
            }
        }
    }
}
