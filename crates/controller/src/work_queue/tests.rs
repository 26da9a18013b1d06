use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use gantry_process::clock::FakeClock;
use jiff::Timestamp;
use proptest::prelude::*;

use super::*;

fn key(name: &str) -> Key {
    Key::new("n", name)
}

fn at(second: u64) -> Moment {
    Moment::default() + Duration::from_secs(second)
}

/// The names that can be taken one after the other at a time.
fn take_all(slots: &mut WorkQueueState, now: Moment) -> String {
    std::iter::from_fn(|| slots.take(now)).map(|key| key.name().to_owned()).collect()
}

/// An enqueue of a key: now, or at a second.
type Call = (&'static str, Option<u64>);

fn call(slots: &mut WorkQueueState, calls: &[Call]) {
    for (name, second) in calls {
        match second {
            None => slots.enqueue(key(name)),
            Some(second) => slots.enqueue_at(key(name), at(*second)),
        }
    }
}

#[test]
fn a_key_is_queued_once() {
    let table: [(&str, &[Call], u64, &str); 10] = [
        // why                            what is enqueued when                   now  what is taken
        ("nothing is enqueued", &[], 9, ""),
        ("first come, first served", &[("b", None), ("a", None)], 0, "ba"),
        ("many enqueues are one", &[("a", None), ("b", None), ("a", None)], 0, "ab"),
        ("a delayed key waits", &[("a", Some(5))], 4, ""),
        ("and comes when due", &[("a", Some(5))], 5, "a"),
        ("the earliest counts", &[("a", Some(9)), ("a", Some(5)), ("a", Some(7))], 5, "a"),
        ("then the first enqueued", &[("a", Some(2)), ("b", Some(1)), ("c", Some(2))], 2, "bac"),
        ("an enqueue does not wait for the delay", &[("a", Some(5)), ("a", None)], 0, "a"),
        ("a delay does not hold back an enqueue", &[("a", None), ("a", Some(5))], 0, "a"),
        ("a key that becomes due is behind ready keys", &[("a", Some(1)), ("b", None)], 1, "ba"),
    ];
    for (why, calls, now, expected) in table {
        let mut slots = WorkQueueState::default();
        call(&mut slots, calls);
        assert_eq!(take_all(&mut slots, at(now)), expected, "{why}");
    }
}

#[test]
fn a_key_is_never_planned_twice_at_once() {
    let mut busy = WorkQueueState::default();
    call(&mut busy, &[("a", None)]);
    assert_eq!(take_all(&mut busy, at(0)), "a");
    call(&mut busy, &[("a", None), ("a", Some(1))]);
    assert_eq!(take_all(&mut busy, at(9)), "", "not while it is being processed");
    type Row = (&'static str, &'static [Call], Option<u64>, u64, &'static str);
    let table: [Row; 6] = [
        // why                         meanwhile                   asks for  now  what is taken
        ("done is done", &[], None, 9, ""),
        ("once more after an enqueue", &[("a", None), ("a", None)], None, 0, "a"),
        ("it may be requeued", &[], Some(3), 3, "a"),
        ("which waits for its time", &[], Some(3), 2, ""),
        ("the earlier of two counts", &[("a", Some(2))], Some(3), 2, "a"),
        ("an enqueue comes before any delay", &[("a", None)], Some(3), 0, "a"),
    ];
    for (why, meanwhile, next, now, expected) in table {
        let mut slots = WorkQueueState::default();
        slots.enqueue(key("a"));
        assert_eq!(slots.take(at(0)), Some(key("a")));
        call(&mut slots, meanwhile);
        slots.done(&key("a"), next.map(at));
        assert_eq!(take_all(&mut slots, at(now)), expected, "{why}");
    }
    let mut slots = WorkQueueState::default();
    slots.done(&key("a"), Some(at(1)));
    assert!(slots.is_empty(), "a key that was not taken is not done");
}

#[tokio::test]
async fn workers_wake_for_keys_and_timers() {
    let hand = FakeClock::at(Timestamp::UNIX_EPOCH);
    let queue = Arc::new(WorkQueue::new(hand.clock()));
    let taken = Arc::new(Mutex::new(Vec::new()));
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let (queue, taken, clock) = (Arc::clone(&queue), Arc::clone(&taken), hand.clock());
        workers.spawn(async move {
            loop {
                let key = queue.next().await;
                taken.lock().unwrap().push((key.name().to_owned(), clock.moment()));
                queue.done(&key, None);
            }
        });
    }
    hand.advance(Duration::from_secs(1)).await;
    queue.enqueue_at(key("later"), at(5));
    queue.enqueue_at(key("sooner"), at(3));
    queue.enqueue(key("now"));
    hand.advance(Duration::from_secs(10)).await;
    let expected = [("now", 1), ("sooner", 3), ("later", 5)];
    let expected: Vec<_> = expected.map(|(name, second)| (name.to_owned(), at(second))).into();
    assert_eq!(*taken.lock().unwrap(), expected);
    assert!(queue.is_empty());
}

#[test]
fn a_key_is_planned_after_its_min_interval() {
    type Row = (&'static str, &'static [Call], Option<u64>, &'static [(u64, &'static str)]);
    let table: [Row; 6] = [
        // why                        meanwhile             asks for  what is taken when
        ("it is not enqueued", &[], None, &[(9, "")]),
        ("an enqueued key waits", &[("a", None)], None, &[(4, ""), (5, "a")]),
        ("many times are once", &[("a", None), ("a", None)], None, &[(5, "a"), (9, "")]),
        ("a delay within the interval waits", &[("a", Some(2))], None, &[(2, ""), (5, "a")]),
        ("a delay after it is kept", &[], Some(7), &[(5, ""), (7, "a")]),
        ("an enqueue comes before it", &[("a", None)], Some(7), &[(5, "a")]),
    ];
    for (why, meanwhile, next, taken) in table {
        let mut slots = WorkQueueState::default();
        slots.enqueue(key("a"));
        assert_eq!(slots.take(at(0)), Some(key("a")), "the first one does not wait");
        slots.done_not_before(&key("a"), next.map(at), at(5));
        call(&mut slots, meanwhile);
        for (now, expected) in taken {
            assert_eq!(take_all(&mut slots, at(*now)), *expected, "{why}, at {now}");
        }
    }
    let mut slots = WorkQueueState::default();
    slots.enqueue(key("a"));
    slots.take(at(0));
    slots.done_not_before(&key("a"), None, at(5));
    assert_eq!((slots.take(at(5)), slots.is_empty()), (None, true), "nothing is left behind");
}

