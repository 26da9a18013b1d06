//! Which of the nodes that will do is the best.

use std::collections::HashMap;
use std::sync::Arc;

use gantry_pods::{Site, fit};

use crate::lot;
use crate::view::{Pod, SpreadConstraint, TaintEffect};

use super::board::{Board, Counted, Term, Topology};
use super::want::{Want, is_place, spread_among};

/// The best a node can be by one measure.
const FULL: i64 = 100;
/// Nodes with the same value of this label are one node.
const HOSTNAME: &str = "kubernetes.io/hostname";
/// Nodes with the same value of this label are near each other.
const ZONE: &str = "topology.kubernetes.io/zone";

/// The best of these nodes for a pod. Of equal ones it is drawn for the pod, so that many pods share
/// them evenly.
pub(super) fn best<'a>(board: &mut Board<'a>, want: &Want<'a>, fit: &[usize]) -> Option<usize> {
    if let [only] = fit {
        return Some(*only);
    }
    let taints = taints(board, want.need.pod, fit);
    let liked_nodes = liked_nodes(board, want.need.pod, fit);
    let liked_pods = liked_pods(board, want.need.pod, fit);
    let spread = spread(board, want.need.pod, fit);
    let drawn = lot::draw(&[want.need.pod.metadata.uid.as_str()]);
    let score = |(index, at): (usize, &usize)| {
        let site = &board.sites[*at];
        let score = 3 * taints[index]
            + 2 * liked_nodes[index]
            + 2 * liked_pods[index]
            + 2 * spread[index]
            + emptiness(site, want)
            + balance(site, want);
        (score, lot::mix(drawn ^ board.lots[*at]), *at)
    };
    fit.iter().enumerate().map(score).max().map(|(_, _, at)| at)
}

/// How much is left of a node.
fn emptiness(site: &Site<'_>, want: &Want<'_>) -> i64 {
    let left = |used: i64, wanted: i64, room: i64| {
        let left = room.saturating_sub(used.saturating_add(wanted)).max(0);
        (room > 0).then(|| i64::try_from(i128::from(left) * 100 / i128::from(room)).unwrap_or(0))
    };
    let parts = [
        left(site.compared.0, want.need.compared.0, site.room.cpu),
        left(site.compared.1, want.need.compared.1, site.room.memory),
    ];
    let known = parts.iter().flatten();
    let count = i64::try_from(known.clone().count()).unwrap_or(1);
    if count == 0 { 0 } else { known.sum::<i64>() / count }
}

/// How evenly a node's processors and memory are taken.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "fractions of amounts, and a score between 0 and 100"
)]
fn balance(site: &Site<'_>, want: &Want<'_>) -> i64 {
    if want.need.requests.cpu == 0 && want.need.requests.memory == 0 {
        return 0;
    }
    let fraction = |used: i64, wanted: i64, room: i64| {
        (room > 0).then(|| (used.saturating_add(wanted) as f64 / room as f64).min(1.0))
    };
    let cpu = fraction(site.used.cpu, want.need.requests.cpu, site.room.cpu);
    let memory = fraction(site.used.memory, want.need.requests.memory, site.room.memory);
    let apart = match (cpu, memory) {
        (Some(cpu), Some(memory)) => ((cpu - memory) / 2.0).abs(),
        (None, _) | (_, None) => 0.0,
    };
    ((1.0 - apart) * 100.0) as i64
}

/// Fewer taints that pods would rather avoid are better.
fn taints(board: &Board<'_>, pod: &Pod, fit: &[usize]) -> Vec<i64> {
    let bad = |at: &usize| {
        let taints = board.sites[*at].node.spec.taints.iter();
        let soft = taints.filter(|it| it.effect == TaintEffect::PreferNoSchedule);
        let bad = soft.filter(|it| !fit::tolerates(&pod.spec.tolerations, it)).count();
        i64::try_from(bad).unwrap_or(i64::MAX)
    };
    let bad: Vec<i64> = fit.iter().map(bad).collect();
    let most = bad.iter().max().copied().unwrap_or_default();
    bad.iter().map(|it| if most == 0 { FULL } else { FULL - FULL * it / most }).collect()
}

fn liked_nodes(board: &Board<'_>, pod: &Pod, fit: &[usize]) -> Vec<i64> {
    let preferred = &pod.spec.affinity.node_affinity.preferred;
    if preferred.is_empty() {
        return vec![0; fit.len()];
    }
    let sum = |at: &usize| {
        let node = board.sites[*at].node;
        let fulfilled = preferred.iter().filter(|it| fit::matches_term(&it.preference, node));
        fulfilled.map(|it| it.weight).sum()
    };
    let sums: Vec<i64> = fit.iter().map(sum).collect();
    let most = sums.iter().max().copied().unwrap_or_default();
    sums.iter().map(|it| if most == 0 { 0 } else { FULL * it / most }).collect()
}

