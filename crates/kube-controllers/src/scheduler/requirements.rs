//! The scheduling requirements of a pod, and which nodes fit.

use std::collections::{BTreeSet, HashMap};

use gantry_pods::{NodeInfo, NodeRejection, PodRequirements, RejectionReason, fit};

use crate::view::{Pod, TopologySpreadConstraint};

use super::snapshot::{AffinityTerm, PodFilter, SchedulingSnapshot};

/// The requirements of one pod, against the pods that are placed now.
#[derive(Debug)]
pub(super) struct SchedulingRequirements<'a> {
    pub(super) need: PodRequirements<'a>,
    affinity: Vec<RequiredAffinity<'a>>,
    /// Whether no pod matches its affinity yet, and it matches itself.
    first_of_its_kind: bool,
    /// The topology values of nodes with pods that it must not be near.
    anti_affinity: Vec<TopologyValues<'a>>,
    /// The topology values of nodes with pods whose anti-affinity excludes it.
    existing_anti_affinity: Vec<TopologyValues<'a>>,
    spread: Vec<HardSpread<'a>>,
}

/// Values of one topology label.
#[derive(Debug)]
struct TopologyValues<'a> {
    key: &'a str,
    values: BTreeSet<&'a str>,
}

impl TopologyValues<'_> {
    fn contains(&self, node_info: &NodeInfo<'_>) -> bool {
        node_info.label(self.key).is_some_and(|it| self.values.contains(it))
    }
}

/// Where the pods are that a pod must be near.
#[derive(Debug)]
struct RequiredAffinity<'a>(TopologyValues<'a>);

/// A hard topology spread constraint.
#[derive(Debug)]
struct HardSpread<'a> {
    key: &'a str,
    counts: HashMap<&'a str, i64>,
    /// The most matching pods in a domain before this pod is placed.
    max_count: i64,
}

impl<'a> SchedulingRequirements<'a> {
    pub(super) fn new(snapshot: &mut SchedulingSnapshot<'a>, pod: &'a Pod) -> Self {
        let affinity = &pod.spec.affinity;
        let home = pod.metadata.namespace.as_str();
        let term = |affinity_term| AffinityTerm { namespace: home, term: affinity_term };
        let terms: Vec<AffinityTerm<'a>> =
            affinity.pod_affinity.required.iter().map(term).collect();
        let mut near = Vec::new();
        if !terms.is_empty() {
            let counts = snapshot.count_pods(PodFilter::MatchesTerms(terms.clone())).to_vec();
            for affinity_term in &terms {
                near.push(RequiredAffinity(topology_values(
                    snapshot,
                    &affinity_term.term.topology_key,
                    &counts,
                )));
            }
        }
        let none_matches = near.iter().all(|it| it.0.values.is_empty());
        let first_of_its_kind = !near.is_empty() && none_matches && snapshot.all_match(&terms, pod);
        let mut far = Vec::new();
        for affinity_term in &affinity.pod_anti_affinity.required {
            let counts =
                snapshot.count_pods(PodFilter::MatchesTerms(vec![term(affinity_term)])).to_vec();
            far.push(topology_values(snapshot, &affinity_term.topology_key, &counts));
        }
        let unwelcome =
            snapshot.affinity_toward(pod).filter_map(
                |(affinity_term, counts)| match affinity_term {
                    PodFilter::AntiAffinity(term) => {
                        Some(topology_values(snapshot, &term.term.topology_key, counts))
                    }
                    PodFilter::Preferred(..)
                    | PodFilter::MatchesTerms(_)
                    | PodFilter::MatchesSelector { .. } => None,
                },
            );
        let unwelcome = unwelcome.collect();
        let hard = |it: &&TopologySpreadConstraint| it.when_unsatisfiable != "ScheduleAnyway";
        let hard: Vec<&'a TopologySpreadConstraint> =
            pod.spec.topology_spread_constraints.iter().filter(hard).collect();
        let spread = hard.iter().map(|it| HardSpread::new(snapshot, pod, it, &hard)).collect();
        Self {
            need: PodRequirements::new(pod),
            affinity: near,
            first_of_its_kind,
            anti_affinity: far,
            existing_anti_affinity: unwelcome,
            spread,
        }
    }

    /// Returns why a node does not fit, by the first violated requirement.
    pub(super) fn misfit(&self, node_info: &NodeInfo<'a>) -> Option<NodeRejection> {
        self.need.rejection(node_info).or_else(|| self.topology_misfit(node_info))
    }

