//! Reports what was found on each node, in the format and words of the original.
//!
//! For each term of each claim the pools of a node are listed in sets: all of one pool, then all of
//! two, and so on up to the first size with a sufficient set. Each set is considered by itself, and
//! filled from its first pool on; the set that was really used shows what was really allocated.

pub mod file;
mod print;
mod sets;
#[cfg(test)]
mod tests;

pub(crate) use print::ordered;
pub use print::{normal, verbose};

use serde::Serialize;

use crate::problem::{AllocationOutcome, Inventory, Node, Request, TermAllocation, TermReport};
use crate::report;

/// The result for a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct NodeResult {
    /// The result for each term of each claim.
    pub device_claim_results: Vec<DeviceClaimResult>,
    /// Name of the node.
    pub node_name: String,
    /// Whether all claims are satisfied, and with which score.
    #[serde(skip)]
    pub outcome: Outcome,
}

/// The outcome of a request on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All claims are satisfied.
    Satisfied {
        /// The score, from 1 to 100.
        score: u32,
    },
    /// Some claims are not satisfied.
    Unsatisfied {
        /// The names of those claims.
        claims: Vec<String>,
    },
    /// The search ended without a result.
    Undecided,
}

impl Default for Outcome {
    fn default() -> Self {
        Self::Satisfied { score: 100 }
    }
}

/// The result for a term. Fields are in the order in which they are printed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceClaimResult {
    /// The set that is used, by its index in `pool_set_results`; -1 if none is.
    pub best: i64,
    /// The claim, and its term if it has several.
    pub claim_name: String,
    /// Pools without any suitable device for the term.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignored_pools: Vec<PoolResult>,
    /// Sets of the other pools; `None` if there are none.
    pub pool_set_results: Option<Vec<PoolSetResult>>,
    /// Whether there are more sets than are listed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// What a set of pools offers for a term.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolSetResult {
    /// Why it is not sufficient.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// The result for each pool of the set.
    pub pool_results: Vec<PoolResult>,
    /// The score, from 1 to 100; 0 if the set is not sufficient.
    pub score: u32,
}

/// What a pool offers for a term.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolResult {
    /// The number of devices.
    pub device_count: u64,
    /// The devices, if they have names and are used.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub device_names: Vec<String>,
    /// Why it offers none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// Name of the pool.
    pub pool_name: String,
}

/// Reports what was found on a node, given as an index in [`Inventory::nodes`], with its outcome.
#[must_use]
pub fn node_result(
    inventory: &Inventory,
    node: usize,
    request: &Request,
    answer: &AllocationOutcome,
) -> NodeResult {
    let nowhere = Node::default();
    let node = inventory.nodes().get(node).unwrap_or(&nowhere);
    let terms = report::terms(inventory, node, request);
    let results = terms.iter().map(|term| {
        let used = used_allocation(term, answer);
        let satisfied = match answer {
            AllocationOutcome::Allocated(_) => true,
            AllocationOutcome::Unsatisfiable(report) => {
                report.claims.get(term.claim) == Some(&Some(true))
            }
            AllocationOutcome::Indeterminate(_) => false,
        };
        sets::claim_result(inventory, request, term, used, satisfied)
    });
    let outcome = match answer {
        AllocationOutcome::Allocated(allocation) => Outcome::Satisfied { score: allocation.score },
        AllocationOutcome::Unsatisfiable(report) => {
            let known = request.claims.iter().zip(&report.claims);
            let missing = known.filter(|(_, fits)| **fits != Some(true));
            Outcome::Unsatisfied { claims: missing.map(|(claim, _)| claim.name.clone()).collect() }
        }
        AllocationOutcome::Indeterminate(_) => Outcome::Undecided,
    };
    NodeResult { device_claim_results: results.collect(), node_name: node.name.clone(), outcome }
}

/// Returns what a term got, if anything was allocated.
fn used_allocation<'a>(
    term: &TermReport,
    answer: &'a AllocationOutcome,
) -> Option<&'a TermAllocation> {
    match answer {
        AllocationOutcome::Allocated(allocation) => {
            allocation.claims.get(term.claim).and_then(|claim| claim.terms.get(term.term))
        }
        AllocationOutcome::Unsatisfiable(_) | AllocationOutcome::Indeterminate(_) => None,
    }
}
