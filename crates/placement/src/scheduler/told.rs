//! Why a pod waits, and what its authors are told, in words.

use std::collections::BTreeMap;

use gantry_devices::lower::{ClaimError, Fault, Note as Remark};
use gantry_devices::problem::{Answer, Budget, Reason, Report, Request};
use gantry_devices::{Chosen, Offer, allocate};
use gantry_reconcile::Note;

use crate::carrier::Trouble;
use crate::claim::Claim;
use crate::ledger;

use super::offer::Tally;
use super::scene::Scene;

/// Nodes whose devices are looked at one by one; beyond that they are only counted.
const EXPLAINED: usize = 32;

/// What is said when no node will do.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) text: String,
    /// Whether a pool whose ledger is full is among the reasons.
    pub(super) full: bool,
}

/// `0/5 nodes: 2 Insufficient cpu, 3 insufficient devices for claim gpu (2 in use, 1 constraints not
/// met).`
pub(super) fn message(
    scene: &Scene<'_>,
    request: &Request,
    offers: &[Offer],
    chosen: &Chosen,
    bad: &Tally,
) -> Told {
    let mut tally = bad.clone();
    let mut full = false;
    let mut claims = BTreeMap::<String, Tally>::new();
    let undecided = |offer: &&Offer| chosen.undecided.iter().any(|(node, _)| *node == offer.node);
    let refused = offers.iter().filter(|it| !undecided(it));
    for (nth, offer) in refused.enumerate() {
        let why = match nth < EXPLAINED {
            true => why(scene, request, offer.node),
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
        let text = "node(s) of which it was not found out within the budget".to_owned();
        *tally.entry(text).or_default() += chosen.undecided.len();
    }
    for (claim, whys) in claims {
        let count = whys.values().sum::<usize>();
        let whys: Vec<String> = whys.iter().map(|(why, count)| format!("{count} {why}")).collect();
        let text = format!("insufficient devices for claim {claim} ({})", whys.join(", "));
        *tally.entry(text).or_default() += count;
    }
    Told { text: spell(scene.sites().len(), &tally), full }
}

/// `0/5 nodes: 2 Insufficient cpu, 3 Too many pods.`
pub(super) fn spell(nodes: usize, tally: &Tally) -> String {
    if nodes == 0 {
        return "0/0 nodes: there are no nodes".to_owned();
    }
    let texts: Vec<String> = tally.iter().map(|(text, count)| format!("{count} {text}")).collect();
    format!("0/{nodes} nodes: {}", texts.join(", "))
}

/// Which claim cannot be satisfied on a node, why, and whether a full ledger has to do with it.
fn why(scene: &Scene<'_>, request: &Request, node: usize) -> Option<(String, String, bool)> {
    let inventory = &scene.stock.snapshot.inventory;
    let Answer::Unsatisfiable(report) = allocate(inventory, node, request, &Budget::default())
    else {
        return None;
    };
    let claim = report.claims.iter().position(|it| *it != Some(true))?;
    let name = request.claims.get(claim)?.name.clone();
    let terms = report.terms.iter().filter(|it| it.claim == claim);
    let mut pools = terms.flat_map(|it| &it.alternatives).flat_map(|it| &it.pools);
    let full =
        pools.any(|it| matches!(&it.reason, Some(Reason::Invalid(why)) if why == ledger::FULL));
    Some((name, reason(&report, claim), full))
}

/// What stands in the way of a claim: what most of the pools say that have no device for it.
fn reason(report: &Report, claim: usize) -> String {
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
        counts.entry(text(reason)).or_insert((0, reason)).0 += 1;
    }
    // Another driver's pool is not what anybody waits for, if there is one of the right driver.
    let best = counts.iter().max_by_key(|(_, (count, reason))| {
        (!matches!(reason, Reason::Refused(refusal) if is_foreign(refusal)), *count)
    });
    best.map_or_else(|| "too few".to_owned(), |(text, _)| text.clone())
}

fn is_foreign(refusal: &gantry_devices::problem::Refusal) -> bool {
    use gantry_devices::problem::Refusal;
    match refusal {
        Refusal::Driver | Refusal::DeviceType => true,
        Refusal::Error(_) | Refusal::Constraints => false,
    }
}

fn text(reason: &Reason) -> String {
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

/// What the author of a claim is told when it gets its devices.
pub(super) fn remark(remark: &Remark, entry: &str, claim: &Claim) -> Option<Note> {
    match remark {
        Remark::LimitNotEnforced { claim: of, term, name } if of == entry => {
            let text =
                format!("entry {term}: the limit on \"{name}\" is passed on and bounds nothing");
            Some(Note::warning(claim.reference(), "LimitNotEnforced", text))
        }
        // Only files do without classes.
        Remark::LimitNotEnforced { .. } | Remark::ClassIgnored { .. } => None,
    }
}

/// A claim that contradicts its class, or has none.
pub(super) fn refused(error: &ClaimError) -> Trouble {
    let reason = match error.fault {
        Fault::NoClass(_) => "ClassNotFound",
        Fault::Driver { .. }
        | Fault::Mode { .. }
        | Fault::Count { .. }
        | Fault::NotANumber { .. }
        | Fault::All { .. } => "InvalidClaim",
    };
    Trouble::new(reason, error.to_string())
}
