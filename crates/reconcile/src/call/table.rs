//! The table of wanted calls, and the state of each.
//!
//! Decides which calls are sent and cancelled, without I/O. The runtime and the harness share it,
//! so what the harness proves is what runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Add;
use std::time::Duration;

use super::{Call, CallId, CallState, Reply, Target};

/// How many calls may be in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallBounds {
    /// In all.
    pub total: usize,
    /// To targets of one group of a protocol. Each target gets one call at a time, because calls
    /// change it.
    pub per_group: usize,
}

impl Default for CallBounds {
    fn default() -> Self {
        Self { total: 256, per_group: 16 }
    }
}

/// The calls of one process. `O` is the owner of a call, a key of a controller, and `T` a point in
/// time.
#[derive(Debug)]
pub struct CallTable<O, T> {
    bounds: CallBounds,
    wanted: BTreeMap<CallId, WantedCall<O, T>>,
    by_owner: BTreeMap<O, BTreeSet<CallId>>,
    /// Calls that wait to be sent, in the order they became due.
    due: BTreeSet<(T, u64, CallId)>,
    busy_targets: BTreeSet<Target>,
    by_group: BTreeMap<(&'static str, String), usize>,
    sequence: u64,
}

#[derive(Debug)]
struct WantedCall<O, T> {
    call: Call,
    owners: BTreeSet<O>,
    phase: Phase<T>,
    state: CallState,
}

#[derive(Debug)]
enum Phase<T> {
    Waiting(T, u64),
    UnderWay(CallAttempt),
    Done,
}

/// Identifies one attempt of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallAttempt(u64);

/// A call that no owner wants any more.
#[derive(Debug)]
pub struct CancelledCall {
    /// The call.
    pub call: Call,
    /// The attempt that was in flight. It may be executed all the same.
    pub attempt: Option<CallAttempt>,
}

/// A change of the state of a call.
#[derive(Debug)]
pub struct CallChange<O> {
    /// The call.
    pub id: CallId,
    /// Its state, except for the time of the next attempt.
    pub state: CallState,
    /// The owners whose plans depend on it.
    pub owners: Vec<O>,
}

impl<O, T> CallTable<O, T>
where
    O: Clone + Ord + fmt::Debug,
    T: Copy + Ord + Add<Duration, Output = T> + fmt::Debug,
{
    /// An empty table.
    #[must_use]
    pub fn new(bounds: CallBounds) -> Self {
        Self {
            bounds,
            wanted: BTreeMap::new(),
            by_owner: BTreeMap::new(),
            due: BTreeSet::new(),
            busy_targets: BTreeSet::new(),
            by_group: BTreeMap::new(),
            sequence: 0,
        }
    }

    /// Sets the calls that an owner wants. Returns those that no owner wants any more.
    pub fn set_wanted(&mut self, owner: &O, calls: Vec<Call>, now: T) -> Vec<CancelledCall> {
        let before = self.by_owner.remove(owner).unwrap_or_default();
        let mut wanted = BTreeSet::new();
        for call in calls {
            wanted.insert(call.id.clone());
            if let Some(active) = self.wanted.get_mut(&call.id) {
                active.owners.insert(owner.clone());
                continue;
            }
            let (id, sequence) = (call.id.clone(), self.next());
            self.due.insert((now, sequence, id.clone()));
            let (phase, state) = (Phase::Waiting(now, sequence), CallState::default());
            let owners = BTreeSet::from([owner.clone()]);
            self.wanted.insert(id, WantedCall { call, owners, phase, state });
        }
        let given_up = before.difference(&wanted).filter_map(|id| self.release(id, owner));
        let given_up = given_up.collect();
        if !wanted.is_empty() {
            self.by_owner.insert(owner.clone(), wanted);
        }
        given_up
    }

    /// The calls that can be sent now, the longest due first.
    #[must_use]
    pub fn startable(&self, now: T) -> Vec<CallId> {
        let mut free = self.bounds.total.saturating_sub(self.busy_targets.len());
        let (mut targets, mut groups) = (BTreeSet::new(), BTreeMap::new());
        let mut startable = Vec::new();
        for (_, _, id) in self.due.iter().take_while(|(at, ..)| *at <= now) {
            if free == 0 {
                break;
            }
            let Some(WantedCall { call, .. }) = self.wanted.get(id) else { continue };
            let group = (call.target.protocol, call.target.group.as_str());
            let busy = self.by_group.get(&(group.0, group.1.to_owned())).copied();
            let begun = groups.entry(group).or_insert_with(|| busy.unwrap_or_default());
            if *begun >= self.bounds.per_group
                || self.busy_targets.contains(&call.target)
                || !targets.insert(&call.target)
            {
                continue;
            }
            *begun += 1;
            free -= 1;
            startable.push(id.clone());
        }
        startable
    }

    /// Records that a call is in flight.
    pub fn start(&mut self, id: &CallId) -> Option<(Call, CallAttempt, CallChange<O>)> {
        let attempt = CallAttempt(self.next());
        let active = self.wanted.get_mut(id)?;
        let Phase::Waiting(at, sequence) = active.phase else { return None };
        self.due.remove(&(at, sequence, id.clone()));
        active.phase = Phase::UnderWay(attempt);
        active.state.under_way = true;
        active.state.retry_at = None;
        let (call, change) = (active.call.clone(), active.change());
        *self.by_group.entry(group(&call.target)).or_default() += 1;
        self.busy_targets.insert(call.target.clone());
        Some((call, attempt, change))
    }

    /// How many attempts of a call have failed in a row.
    #[must_use]
    pub fn failures(&self, id: &CallId) -> u32 {
        self.wanted.get(id).map_or(0, |it| it.state.failures)
    }

    /// Ends an attempt. Without a reply, or after a refusal, the call is retried after a delay for
    /// as long as it is wanted. Returns `None` for an attempt that was cancelled.
    pub fn end(
        &mut self,
        id: &CallId,
        attempt: CallAttempt,
        outcome: Result<Reply, String>,
        retry_at: T,
    ) -> Option<CallChange<O>> {
        let sequence = self.next();
        let active = self.wanted.get_mut(id)?;
        if !matches!(active.phase, Phase::UnderWay(it) if it == attempt) {
            return None;
        }
        active.state.under_way = false;
        active.state.error = None;
        let is_done = matches!(outcome, Ok(Reply::Done(_)));
        match outcome {
            Ok(reply) => active.state.reply = Some(reply),
            Err(why) => active.state.error = Some(why),
        }
        if is_done {
            active.state.failures = 0;
            active.phase = Phase::Done;
        } else {
            active.state.failures = active.state.failures.saturating_add(1);
            active.phase = Phase::Waiting(retry_at, sequence);
            self.due.insert((retry_at, sequence, id.clone()));
        }
        let (target, change) = (active.call.target.clone(), active.change());
        self.free(&target);
        Some(change)
    }

    /// When the next call becomes due that waits only for its time.
    #[must_use]
    pub fn next_due(&self, now: T) -> Option<T> {
        let later = self.due.iter().map(|(at, ..)| *at);
        later.into_iter().find(|at| *at > now)
    }

    /// The calls in flight.
    pub fn under_way(&self) -> impl Iterator<Item = (&Call, CallAttempt)> {
        self.wanted.values().filter_map(|it| match it.phase {
            Phase::UnderWay(attempt) => Some((&it.call, attempt)),
            Phase::Waiting(..) | Phase::Done => None,
        })
    }

    /// The number of wanted calls.
    #[must_use]
    pub fn len(&self) -> usize {
        self.wanted.len()
    }

    /// Whether no call is wanted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    fn release(&mut self, id: &CallId, owner: &O) -> Option<CancelledCall> {
        let active = self.wanted.get_mut(id)?;
        active.owners.remove(owner);
        if !active.owners.is_empty() {
            return None;
        }
        let WantedCall { call, phase, .. } = self.wanted.remove(id)?;
        let attempt = match phase {
            Phase::Waiting(at, sequence) => {
                self.due.remove(&(at, sequence, id.clone()));
                None
            }
            Phase::UnderWay(attempt) => {
                self.free(&call.target);
                Some(attempt)
            }
            Phase::Done => None,
        };
        Some(CancelledCall { call, attempt })
    }

