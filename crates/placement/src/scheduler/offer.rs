//! Which nodes will do for a pod, as far as devices are not concerned.

use std::collections::BTreeMap;

use gantry_devices::Offer;
use gantry_pods::fit;
use gantry_pods::view::{Node, NodeSelector, Pod};
use gantry_pods::{Need, Requests, Site};

use crate::claim::Claim;
use crate::gate;

use super::scene::Scene;

/// Why nodes will not do, and how many of each.
pub(super) type Tally = BTreeMap<String, usize>;

/// The nodes that will do, and why the others will not.
#[derive(Debug, Default)]
pub(super) struct Offers {
    pub(super) good: Vec<Offer>,
    pub(super) bad: Tally,
    /// What devices that the pod has already will take of whichever node it gets.
    pub(super) extra: Requests,
}

impl Offers {
    /// Holds every node against what a pod wants and where the devices are that it has already.
    pub(super) fn new(scene: &Scene<'_>, pod: &Pod, had: &[&Claim]) -> Self {
        let mut need = Need::new(pod);
        let refused = scene.refusals.of(pod);
        let mut offers = Self::default();
        let place = gate::node_of(pod);
        // Devices that are bound to a node are counted there.
        for claim in had.iter().filter(|it| it.node_name().is_none()) {
            offers.extra.add(&scene.overheads.of(claim.allocations()));
        }
        need.requests.add(&offers.extra);
        let pins: Vec<Pin<'_>> = had.iter().filter_map(|claim| Pin::of(claim)).collect();
        for (node, site) in scene.sites().iter().enumerate() {
            let name = &site.node.metadata.name;
            let misfit = match refused.iter().any(|it| it.node_name == *name) {
                true => {
                    Some(vec!["node(s) were refused by the pod's scheduler of late".to_owned()])
                }
                false => misfit(&need, site, &place, &pins),
            };
            match misfit {
                None => offers.good.push(Offer { node, load: load(&need, site) }),
                Some(reasons) => {
                    for reason in reasons {
                        *offers.bad.entry(reason).or_default() += 1;
                    }
                }
            }
        }
        offers
    }

    /// The emptiest node; of equal ones the first by name.
    pub(super) fn emptiest(&self) -> Option<usize> {
        self.good.iter().min_by_key(|it| (it.load, it.node)).map(|it| it.node)
    }
}

/// Where a claim's devices are.
struct Pin<'a> {
    claim: &'a str,
    node: Option<&'a str>,
    selector: Option<NodeSelector>,
}

impl<'a> Pin<'a> {
    fn of(claim: &'a Claim) -> Option<Self> {
        let node = claim.node_name();
        // The same fields in the words of the server; what it does not have matches no node.
        let read = |it| serde_json::from_value(serde_json::json!(it)).unwrap_or_default();
        let selector = claim.node_selector().map(read);
        (node.is_some() || selector.is_some()).then(|| Self { claim: claim.name(), node, selector })
    }

    fn allows(&self, node: &Node) -> bool {
        self.node.is_none_or(|it| it == node.metadata.name)
            && self.selector.as_ref().is_none_or(|it| fit::matches_node(it, node))
    }
}

/// Why a node will not do.
fn misfit<'a>(
    need: &Need<'a>,
    site: &Site<'a>,
    place: &str,
    pins: &[Pin<'_>],
) -> Option<Vec<String>> {
    let node = site.node;
    if !place.is_empty() {
        // It is there, or will be, whether it should be or not.
        let other = || vec!["node(s) were not the pod's own".to_owned()];
        return (place != node.metadata.name).then(other);
    }
    if let Some(pin) = pins.iter().find(|it| !it.allows(node)) {
        return Some(vec![format!("node(s) did not reach the devices of claim {}", pin.claim)]);
    }
    if !node.is_ready() {
        return Some(vec!["node(s) were not ready".to_owned()]);
    }
    let misfit = need.misfit(site)?;
    Some(misfit.reasons.iter().map(gantry_pods::Reason::text).collect())
}

/// How much of a node's processors and memory is asked for with this pod, in thousandths.
fn load(need: &Need<'_>, site: &Site<'_>) -> u64 {
    let part = |used: i64, more: i64, room: i64| {
        let used = i128::from(used) + i128::from(more);
        let share = if room > 0 { used.max(0) * 1000 / i128::from(room) } else { 0 };
        u64::try_from(share).unwrap_or(u64::MAX)
    };
    let cpu = part(site.compared.0, need.compared.0, site.room.cpu);
    cpu.saturating_add(part(site.compared.1, need.compared.1, site.room.memory))
}
