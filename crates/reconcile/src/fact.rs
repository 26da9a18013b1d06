//! Facts: what is known about systems outside the API.
//!
//! A plan reads only the [`World`](crate::World). The response of a registry, the state of an
//! engine or the pools of a cloud enter it as facts: typed values with the time they were observed.
//! A fact is recorded by the runtime and never by a plan, it is kept in memory only, and its
//! absence means that nothing is known.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeBounds;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use jiff::Timestamp;

/// A value that was observed outside the API.
pub trait Fact: fmt::Debug + PartialEq + Send + Sync + 'static {
    /// What the fact is about. Where an [`Inquiry`](crate::Inquiry) asks for it, this is the
    /// question.
    type Subject: Clone + Ord + fmt::Debug + Send + Sync + 'static;
    /// The name of this kind of fact in logs, metrics and `gantry status`.
    const NAME: &'static str;
}

/// A fact and the time it was observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed<F> {
    /// The fact.
    pub value: F,
    /// When it was observed. Where a peer was asked, this is when the question was sent: the
    /// response was true at some time after it.
    pub at: Timestamp,
}

impl<F> Observed<F> {
    /// How long ago the fact was observed.
    #[must_use]
    pub fn age(&self, now: Timestamp) -> Duration {
        Duration::try_from(now.duration_since(self.at)).unwrap_or_default()
    }
}

/// Why nothing could be observed about a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InquiryFailure {
    /// What went wrong, for the user who waits for the fact.
    pub message: String,
    /// When the last attempt failed.
    pub at: Timestamp,
    /// How many attempts in a row have failed.
    pub count: u32,
}

/// What is known about one subject: the last observation, and the failures since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FactState<F> {
    /// The last observation; absent until the first one.
    pub observed: Option<Arc<Observed<F>>>,
    /// Why the attempts since the last observation failed; absent while they succeed.
    pub failure: Option<Arc<InquiryFailure>>,
}

impl<F: Fact> FactState<F> {
    /// The fact, if it was ever observed.
    #[must_use]
    pub fn value(&self) -> Option<&F> {
        self.observed.as_deref().map(|it| &it.value)
    }
}

/// All facts of one kind, by subject.
pub struct FactTable<F: Fact> {
    states: RwLock<BTreeMap<F::Subject, Arc<FactState<F>>>>,
}

impl<F: Fact> Default for FactTable<F> {
    fn default() -> Self {
        Self { states: RwLock::default() }
    }
}

impl<F: Fact> FactTable<F> {
    /// The state of a subject, if anything is known about it.
    #[must_use]
    pub fn get(&self, subject: &F::Subject) -> Option<Arc<FactState<F>>> {
        self.read().get(subject).cloned()
    }

    /// The last observation of a subject.
    #[must_use]
    pub fn observed(&self, subject: &F::Subject) -> Option<Arc<Observed<F>>> {
        self.read().get(subject)?.observed.clone()
    }

    /// The states of all subjects in a range, in their order.
    #[must_use]
    pub fn range(
        &self,
        subjects: impl RangeBounds<F::Subject>,
    ) -> Vec<(F::Subject, Arc<FactState<F>>)> {
        let states = self.read();
        let found = states.range(subjects);
        found.map(|(subject, state)| (subject.clone(), Arc::clone(state))).collect()
    }

    /// The states of all subjects, in their order.
    #[must_use]
    pub fn all(&self) -> Vec<(F::Subject, Arc<FactState<F>>)> {
        self.range(..)
    }

    /// The number of subjects about which something is known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.read().len()
    }

    /// Whether nothing is known about any subject.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.read().is_empty()
    }

    /// Records an observation. The returned change must be delivered to the controllers.
    pub fn record(&self, subject: F::Subject, value: F, at: Timestamp) -> FactChange {
        let observed = Some(Arc::new(Observed { value, at }));
        self.put(subject, FactState { observed, failure: None })
    }

    /// Records that an attempt to observe a subject failed. The last observation stays, with its
    /// time. The returned change must be delivered to the controllers.
    pub fn fail(&self, subject: F::Subject, message: String, at: Timestamp) -> FactChange {
        let before = self.get(&subject);
        let count = before.as_ref().and_then(|it| it.failure.as_ref()).map_or(0, |it| it.count);
        let failure = InquiryFailure { message, at, count: count.saturating_add(1) };
        let observed = before.and_then(|it| it.observed.clone());
        self.put(subject, FactState { observed, failure: Some(Arc::new(failure)) })
    }

    /// Forgets a subject. Returns the change, which must be delivered to the controllers, if
    /// anything was known.
    pub fn forget(&self, subject: &F::Subject) -> Option<FactChange> {
        let before = self.write().remove(subject)?;
        Some(FactChange::new::<F>(subject.clone(), Some(before), None))
    }

    fn put(&self, subject: F::Subject, state: FactState<F>) -> FactChange {
        let state = Arc::new(state);
        let before = self.write().insert(subject.clone(), Arc::clone(&state));
        FactChange::new::<F>(subject, before, Some(state))
    }

    // A panic while the lock is held can only come from comparing subjects; the map is intact then.
    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<F::Subject, Arc<FactState<F>>>> {
        self.states.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<F::Subject, Arc<FactState<F>>>> {
        self.states.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F: Fact> fmt::Debug for FactTable<F> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "FactTable({}, {})", F::NAME, self.len())
    }
}

