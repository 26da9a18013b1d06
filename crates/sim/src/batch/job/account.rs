//! Counting the ends of pods, each exactly once.
//!
//! A pod carries a finalizer until its end is counted. First its identity is written into the job's
//! status, then the finalizer is taken away, then the identity becomes part of a counter. Whatever is
//! lost in between, the next plan sees which of the three has happened. Pods with numbers that end
//! well need no identity: the number is a set's element and cannot be counted twice.

use std::collections::BTreeSet;

use super::ending::{Ending, Outcome};
use super::pods::{index, is_failed, is_terminating, is_tracked};
use super::policy::Verdict;
use super::tally::{Tally, count, noted, verdict};
use crate::batch::MOST;
use crate::view::{JobStatus, Phase, Pod, Uncounted};

/// What becomes of a pod that is still to be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is kept as it is.
    Kept,
    /// It is written down as ended well.
    Succeeded,
    /// It is written down as failed.
    Failed,
    /// It is let go: it is written down already, or does not count.
    Released,
}

/// The counting of one pass.
#[derive(Debug)]
pub(super) struct Account<'a> {
    /// The pods that need not be kept any more.
    pub(super) released: Vec<&'a Pod>,
    /// The pods whose end is written down and not yet in the counters, after this pass.
    pub(super) uncounted: Uncounted,
    /// The counters after this pass.
    pub(super) succeeded: i64,
    /// The counters after this pass.
    pub(super) failed: i64,
}

impl<'a> Account<'a> {
    pub(super) fn of(tally: &Tally<'a>, ending: Option<&Ending>) -> Self {
        let status = &tally.job.status;
        let mut account = Self::settled(tally, status);
        let noted = noted(tally.job);
        for pod in tally.pods.iter().copied().filter(|pod| is_tracked(pod)) {
            let lists = &mut account.uncounted;
            let room = lists.succeeded.len() + lists.failed.len() < MOST;
            let uid = || pod.metadata.uid.as_str().to_owned();
            match fate(tally, ending, pod, noted.contains(pod.metadata.uid.as_str())) {
                Fate::Released => account.released.push(pod),
                Fate::Succeeded if room => lists.succeeded.push(uid()),
                Fate::Failed if room => lists.failed.push(uid()),
                Fate::Kept | Fate::Succeeded | Fate::Failed => {}
            }
        }
        account
    }

    /// Moves into the counters what has lost its finalizer.
    fn settled(tally: &Tally<'a>, status: &JobStatus) -> Self {
        let tracked = tally.pods.iter().filter(|pod| is_tracked(pod));
        let tracked: BTreeSet<&str> = tracked.map(|pod| pod.metadata.uid.as_str()).collect();
        let uncounted = status.uncounted_terminated_pods.clone().unwrap_or_default();
        let left = |list: &[String]| -> Vec<String> {
            list.iter().filter(|uid| tracked.contains(uid.as_str())).cloned().collect()
        };
        let (succeeded, failed) = (left(&uncounted.succeeded), left(&uncounted.failed));
        Self {
            released: Vec::new(),
            succeeded: status.succeeded + count(uncounted.succeeded.len() - succeeded.len()),
            failed: status.failed + count(uncounted.failed.len() - failed.len()),
            uncounted: Uncounted { succeeded, failed },
        }
    }
}

fn fate(tally: &Tally<'_>, ending: Option<&Ending>, pod: &Pod, is_noted: bool) -> Fate {
    if is_noted {
        return Fate::Released;
    }
    let number = index(pod);
    let has_place = tally.numbers.as_ref().is_none_or(|it| number.is_some_and(|n| n < it.end));
    if pod.status.phase == Phase::Succeeded {
        return match (&tally.numbers, number) {
            (None, _) => Fate::Succeeded,
            // Its number becomes part of the set that is written first.
            (Some(numbers), Some(number)) if has_place && !numbers.recorded.contains(number) => {
                Fate::Kept
            }
            (Some(_), _) => Fate::Released,
        };
    }
    let recorded = ending.filter(|it| it.is_recorded).map(|it| it.outcome);
    let has_failed = match recorded {
        // It was asked to go because the rest is done.
        Some(Outcome::Success) if pod.metadata.is_going() => return Fate::Released,
        // Whatever is cut short by the failure of the job has failed too.
        Some(Outcome::Failure) => pod.is_over() || is_terminating(pod),
        Some(Outcome::Success) | None => is_failed(tally.job, pod),
    };
    if !has_failed {
        return if tally.job.metadata.is_going() { Fate::Released } else { Fate::Kept };
    }
    let awaited = || {
        let numbers = tally.numbers.as_ref()?;
        numbers.awaited.get(&number?).filter(|it| it.metadata.uid == pod.metadata.uid)
    };
    if !has_place || verdict(tally.job, pod) == Verdict::Ignored {
        // A successor must still learn how often the number has failed.
        let waits = ending.is_none() && !tally.job.metadata.is_going() && awaited().is_some();
        return if waits { Fate::Kept } else { Fate::Released };
    }
    if ending.is_none() && !tally.job.metadata.is_going() && awaited().is_some() {
        return Fate::Kept;
    }
    Fate::Failed
}
