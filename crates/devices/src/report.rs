//! Reports why a request cannot be satisfied: what each term found in each pool and on each device.

use crate::allocate::solve;
use crate::eligible::{check_eligible, check_selector};
use crate::prepare::{Prepared, PreparedAlternative};
use crate::problem::{
    AlternativeReport, Budget, CountedDevices, DeviceReport, Inventory, Node, Pool, PoolDevices,
    PoolReport, Reason, Request, TermReport, UnsatisfiableReport,
};

/// Reports why a request has no solution.
pub(crate) fn report(
    prepared: &Prepared<'_>,
    inventory: &Inventory,
    node: &Node,
    budget: Budget<'_>,
    steps: u64,
) -> UnsatisfiableReport {
    let terms = all_terms(prepared, inventory, node);
    UnsatisfiableReport { claims: claims(prepared.request, inventory, node, budget), terms, steps }
}

/// Reports what each term finds on a node, whether the request has a solution or not.
pub(crate) fn terms(inventory: &Inventory, node: &Node, request: &Request) -> Vec<TermReport> {
    all_terms(&Prepared::new(inventory.symbols(), request), inventory, node)
}

fn all_terms(prepared: &Prepared<'_>, inventory: &Inventory, node: &Node) -> Vec<TermReport> {
    let mut terms: Vec<TermReport> = Vec::new();
    for term in &prepared.terms {
        let before = terms.iter().filter(|known| known.claim == term.claim).count();
        let alternatives = term
            .alternatives
            .iter()
            .map(|ask| alternative(prepared, inventory, node, ask))
            .collect();
        terms.push(TermReport { claim: term.claim, term: before, alternatives });
    }
    terms
}

/// Returns which claims can be satisfied beside those before them that can.
fn claims(
    request: &Request,
    inventory: &Inventory,
    node: &Node,
    budget: Budget<'_>,
) -> Vec<Option<bool>> {
    if let [_] = request.claims.as_slice() {
        return vec![Some(false)];
    }
    let mut kept = Request { claims: Vec::new(), ..request.clone() };
    let mut told = Vec::with_capacity(request.claims.len());
    for claim in &request.claims {
        kept.claims.push(claim.clone());
        let prepared = Prepared::new(inventory.symbols(), &kept);
        let fits = solve(&prepared, inventory, node, budget).map(|(found, _)| found.is_some());
        if fits != Ok(true) {
            kept.claims.pop();
        }
        told.push(fits.ok());
    }
    told
}

fn alternative(
    prepared: &Prepared<'_>,
    inventory: &Inventory,
    node: &Node,
    ask: &PreparedAlternative<'_>,
) -> AlternativeReport {
    let pools = node.pools.iter().filter_map(|at| Some((*at, inventory.pools().get(*at)?)));
    let pools: Vec<PoolReport> = pools
        .map(|(at, pool)| match &pool.devices {
            PoolDevices::Listed(devices) => {
                let mut reasons = Vec::new();
                for (device, listed) in devices.iter().enumerate() {
                    if let Err(reason) = check_eligible(prepared, inventory, pool, listed, ask) {
                        reasons.push(DeviceReport { device, reason });
                    }
                }
                let candidates = (devices.len() - reasons.len()) as u64;
                let reason = (candidates == 0).then(|| most_frequent(&reasons));
                PoolReport { pool: at, candidates, reason, devices: reasons }
            }
            PoolDevices::Counted(counted) => count(prepared, at, pool, counted, ask),
        })
        .collect();
    let candidates = pools.iter().map(|pool| pool.candidates).sum();
    AlternativeReport { wanted: ask.least() as u64, candidates, pools }
}

fn count(
    prepared: &Prepared<'_>,
    at: usize,
    pool: &Pool,
    counted: &CountedDevices,
    ask: &PreparedAlternative<'_>,
) -> PoolReport {
    let held = if ask.source.admin { 0 } else { counted.held };
    let there = u64::from(counted.count.saturating_sub(held));
    let asked = ask.access.iter().map(|(name, _)| *name);
    let name = asked.chain(ask.amounts.iter().map(|want| want.text)).next();
    let reason = if there == 0 {
        Some(Reason::NoneAvailable)
    } else if let Err(reason) = check_selector(prepared, ask, counted.signature) {
        Some(reason)
    } else if let Some(fault) = &pool.invalid_reason {
        Some(Reason::Invalid(fault.clone()))
    } else {
        name.map(|name| Reason::NoCapacity { name: name.to_owned(), device: pool.name.clone() })
    };
    let candidates = if reason.is_none() { there } else { 0 };
    PoolReport { pool: at, candidates, reason, devices: Vec::new() }
}

/// Returns the most frequent reason of devices; of several, the first. Without devices there is
/// none.
fn most_frequent(devices: &[DeviceReport]) -> Reason {
    let count = |reason: &Reason| devices.iter().filter(|it| same_kind(&it.reason, reason)).count();
    let mut best: Option<(usize, &Reason)> = None;
    for DeviceReport { reason, .. } in devices {
        let found = count(reason);
        let better =
            best.is_none_or(|(known, told)| found > known || found == known && reason < told);
        if better {
            best = Some((found, reason));
        }
    }
    best.map_or(Reason::NoneAvailable, |(_, reason)| reason.clone())
}

/// Whether two reasons differ in nothing but the device they are about.
fn same_kind(one: &Reason, other: &Reason) -> bool {
    match (one, other) {
        (Reason::NoCapacity { name: one, .. }, Reason::NoCapacity { name: other, .. })
        | (Reason::Insufficient { name: one, .. }, Reason::Insufficient { name: other, .. })
        | (Reason::Mismatch { name: one, .. }, Reason::Mismatch { name: other, .. }) => {
            one == other
        }
        (one, other) => one == other,
    }
}
