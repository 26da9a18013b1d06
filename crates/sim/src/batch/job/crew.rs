//! Which pods a job needs and which it has too many of.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::pods::{by_worth, index, indexes, is_terminating, retry_after, retry_at};
use super::tally::{Numbers, Tally, count};
use crate::batch::MOST;
use crate::view::Pod;

/// What to change about the pods of a job.
#[derive(Debug, Default)]
pub(super) struct Crew<'a> {
    /// Pods to let go, without counting them.
    pub(super) surplus: Vec<&'a Pod>,
    /// Pods to make: the number of each, if pods have one.
    pub(super) births: Vec<Option<u32>>,
    /// When a pod that is missing may be made, if not yet.
    pub(super) retry_at: Option<Timestamp>,
}

/// Decides about the pods of a job that goes on.
pub(super) fn crew<'a>(tally: &Tally<'a>, now: Timestamp) -> Crew<'a> {
    let job = tally.job;
    if job.spec.suspend {
        return Crew { surplus: tally.active.clone(), ..Crew::default() };
    }
    let active = count(tally.active.len());
    let parallelism = job.spec.parallelism.unwrap_or(1);
    let wanted = match job.spec.completions {
        Some(completions) => (completions - tally.succeeded).min(parallelism).max(0),
        // Once one has ended well, the others are left to end by themselves.
        None if tally.succeeded > 0 => active,
        None => parallelism,
    };
    let surplus = surplus(tally, usize::try_from(active - wanted).unwrap_or(0));
    if !surplus.is_empty() {
        return Crew { surplus, ..Crew::default() };
    }
    let leaving = if job.is_replacing_only_ended() { count(tally.terminating) } else { 0 };
    let missing = usize::try_from(wanted - leaving - active).unwrap_or(0);
    if missing == 0 {
        return Crew::default();
    }
    match &tally.numbers {
        Some(numbers) if numbers.failed.is_some() => one_by_one(tally, numbers, missing, now),
        Some(_) | None => {
            if let Some(at) = retry_at(job, tally.pods.iter().copied()).filter(|at| *at > now) {
                return Crew { retry_at: Some(at), ..Crew::default() };
            }
            let missing = missing.min(MOST);
            let births = match &tally.numbers {
                Some(numbers) => pending(tally, numbers, missing).into_iter().map(Some).collect(),
                None => vec![None; missing],
            };
            Crew { births, ..Crew::default() }
        }
    }
}

/// The pods to make where each number fails and waits by itself.
fn one_by_one<'a>(
    tally: &Tally<'a>,
    numbers: &Numbers<'a>,
    missing: usize,
    now: Timestamp,
) -> Crew<'a> {
    let mut crew = Crew::default();
    for index in pending(tally, numbers, missing.min(MOST)) {
        match numbers.awaited.get(&index).map(|pod| retry_after(pod)).filter(|at| *at > now) {
            None => crew.births.push(Some(index)),
            Some(at) => crew.retry_at = Some(crew.retry_at.map_or(at, |before| before.min(at))),
        }
    }
    crew
}

/// The first numbers without a pod.
fn pending(tally: &Tally<'_>, numbers: &Numbers<'_>, most: usize) -> Vec<u32> {
    let mut settled = numbers.succeeded.clone();
    settled.extend(&indexes(tally.active.iter().copied()));
    if tally.job.is_replacing_only_ended() {
        settled.extend(&indexes(tally.pods.iter().copied().filter(|pod| is_terminating(pod))));
    }
    if let Some(failed) = &numbers.failed {
        settled.extend(failed);
    }
    settled.missing(most, numbers.end)
}

/// The pods to let go: those that share a number or have none, and `least` in all.
fn surplus<'a>(tally: &Tally<'a>, least: usize) -> Vec<&'a Pod> {
    let mut by_worth_first = tally.active.clone();
    by_worth_first.sort_by(|one, other| by_worth(one, other));
    let Some(numbers) = &tally.numbers else {
        by_worth_first.truncate(least);
        return by_worth_first;
    };
    // The most valuable pod of each number stays.
    let mut served = BTreeSet::new();
    let (mut kept, mut surplus): (Vec<&Pod>, Vec<&Pod>) = by_worth_first
        .into_iter()
        .rev()
        .partition(|pod| index(pod).is_some_and(|it| it < numbers.end && served.insert(it)));
    while surplus.len() < least
        && let Some(pod) = kept.pop()
    {
        surplus.push(pod);
    }
    surplus
}