/// Nodes near those it likes and far from those it does not are better, and so are nodes where it is
/// liked.
fn liked_pods<'a>(board: &mut Board<'a>, pod: &'a Pod, fit: &[usize]) -> Vec<i64> {
    let home = pod.metadata.namespace.as_str();
    let affinity = &pod.spec.affinity;
    let near = affinity.pod_affinity.preferred.iter().map(|it| (it, it.weight));
    let far = affinity.pod_anti_affinity.preferred.iter().map(|it| (it, -it.weight));
    let mut sums = vec![0_i64; fit.len()];
    let mut any = false;
    for (wish, weight) in near.chain(far) {
        let wish = &wish.pod_affinity_term;
        let counts = board.count(Counted::Wished(vec![Term { home, wish }])).to_vec();
        add_by_place(board, &wish.topology_key, &counts, weight, fit, &mut sums);
        any = true;
    }
    for (wish, counts) in board.asked_of(pod) {
        match wish {
            Counted::Likes(term, weight) => {
                add_by_place(board, &term.wish.topology_key, counts, *weight, fit, &mut sums);
                any = true;
            }
            Counted::KeepAway(_) | Counted::Wished(_) | Counted::Selected { .. } => {}
        }
    }
    let (least, most) = (sums.iter().min().copied(), sums.iter().max().copied());
    let (Some(least), Some(most)) = (least, most) else { return sums };
    if !any || least == most {
        return vec![0; fit.len()];
    }
    sums.iter().map(|it| FULL * (it - least) / (most - least)).collect()
}

/// Adds `weight` for every counted pod at the same place to each of the nodes that will do.
fn add_by_place(
    board: &Board<'_>,
    key: &str,
    counts: &[i64],
    weight: i64,
    fit: &[usize],
    sums: &mut [i64],
) {
    let mut by_place: HashMap<&str, i64> = HashMap::new();
    for (site, count) in board.sites.iter().zip(counts).filter(|(_, count)| **count > 0) {
        if let Some(place) = site.label(key) {
            *by_place.entry(place).or_default() += count;
        }
    }
    for (sum, at) in sums.iter_mut().zip(fit) {
        let there = board.sites[*at].label(key).and_then(|place| by_place.get(place));
        *sum += weight * there.copied().unwrap_or_default();
    }
}

/// A way in which a pod would rather spread.
struct Soft<'a> {
    topology: Arc<Topology<'a>>,
    max_skew: i64,
    counts: Vec<i64>,
    by: Option<&'a SpreadConstraint>,
}

/// Nodes at emptier places are better.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "numbers of pods and of nodes"
)]
fn spread<'a>(board: &mut Board<'a>, pod: &'a Pod, fit: &[usize]) -> Vec<i64> {
    let softs = softs(board, pod);
    if softs.is_empty() {
        return vec![0; fit.len()];
    }
    // By its own constraints a node without their labels is no place; by the usual ones it is.
    let own = softs.iter().any(|it| it.by.is_some());
    let labelled = |at: usize| softs.iter().all(|it| it.topology.of[at].is_some());
    let counts: Vec<bool> = (0..board.sites.len()).map(|at| !own || labelled(at)).collect();
    let mut scores = vec![0.0_f64; fit.len()];
    for soft in &softs {
        let (of, places) = (&soft.topology.of, soft.topology.places);
        let mut open = vec![false; places];
        for place in fit.iter().filter(|at| counts[**at]).filter_map(|at| of[*at]) {
            open[place] = true;
        }
        let mut there = vec![0_i64; places];
        for (at, count) in soft.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let is_place =
                || counts[at] && soft.by.is_none_or(|by| is_place(pod, by, &board.sites[at]));
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
        Some(_) if most == 0 => FULL,
        Some(score) => FULL * (most + least - score) / most,
    };
    rounded.iter().map(scaled).collect()
}

/// The ways in which a pod would rather spread: its own, or away from others of its owner.
fn softs<'a>(board: &mut Board<'a>, pod: &'a Pod) -> Vec<Soft<'a>> {
    let own = &pod.spec.topology_spread_constraints;
    if !own.is_empty() {
        let soft = own.iter().filter(|it| it.when_unsatisfiable == "ScheduleAnyway");
        return soft
            .filter_map(|by| {
                let counts = board.count(spread_among(pod, by)?).to_vec();
                let topology = board.topology(&by.topology_key);
                Some(Soft { topology, max_skew: by.max_skew, counts, by: Some(by) })
            })
            .collect();
    }
    let spreads = ["ReplicaSet", "StatefulSet", "ReplicationController"];
    let owner = pod.metadata.controller().filter(|it| spreads.contains(&it.kind.as_str()));
    let Some(owner) = owner else { return Vec::new() };
    let counts = board.owned_by(owner.uid.as_str());
    let mut soft = |key, max_skew| {
        let topology = board.topology(key);
        Soft { topology, max_skew, counts: counts.clone(), by: None }
    };
    vec![soft(HOSTNAME, 3), soft(ZONE, 5)]
}
