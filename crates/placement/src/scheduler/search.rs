//! Finds a node for a pod, and devices for those of its claims that have none.

use gantry_devices::lower::Note as Remark;
use gantry_devices::problem::Budget;
use gantry_devices::{Offer, Packing, choose};
use gantry_pods::Requests;
use gantry_pods::view::Pod;

use crate::carrier::Trouble;
use crate::claim::Claim;
use crate::ledger::Line;

use super::offer::Offers;
use super::scene::Scene;
use super::status::Given;
use super::told;

/// No node will do.
pub(super) const NO_NODE: &str = "Unschedulable";

/// Where a pod can be, and what its claims get there.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// The node, by its place in [`Scene::sites`].
    pub(super) node: usize,
    /// What each of the claims gets that have nothing, in their order.
    pub(super) given: Vec<Given>,
    /// What the devices take of the node.
    pub(super) extra: Requests,
    /// What the authors of claims should know.
    pub(super) remarks: Vec<Remark>,
}

/// Searches, for a pod with these claims that have nothing and those that have their devices. What is
/// set aside for the former has to be reached from the node.
///
/// What is looked at of the pod and of its claims is what makes a
/// [`Question`](super::answers::Question); what is looked at beside them is the scene's. Who looks at
/// more here adds it there.
pub(super) fn find(
    scene: &mut Scene<'_>,
    pod: &Pod,
    open: &[&(String, Claim)],
    had: &[&Claim],
    lines: &[Line<'_>],
) -> Result<Found, Trouble> {
    let offers = Offers::new(scene, pod, had);
    if open.is_empty() {
        let Some(node) = offers.emptiest() else {
            return Err(Trouble::new(NO_NODE, told::spell(scene.sites().len(), &offers.bad)));
        };
        let (given, extra, remarks) = (Vec::new(), Requests::default(), Vec::new());
        return Ok(Found { node, given, extra, remarks });
    }
    let mut wanted = Vec::new();
    for (entry, claim) in open {
        let asks = claim.wanted().map_err(|why| Trouble::new("InvalidClaim", why))?;
        wanted.push((entry.as_str(), asks));
    }
    let lowered = scene.stock.snapshot.request(&scene.stock.catalog, scene.constraints, &wanted);
    let lowered = lowered.map_err(|error| told::refused(&error))?;
    let request = lowered.request;
    let scene: &Scene<'_> = scene;
    let mut good: Vec<Offer> =
        offers.good.iter().filter(|it| reaches(scene, it.node, lines)).copied().collect();
    let mut bad = offers.bad.clone();
    let inventory = &scene.stock.snapshot.inventory;
    loop {
        let chosen = choose(inventory, &good, &request, Packing::Tight, &Budget::default());
        let Some(placement) = &chosen.placement else {
            let told = told::message(scene, &request, &good, &chosen, &bad);
            let reason = if told.full { "LedgerFull" } else { NO_NODE };
            return Err(Trouble::new(reason, told.text));
        };
        let claims = request.claims.iter().zip(&placement.allocation.claims);
        let given: Vec<Given> =
            claims.map(|(asked, got)| Given::new(inventory, asked, got)).collect();
        let mut extra = offers.extra.clone();
        given.iter().for_each(|it| extra.add(&scene.overheads.of(&it.allocations)));
        let lacks = scene.lacks(pod, placement.node, &extra);
        if lacks.is_empty() {
            return Ok(Found { node: placement.node, given, extra, remarks: lowered.notes });
        }
        // The devices that would be taken there take too much of it.
        for reason in lacks {
            *bad.entry(reason).or_default() += 1;
        }
        good.retain(|it| it.node != placement.node);
    }
}

/// Whether a node reaches the pools in which something is set aside.
fn reaches(scene: &Scene<'_>, node: usize, lines: &[Line<'_>]) -> bool {
    let inventory = &scene.stock.snapshot.inventory;
    let Some(node) = inventory.nodes().get(node) else { return false };
    lines.iter().all(|line| {
        node.pools
            .iter()
            .any(|at| inventory.pools().get(*at).is_some_and(|it| it.name == line.pool))
    })
}
