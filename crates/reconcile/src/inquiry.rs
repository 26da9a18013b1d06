//! Read-only questions about the world outside the API.

mod table;

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;

use crate::fact::Fact;
use crate::object::Key;
use crate::world::{Change, Kind, World};

pub use table::{Asked, QuestionTable};

/// Says which questions about the outside are open. The shell asks them.
///
/// A question is the subject of the fact that answers it. Questions are collected by key, as plans are made
/// by key, so that a change costs what it concerns and not a walk over everything. A question that several
/// keys want is asked once, one that no key wants any more is dropped, and its fact is forgotten.
pub trait Inquiry: Send + Sync {
    /// The answer.
    type Fact: Fact;

    /// The name in logs and metrics.
    fn name(&self) -> &'static str;

    /// The kinds that decide which questions are open.
    fn kinds(&self) -> Vec<Kind>;

    /// The keys whose questions may differ after a change. Pure.
    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key>;

    /// The questions of one key. Pure.
    fn wanted(&self, world: &World, key: &Key, now: Timestamp) -> Wanted<Question<Self>>;

    /// How a question is asked.
    fn policy(&self, question: &Question<Self>) -> InquiryPolicy;

    /// After how long a question is asked again that was answered so, while it is wanted: some answers hold
    /// for longer than others.
    fn refresh_interval(&self, question: &Question<Self>, answer: &Self::Fact) -> Duration {
        let _ = answer;
        self.policy(question).refresh_interval
    }

    /// How many questions are asked at once.
    fn concurrency(&self) -> Concurrency {
        Concurrency::default()
    }

    /// The group of questions that share [`Concurrency::per_group`]: usually the namespace of the users who
    /// caused them, so that one of them delays no other.
    fn group(&self, question: &Question<Self>) -> String {
        let _ = question;
        String::new()
    }
}

/// What an inquiry asks.
pub type Question<I> = <<I as Inquiry>::Fact as Fact>::Subject;

/// The open questions of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted<Q> {
    /// The questions.
    pub questions: BTreeSet<Q>,
    /// Those of them whose recorded answers are too old for this key. They are asked now and not when they would
    /// be refreshed, unless they are being asked, or the last attempt failed and is to be retried.
    pub stale: BTreeSet<Q>,
    /// When they may differ even if nothing changes.
    pub requeue_at: Option<Timestamp>,
}

impl<Q> Default for Wanted<Q> {
    fn default() -> Self {
        Self { questions: BTreeSet::new(), stale: BTreeSet::new(), requeue_at: None }
    }
}

impl<Q: Ord> FromIterator<Q> for Wanted<Q> {
    fn from_iter<T: IntoIterator<Item = Q>>(questions: T) -> Self {
        Self { questions: questions.into_iter().collect(), ..Self::default() }
    }
}

/// How a question is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InquiryPolicy {
    /// After how long an answer is asked for again while it is wanted.
    pub refresh_interval: Duration,
    /// How long one attempt may take.
    pub timeout: Duration,
    /// The pause after a failed attempt. It doubles with every further one.
    pub first_retry_delay: Duration,
    /// The longest such pause.
    pub longest_retry_delay: Duration,
    /// Whether only the leader asks.
    pub leader_only: bool,
}

impl Default for InquiryPolicy {
    fn default() -> Self {
        Self {
            refresh_interval: Duration::from_secs(10),
            timeout: Duration::from_secs(10),
            first_retry_delay: Duration::from_secs(1),
            longest_retry_delay: Duration::from_secs(30),
            leader_only: true,
        }
    }
}

impl InquiryPolicy {
    /// The pause after this many failed attempts in a row.
    #[must_use]
    pub fn retry_delay(&self, failures: u32) -> Duration {
        let doubled = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        let delay = self.first_retry_delay.checked_mul(doubled);
        delay.map_or(self.longest_retry_delay, |it| it.min(self.longest_retry_delay))
    }
}

/// How many questions of an inquiry are asked at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concurrency {
    /// In all.
    pub total: usize,
    /// Of one [group](Inquiry::group).
    pub per_group: usize,
}

impl Default for Concurrency {
    fn default() -> Self {
        Self { total: 16, per_group: 16 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_between_attempts_doubles_up_to_a_bound() {
        let policy = InquiryPolicy::default();
        let seconds = [(0, 1), (1, 1), (2, 2), (3, 4), (5, 16), (6, 30), (40, 30), (u32::MAX, 30)];
        for (failures, expected) in seconds {
            let delay = policy.retry_delay(failures);
            assert_eq!(delay, Duration::from_secs(expected), "{failures} failures");
        }
    }
}
