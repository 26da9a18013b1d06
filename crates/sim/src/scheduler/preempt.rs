//! Who must leave a node so that a more important pod can have it.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use gantry_pods::{Misfit, Reason};
use gantry_reconcile::Selector;
use jiff::Timestamp;

use crate::view::{Pod, PodDisruptionBudget};

use super::board::Board;
use super::claims::Claims;
use super::reason::message;
use super::want::Want;

/// How many pods of a description may be pushed out.
#[derive(Debug)]
pub(super) struct Budget<'a> {
    pub(super) namespace: &'a str,
    pub(super) selector: &'a Selector,
    pub(super) allowed: i64,
    /// Pods that are on their way out already.
    pub(super) leaving: Vec<&'a str>,
}

impl<'a> Budget<'a> {
    /// What is left of a budget; `None` when it is about no pods.
    pub(super) fn new(of: &'a PodDisruptionBudget) -> Option<Self> {
        // Unlike elsewhere, a selector that asks for nothing selects nothing.
        let selector = of.spec.selector.as_ref().filter(|it| !it.is_empty())?;
        Some(Self {
            namespace: &of.metadata.namespace,
            selector,
            allowed: of.status.disruptions_allowed,
            leaving: of.status.disrupted_pods.keys().map(String::as_str).collect(),
        })
    }
}

/// What became of the search.
#[derive(Debug)]
pub(super) enum Preemption<'a> {
    /// These leave this node.
    Leave {
        /// Where.
        at: usize,
        /// Who, the most important first.
        victims: Vec<&'a Pod>,
    },
    /// Somebody is leaving already, in these words.
    Wait(String),
    /// Nobody leaves, and why.
    No(String),
}

/// As many nodes that could be freed are compared.
const CANDIDATES: usize = 100;

/// Finds the node that costs least to free for a pod that no node will do for.
pub(super) fn search<'a>(
    board: &mut Board<'a>,
    pod: &'a Pod,
    claims: &Claims<'_>,
    misfits: &[Misfit],
    budgets: &[Budget<'a>],
) -> Preemption<'a> {
    if pod.spec.preemption_policy == "Never" {
        return Preemption::No("not eligible due to preemptionPolicy=Never.".to_owned());
    }
    if let Some(at) = board.find(&pod.status.nominated_node_name)
        && !misfits[at].lasting
        && board.on(at).iter().any(|it| is_less(it, pod) && it.metadata.is_going())
    {
        let why = "not eligible due to a terminating pod on the nominated node.";
        return Preemption::Wait(why.to_owned());
    }
    let most = CANDIDATES.max(board.sites.len() / 10);
    let mut found = Vec::new();
    let mut reasons = BTreeMap::<usize, Vec<Reason>>::new();
    for (at, misfit) in misfits.iter().enumerate() {
        if misfit.lasting {
            reasons.insert(at, vec![Reason::NotHelpful]);
        } else if found.len() < most {
            match free(board, pod, claims, at, budgets) {
                Ok(candidate) => found.push(candidate),
                Err(why) => drop(reasons.insert(at, why)),
            }
        }
    }
    match found.into_iter().min_by_key(|it| it.cost(board)) {
        Some(Candidate { at, victims, .. }) => Preemption::Leave { at, victims },
        None => Preemption::No(message(board.sites.len(), reasons.values().flatten())),
    }
}

/// A node that can be freed.
#[derive(Debug)]
struct Candidate<'a> {
    at: usize,
    /// Who leaves, the most important first.
    victims: Vec<&'a Pod>,
    /// How many of them against a budget.
    against: usize,
}

impl Candidate<'_> {
    /// What it costs to free the node: the less the better, field by field.
    fn cost(&self, board: &Board<'_>) -> impl Ord + use<> {
        let first = self.victims.first().map(|it| it.spec.priority);
        let above = |it: &&Pod| i64::from(it.spec.priority) + i64::from(i32::MAX) + 1;
        let sum: i64 = self.victims.iter().map(above).sum();
        // Of those who matter most, the one that has run longest.
        let started = self.victims.iter().filter(|it| Some(it.spec.priority) == first);
        let started = started.map(|it| it.status.start_time.unwrap_or(Timestamp::MAX)).min();
        let name = board.sites[self.at].node.metadata.name.clone();
        (self.against, first, sum, self.victims.len(), Reverse(started), name)
    }
}

fn is_less(one: &Pod, other: &Pod) -> bool {
    one.spec.priority < other.spec.priority
}

/// Who must leave a node at least; or why that does not help. The board is left as it was.
fn free<'a>(
    board: &mut Board<'a>,
    pod: &'a Pod,
    claims: &Claims<'_>,
    at: usize,
    budgets: &[Budget<'a>],
) -> Result<Candidate<'a>, Vec<Reason>> {
    if board.lowest >= pod.spec.priority {
        return Err(vec![Reason::NoVictims]);
    }
    let less = board.on(at).iter().filter(|it| is_less(it, pod));
    let mut less: Vec<&'a Pod> = less.copied().collect();
    if less.is_empty() {
        return Err(vec![Reason::NoVictims]);
    }
    less.sort_by_key(|it| importance(it));
    for other in &less {
        board.lift(other, at);
    }
    // Other pods that leave change nothing about claims.
    let why = claims.misfit(board.sites[at].node);
    let why = why.or_else(|| Want::new(board, pod).misfit(&board.sites[at]));
    if let Some(why) = why {
        less.iter().for_each(|it| board.put(it, at));
        return Err(why.reasons);
    }
    let (protected, others) = by_budget(&less, budgets);
    let (mut victims, mut against) = (Vec::new(), 0);
    for (list, counts) in [(&protected, 1), (&others, 0)] {
        for other in list {
            board.put(other, at);
            if Want::new(board, pod).misfit(&board.sites[at]).is_some() {
                board.lift(other, at);
                victims.push(*other);
                against += counts;
            }
        }
    }
    victims.iter().for_each(|it| board.put(it, at));
    victims.sort_by_key(|it| importance(it));
    if victims.is_empty() { Err(Vec::new()) } else { Ok(Candidate { at, victims, against }) }
}

/// The most important first: by priority, then who has run longest.
fn importance(pod: &Pod) -> impl Ord + use<> {
    let start = pod.status.start_time.unwrap_or(Timestamp::MAX);
    (Reverse(pod.spec.priority), start, pod.metadata.key())
}

/// Those whom a budget protects, and the others.
fn by_budget<'a>(pods: &[&'a Pod], budgets: &[Budget<'a>]) -> (Vec<&'a Pod>, Vec<&'a Pod>) {
    let mut allowed: Vec<i64> = budgets.iter().map(|it| it.allowed).collect();
    pods.iter().partition(|pod| {
        let meta = &pod.metadata;
        let mut against = false;
        for (budget, allowed) in budgets.iter().zip(&mut allowed) {
            let covers = budget.namespace == meta.namespace
                && !meta.labels.is_empty()
                && budget.selector.matches(&meta.labels)
                && !budget.leaving.contains(&meta.name.as_str());
            if covers {
                *allowed -= 1;
                against |= *allowed < 0;
            }
        }
        against
    })
}