    fn topology_misfit(&self, node_info: &NodeInfo<'a>) -> Option<NodeRejection> {
        for spread in &self.spread {
            let Some(place) = node_info.label(spread.key) else {
                return Some(NodeRejection::unresolvable(RejectionReason::MissingTopologyLabel));
            };
            if spread.counts.get(place).copied().unwrap_or_default() > spread.max_count {
                return Some(NodeRejection::resolvable(RejectionReason::TopologySpread));
            }
        }
        if !self.satisfies_affinity(node_info) {
            return Some(NodeRejection::unresolvable(RejectionReason::PodAffinity));
        }
        if self.anti_affinity.iter().any(|it| it.contains(node_info)) {
            return Some(NodeRejection::resolvable(RejectionReason::PodAntiAffinity));
        }
        if self.existing_anti_affinity.iter().any(|it| it.contains(node_info)) {
            return Some(NodeRejection::resolvable(RejectionReason::ExistingPodAntiAffinity));
        }
        None
    }

    fn satisfies_affinity(&self, node_info: &NodeInfo<'a>) -> bool {
        let labelled = self.affinity.iter().all(|it| node_info.label(it.0.key).is_some());
        labelled
            && (self.first_of_its_kind || self.affinity.iter().all(|it| it.0.contains(node_info)))
    }
}

/// Returns the values of a topology label where pods are.
fn topology_values<'a>(
    snapshot: &SchedulingSnapshot<'a>,
    key: &'a str,
    counts: &[i64],
) -> TopologyValues<'a> {
    let there = snapshot.node_infos.iter().zip(counts).filter(|(_, count)| **count > 0);
    TopologyValues {
        key,
        values: there.filter_map(|(node_info, _)| node_info.label(key)).collect(),
    }
}

/// Returns the filter of pods that a spread constraint of `pod` counts; `None` for none at all.
pub(super) fn spread_filter<'a>(
    pod: &'a Pod,
    by: &'a TopologySpreadConstraint,
) -> Option<PodFilter<'a>> {
    let selector = by.label_selector.as_ref()?;
    let keys = by.match_label_keys.iter();
    let shared =
        keys.filter_map(|key| Some((key.as_str(), pod.metadata.labels.get(key)?.as_str())));
    let namespace = pod.metadata.namespace.as_str();
    Some(PodFilter::MatchesSelector { namespace, selector, shared: shared.collect() })
}

/// Returns whether a node counts as a domain for a constraint of a pod.
pub(super) fn is_eligible_domain(
    pod: &Pod,
    by: &TopologySpreadConstraint,
    node_info: &NodeInfo<'_>,
) -> bool {
    let wanted = by.node_affinity_policy == "Ignore"
        || fit::matches_node_affinity(&pod.spec.node_selector, &pod.spec.affinity, node_info.node);
    let open = by.node_taints_policy != "Honor"
        || !fit::has_untolerated_taint(&node_info.node.spec.taints, &pod.spec.tolerations);
    wanted && open
}

impl<'a> HardSpread<'a> {
    fn new(
        snapshot: &mut SchedulingSnapshot<'a>,
        pod: &'a Pod,
        by: &'a TopologySpreadConstraint,
        all: &[&'a TopologySpreadConstraint],
    ) -> Self {
        let among = spread_filter(pod, by);
        let itself = by.label_selector.as_ref().is_some_and(|it| it.matches(&pod.metadata.labels));
        let none = || vec![0; snapshot.node_infos.len()];
        let on_nodes = match &among {
            // A selector that selects everything counts no pods, as in the original.
            Some(PodFilter::MatchesSelector { selector, shared, .. })
                if selector.is_empty() && shared.is_empty() =>
            {
                none()
            }
            None => none(),
            Some(counted) => snapshot.count_pods(counted.clone()).to_vec(),
        };
        let key = by.topology_key.as_str();
        let mut counts: HashMap<&'a str, i64> = HashMap::new();
        for (node_info, count) in snapshot.node_infos.iter().zip(&on_nodes) {
            let labelled = all.iter().all(|it| node_info.label(&it.topology_key).is_some());
            if let Some(place) =
                node_info.label(key).filter(|_| labelled && is_eligible_domain(pod, by, node_info))
            {
                *counts.entry(place).or_default() += count;
            }
        }
        let enough = i64::try_from(counts.len()).unwrap_or(i64::MAX) >= by.min_domains.unwrap_or(1);
        let least = if enough { counts.values().min().copied().unwrap_or_default() } else { 0 };
        let most = by.max_skew.saturating_add(least) - i64::from(itself);
        Self { key, counts, max_count: most }
    }
}
