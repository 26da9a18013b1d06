//! Scores the nodes that fit.

use std::collections::HashMap;
use std::sync::Arc;

use gantry_pods::{NodeInfo, fit};

use crate::deterministic_random;
use crate::view::{Pod, TaintEffect, TopologySpreadConstraint};

use super::requirements::{SchedulingRequirements, is_eligible_domain, spread_filter};
use super::snapshot::{AffinityTerm, PodFilter, SchedulingSnapshot, Topology};

/// The highest score of a plugin.
const MAX_NODE_SCORE: i64 = 100;
/// Nodes with the same value of this label are one node.
const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";
/// Nodes with the same value of this label are in one zone.
const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// Returns the best of these nodes for a pod. Ties are broken by a random number that follows from
/// the pod, so that many pods are distributed evenly.
pub(super) fn best_node<'a>(
    snapshot: &mut SchedulingSnapshot<'a>,
    want: &SchedulingRequirements<'a>,
    fit: &[usize],
) -> Option<usize> {
    if let [only] = fit {
        return Some(*only);
    }
    let taints = taint_toleration(snapshot, want.need.pod, fit);
    let liked_nodes = node_affinity(snapshot, want.need.pod, fit);
    let liked_pods = inter_pod_affinity(snapshot, want.need.pod, fit);
    let spread = topology_spread(snapshot, want.need.pod, fit);
    let drawn = deterministic_random::draw(&[want.need.pod.metadata.uid.as_str()]);
    let score = |(index, at): (usize, &usize)| {
        let node_info = &snapshot.node_infos[*at];
        let score = 3 * taints[index]
            + 2 * liked_nodes[index]
            + 2 * liked_pods[index]
            + 2 * spread[index]
            + least_allocated(node_info, want)
            + balanced_allocation(node_info, want);
        (score, deterministic_random::mix_bits(drawn ^ snapshot.tie_breakers[*at]), *at)
    };
    fit.iter().enumerate().map(score).max().map(|(_, _, at)| at)
}

/// Scores a node by its free capacity.
fn least_allocated(node_info: &NodeInfo<'_>, want: &SchedulingRequirements<'_>) -> i64 {
    let left = |used: i64, wanted: i64, capacity: i64| {
        let left = capacity.saturating_sub(used.saturating_add(wanted)).max(0);
        (capacity > 0)
            .then(|| i64::try_from(i128::from(left) * 100 / i128::from(capacity)).unwrap_or(0))
    };
    let parts = [
        left(
            node_info.non_zero_requested.0,
            want.need.non_zero_requests.0,
            node_info.allocatable.cpu,
        ),
        left(
            node_info.non_zero_requested.1,
            want.need.non_zero_requests.1,
            node_info.allocatable.memory,
        ),
    ];
    let known = parts.iter().flatten();
    let count = i64::try_from(known.clone().count()).unwrap_or(1);
    if count == 0 { 0 } else { known.sum::<i64>() / count }
}

/// Scores a node by how evenly its CPU and memory are used.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "fractions of amounts, and a score between 0 and 100"
)]
fn balanced_allocation(node_info: &NodeInfo<'_>, want: &SchedulingRequirements<'_>) -> i64 {
    if want.need.requests.cpu == 0 && want.need.requests.memory == 0 {
        return 0;
    }
    let fraction = |used: i64, wanted: i64, capacity: i64| {
        (capacity > 0).then(|| (used.saturating_add(wanted) as f64 / capacity as f64).min(1.0))
    };
    let cpu = fraction(node_info.requested.cpu, want.need.requests.cpu, node_info.allocatable.cpu);
    let memory = fraction(
        node_info.requested.memory,
        want.need.requests.memory,
        node_info.allocatable.memory,
    );
    let apart = match (cpu, memory) {
        (Some(cpu), Some(memory)) => ((cpu - memory) / 2.0).abs(),
        (None, _) | (_, None) => 0.0,
    };
    ((1.0 - apart) * 100.0) as i64
}

