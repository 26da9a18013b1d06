//! Reports the results for the claims of a pod in the oldest files: every device, each by itself.
//!
//! Claims choose in the order of the file, and each is shown what those before it have left. If not
//! all of them can be served, those that can beside the ones before them still take their devices,
//! so that the first claim that blocks the others is visible.

mod device_check;
mod print;
mod result;
#[cfg(test)]
mod tests;

pub(crate) use print::best;
pub use print::{file_text, tree};
pub use result::{
    CapacityClaimResult, CapacityResult, DeviceResult, FileClaimResult, FileOutcome,
    FilePoolResult, FileResult, RequestedAmount,
};

use gantry_api::devices::{DevicePool, PodCapacityClaim, Term};

use crate::allocate::allocate;
use crate::lower::file_claims;
use crate::prepare::Prepared;
use crate::problem::{
    Allocation, AllocationOutcome, Budget, Claim, Inventory, Node, Request, TermAllocation,
    TermReport,
};
use crate::report;
use device_check::DeviceCheck;

/// What devices are called. They were called resources once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wording {
    /// "Devices".
    #[default]
    Device,
    /// "Resources", as in the first files.
    Resource,
}

impl Wording {
    const fn noun(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Resource => "resource",
        }
    }
}

/// A request that was tried on the nodes of an inventory.
#[derive(Clone, Copy, Debug)]
pub struct FileQuery<'a> {
    /// The inventory.
    pub inventory: &'a Inventory,
    /// Its pools as they were published, in its order.
    pub pools: &'a [DevicePool],
    /// The request.
    pub request: &'a Request,
    /// The claims that it was made of.
    pub pod: &'a PodCapacityClaim,
    /// The budget of each search.
    pub budget: Budget<'a>,
    /// What devices are called.
    pub wording: Wording,
}

/// Reports what was found on a node, given as an index in [`Inventory::nodes`].
#[must_use]
pub fn file_result(question: &FileQuery<'_>, node: usize) -> FileResult {
    let FileQuery { inventory, pools, request, pod, .. } = question;
    let (standing, served) = allocate_terms(question, node);
    let nowhere = Node::default();
    let node = inventory.nodes().get(node).unwrap_or(&nowhere);
    let drivers = pools.iter().map(|pool| pool.spec.driver.as_str()).collect();
    let remaining_inventory = (*inventory).clone();
    let mut show =
        ClaimReporter { remaining: remaining_inventory, drivers, node, wording: question.wording };
    let sources = file_claims(pod);
    let claims = request.claims.iter().zip(&served).enumerate().map(|(place, (claim, served))| {
        let sources = sources.get(place).map_or(&[][..], |source| source.claims.as_slice());
        let results = claim.terms.iter().zip(served).enumerate().map(|(at, (term, used))| {
            let alone = Claim { terms: vec![term.clone()], ..claim.clone() };
            let alone = Request { claims: vec![alone], ..(*request).clone() };
            show.term(&alone, sources.get(at), used.as_ref())
        });
        let results: Vec<FileClaimResult> = results.collect();
        CapacityClaimResult {
            claim_name: claim.name.clone(),
            score: mean(results.iter().map(|result| result.score)),
            device_claim_results: results,
        }
    });
    let claims: Vec<CapacityClaimResult> = claims.collect();
    FileResult {
        score: match standing {
            FileOutcome::Succeeded => mean(claims.iter().map(|claim| claim.score)),
            FileOutcome::Failed | FileOutcome::Undecided => 0,
        },
        capacity_claim_results: claims,
        node_name: node.name.clone(),
        outcome: standing,
    }
}

/// Returns the integer mean, 100 of nothing; 0 if any is 0, because that one is not satisfied.
fn mean(scores: impl Iterator<Item = u32>) -> u32 {
    let scores: Vec<u32> = scores.collect();
    let count = u32::try_from(scores.len()).unwrap_or(u32::MAX);
    if scores.contains(&0) {
        return 0;
    }
    scores.iter().sum::<u32>().checked_div(count).unwrap_or(100)
}

