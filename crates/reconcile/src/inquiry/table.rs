//! The table of wanted questions, and when each is asked.
//!
//! Decides which questions are asked and dropped, without I/O. The runtime and the harness share
//! it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Add;
use std::time::Duration;

use super::Concurrency;
use crate::object::Key;

/// The questions of one inquiry. `Q` is a question and `T` a point in time.
#[derive(Debug)]
pub struct QuestionTable<Q, T> {
    concurrency: Concurrency,
    by_key: BTreeMap<Key, BTreeSet<Q>>,
    states: BTreeMap<Q, QuestionState<T>>,
    /// Questions that wait to be asked, in the order they became due.
    due: BTreeSet<(T, u64, Q)>,
    by_group: BTreeMap<String, usize>,
    under_way: usize,
    sequence: u64,
}

#[derive(Debug)]
struct QuestionState<T> {
    /// The number of keys that want it.
    wanted_by: usize,
    group: String,
    phase: Phase<T>,
}

#[derive(Debug)]
enum Phase<T> {
    Waiting(T, u64),
    UnderWay(InquiryAttempt),
}

/// Identifies one attempt to ask a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InquiryAttempt(u64);

impl<Q, T> QuestionTable<Q, T>
where
    Q: Clone + Ord + fmt::Debug,
    T: Copy + Ord + Add<Duration, Output = T> + fmt::Debug,
{
    /// An empty table.
    #[must_use]
    pub fn new(concurrency: Concurrency) -> Self {
        Self {
            concurrency,
            by_key: BTreeMap::new(),
            states: BTreeMap::new(),
            due: BTreeSet::new(),
            by_group: BTreeMap::new(),
            under_way: 0,
            sequence: 0,
        }
    }

    /// Sets the questions of a key; new ones are due at once. Returns those that no key wants any
    /// more, with their attempts in flight.
    pub fn set_wanted(
        &mut self,
        key: &Key,
        questions: BTreeSet<Q>,
        group: impl Fn(&Q) -> String,
        now: T,
    ) -> Vec<(Q, Option<InquiryAttempt>)> {
        let before = self.by_key.remove(key).unwrap_or_default();
        for question in questions.difference(&before) {
            if let Some(state) = self.states.get_mut(question) {
                state.wanted_by += 1;
                continue;
            }
            let sequence = self.next();
            self.due.insert((now, sequence, question.clone()));
            let phase = Phase::Waiting(now, sequence);
            let state = QuestionState { wanted_by: 1, group: group(question), phase };
            self.states.insert(question.clone(), state);
        }
        let dropped = before.difference(&questions);
        let dropped = dropped.filter_map(|it| self.release(it)).collect();
        if !questions.is_empty() {
            self.by_key.insert(key.clone(), questions);
        }
        dropped
    }

    /// Makes a question due at once that waits for its next refresh.
    pub fn expedite(&mut self, question: &Q, now: T) {
        let Some(state) = self.states.get_mut(question) else { return };
        let Phase::Waiting(at, sequence) = state.phase else { return };
        if at > now {
            state.phase = Phase::Waiting(now, sequence);
            self.due.remove(&(at, sequence, question.clone()));
            self.due.insert((now, sequence, question.clone()));
        }
    }

    /// The questions that can be asked now, the longest due first.
    #[must_use]
    pub fn startable(&self, now: T) -> Vec<Q> {
        let mut free = self.concurrency.total.saturating_sub(self.under_way);
        let mut groups: BTreeMap<&str, usize> = BTreeMap::new();
        let mut startable = Vec::new();
        for (_, _, question) in self.due.iter().take_while(|(at, ..)| *at <= now) {
            if free == 0 {
                break;
            }
            let Some(QuestionState { group, .. }) = self.states.get(question) else { continue };
            let busy = self.by_group.get(group).copied().unwrap_or_default();
            let begun = groups.entry(group).or_insert(busy);
            if *begun < self.concurrency.per_group {
                *begun += 1;
                free -= 1;
                startable.push(question.clone());
            }
        }
        startable
    }

    /// Records that a question is being asked.
    pub fn start(&mut self, question: &Q) -> Option<InquiryAttempt> {
        let asked = InquiryAttempt(self.next());
        let state = self.states.get_mut(question)?;
        let Phase::Waiting(at, sequence) = state.phase else { return None };
        self.due.remove(&(at, sequence, question.clone()));
        state.phase = Phase::UnderWay(asked);
        *self.by_group.entry(state.group.clone()).or_default() += 1;
        self.under_way += 1;
        Some(asked)
    }

    /// Records that a question was answered, or that the attempt failed; it is asked again at
    /// `next`. Returns whether the answer is still wanted.
    pub fn end(&mut self, question: &Q, asked: InquiryAttempt, next: T) -> bool {
        let sequence = self.next();
        let Some(state) = self.states.get_mut(question) else { return false };
        if !matches!(state.phase, Phase::UnderWay(it) if it == asked) {
            return false;
        }
        state.phase = Phase::Waiting(next, sequence);
        self.due.insert((next, sequence, question.clone()));
        let group = state.group.clone();
        self.free(&group);
        true
    }

    /// When the next question becomes due that waits only for its time.
    #[must_use]
    pub fn next_due(&self, now: T) -> Option<T> {
        self.due.iter().map(|(at, ..)| *at).find(|at| *at > now)
    }

    /// The number of wanted questions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.states.len()
    }

    /// Whether no question is wanted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.states.is_empty()
    }

    /// Removes one key from those that want a question. Returns the question if that was the last.
    fn release(&mut self, question: &Q) -> Option<(Q, Option<InquiryAttempt>)> {
        let state = self.states.get_mut(question)?;
        state.wanted_by -= 1;
        if state.wanted_by > 0 {
            return None;
        }
        let QuestionState { group, phase, .. } = self.states.remove(question)?;
        let asked = match phase {
            Phase::Waiting(at, sequence) => {
                self.due.remove(&(at, sequence, question.clone()));
                None
            }
            Phase::UnderWay(asked) => {
                self.free(&group);
                Some(asked)
            }
        };
        Some((question.clone(), asked))
    }

    fn free(&mut self, group: &str) {
        self.under_way -= 1;
        if let Some(count) = self.by_group.get_mut(group) {
            *count -= 1;
            if *count == 0 {
                self.by_group.remove(group);
            }
        }
    }

    fn next(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Table = QuestionTable<&'static str, Duration>;

    const NOW: Duration = Duration::from_secs(100);

    fn want(table: &mut Table, key: &str, questions: &[&'static str]) -> Vec<&'static str> {
        let group = |it: &&'static str| it[..1].to_owned();
        let dropped =
            table.set_wanted(&Key::cluster(key), questions.iter().copied().collect(), group, NOW);
        dropped.into_iter().map(|(question, _)| question).collect()
    }

    #[test]
    fn questions_are_shared_and_dropped_when_unwanted() {
        let mut table = Table::new(Concurrency::default());
        assert!(want(&mut table, "one", &["a1", "a2"]).is_empty());
        assert!(want(&mut table, "two", &["a2"]).is_empty());
        assert_eq!(table.startable(NOW), ["a1", "a2"]);
        let asked = table.start(&"a2").unwrap();
        assert!(table.start(&"a2").is_none(), "it is in flight");
        assert_eq!(want(&mut table, "one", &[]), ["a1"]);
        let later = NOW + Duration::from_secs(5);
        assert!(table.end(&"a2", asked, later));
        assert!(!table.end(&"a2", asked, later), "it was answered before");
        assert!(table.startable(NOW).is_empty(), "the answer is new");
        assert_eq!(table.next_due(NOW), Some(later));
        assert_eq!(table.startable(later), ["a2"]);
        let asked = table.start(&"a2").unwrap();
        assert_eq!(want(&mut table, "two", &[]), ["a2"]);
        assert!(!table.end(&"a2", asked, later), "no key wants the answer");
        assert!(table.is_empty() && table.due.is_empty() && table.under_way == 0);
    }

    #[test]
    fn stale_answers_are_refreshed_at_once() {
        let mut table = Table::new(Concurrency::default());
        want(&mut table, "one", &["a1"]);
        let asked = table.start(&"a1").unwrap();
        table.expedite(&"a1", NOW);
        assert!(table.startable(NOW).is_empty(), "it is being asked");
        table.end(&"a1", asked, NOW + Duration::from_secs(1000));
        table.expedite(&"b1", NOW);
        assert!(table.startable(NOW).is_empty(), "no key wants it");
        table.expedite(&"a1", NOW);
        table.expedite(&"a1", NOW + Duration::from_secs(1));
        assert_eq!(table.startable(NOW), ["a1"]);
        assert!(table.start(&"a1").is_some() && table.due.is_empty());
    }

    #[test]
    fn concurrency_is_limited_per_group() {
        let mut table = Table::new(Concurrency { total: 3, per_group: 2 });
        want(&mut table, "one", &["a1", "a2", "a3", "b1", "b2"]);
        let first = table.startable(NOW);
        assert_eq!(first, ["a1", "a2", "b1"]);
        let asked: Vec<InquiryAttempt> = first.iter().map(|it| table.start(it).unwrap()).collect();
        assert!(table.startable(NOW).is_empty());
        table.end(&"b1", asked[2], NOW + Duration::from_secs(1));
        assert_eq!(table.startable(NOW), ["b2"], "group a has its share already");
        table.end(&"a1", asked[0], NOW + Duration::from_secs(1));
        assert_eq!(table.startable(NOW), ["a3", "b2"]);
    }
}