    fn free(&mut self, target: &Target) {
        self.busy_targets.remove(target);
        let key = group(target);
        if let Some(count) = self.by_group.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.by_group.remove(&key);
            }
        }
    }

    fn next(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }
}

impl<O: Clone, T> WantedCall<O, T> {
    fn change(&self) -> CallChange<O> {
        CallChange {
            id: self.call.id.clone(),
            state: self.state.clone(),
            owners: self.owners.iter().cloned().collect(),
        }
    }
}

fn group(target: &Target) -> (&'static str, String) {
    (target.protocol, target.group.clone())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::object::Uid;

    type Table = CallTable<u32, Duration>;

    fn call(id: &str, target: &str, group: &str) -> Call {
        Call {
            id: CallId::new(id),
            target: Target {
                protocol: "test",
                address: target.to_owned(),
                uid: Uid::default(),
                group: group.to_owned(),
            },
            purpose: "test",
            request: Value::Null,
            timeout: Duration::from_secs(1),
        }
    }

    fn ids(list: &[CallId]) -> Vec<&str> {
        list.iter().map(CallId::as_str).collect()
    }

    const NOW: Duration = Duration::from_secs(100);

    #[test]
    fn wanted_calls_in_flight_are_kept() {
        let mut table = Table::new(CallBounds::default());
        assert!(table.set_wanted(&1, vec![call("a", "x", "g")], NOW).is_empty());
        let (_, attempt, change) = table.start(&CallId::new("a")).unwrap();
        assert_eq!((change.owners.as_slice(), change.state.under_way), (&[1][..], true));
        assert!(table.set_wanted(&1, vec![call("a", "x", "g")], NOW).is_empty());
        assert!(
            table.set_wanted(&2, vec![call("a", "x", "g")], NOW).is_empty(),
            "another wants the same"
        );
        assert!(table.startable(NOW).is_empty() && table.start(&CallId::new("a")).is_none());
        assert!(table.set_wanted(&1, Vec::new(), NOW).is_empty(), "the other still wants it");
        let given_up = table.set_wanted(&2, Vec::new(), NOW);
        assert_eq!((given_up.len(), given_up[0].attempt), (1, Some(attempt)));
        let late = table.end(&CallId::new("a"), attempt, Ok(Reply::Done(Value::Null)), NOW);
        assert!(late.is_none() && table.is_empty());
        // Wanted again, the call gets another attempt, which the late end of the first does not
        // end.
        table.set_wanted(&1, vec![call("a", "x", "g")], NOW);
        table.start(&CallId::new("a")).unwrap();
        assert!(table.end(&CallId::new("a"), attempt, Err("late".to_owned()), NOW).is_none());
        assert_eq!(table.under_way().count(), 1);
    }

    #[test]
    fn a_call_that_was_done_is_not_sent_again_and_one_that_failed_is() {
        let mut table = Table::new(CallBounds::default());
        let id = CallId::new("a");
        table.set_wanted(&1, vec![call("a", "x", "g")], NOW);
        let later = NOW + Duration::from_secs(1);
        let refusal = crate::write::Refusal {
            code: 409,
            reason: "Conflict".to_owned(),
            message: "busy".to_owned(),
        };
        let outcomes = [Err("lost".to_owned()), Ok(Reply::Refused(refusal.clone()))];
        for (nth, outcome) in outcomes.into_iter().enumerate() {
            let (_, attempt, _) = table.start(&id).unwrap();
            let change = table.end(&id, attempt, outcome, later).unwrap();
            assert_eq!(change.state.failures as usize, nth + 1);
            assert_eq!(change.state.error.is_some(), nth == 0);
            assert!(table.startable(NOW).is_empty(), "not before its time");
            assert_eq!(table.next_due(NOW), Some(later));
            assert_eq!(ids(&table.startable(later)), ["a"]);
        }
        let (_, attempt, change) = table.start(&id).unwrap();
        assert_eq!(change.state.refused(), Some(&refusal), "what was said last stays");
        let change = table.end(&id, attempt, Ok(Reply::Done(json!(7))), later).unwrap();
        assert_eq!((change.state.done(), change.state.failures), (Some(&json!(7)), 0));
        assert!(table.startable(later).is_empty() && table.next_due(NOW).is_none());
    }

    #[test]
    fn calls_are_limited_per_target_and_group() {
        let mut table = Table::new(CallBounds { total: 3, per_group: 2 });
        let all = [("a", "x", "g"), ("b", "x", "g"), ("c", "y", "g"), ("d", "z", "g")];
        let more = [("e", "v", "h"), ("f", "w", "h")];
        let calls = all.iter().chain(&more).map(|(id, target, group)| call(id, target, group));
        table.set_wanted(&1, calls.collect(), NOW);
        let first = table.startable(NOW);
        assert_eq!(ids(&first), ["a", "c", "e"], "a target, a group and the whole are bounded");
        for id in &first {
            table.start(id).unwrap();
        }
        assert!(table.startable(NOW).is_empty());
        table.set_wanted(&1, vec![call("b", "x", "g"), call("f", "w", "h")], NOW);
        assert_eq!(ids(&table.startable(NOW)), ["b", "f"], "a cancelled call frees its slot");
    }

    proptest! {
        /// In every sequence, bounds hold, no call is counted twice, and no call is left without an
        /// owner.
        #[test]
        fn bounds_hold(moves in prop::collection::vec((0..5_u8, 0..3_u32, 0..8_u8), 1..200)) {
            let bounds = CallBounds { total: 4, per_group: 2 };
            let mut table = Table::new(bounds);
            let mut now = NOW;
            let make = |nth: u8| call(&nth.to_string(), &(nth / 2).to_string(), &(nth / 4).to_string());
            for (what, owner, nth) in moves {
                now += Duration::from_millis(100);
                match what {
                    0 => drop(table.set_wanted(&owner, (0..nth).map(make).collect(), now)),
                    1 => drop(table.set_wanted(&owner, vec![make(nth)], now)),
                    2 | 3 => {
                        let startable = table.startable(now);
                        if let Some(id) = startable.get(usize::from(nth) % startable.len().max(1)) {
                            prop_assert!(table.start(id).is_some());
                        }
                    }
                    _ => {
                        let first = table.under_way().next().map(|(call, it)| (call.id.clone(), it));
                        if let Some((id, attempt)) = first {
                            let outcome = if nth % 2 == 0 { Err(String::new()) } else { Ok(Reply::Done(Value::Null)) };
                            prop_assert!(table.end(&id, attempt, outcome, now).is_some());
                        }
                    }
                }
                let under_way: Vec<&Call> = table.under_way().map(|(call, _)| call).collect();
                let targets: BTreeSet<&Target> = under_way.iter().map(|it| &it.target).collect();
                prop_assert_eq!(targets.len(), under_way.len());
                prop_assert!(under_way.len() <= bounds.total);
                for group in ["0", "1"] {
                    let count = under_way.iter().filter(|it| it.target.group == group).count();
                    prop_assert!(count <= bounds.per_group);
                }
            }
            for owner in 0..3 {
                table.set_wanted(&owner, Vec::new(), now);
            }
            prop_assert!(table.is_empty() && table.due.is_empty() && table.busy_targets.is_empty());
            prop_assert!(table.by_group.is_empty() && table.by_owner.is_empty());
        }
    }
}
