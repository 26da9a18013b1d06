use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use gantry_process::clock::Hand;
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
fn take_all(slots: &mut Slots, now: Moment) -> String {
    std::iter::from_fn(|| slots.take(now)).map(|key| key.name().to_owned()).collect()
}

/// Somebody wakes a key: now, or at a second.
type Call = (&'static str, Option<u64>);

fn call(slots: &mut Slots, calls: &[Call]) {
    for (name, second) in calls {
        match second {
            None => slots.wake(key(name)),
            Some(second) => slots.wake_at(key(name), at(*second)),
        }
    }
}

#[test]
fn a_key_has_one_slot() {
    let table: [(&str, &[Call], u64, &str); 10] = [
        // why                            who is woken when                    now  who is taken
        ("nothing is nothing", &[], 9, ""),
        ("first come, first served", &[("b", None), ("a", None)], 0, "ba"),
        ("many wake-ups are one", &[("a", None), ("b", None), ("a", None)], 0, "ab"),
        ("what lies ahead waits", &[("a", Some(5))], 4, ""),
        ("and comes when due", &[("a", Some(5))], 5, "a"),
        ("the earliest counts", &[("a", Some(9)), ("a", Some(5)), ("a", Some(7))], 5, "a"),
        ("then who asked first", &[("a", Some(2)), ("b", Some(1)), ("c", Some(2))], 2, "bac"),
        ("a wake-up does not wait for the time", &[("a", Some(5)), ("a", None)], 0, "a"),
        ("a time does not delay a wake-up", &[("a", None), ("a", Some(5))], 0, "a"),
        ("who is due stands behind who is ready", &[("a", Some(1)), ("b", None)], 1, "ba"),
    ];
    for (why, calls, now, expected) in table {
        let mut slots = Slots::default();
        call(&mut slots, calls);
        assert_eq!(take_all(&mut slots, at(now)), expected, "{why}");
    }
}

#[test]
fn a_key_is_never_planned_twice_at_once() {
    let mut busy = Slots::default();
    call(&mut busy, &[("a", None)]);
    assert_eq!(take_all(&mut busy, at(0)), "a");
    call(&mut busy, &[("a", None), ("a", Some(1))]);
    assert_eq!(take_all(&mut busy, at(9)), "", "not while it is worked on");
    type Row = (&'static str, &'static [Call], Option<u64>, u64, &'static str);
    let table: [Row; 6] = [
        // why                         meanwhile                   asks for  now  who is taken
        ("done is done", &[], None, 9, ""),
        ("once more after a wake-up", &[("a", None), ("a", None)], None, 0, "a"),
        ("it may ask for another turn", &[], Some(3), 3, "a"),
        ("which waits for its time", &[], Some(3), 2, ""),
        ("the earlier of two counts", &[("a", Some(2))], Some(3), 2, "a"),
        ("a wake-up comes before any time", &[("a", None)], Some(3), 0, "a"),
    ];
    for (why, meanwhile, next, now, expected) in table {
        let mut slots = Slots::default();
        slots.wake(key("a"));
        assert_eq!(slots.take(at(0)), Some(key("a")));
        call(&mut slots, meanwhile);
        slots.done(&key("a"), next.map(at));
        assert_eq!(take_all(&mut slots, at(now)), expected, "{why}");
    }
    let mut slots = Slots::default();
    slots.done(&key("a"), Some(at(1)));
    assert!(slots.is_empty(), "who was not taken is not done");
}

#[tokio::test]
async fn workers_wake_for_news_and_for_time() {
    let hand = Hand::at(Timestamp::UNIX_EPOCH);
    let queue = Arc::new(Queue::new(hand.clock()));
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
    queue.wake_at(key("later"), at(5));
    queue.wake_at(key("sooner"), at(3));
    queue.wake(key("now"));
    hand.advance(Duration::from_secs(10)).await;
    let expected = [("now", 1), ("sooner", 3), ("later", 5)];
    let expected: Vec<_> = expected.map(|(name, second)| (name.to_owned(), at(second))).into();
    assert_eq!(*taken.lock().unwrap(), expected);
    assert!(queue.is_empty());
}

#[test]
fn a_key_that_rests_is_heard_when_its_rest_is_over() {
    type Row = (&'static str, &'static [Call], Option<u64>, &'static [(u64, &'static str)]);
    let table: [Row; 6] = [
        // why                        meanwhile             asks for  who is taken when
        ("nobody asks for it", &[], None, &[(9, "")]),
        ("one who is woken waits", &[("a", None)], None, &[(4, ""), (5, "a")]),
        ("many times are once", &[("a", None), ("a", None)], None, &[(5, "a"), (9, "")]),
        ("a time within the rest waits", &[("a", Some(2))], None, &[(2, ""), (5, "a")]),
        ("a time after it is kept", &[], Some(7), &[(5, ""), (7, "a")]),
        ("a wake-up comes before it", &[("a", None)], Some(7), &[(5, "a")]),
    ];
    for (why, meanwhile, next, taken) in table {
        let mut slots = Slots::default();
        slots.wake(key("a"));
        assert_eq!(slots.take(at(0)), Some(key("a")), "the first one does not wait");
        slots.rest(&key("a"), next.map(at), at(5));
        call(&mut slots, meanwhile);
        for (now, expected) in taken {
            assert_eq!(take_all(&mut slots, at(*now)), *expected, "{why}, at {now}");
        }
    }
    let mut slots = Slots::default();
    slots.wake(key("a"));
    slots.take(at(0));
    slots.rest(&key("a"), None, at(5));
    assert_eq!((slots.take(at(5)), slots.is_empty()), (None, true), "nothing is left behind");
}

/// What changes all the time is told once a second, and how it ends always.
#[tokio::test]
async fn a_paced_key_is_planned_now_and_then_and_after_the_last_change() {
    let hand = Hand::at(Timestamp::UNIX_EPOCH);
    let queue = Arc::new(Queue::paced(hand.clock(), Duration::from_secs(1)));
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
        queue.wake(key("a"));
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
    /// Nothing is forgotten and nobody is planned twice at once: after any history, whoever was woken
    /// since its last plan began is planned again, once, and the slots are no more than the keys.
    #[test]
    fn every_wake_up_is_followed_by_a_plan(ops in prop::collection::vec(op(), 0..120)) {
        let mut slots = Slots::default();
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
                    slots.wake(key(&name(who)));
                    owe(&mut owed, name(who), now);
                }
                Op::WakeAt(who, wait) => {
                    slots.wake_at(key(&name(who)), at(now + wait));
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
                    prop_assert_eq!(idle, 0, "nobody who is due is left standing");
                },
                Op::Done(next) => if let Some(key) = working.pop() {
                    slots.done(&key, next.map(|wait| at(now + wait)));
                    if let Some(wait) = next {
                        // Who was woken meanwhile is planned at once, and says again what it wants.
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