/// Returns what each term of each claim gets. If not all can be served, those get devices that can
/// beside the ones before them.
fn allocate_terms(
    question: &FileQuery<'_>,
    node: usize,
) -> (FileOutcome, Vec<Vec<Option<TermAllocation>>>) {
    let FileQuery { inventory, request, budget, .. } = question;
    if let AllocationOutcome::Allocated(allocation) = allocate(inventory, node, request, budget) {
        let claims = allocation.claims.into_iter();
        let terms = claims.map(|claim| claim.terms.into_iter().map(Some).collect());
        return (FileOutcome::Succeeded, terms.collect());
    }
    let mut standing = FileOutcome::Failed;
    let without_terms = |claim: &Claim| Claim { terms: Vec::new(), ..claim.clone() };
    let claims = request.claims.iter().map(without_terms).collect();
    let mut kept = Request { claims, ..(*request).clone() };
    let mut fitting: Vec<Vec<bool>> = vec![Vec::new(); request.claims.len()];
    let mut given = Allocation::default();
    for (at, claim) in request.claims.iter().enumerate() {
        for term in &claim.terms {
            kept.claims[at].terms.push(term.clone());
            let fits = match allocate(inventory, node, &kept, budget) {
                AllocationOutcome::Allocated(allocation) => {
                    given = allocation;
                    true
                }
                AllocationOutcome::Unsatisfiable(_) => false,
                AllocationOutcome::Indeterminate(_) => {
                    standing = FileOutcome::Undecided;
                    false
                }
            };
            if !fits {
                kept.claims[at].terms.pop();
            }
            fitting[at].push(fits);
        }
    }
    let mut claims = given.claims.into_iter();
    let served = fitting.into_iter().map(|fitting| {
        let mut terms = claims.next().unwrap_or_default().terms.into_iter();
        fitting.into_iter().map(|fits| if fits { terms.next() } else { None }).collect()
    });
    (standing, served.collect())
}

/// Reports for each term in turn what those before it have left.
struct ClaimReporter<'a> {
    remaining: Inventory,
    drivers: Vec<&'a str>,
    node: &'a Node,
    wording: Wording,
}

impl ClaimReporter<'_> {
    /// Returns what the only term of a request finds, and what it takes.
    fn term(
        &mut self,
        alone: &Request,
        source: Option<&Term>,
        used: Option<&TermAllocation>,
    ) -> FileClaimResult {
        let way = used.map_or(0, |used| used.alternative);
        let found = report::terms(&self.remaining, self.node, alone);
        let found = found.first().and_then(|TermReport { alternatives, .. }| alternatives.get(way));
        let prepared = Prepared::new(self.remaining.symbols(), alone);
        let ask = prepared.terms.first().and_then(|term| term.alternatives.get(way));
        let (Some(found), Some(ask)) = (found, ask) else { return FileClaimResult::default() };
        let look = DeviceCheck {
            remaining: &self.remaining,
            driver: source.and_then(|term| term.alternatives().nth(way)?.driver.as_deref()),
            drivers: &self.drivers,
            alternative: ask,
            alternative_index: way,
            used,
            wording: self.wording,
        };
        let pool_results = found.pools.iter().map(|report| look.pool(report)).collect();
        let used_pool = used.and_then(|used| used.holds.first()).map(|hold| hold.pool);
        let best = found.pools.iter().position(|report| Some(report.pool) == used_pool);
        for hold in used.iter().flat_map(|used| &used.holds) {
            let held = self.remaining.hold(hold);
            debug_assert!(held.is_ok(), "the device was found in this inventory: {held:?}");
        }
        let claims = alone.claims.iter().flat_map(|claim| &claim.terms);
        FileClaimResult {
            best: index_or_minus_one(best),
            claim_name: claims.map(|term| term.name.clone()).next().unwrap_or_default(),
            failure_reason: match used {
                Some(_) => None,
                None => Some("no pool found that can satisfy the claim".to_owned()),
            },
            pool_results,
            score: used.map_or(0, |used| used.score),
        }
    }
}

/// Returns an index as it is printed; -1 for none.
fn index_or_minus_one(at: Option<usize>) -> i64 {
    at.and_then(|at| i64::try_from(at).ok()).unwrap_or(-1)
}
