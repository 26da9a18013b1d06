//! Finds a node for a pod, and devices for its unallocated claims.

use gantry_devices::lower::ClaimWarning as Remark;
use gantry_devices::problem::Budget;
use gantry_devices::{FeasibleNode, Packing, choose};
use gantry_pods::Requests;
use gantry_pods::view::Pod;

use crate::allocation_ledger::PoolLedgerEntry;
use crate::claim::Claim;
use crate::pod_claims::PendingReason;

use super::claim_status::ClaimGrant;
use super::cycle_state::CycleState;
use super::messages;
use super::node_filter::NodeCandidates;

/// The reason when no node is feasible.
pub(super) const UNSCHEDULABLE: &str = "Unschedulable";

/// A node for a pod, and what its claims get there.
#[derive(Clone, Debug)]
pub(super) struct NodeAssignment {
    /// The node, by its index in [`CycleState::nodes()`].
    pub(super) node: usize,
    /// What each of the unallocated claims gets, in their order.
    pub(super) grants: Vec<ClaimGrant>,
    /// The node resources that the devices use.
    pub(super) device_overhead: Requests,
    /// Warnings for the authors of claims.
    pub(super) warnings: Vec<Remark>,
}

/// Searches a node for a pod with these unallocated and allocated claims. The devices that are
/// reserved for the former must be reachable from the node.
///
/// What is read here of the pod and of its claims must be part of
/// [`SearchKey`](super::search_cache::SearchKey); everything else that is read must be part of the
/// cycle state. A change that reads more here must add it there.
pub(super) fn find_node(
    scene: &mut CycleState<'_>,
    pod: &Pod,
    open: &[&(String, Claim)],
    had: &[&Claim],
    lines: &[PoolLedgerEntry<'_>],
) -> Result<NodeAssignment, PendingReason> {
    let offers = NodeCandidates::new(scene, pod, had);
    if open.is_empty() {
        let Some(node) = offers.least_loaded() else {
            return Err(PendingReason::new(
                UNSCHEDULABLE,
                messages::rejection_summary(scene.nodes().len(), &offers.rejections),
            ));
        };
        let (given, extra, remarks) = (Vec::new(), Requests::default(), Vec::new());
        return Ok(NodeAssignment {
            node,
            grants: given,
            device_overhead: extra,
            warnings: remarks,
        });
    }
    let mut wanted = Vec::new();
    for (entry, claim) in open {
        let asks = claim.spec().map_err(|why| PendingReason::new("InvalidClaim", why))?;
        wanted.push((entry.as_str(), asks));
    }
    let lowered =
        scene.inventory.snapshot.request(&scene.inventory.catalog, scene.constraints, &wanted);
    let lowered = lowered.map_err(|error| messages::claim_error_reason(&error))?;
    let request = lowered.request;
    let scene: &CycleState<'_> = scene;
    let mut good: Vec<FeasibleNode> =
        offers.feasible.iter().filter(|it| reaches(scene, it.node, lines)).copied().collect();
    let mut bad = offers.rejections.clone();
    let inventory = &scene.inventory.snapshot.inventory;
    loop {
        let chosen = choose(inventory, &good, &request, Packing::BinPack, &Budget::default());
        let Some(placement) = &chosen.placement else {
            let told = messages::unschedulable_message(scene, &request, &good, &chosen, &bad);
            let reason = if told.ledger_full { "LedgerFull" } else { UNSCHEDULABLE };
            return Err(PendingReason::new(reason, told.text));
        };
        let claims = request.claims.iter().zip(&placement.allocation.claims);
        let given: Vec<ClaimGrant> =
            claims.map(|(asked, got)| ClaimGrant::new(inventory, asked, got)).collect();
        let mut extra = offers.device_overhead.clone();
        given.iter().for_each(|it| extra.add(&scene.overheads.total_for(&it.allocations)));
        let lacks = scene.insufficient_resources(pod, placement.node, &extra);
        if lacks.is_empty() {
            return Ok(NodeAssignment {
                node: placement.node,
                grants: given,
                device_overhead: extra,
                warnings: lowered.warnings,
            });
        }
        // The devices that would be allocated there use too much of the node.
        for reason in lacks {
            *bad.entry(reason).or_default() += 1;
        }
        good.retain(|it| it.node != placement.node);
    }
}

/// Whether a node reaches the pools in which devices are reserved.
fn reaches(scene: &CycleState<'_>, node: usize, lines: &[PoolLedgerEntry<'_>]) -> bool {
    let inventory = &scene.inventory.snapshot.inventory;
    let Some(node) = inventory.nodes().get(node) else { return false };
    lines.iter().all(|line| {
        node.pools
            .iter()
            .any(|at| inventory.pools().get(*at).is_some_and(|it| it.name == line.pool))
    })
}