/// A key that changes all the time is planned once a second, and its last change always.
#[tokio::test]
async fn min_interval_spaces_the_plans_of_a_key() {
    let hand = FakeClock::at(Timestamp::UNIX_EPOCH);
    let queue = Arc::new(WorkQueue::with_min_interval(hand.clock(), Duration::from_secs(1)));
    let (changes, planned) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(Vec::new())));
    let mut workers = tokio::task::JoinSet::new();
    let (from, seen, by) = (Arc::clone(&queue), Arc::clone(&changes), Arc::clone(&planned));
    workers.spawn(async move {
        loop {
            let key = from.next().await;
            by.lock().unwrap().push(*seen.lock().unwrap());
            from.done(&key, None);
        }
    });
    for change in 1..=50 {
        *changes.lock().unwrap() = change;
        queue.enqueue(key("a"));
        hand.advance(Duration::from_millis(100)).await;
    }
    hand.advance(Duration::from_secs(5)).await;
    let planned = planned.lock().unwrap();
    assert_eq!((planned.len(), planned.first(), planned.last()), (6, Some(&1), Some(&50)));
    assert!(queue.is_empty());
}

#[derive(Clone, Debug)]
enum Op {
    Wake(u8),
    WakeAt(u8, u64),
    Take,
    Done(Option<u64>),
    Pass(u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        (0_u8..5).prop_map(Op::Wake),
        (0_u8..5, 0_u64..20).prop_map(|(key, wait)| Op::WakeAt(key, wait)),
        Just(Op::Take),
        prop::option::of(0_u64..20).prop_map(Op::Done),
        (0_u64..10).prop_map(Op::Pass),
    ]
}

proptest! {
    /// No enqueue is lost and no key is planned concurrently: after any history, a key that was
    /// enqueued since its last plan began is planned again, once, and there are no more items than
    /// keys.
    #[test]
    fn every_wake_up_is_followed_by_a_plan(ops in prop::collection::vec(op(), 0..120)) {
        let mut slots = WorkQueueState::default();
        let (mut now, mut working) = (0, Vec::new());
        // When each key must be planned by: zero for now.
        let mut owed: BTreeMap<String, u64> = BTreeMap::new();
        let name = |n: u8| n.to_string();
        let owe = |owed: &mut BTreeMap<String, u64>, who: String, by: u64| {
            owed.entry(who).and_modify(|at| *at = by.min(*at)).or_insert(by);
        };
        for op in ops {
            match op {
                Op::Wake(who) => {
                    slots.enqueue(key(&name(who)));
                    owe(&mut owed, name(who), now);
                }
                Op::WakeAt(who, wait) => {
                    slots.enqueue_at(key(&name(who)), at(now + wait));
                    owe(&mut owed, name(who), now + wait);
                }
                Op::Take => if let Some(taken) = slots.take(at(now)) {
                    let who = taken.name().to_owned();
                    prop_assert!(!working.contains(&taken), "{who} is planned twice at once");
                    let by = owed.remove(&who);
                    prop_assert!(by.is_some_and(|by| by <= now), "{who} is planned without need");
                    working.push(taken);
                } else {
                    let due = owed.iter().filter(|(_, by)| **by <= now).map(|(who, _)| key(who));
                    let idle = due.filter(|who| !working.contains(who)).count();
                    prop_assert_eq!(idle, 0, "no due key is left");
                },
                Op::Done(next) => if let Some(key) = working.pop() {
                    slots.done(&key, next.map(|wait| at(now + wait)));
                    if let Some(wait) = next {
                        // A key that was enqueued meanwhile is planned at once, and sets its
                        // requeue time again.
                        owe(&mut owed, key.name().to_owned(), now + wait);
                    }
                },
                Op::Pass(seconds) => now += seconds,
            }
            prop_assert!(slots.len() <= 5);
        }
        for key in working.drain(..) {
            slots.done(&key, None);
        }
        let mut planned = BTreeSet::new();
        while let Some(key) = slots.take(at(now + 100)) {
            prop_assert!(planned.insert(key.name().to_owned()));
            slots.done(&key, None);
        }
        prop_assert_eq!(planned, owed.into_keys().collect());
        prop_assert!(slots.is_empty());
    }
}