/// Scores nodes by their `PreferNoSchedule` taints: fewer are better.
fn taint_toleration(snapshot: &SchedulingSnapshot<'_>, pod: &Pod, fit: &[usize]) -> Vec<i64> {
    let bad = |at: &usize| {
        let taints = snapshot.node_infos[*at].node.spec.taints.iter();
        let soft = taints.filter(|it| it.effect == TaintEffect::PreferNoSchedule);
        let bad = soft.filter(|it| !fit::tolerates(&pod.spec.tolerations, it)).count();
        i64::try_from(bad).unwrap_or(i64::MAX)
    };
    let bad: Vec<i64> = fit.iter().map(bad).collect();
    let most = bad.iter().max().copied().unwrap_or_default();
    bad.iter()
        .map(
            |it| {
                if most == 0 { MAX_NODE_SCORE } else { MAX_NODE_SCORE - MAX_NODE_SCORE * it / most }
            },
        )
        .collect()
}

fn node_affinity(snapshot: &SchedulingSnapshot<'_>, pod: &Pod, fit: &[usize]) -> Vec<i64> {
    let preferred = &pod.spec.affinity.node_affinity.preferred;
    if preferred.is_empty() {
        return vec![0; fit.len()];
    }
    let sum = |at: &usize| {
        let node = snapshot.node_infos[*at].node;
        let fulfilled = preferred.iter().filter(|it| fit::matches_term(&it.preference, node));
        fulfilled.map(|it| it.weight).sum()
    };
    let sums: Vec<i64> = fit.iter().map(sum).collect();
    let most = sums.iter().max().copied().unwrap_or_default();
    sums.iter().map(|it| if most == 0 { 0 } else { MAX_NODE_SCORE * it / most }).collect()
}

/// Scores nodes by preferred affinity and anti-affinity, both of the pod and towards the pod.
fn inter_pod_affinity<'a>(
    snapshot: &mut SchedulingSnapshot<'a>,
    pod: &'a Pod,
    fit: &[usize],
) -> Vec<i64> {
    let home = pod.metadata.namespace.as_str();
    let affinity = &pod.spec.affinity;
    let near = affinity.pod_affinity.preferred.iter().map(|it| (it, it.weight));
    let far = affinity.pod_anti_affinity.preferred.iter().map(|it| (it, -it.weight));
    let mut sums = vec![0_i64; fit.len()];
    let mut any = false;
    for (weighted, weight) in near.chain(far) {
        let term = &weighted.pod_affinity_term;
        let counts = snapshot
            .count_pods(PodFilter::MatchesTerms(vec![AffinityTerm { namespace: home, term }]))
            .to_vec();
        add_by_domain(snapshot, &term.topology_key, &counts, weight, fit, &mut sums);
        any = true;
    }
    for (filter, counts) in snapshot.affinity_toward(pod) {
        match filter {
            PodFilter::Preferred(term, weight) => {
                add_by_domain(snapshot, &term.term.topology_key, counts, *weight, fit, &mut sums);
                any = true;
            }
            PodFilter::AntiAffinity(_)
            | PodFilter::MatchesTerms(_)
            | PodFilter::MatchesSelector { .. } => {}
        }
    }
    let (least, most) = (sums.iter().min().copied(), sums.iter().max().copied());
    let (Some(least), Some(most)) = (least, most) else { return sums };
    if !any || least == most {
        return vec![0; fit.len()];
    }
    sums.iter().map(|it| MAX_NODE_SCORE * (it - least) / (most - least)).collect()
}

/// Adds `weight` for every counted pod in the same domain to each of the nodes that fit.
fn add_by_domain(
    snapshot: &SchedulingSnapshot<'_>,
    key: &str,
    counts: &[i64],
    weight: i64,
    fit: &[usize],
    sums: &mut [i64],
) {
    let mut by_place: HashMap<&str, i64> = HashMap::new();
    for (node_info, count) in
        snapshot.node_infos.iter().zip(counts).filter(|(_, count)| **count > 0)
    {
        if let Some(place) = node_info.label(key) {
            *by_place.entry(place).or_default() += count;
        }
    }
    for (sum, at) in sums.iter_mut().zip(fit) {
        let there = snapshot.node_infos[*at].label(key).and_then(|place| by_place.get(place));
        *sum += weight * there.copied().unwrap_or_default();
    }
}

