//! What is known of a job when a decision about it is made.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::indexes::Indexes;
use super::pods::{
    ended_at, failures, index, indexes, is_active, is_failed, is_terminating, is_tracked,
};
use super::policy::{Verdict, judge};
use crate::view::{Job, Phase, Pod};

/// The pods of a job, sorted out, and its counters with everything that is known.
pub(super) struct Tally<'a> {
    pub(super) job: &'a Job,
    /// All its pods, in order of their numbers and names.
    pub(super) pods: Vec<&'a Pod>,
    /// Those that run or will.
    pub(super) active: Vec<&'a Pod>,
    /// Those that run and that nobody would count: they are let go.
    pub(super) untracked: Vec<&'a Pod>,
    /// How many are about to end.
    pub(super) terminating: usize,
    /// How many have ended well, counted or not.
    pub(super) succeeded: i64,
    /// How many have not, counted or not.
    pub(super) failed: i64,
    /// What is known of numbers, if pods have them.
    pub(super) numbers: Option<Numbers<'a>>,
}

/// What is known of the numbers of pods.
pub(super) struct Numbers<'a> {
    /// How many there are.
    pub(super) end: u32,
    /// Those that are written down as ended well.
    pub(super) recorded: Indexes,
    /// Those that have ended well.
    pub(super) succeeded: Indexes,
    /// Those that have failed for good, where numbers fail one by one.
    pub(super) failed: Option<Indexes>,
    /// The last failed pod of each number that is to be tried again. Its successor learns from it how
    /// often the number has failed, so it stays until there is one.
    pub(super) awaited: BTreeMap<u32, &'a Pod>,
}

impl<'a> Tally<'a> {
    pub(super) fn of(job: &'a Job, pods: impl Iterator<Item = &'a Arc<Pod>>) -> Self {
        let mut pods: Vec<&Pod> = pods.map(|pod| &**pod).collect();
        pods.sort_by_key(|pod| (index(pod), &pod.metadata.name));
        let (active, untracked): (Vec<&Pod>, Vec<&Pod>) =
            pods.iter().copied().filter(|pod| is_active(pod)).partition(|pod| is_tracked(pod));
        let end = job.is_indexed().then(|| end(job));
        let numbered = |pod: &Pod| end.is_none_or(|end| index(pod).is_some_and(|it| it < end));
        let noted = noted(job);
        let fresh = pods.iter().copied().filter(|pod| {
            is_tracked(pod) && !noted.contains(pod.metadata.uid.as_str()) && numbered(pod)
        });
        let (mut succeeded, mut failed) = (job.status.succeeded, job.status.failed);
        if let Some(uncounted) = &job.status.uncounted_terminated_pods {
            succeeded += count(uncounted.succeeded.len());
            failed += count(uncounted.failed.len());
        }
        for pod in fresh {
            if pod.status.phase == Phase::Succeeded {
                succeeded += 1;
            } else if is_failed(job, pod) && verdict(job, pod) != Verdict::Ignored {
                failed += 1;
            }
        }
        let numbers = end.map(|end| Numbers::of(job, &pods, &active, end));
        if let Some(numbers) = &numbers {
            succeeded = numbers.succeeded.len();
        }
        let terminating = pods.iter().filter(|pod| is_terminating(pod)).count();
        Self { job, pods, active, untracked, terminating, succeeded, failed, numbers }
    }
}

impl<'a> Numbers<'a> {
    fn of(job: &Job, pods: &[&'a Pod], active: &[&Pod], end: u32) -> Self {
        let recorded = Indexes::parse(&job.status.completed_indexes, end);
        let tracked = pods.iter().copied().filter(|pod| is_tracked(pod));
        let numbered = tracked.filter_map(|pod| Some((index(pod).filter(|it| *it < end)?, pod)));
        let numbered: Vec<(u32, &'a Pod)> = numbered.collect();
        let mut succeeded = recorded.clone();
        for (index, pod) in &numbered {
            if pod.status.phase == Phase::Succeeded {
                succeeded.insert(*index);
            }
        }
        let mut numbers = Self { end, recorded, succeeded, failed: None, awaited: BTreeMap::new() };
        let Some(limit) = job.spec.backoff_limit_per_index else { return numbers };
        let text = job.status.failed_indexes.as_deref().unwrap_or_default();
        let mut failed = Indexes::parse(text, end);
        // What is cut short by the end of the job says nothing about its number.
        let ends = job.condition("FailureTarget").or_else(|| job.condition("SuccessCriteriaMet"));
        let by_itself = |pod: &Pod| ends.is_none() || !pod.metadata.is_going();
        let failures_of_own =
            numbered.iter().filter(|(_, pod)| is_failed(job, pod) && by_itself(pod));
        for (index, pod) in failures_of_own {
            let given_up = match verdict(job, pod) {
                Verdict::FailsIndex => true,
                Verdict::Ignored => false,
                Verdict::Counts | Verdict::FailsJob(_) => failures(pod).0 >= limit,
            };
            if given_up {
                failed.insert(*index);
            }
        }
        let running = indexes(active.iter().copied());
        for (index, pod) in numbered.into_iter().filter(|(_, pod)| is_failed(job, pod)) {
            let done = numbers.succeeded.contains(index) || failed.contains(index);
            if done || running.contains(index) {
                continue;
            }
            let rank = |pod: &Pod| {
                let (counted, ignored) = failures(pod);
                (counted + ignored, ended_at(pod))
            };
            let last = numbers.awaited.entry(index).or_insert(pod);
            if rank(last) < rank(pod) {
                *last = pod;
            }
        }
        numbers.failed = Some(failed);
        numbers
    }
}

/// What the failure of a pod means to its job.
pub(super) fn verdict(job: &Job, pod: &Pod) -> Verdict {
    judge(job.spec.pod_failure_policy.as_ref(), pod)
}

/// How many numbers an indexed job has.
fn end(job: &Job) -> u32 {
    let completions = job.spec.completions.unwrap_or(0);
    u32::try_from(completions.clamp(0, i64::from(u32::MAX))).unwrap_or(0)
}

/// The pods whose end is written down and not yet in the counters.
pub(super) fn noted(job: &Job) -> BTreeSet<&str> {
    let noted = job.status.uncounted_terminated_pods.iter();
    noted.flat_map(|it| it.succeeded.iter().chain(&it.failed)).map(String::as_str).collect()
}

pub(super) fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
