//! Messages about pending pods, and warnings for the authors of claims.

use std::collections::BTreeMap;

use gantry_devices::lower::{ClaimError, ClaimWarning as Remark, TermProblem};
use gantry_devices::problem::{AllocationOutcome, Budget, Reason, Request, UnsatisfiableReport};
use gantry_devices::{FeasibleNode, NodeChoice, allocate};
use gantry_reconcile::Event;

use crate::allocation_ledger::LEDGER_FULL_MESSAGE;
use crate::claim::Claim;
use crate::pod_claims::PendingReason;

use super::cycle_state::CycleState;
use super::node_filter::RejectionCounts;

/// How many nodes have their devices explained one by one; beyond that they are only counted.
const MAX_EXPLAINED_NODES: usize = 32;

/// The message when no node is feasible.
#[derive(Debug)]
pub(super) struct UnschedulableMessage {
    pub(super) text: String,
    /// Whether a pool whose ledger is full is among the reasons.
    pub(super) ledger_full: bool,
}

/// Formats `0/5 nodes: 2 Insufficient cpu, 3 insufficient devices for claim gpu (2 in use, 1
/// constraints not met).`
pub(super) fn unschedulable_message(
    scene: &CycleState<'_>,
    request: &Request,
    offers: &[FeasibleNode],
    chosen: &NodeChoice,
    bad: &RejectionCounts,
) -> UnschedulableMessage {
    let mut tally = bad.clone();
    let mut full = false;
    let mut claims = BTreeMap::<String, RejectionCounts>::new();
    let undecided =
        |offer: &&FeasibleNode| chosen.undecided.iter().any(|(node, _)| *node == offer.node);
    let refused = offers.iter().filter(|it| !undecided(it));
    for (nth, offer) in refused.enumerate() {
        let why = match nth < MAX_EXPLAINED_NODES {
            true => unsatisfied_claim(scene, request, offer.node),
            false => None,
        };
        match why {
            Some((claim, why, of_full)) => {
                full |= of_full;
                *claims.entry(claim).or_default().entry(why).or_default() += 1;
            }
            None => *tally.entry("insufficient devices".to_owned()).or_default() += 1,
        }
    }
    if !chosen.undecided.is_empty() {
        let text = "node(s) not decided within the search budget".to_owned();
        *tally.entry(text).or_default() += chosen.undecided.len();
    }
    for (claim, whys) in claims {
        let count = whys.values().sum::<usize>();
        let whys: Vec<String> = whys.iter().map(|(why, count)| format!("{count} {why}")).collect();
        let text = format!("insufficient devices for claim {claim} ({})", whys.join(", "));
        *tally.entry(text).or_default() += count;
    }
    UnschedulableMessage { text: rejection_summary(scene.nodes().len(), &tally), ledger_full: full }
}

/// Formats `0/5 nodes: 2 Insufficient cpu, 3 Too many pods.`
pub(super) fn rejection_summary(nodes: usize, tally: &RejectionCounts) -> String {
    if nodes == 0 {
        return "0/0 nodes: there are no nodes".to_owned();
    }
    let texts: Vec<String> = tally.iter().map(|(text, count)| format!("{count} {text}")).collect();
    format!("0/{nodes} nodes: {}", texts.join(", "))
}

/// Returns which claim cannot be satisfied on a node, why, and whether a full ledger is a reason.
fn unsatisfied_claim(
    scene: &CycleState<'_>,
    request: &Request,
    node: usize,
) -> Option<(String, String, bool)> {
    let inventory = &scene.inventory.snapshot.inventory;
    let AllocationOutcome::Unsatisfiable(report) =
        allocate(inventory, node, request, &Budget::default())
    else {
        return None;
    };
    let claim = report.claims.iter().position(|it| *it != Some(true))?;
    let name = request.claims.get(claim)?.name.clone();
    let terms = report.terms.iter().filter(|it| it.claim == claim);
    let mut pools = terms.flat_map(|it| &it.alternatives).flat_map(|it| &it.pools);
    let is_full =
        |reason: &Reason| matches!(reason, Reason::Invalid(why) if why == LEDGER_FULL_MESSAGE);
    let full = pools.any(|it| it.reason.as_ref().is_some_and(is_full));
    Some((name, most_frequent_reason(&report, claim), full))
}

/// Returns why a claim cannot be satisfied: the reason of most pools that have no device for it.
fn most_frequent_reason(report: &UnsatisfiableReport, claim: usize) -> String {
    let terms = report.terms.iter().filter(|it| it.claim == claim);
    let short = terms.flat_map(|it| &it.alternatives).filter(|it| it.candidates < it.wanted);
    let pools: Vec<_> = short.flat_map(|it| &it.pools).collect();
    if pools.is_empty() {
        let any = report.terms.iter().filter(|it| it.claim == claim);
        let pools = any.flat_map(|it| &it.alternatives).map(|it| it.pools.len()).sum::<usize>();
        return if pools == 0 { "no pools" } else { "no combination of devices fits" }.to_owned();
    }
    let mut counts = BTreeMap::<String, (usize, &Reason)>::new();
    for reason in pools.iter().filter_map(|it| it.reason.as_ref()) {
        counts.entry(reason_text(reason)).or_insert((0, reason)).0 += 1;
    }
    // A pool of another driver is not the reason, if there is one of the right driver.
    let best = counts.iter().max_by_key(|(_, (count, reason))| {
        (!matches!(reason, Reason::Refused(refusal) if is_other_driver_or_type(refusal)), *count)
    });
    best.map_or_else(|| "too few".to_owned(), |(text, _)| text.clone())
}

fn is_other_driver_or_type(refusal: &gantry_devices::problem::Refusal) -> bool {
    use gantry_devices::problem::Refusal;
    match refusal {
        Refusal::Driver | Refusal::DeviceType => true,
        Refusal::Error(_) | Refusal::Constraints => false,
    }
}

fn reason_text(reason: &Reason) -> String {
    match reason {
        Reason::NoneAvailable => "in use".to_owned(),
        Reason::Refused(_)
        | Reason::Invalid(_)
        | Reason::Tainted { .. }
        | Reason::NoCapacity { .. }
        | Reason::Mismatch { .. }
        | Reason::Insufficient { .. }
        | Reason::PoolExhausted { .. } => reason.to_string(),
    }
}

/// Returns the event for the author of a claim when it is allocated.
pub(super) fn warning_event(remark: &Remark, entry: &str, claim: &Claim) -> Option<Event> {
    match remark {
        Remark::LimitNotEnforced { claim: of, term, name } if of == entry => {
            let text = format!(
                "entry {term}: the limit on \"{name}\" is passed to the driver and not enforced"
            );
            Some(Event::warning(claim.reference(), "LimitNotEnforced", text))
        }
        // Only files do without classes.
        Remark::LimitNotEnforced { .. } | Remark::ClassIgnored { .. } => None,
    }
}

/// Returns the pending reason of a claim that contradicts its class, or has none.
pub(super) fn claim_error_reason(error: &ClaimError) -> PendingReason {
    let reason = match error.fault {
        TermProblem::NoClass(_) => "ClassNotFound",
        TermProblem::Driver { .. }
        | TermProblem::Mode { .. }
        | TermProblem::Count { .. }
        | TermProblem::NotANumber { .. }
        | TermProblem::All { .. } => "InvalidClaim",
    };
    PendingReason::new(reason, error.to_string())
}