/// A soft topology spread constraint.
struct SoftSpread<'a> {
    topology: Arc<Topology<'a>>,
    max_skew: i64,
    counts: Vec<i64>,
    by: Option<&'a TopologySpreadConstraint>,
}

/// Scores nodes by soft spread constraints: emptier domains are better.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "numbers of pods and of nodes"
)]
fn topology_spread<'a>(
    snapshot: &mut SchedulingSnapshot<'a>,
    pod: &'a Pod,
    fit: &[usize],
) -> Vec<i64> {
    let softs = soft_spreads(snapshot, pod);
    if softs.is_empty() {
        return vec![0; fit.len()];
    }
    // With the pod's own constraints a node without their labels is no domain; with the default
    // ones it is.
    let own = softs.iter().any(|it| it.by.is_some());
    let labelled = |at: usize| softs.iter().all(|it| it.topology.domains[at].is_some());
    let counts: Vec<bool> = (0..snapshot.node_infos.len()).map(|at| !own || labelled(at)).collect();
    let mut scores = vec![0.0_f64; fit.len()];
    for soft in &softs {
        let (of, places) = (&soft.topology.domains, soft.topology.domain_count);
        let mut open = vec![false; places];
        for place in fit.iter().filter(|at| counts[**at]).filter_map(|at| of[*at]) {
            open[place] = true;
        }
        let mut there = vec![0_i64; places];
        for (at, count) in soft.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let is_place = || {
                counts[at]
                    && soft
                        .by
                        .is_none_or(|by| is_eligible_domain(pod, by, &snapshot.node_infos[at]))
            };
            if let Some(place) = of[at].filter(|it| open[*it] && is_place()) {
                there[place] += count;
            }
        }
        let weight = (open.iter().filter(|it| **it).count() as f64 + 2.0).ln();
        for (score, at) in scores.iter_mut().zip(fit) {
            if let Some(place) = of[*at].filter(|_| counts[*at]) {
                *score += there[place] as f64 * weight + (soft.max_skew - 1) as f64;
            }
        }
    }
    let rounded = scores.iter().zip(fit).map(|(it, at)| counts[*at].then(|| it.round() as i64));
    let rounded: Vec<Option<i64>> = rounded.collect();
    let most = rounded.iter().flatten().max().copied().unwrap_or_default();
    let least = rounded.iter().flatten().min().copied().unwrap_or_default();
    let scaled = |score: &Option<i64>| match score {
        None => 0,
        Some(_) if most == 0 => MAX_NODE_SCORE,
        Some(score) => MAX_NODE_SCORE * (most + least - score) / most,
    };
    rounded.iter().map(scaled).collect()
}

/// Returns the soft spread constraints of a pod: its own, or the defaults that spread the pods of
/// its owner.
fn soft_spreads<'a>(snapshot: &mut SchedulingSnapshot<'a>, pod: &'a Pod) -> Vec<SoftSpread<'a>> {
    let own = &pod.spec.topology_spread_constraints;
    if !own.is_empty() {
        let soft = own.iter().filter(|it| it.when_unsatisfiable == "ScheduleAnyway");
        return soft
            .filter_map(|by| {
                let counts = snapshot.count_pods(spread_filter(pod, by)?).to_vec();
                let topology = snapshot.topology(&by.topology_key);
                Some(SoftSpread { topology, max_skew: by.max_skew, counts, by: Some(by) })
            })
            .collect();
    }
    let spreads = ["ReplicaSet", "StatefulSet", "ReplicationController"];
    let owner = pod.metadata.controller().filter(|it| spreads.contains(&it.kind.as_str()));
    let Some(owner) = owner else { return Vec::new() };
    let counts = snapshot.count_owned(owner.uid.as_str());
    let mut soft = |key, max_skew| {
        let topology = snapshot.topology(key);
        SoftSpread { topology, max_skew, counts: counts.clone(), by: None }
    };
    vec![soft(HOSTNAME_LABEL, 3), soft(ZONE_LABEL, 5)]
}
