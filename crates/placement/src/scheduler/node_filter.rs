//! Filters the nodes that are feasible for a pod, devices apart.

use std::collections::BTreeMap;

use gantry_devices::FeasibleNode;
use gantry_pods::fit;
use gantry_pods::view::{Node, NodeSelector, Pod};
use gantry_pods::{NodeInfo, PodRequirements, Requests};

use crate::claim::Claim;
use crate::scheduling_gate;

use super::cycle_state::CycleState;

/// How many nodes are rejected, by reason.
pub(super) type RejectionCounts = BTreeMap<String, usize>;

/// The feasible nodes, and why the others are rejected.
#[derive(Debug, Default)]
pub(super) struct NodeCandidates {
    pub(super) feasible: Vec<FeasibleNode>,
    pub(super) rejections: RejectionCounts,
    /// The node resources that devices which are allocated to the pod already will use on its node.
    pub(super) device_overhead: Requests,
}

impl NodeCandidates {
    /// Checks every node against the requirements of a pod and the location of the devices it has
    /// already.
    pub(super) fn new(scene: &CycleState<'_>, pod: &Pod, had: &[&Claim]) -> Self {
        let mut need = PodRequirements::new(pod);
        let refused = scene.refusals.for_pod(pod);
        let mut offers = Self::default();
        let place = scheduling_gate::assigned_node(pod);
        // Devices that are bound to a node are counted there.
        for claim in had.iter().filter(|it| it.node_name().is_none()) {
            offers.device_overhead.add(&scene.overheads.total_for(claim.allocations()));
        }
        need.requests.add(&offers.device_overhead);
        let pins: Vec<ClaimLocation<'_>> =
            had.iter().filter_map(|claim| ClaimLocation::of(claim)).collect();
        for (node, site) in scene.nodes().iter().enumerate() {
            let name = &site.node.metadata.name;
            let misfit = match refused.iter().any(|it| it.node_name == *name) {
                true => {
                    Some(vec!["node(s) were recently rejected by the pod's scheduler".to_owned()])
                }
                false => rejection_reasons(&need, site, &place, &pins),
            };
            match misfit {
                None => {
                    offers.feasible.push(FeasibleNode { node, load: requested_share(&need, site) });
                }
                Some(reasons) => {
                    for reason in reasons {
                        *offers.rejections.entry(reason).or_default() += 1;
                    }
                }
            }
        }
        offers
    }

    /// Returns the least loaded node; of equal ones the first by name.
    pub(super) fn least_loaded(&self) -> Option<usize> {
        self.feasible.iter().min_by_key(|it| (it.load, it.node)).map(|it| it.node)
    }
}

/// Where a claim's devices are.
struct ClaimLocation<'a> {
    claim: &'a str,
    node: Option<&'a str>,
    selector: Option<NodeSelector>,
}

impl<'a> ClaimLocation<'a> {
    fn of(claim: &'a Claim) -> Option<Self> {
        let node = claim.node_name();
        // The same fields in the API's types; a selector that it does not have matches no node.
        let read = |it| serde_json::from_value(serde_json::json!(it)).unwrap_or_default();
        let selector = claim.node_selector().map(read);
        (node.is_some() || selector.is_some()).then(|| Self { claim: claim.name(), node, selector })
    }

    fn allows(&self, node: &Node) -> bool {
        self.node.is_none_or(|it| it == node.metadata.name)
            && self.selector.as_ref().is_none_or(|it| fit::matches_node(it, node))
    }
}

/// Returns why a node is rejected.
fn rejection_reasons<'a>(
    need: &PodRequirements<'a>,
    site: &NodeInfo<'a>,
    place: &str,
    pins: &[ClaimLocation<'_>],
) -> Option<Vec<String>> {
    let node = site.node;
    if !place.is_empty() {
        // The pod is there, or will be, whether the node is feasible or not.
        let other = || vec!["node(s) were not the pod's assigned node".to_owned()];
        return (place != node.metadata.name).then(other);
    }
    if let Some(pin) = pins.iter().find(|it| !it.allows(node)) {
        return Some(vec![format!("node(s) did not reach the devices of claim {}", pin.claim)]);
    }
    if !node.is_ready() {
        return Some(vec!["node(s) were not ready".to_owned()]);
    }
    let misfit = need.rejection(site)?;
    Some(misfit.reasons.iter().map(gantry_pods::RejectionReason::text).collect())
}

/// Returns how much of a node's CPU and memory is requested with this pod, in thousandths.
fn requested_share(need: &PodRequirements<'_>, site: &NodeInfo<'_>) -> u64 {
    let part = |used: i64, more: i64, capacity: i64| {
        let used = i128::from(used) + i128::from(more);
        let share = if capacity > 0 { used.max(0) * 1000 / i128::from(capacity) } else { 0 };
        u64::try_from(share).unwrap_or(u64::MAX)
    };
    let cpu = part(site.non_zero_requested.0, need.non_zero_requests.0, site.allocatable.cpu);
    cpu.saturating_add(part(
        site.non_zero_requested.1,
        need.non_zero_requests.1,
        site.allocatable.memory,
    ))
}