/// A kind of fact at run time, for code that handles many of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FactKind {
    name: &'static str,
    id: TypeId,
}

impl FactKind {
    /// The kind of fact that `F` is.
    #[must_use]
    pub fn of<F: Fact>() -> Self {
        Self { name: F::NAME, id: TypeId::of::<F>() }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }
}

type Erased = Arc<dyn Any + Send + Sync>;

/// A change of what is known about one subject.
#[derive(Clone)]
pub struct FactChange {
    kind: FactKind,
    subject: Erased,
    before: Option<Erased>,
    after: Option<Erased>,
}

/// A [`FactChange`] of facts of kind `F`.
#[derive(Debug)]
pub struct TypedFactChange<'a, F: Fact> {
    /// The subject.
    pub subject: &'a F::Subject,
    /// What was known before.
    pub before: Option<&'a FactState<F>>,
    /// What is known now; absent when the subject was forgotten.
    pub after: Option<&'a FactState<F>>,
}

impl<F: Fact> TypedFactChange<'_, F> {
    /// Whether more than the time of the observation changed.
    #[must_use]
    pub fn is_significant(&self) -> bool {
        let value = |state: Option<&FactState<F>>| state.and_then(|it| it.observed.clone());
        let same = match (value(self.before), value(self.after)) {
            (Some(before), Some(after)) => before.value == after.value,
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        let failed = |state: Option<&FactState<F>>| state.is_some_and(|it| it.failure.is_some());
        !same || failed(self.before) || failed(self.after)
    }
}

impl FactChange {
    fn new<F: Fact>(
        subject: F::Subject,
        before: Option<Arc<FactState<F>>>,
        after: Option<Arc<FactState<F>>>,
    ) -> Self {
        let erase = |state: Arc<FactState<F>>| -> Erased { state };
        Self {
            kind: FactKind::of::<F>(),
            subject: Arc::new(subject),
            before: before.map(erase),
            after: after.map(erase),
        }
    }

    /// The kind of fact that changed.
    #[must_use]
    pub fn kind(&self) -> FactKind {
        self.kind
    }

    /// The typed change, if it is about facts of kind `F`.
    #[must_use]
    pub fn of<F: Fact>(&self) -> Option<TypedFactChange<'_, F>> {
        if self.kind != FactKind::of::<F>() {
            return None;
        }
        Some(TypedFactChange {
            subject: self.subject.downcast_ref()?,
            before: self.before.as_ref().and_then(|it| it.downcast_ref()),
            after: self.after.as_ref().and_then(|it| it.downcast_ref()),
        })
    }
}

impl fmt::Debug for FactChange {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "FactChange({})", self.kind.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    struct Depth(u32);

    impl Fact for Depth {
        type Subject = &'static str;
        const NAME: &'static str = "depth";
    }

    #[derive(Debug, PartialEq)]
    struct Height;

    impl Fact for Height {
        type Subject = &'static str;
        const NAME: &'static str = "height";
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_failure_keeps_what_was_observed_before() {
        let table = FactTable::<Depth>::default();
        assert_eq!(table.get(&"sea"), None);
        table.fail("sea", "no boat".to_owned(), at(1));
        let state = table.get(&"sea").unwrap();
        assert_eq!((state.value(), state.failure.as_ref().unwrap().count), (None, 1));
        table.record("sea", Depth(3), at(2));
        assert_eq!(table.observed(&"sea").unwrap().age(at(7)), Duration::from_secs(5));
        for count in 1..3 {
            table.fail("sea", "storm".to_owned(), at(8));
            let state = table.get(&"sea").unwrap();
            let failure = state.failure.clone().unwrap();
            assert_eq!((failure.count, failure.message.as_str()), (count, "storm"));
            let observed = state.observed.clone().unwrap();
            assert_eq!((&observed.value, observed.at), (&Depth(3), at(2)));
        }
        table.record("sea", Depth(3), at(9));
        assert_eq!(table.get(&"sea").unwrap().failure, None);
        assert!(table.forget(&"sea").is_some() && table.is_empty());
        assert!(table.forget(&"sea").is_none());
    }

    #[test]
    fn only_significant_changes_are_news() {
        let table = FactTable::<Depth>::default();
        let news = |change: &FactChange| change.of::<Depth>().unwrap().is_significant();
        let first = table.record("sea", Depth(3), at(1));
        assert!(news(&first), "the first observation");
        assert!(first.of::<Height>().is_none(), "facts of another kind about the same subject");
        assert!(!news(&table.record("sea", Depth(3), at(2))), "only the time differs");
        assert!(news(&table.record("sea", Depth(4), at(3))), "the value differs");
        assert!(news(&table.fail("sea", "storm".to_owned(), at(4))), "it failed");
        assert!(news(&table.record("sea", Depth(4), at(5))), "it succeeds again");
        let gone = table.forget(&"sea").unwrap();
        let gone = gone.of::<Depth>().unwrap();
        assert!(gone.is_significant() && gone.after.is_none() && *gone.subject == "sea");
    }
}
