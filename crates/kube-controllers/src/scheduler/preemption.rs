//! Selects the pods that are preempted for a pod of higher priority.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use gantry_pods::{NodeRejection, RejectionReason};
use gantry_reconcile::Selector;
use jiff::Timestamp;

use crate::view::{Pod, PodDisruptionBudget};

use super::claims::PodClaims;
use super::messages::misfit_message;
use super::requirements::SchedulingRequirements;
use super::snapshot::SchedulingSnapshot;

/// How many pods that a disruption budget selects may be preempted.
#[derive(Debug)]
pub(super) struct PreemptionBudget<'a> {
    pub(super) namespace: &'a str,
    pub(super) selector: &'a Selector,
    pub(super) allowed: i64,
    /// Pods that are already terminating.
    pub(super) terminating: Vec<&'a str>,
}

impl<'a> PreemptionBudget<'a> {
    /// Returns the remaining budget; `None` when it selects no pods.
    pub(super) fn new(of: &'a PodDisruptionBudget) -> Option<Self> {
        // Unlike elsewhere, an empty selector selects nothing.
        let selector = of.spec.selector.as_ref().filter(|it| !it.is_empty())?;
        Some(Self {
            namespace: &of.metadata.namespace,
            selector,
            allowed: of.status.disruptions_allowed,
            terminating: of.status.disrupted_pods.keys().map(String::as_str).collect(),
        })
    }
}

/// The result of the search.
#[derive(Debug)]
pub(super) enum Preemption<'a> {
    /// These pods are preempted on this node.
    Preempt {
        /// The index of the node.
        at: usize,
        /// The preempted pods, the most important first.
        victims: Vec<&'a Pod>,
    },
    /// Preempted pods are still terminating; the message says so.
    Wait(String),
    /// Preemption does not help, and why.
    NotHelpful(String),
}

/// How many candidate nodes are compared.
const MAX_CANDIDATES: usize = 100;

/// Finds the node on which preemption for a pod that fits no node costs least.
pub(super) fn find_preemption<'a>(
    snapshot: &mut SchedulingSnapshot<'a>,
    pod: &'a Pod,
    claims: &PodClaims<'_>,
    misfits: &[NodeRejection],
    budgets: &[PreemptionBudget<'a>],
) -> Preemption<'a> {
    if pod.spec.preemption_policy == "Never" {
        return Preemption::NotHelpful("not eligible due to preemptionPolicy=Never.".to_owned());
    }
    if let Some(at) = snapshot.node_index(&pod.status.nominated_node_name)
        && !misfits[at].unresolvable
        && snapshot
            .pods_on(at)
            .iter()
            .any(|it| has_lower_priority(it, pod) && it.metadata.is_terminating())
    {
        let why = "not eligible due to a terminating pod on the nominated node.";
        return Preemption::Wait(why.to_owned());
    }
    let most = MAX_CANDIDATES.max(snapshot.node_infos.len() / 10);
    let mut found = Vec::new();
    let mut reasons = BTreeMap::<usize, Vec<RejectionReason>>::new();
    for (at, misfit) in misfits.iter().enumerate() {
        if misfit.unresolvable {
            reasons.insert(at, vec![RejectionReason::PreemptionNotHelpful]);
        } else if found.len() < most {
            match select_victims(snapshot, pod, claims, at, budgets) {
                Ok(candidate) => found.push(candidate),
                Err(why) => drop(reasons.insert(at, why)),
            }
        }
    }
    match found.into_iter().min_by_key(|it| it.cost(snapshot)) {
        Some(Candidate { at, victims, .. }) => Preemption::Preempt { at, victims },
        None => Preemption::NotHelpful(misfit_message(
            snapshot.node_infos.len(),
            reasons.values().flatten(),
        )),
    }
}

/// A node on which preemption helps.
#[derive(Debug)]
struct Candidate<'a> {
    at: usize,
    /// The preempted pods, the most important first.
    victims: Vec<&'a Pod>,
    /// How many of them violate a budget.
    budget_violations: usize,
}

