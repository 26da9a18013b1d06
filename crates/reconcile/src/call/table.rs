//! Which calls are wanted, and how far each has come.
//!
//! Decides which calls are sent and given up, without I/O. The shell and the harness share it, so what the harness
//! proves is what runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Add;
use std::time::Duration;

use super::{Call, CallId, CallState, Reply, Target};

/// How many calls may be under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallBounds {
    /// In all.
    pub total: usize,
    /// To targets of one group of a protocol. There is one at a time to each target: calls change it.
    pub per_group: usize,
}

impl Default for CallBounds {
    fn default() -> Self {
        Self { total: 256, per_group: 16 }
    }
}

/// The calls of one process. `O` is who wants them, a key of a controller, and `T` a point in time.
#[derive(Debug)]
pub struct CallTable<O, T> {
    bounds: CallBounds,
    active: BTreeMap<CallId, Active<O, T>>,
    by_owner: BTreeMap<O, BTreeSet<CallId>>,
    /// Calls that wait to be sent, in the order they became due.
    due: BTreeSet<(T, u64, CallId)>,
    busy_targets: BTreeSet<Target>,
    by_group: BTreeMap<(&'static str, String), usize>,
    sequence: u64,
}

#[derive(Debug)]
struct Active<O, T> {
    call: Call,
    owners: BTreeSet<O>,
    phase: Phase<T>,
    state: CallState,
}

#[derive(Debug)]
enum Phase<T> {
    Waiting(T, u64),
    UnderWay(Attempt),
    Done,
}

/// Which attempt of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt(u64);

/// A call that nobody wants any more.
#[derive(Debug)]
pub struct GivenUp {
    /// The call.
    pub call: Call,
    /// The attempt that was under way. It may be carried out all the same.
    pub attempt: Option<Attempt>,
}

/// What changed about a call.
#[derive(Debug)]
pub struct CallChange<O> {
    /// The call.
    pub id: CallId,
    /// Its state, but for when it is tried again.
    pub state: CallState,
    /// Whose plans depend on it.
    pub owners: Vec<O>,
}

impl<O, T> CallTable<O, T>
where
    O: Clone + Ord + fmt::Debug,
    T: Copy + Ord + Add<Duration, Output = T> + fmt::Debug,
{
    /// No calls.
    #[must_use]
    pub fn new(bounds: CallBounds) -> Self {
        Self {
            bounds,
            active: BTreeMap::new(),
            by_owner: BTreeMap::new(),
            due: BTreeSet::new(),
            busy_targets: BTreeSet::new(),
            by_group: BTreeMap::new(),
            sequence: 0,
        }
    }

    /// Lets these be the calls that an owner wants. Returns those that nobody wants any more.
    pub fn want(&mut self, owner: &O, calls: Vec<Call>, now: T) -> Vec<GivenUp> {
        let before = self.by_owner.remove(owner).unwrap_or_default();
        let mut wanted = BTreeSet::new();
        for call in calls {
            wanted.insert(call.id.clone());
            if let Some(active) = self.active.get_mut(&call.id) {
                active.owners.insert(owner.clone());
                continue;
            }
            let (id, sequence) = (call.id.clone(), self.next());
            self.due.insert((now, sequence, id.clone()));
            let (phase, state) = (Phase::Waiting(now, sequence), CallState::default());
            let owners = BTreeSet::from([owner.clone()]);
            self.active.insert(id, Active { call, owners, phase, state });
        }
        let given_up = before.difference(&wanted).filter_map(|id| self.release(id, owner));
        let given_up = given_up.collect();
        if !wanted.is_empty() {
            self.by_owner.insert(owner.clone(), wanted);
        }
        given_up
    }

    /// The calls that can be sent now, those first that are due for longest.
    #[must_use]
    pub fn startable(&self, now: T) -> Vec<CallId> {
        let mut free = self.bounds.total.saturating_sub(self.busy_targets.len());
        let (mut targets, mut groups) = (BTreeSet::new(), BTreeMap::new());
        let mut startable = Vec::new();
        for (_, _, id) in self.due.iter().take_while(|(at, ..)| *at <= now) {
            if free == 0 {
                break;
            }
            let Some(Active { call, .. }) = self.active.get(id) else { continue };
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

    /// Counts a call as under way.
    pub fn start(&mut self, id: &CallId) -> Option<(Call, Attempt, CallChange<O>)> {
        let attempt = Attempt(self.next());
        let active = self.active.get_mut(id)?;
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

    /// How often in a row a call has failed.
    #[must_use]
    pub fn failures(&self, id: &CallId) -> u32 {
        self.active.get(id).map_or(0, |it| it.state.failures)
    }

    /// Ends an attempt. Without a reply, or with a refusal, the call is tried again after a pause for as long
    /// as it is wanted. Returns nothing for an attempt that was given up.
    pub fn end(
        &mut self,
        id: &CallId,
        attempt: Attempt,
        outcome: Result<Reply, String>,
        retry_at: T,
    ) -> Option<CallChange<O>> {
        let sequence = self.next();
        let active = self.active.get_mut(id)?;
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

    /// When the next call is due that waits for nothing but time.
    #[must_use]
    pub fn next_due(&self, now: T) -> Option<T> {
        let later = self.due.iter().map(|(at, ..)| *at);
        later.into_iter().find(|at| *at > now)
    }

    /// The calls that are under way.
    pub fn under_way(&self) -> impl Iterator<Item = (&Call, Attempt)> {
        self.active.values().filter_map(|it| match it.phase {
            Phase::UnderWay(attempt) => Some((&it.call, attempt)),
            Phase::Waiting(..) | Phase::Done => None,
        })
    }

    /// How many calls are wanted.
    #[must_use]
    pub fn len(&self) -> usize {
        self.active.len()
    }

    /// Whether no call is wanted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.active.is_empty()
    }

    fn release(&mut self, id: &CallId, owner: &O) -> Option<GivenUp> {
        let active = self.active.get_mut(id)?;
        active.owners.remove(owner);
        if !active.owners.is_empty() {
            return None;
        }
        let Active { call, phase, .. } = self.active.remove(id)?;
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
        Some(GivenUp { call, attempt })
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

impl<O: Clone, T> Active<O, T> {
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
    fn what_is_wanted_and_under_way_is_left_alone() {
        let mut table = Table::new(CallBounds::default());
        assert!(table.want(&1, vec![call("a", "x", "g")], NOW).is_empty());
        let (_, attempt, change) = table.start(&CallId::new("a")).unwrap();
        assert_eq!((change.owners.as_slice(), change.state.under_way), (&[1][..], true));
        assert!(table.want(&1, vec![call("a", "x", "g")], NOW).is_empty());
        assert!(
            table.want(&2, vec![call("a", "x", "g")], NOW).is_empty(),
            "another wants the same"
        );
        assert!(table.startable(NOW).is_empty() && table.start(&CallId::new("a")).is_none());
        assert!(table.want(&1, Vec::new(), NOW).is_empty(), "the other still wants it");
        let given_up = table.want(&2, Vec::new(), NOW);
        assert_eq!((given_up.len(), given_up[0].attempt), (1, Some(attempt)));
        let late = table.end(&CallId::new("a"), attempt, Ok(Reply::Done(Value::Null)), NOW);
        assert!(late.is_none() && table.is_empty());
        // Wanted again, it is another attempt, which the late end of the first does not end.
        table.want(&1, vec![call("a", "x", "g")], NOW);
        table.start(&CallId::new("a")).unwrap();
        assert!(table.end(&CallId::new("a"), attempt, Err("late".to_owned()), NOW).is_none());
        assert_eq!(table.under_way().count(), 1);
    }

    #[test]
    fn a_call_that_was_done_is_not_sent_again_and_one_that_failed_is() {
        let mut table = Table::new(CallBounds::default());
        let id = CallId::new("a");
        table.want(&1, vec![call("a", "x", "g")], NOW);
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
    fn a_target_gets_one_call_at_a_time_and_a_group_has_its_share() {
        let mut table = Table::new(CallBounds { total: 3, per_group: 2 });
        let all = [("a", "x", "g"), ("b", "x", "g"), ("c", "y", "g"), ("d", "z", "g")];
        let more = [("e", "v", "h"), ("f", "w", "h")];
        let calls = all.iter().chain(&more).map(|(id, target, group)| call(id, target, group));
        table.want(&1, calls.collect(), NOW);
        let first = table.startable(NOW);
        assert_eq!(ids(&first), ["a", "c", "e"], "a target, a group and the whole are bounded");
        for id in &first {
            table.start(id).unwrap();
        }
        assert!(table.startable(NOW).is_empty());
        table.want(&1, vec![call("b", "x", "g"), call("f", "w", "h")], NOW);
        assert_eq!(ids(&table.startable(NOW)), ["b", "f"], "what is given up makes place");
    }

    proptest! {
        /// Whatever happens, bounds hold, nothing is counted twice, and nothing is left when nobody wants it.
        #[test]
        fn bounds_hold(moves in prop::collection::vec((0..5_u8, 0..3_u32, 0..8_u8), 1..200)) {
            let bounds = CallBounds { total: 4, per_group: 2 };
            let mut table = Table::new(bounds);
            let mut now = NOW;
            let make = |nth: u8| call(&nth.to_string(), &(nth / 2).to_string(), &(nth / 4).to_string());
            for (what, owner, nth) in moves {
                now += Duration::from_millis(100);
                match what {
                    0 => drop(table.want(&owner, (0..nth).map(make).collect(), now)),
                    1 => drop(table.want(&owner, vec![make(nth)], now)),
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
                table.want(&owner, Vec::new(), now);
            }
            prop_assert!(table.is_empty() && table.due.is_empty() && table.busy_targets.is_empty());
            prop_assert!(table.by_group.is_empty() && table.by_owner.is_empty());
        }
    }
}
