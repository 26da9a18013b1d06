//! Inquiries: read-only questions about systems outside the API.

mod table;

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;

use crate::fact::{Fact, FactChange, FactKind};
use crate::object::Key;
use crate::world::{Change, Kind, World};

pub use table::{InquiryAttempt, QuestionTable};

/// Lists the questions about outside systems that are open. The runtime asks them.
///
/// A question is the subject of the fact that answers it. Questions are collected by key, as plans
/// are made by key, so that a change costs what it concerns and not a scan of everything. A
/// question that several keys want is asked once; one that no key wants any more is dropped, and
/// its fact is forgotten.
pub trait Inquiry: Send + Sync {
    /// The kind of fact that answers the questions.
    type Fact: Fact;

    /// The name in logs and metrics.
    fn name(&self) -> &'static str;

    /// The kinds that decide which questions are open.
    fn kinds(&self) -> Vec<Kind>;

    /// Returns the keys whose questions may differ after a change. Pure.
    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key>;

    /// The kinds of facts that decide which questions are open, or which answers are too old.
    fn facts(&self) -> Vec<FactKind> {
        Vec::new()
    }

    /// Returns the keys whose questions may differ after a change of such a fact. Pure.
    fn enqueue_for_fact(&self, world: &World, change: &FactChange) -> Vec<Key> {
        let _ = (world, change);
        Vec::new()
    }

    /// Returns the questions of one key. Pure.
    fn wanted_questions(
        &self,
        world: &World,
        key: &Key,
        now: Timestamp,
    ) -> WantedQuestions<Question<Self>>;

    /// The timing of a question: refresh, timeout and retries.
    fn policy(&self, question: &Question<Self>) -> InquiryPolicy;

    /// After how long a question with this answer is asked again while it is wanted: some answers
    /// stay valid for longer than others.
    fn refresh_interval(&self, question: &Question<Self>, answer: &Self::Fact) -> Duration {
        let _ = answer;
        self.policy(question).refresh_interval
    }

    /// How many questions are asked at once.
    fn concurrency(&self) -> Concurrency {
        Concurrency::default()
    }

    /// The group of questions that share [`Concurrency::per_group`]: usually the namespace of the
    /// users that caused them, so that one namespace does not delay another.
    fn group(&self, question: &Question<Self>) -> String {
        let _ = question;
        String::new()
    }
}

/// The type of an inquiry's questions.
pub type Question<I> = <<I as Inquiry>::Fact as Fact>::Subject;

/// The open questions of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedQuestions<Q> {
    /// The questions.
    pub questions: BTreeSet<Q>,
    /// Those of them whose recorded answers are too old for this key. They are asked now and not at
    /// their next refresh, unless an attempt is in flight, or the last attempt failed and is to be
    /// retried.
    pub stale: BTreeSet<Q>,
    /// Those of them that are asked now even if the last attempt failed, because something says
    /// that the next one will not. A question may be here once for each such event, or it is asked
    /// without a pause.
    pub expedited: BTreeSet<Q>,
    /// When the questions may differ even if nothing changes.
    pub requeue_at: Option<Timestamp>,
}

impl<Q> Default for WantedQuestions<Q> {
    fn default() -> Self {
        Self {
            questions: BTreeSet::new(),
            stale: BTreeSet::new(),
            expedited: BTreeSet::new(),
            requeue_at: None,
        }
    }
}

impl<Q: Ord> FromIterator<Q> for WantedQuestions<Q> {
    fn from_iter<T: IntoIterator<Item = Q>>(questions: T) -> Self {
        Self { questions: questions.into_iter().collect(), ..Self::default() }
    }
}

/// How a question is asked: refresh, timeout and retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InquiryPolicy {
    /// After how long a wanted question is asked again.
    pub refresh_interval: Duration,
    /// How long one attempt may take.
    pub timeout: Duration,
    /// The delay after a failed attempt. It doubles with every further one.
    pub first_retry_delay: Duration,
    /// The longest such delay.
    pub max_retry_delay: Duration,
    /// Whether only the leader asks.
    pub leader_only: bool,
}

impl Default for InquiryPolicy {
    fn default() -> Self {
        Self {
            refresh_interval: Duration::from_secs(10),
            timeout: Duration::from_secs(10),
            first_retry_delay: Duration::from_secs(1),
            max_retry_delay: Duration::from_secs(30),
            leader_only: true,
        }
    }
}

impl InquiryPolicy {
    /// The delay after this many failed attempts in a row.
    #[must_use]
    pub fn retry_delay(&self, failures: u32) -> Duration {
        let doubled = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        let delay = self.first_retry_delay.checked_mul(doubled);
        delay.map_or(self.max_retry_delay, |it| it.min(self.max_retry_delay))
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
    fn retry_delays_double_up_to_a_maximum() {
        let policy = InquiryPolicy::default();
        let seconds = [(0, 1), (1, 1), (2, 2), (3, 4), (5, 16), (6, 30), (40, 30), (u32::MAX, 30)];
        for (failures, expected) in seconds {
            let delay = policy.retry_delay(failures);
            assert_eq!(delay, Duration::from_secs(expected), "{failures} failures");
        }
    }
}