impl Candidate<'_> {
    /// Returns the cost of preemption on the node: the less the better, field by field.
    fn cost(&self, snapshot: &SchedulingSnapshot<'_>) -> impl Ord + use<> {
        let first = self.victims.first().map(|it| it.spec.priority);
        let above = |it: &&Pod| i64::from(it.spec.priority) + i64::from(i32::MAX) + 1;
        let sum: i64 = self.victims.iter().map(above).sum();
        // Of the pods of the highest priority, the one that has run longest.
        let started = self.victims.iter().filter(|it| Some(it.spec.priority) == first);
        let started = started.map(|it| it.status.start_time.unwrap_or(Timestamp::MAX)).min();
        let name = snapshot.node_infos[self.at].node.metadata.name.clone();
        (self.budget_violations, first, sum, self.victims.len(), Reverse(started), name)
    }
}

fn has_lower_priority(one: &Pod, other: &Pod) -> bool {
    one.spec.priority < other.spec.priority
}

/// Selects the fewest pods to preempt on a node, or returns why that does not help. The snapshot is
/// left unchanged.
fn select_victims<'a>(
    snapshot: &mut SchedulingSnapshot<'a>,
    pod: &'a Pod,
    claims: &PodClaims<'_>,
    at: usize,
    budgets: &[PreemptionBudget<'a>],
) -> Result<Candidate<'a>, Vec<RejectionReason>> {
    if snapshot.lowest_priority >= pod.spec.priority {
        return Err(vec![RejectionReason::NoPreemptionVictims]);
    }
    let less = snapshot.pods_on(at).iter().filter(|it| has_lower_priority(it, pod));
    let mut less: Vec<&'a Pod> = less.copied().collect();
    if less.is_empty() {
        return Err(vec![RejectionReason::NoPreemptionVictims]);
    }
    less.sort_by_key(|it| importance(it));
    for other in &less {
        snapshot.remove_pod(other, at);
    }
    // Preempting other pods changes nothing about claims.
    let why = claims.misfit(snapshot.node_infos[at].node);
    let why =
        why.or_else(|| SchedulingRequirements::new(snapshot, pod).misfit(&snapshot.node_infos[at]));
    if let Some(why) = why {
        less.iter().for_each(|it| snapshot.add_pod(it, at));
        return Err(why.reasons);
    }
    let (protected, others) = split_by_budget(&less, budgets);
    let (mut victims, mut against) = (Vec::new(), 0);
    for (list, counts) in [(&protected, 1), (&others, 0)] {
        for other in list {
            snapshot.add_pod(other, at);
            if SchedulingRequirements::new(snapshot, pod).misfit(&snapshot.node_infos[at]).is_some()
            {
                snapshot.remove_pod(other, at);
                victims.push(*other);
                against += counts;
            }
        }
    }
    victims.iter().for_each(|it| snapshot.add_pod(it, at));
    victims.sort_by_key(|it| importance(it));
    if victims.is_empty() {
        Err(Vec::new())
    } else {
        Ok(Candidate { at, victims, budget_violations: against })
    }
}

/// Orders pods by importance: by priority, then the longest running first.
fn importance(pod: &Pod) -> impl Ord + use<> {
    let start = pod.status.start_time.unwrap_or(Timestamp::MAX);
    (Reverse(pod.spec.priority), start, pod.metadata.key())
}

/// Splits pods into those that a budget protects and the others.
fn split_by_budget<'a>(
    pods: &[&'a Pod],
    budgets: &[PreemptionBudget<'a>],
) -> (Vec<&'a Pod>, Vec<&'a Pod>) {
    let mut allowed: Vec<i64> = budgets.iter().map(|it| it.allowed).collect();
    pods.iter().partition(|pod| {
        let meta = &pod.metadata;
        let mut against = false;
        for (budget, allowed) in budgets.iter().zip(&mut allowed) {
            let covers = budget.namespace == meta.namespace
                && !meta.labels.is_empty()
                && budget.selector.matches(&meta.labels)
                && !budget.terminating.contains(&meta.name.as_str());
            if covers {
                *allowed -= 1;
                against |= *allowed < 0;
            }
        }
        against
    })
}
