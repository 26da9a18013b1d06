//! What was found on each node, in the shapes and words that the original printed.
//!
//! For each term of each claim the pools of a node are listed in sets: all of one pool, then all of
//! two, and so on up to the first size with a set that suffices. A set is looked at by itself, and
//! filled from its first pool on; the set that was really used shows what was really taken.

pub mod file;
mod print;
mod sets;
#[cfg(test)]
mod tests;

pub(crate) use print::ordered;
pub use print::{normal, verbose};

use serde::Serialize;

use crate::problem::{Answer, Inventory, Node, Request, TermAllocation, TermReport};
use crate::report;

/// What was found on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct NodeResult {
    /// For each term of each claim.
    pub device_claim_results: Vec<DeviceClaimResult>,
    /// Name of the node.
    pub node_name: String,
    /// Whether, and how well, all claims are satisfied.
    #[serde(skip)]
    pub outcome: Outcome,
}

/// What became of a request on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All claims are satisfied.
    Satisfied {
        /// From 1 to 100.
        score: u32,
    },
    /// Some are not.
    Unsatisfied {
        /// Their names.
        claims: Vec<String>,
    },
    /// The search ended before it knew.
    Undecided,
}

impl Default for Outcome {
    fn default() -> Self {
        Self::Satisfied { score: 100 }
    }
}

/// What was found for a term. Fields are in the order in which they are printed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceClaimResult {
    /// The set that is used, by place in `pool_set_results`; -1 if none is.
    pub best: i64,
    /// The claim, and its term if it has several.
    pub claim_name: String,
    /// Pools that have nothing to give to the term.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignored_pools: Vec<PoolResult>,
    /// Sets of the others; none if there are none.
    pub pool_set_results: Option<Vec<PoolSetResult>>,
    /// Whether there are more sets than are listed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// What a set of pools has to give to a term.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolSetResult {
    /// Why it does not suffice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// For each pool of the set.
    pub pool_results: Vec<PoolResult>,
    /// From 1 to 100; 0 if it does not suffice.
    pub score: u32,
}

/// What a pool has to give to a term.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolResult {
    /// How many devices.
    pub device_count: u64,
    /// Which, if they have names and are used.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub device_names: Vec<String>,
    /// Why it gives none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// Name of the pool.
    pub pool_name: String,
}

/// What was found on a node, given as a place in [`Inventory::nodes`], and answered about it.
#[must_use]
pub fn node_result(
    inventory: &Inventory,
    node: usize,
    request: &Request,
    answer: &Answer,
) -> NodeResult {
    let nowhere = Node::default();
    let node = inventory.nodes().get(node).unwrap_or(&nowhere);
    let terms = report::terms(inventory, node, request);
    let results = terms.iter().map(|term| {
        let used = used(term, answer);
        let satisfied = match answer {
            Answer::Allocated(_) => true,
            Answer::Unsatisfiable(report) => report.claims.get(term.claim) == Some(&Some(true)),
            Answer::Indeterminate(_) => false,
        };
        sets::claim_result(inventory, request, term, used, satisfied)
    });
    let outcome = match answer {
        Answer::Allocated(allocation) => Outcome::Satisfied { score: allocation.score },
        Answer::Unsatisfiable(report) => {
            let known = request.claims.iter().zip(&report.claims);
            let missing = known.filter(|(_, fits)| **fits != Some(true));
            Outcome::Unsatisfied { claims: missing.map(|(claim, _)| claim.name.clone()).collect() }
        }
        Answer::Indeterminate(_) => Outcome::Undecided,
    };
    NodeResult { device_claim_results: results.collect(), node_name: node.name.clone(), outcome }
}

/// What a term got, if anything was allocated.
fn used<'a>(term: &TermReport, answer: &'a Answer) -> Option<&'a TermAllocation> {
    match answer {
        Answer::Allocated(allocation) => {
            allocation.claims.get(term.claim).and_then(|claim| claim.terms.get(term.term))
        }
        Answer::Unsatisfiable(_) | Answer::Indeterminate(_) => None,
    }
}
