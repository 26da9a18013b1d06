use proptest::prelude::*;
use serde_json::json;

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn wrapper(name: &str, priority: i32, slope: f64, seen: i64, cpu: i64) -> AppWrapper {
    serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "n"},
        "spec": {"priority": priority, "priorityslope": slope, "resources": {"GenericItems": [
            {"custompodresources": [{"replicas": 1, "requests": {"cpu": cpu}}]}]}},
        "status": {"state": "Pending", "controllerfirsttimestamp": at(seen).to_string()},
    }))
    .unwrap()
}

fn names(lines: &PendingQueue, now: Timestamp) -> Vec<String> {
    let mut walk = lines.cursor(now);
    let mut names = Vec::new();
    while let Some(stop) = walk.next_item() {
        names.push(stop.key().name().to_owned());
        walk.continue_class(stop);
    }
    names
}

fn queue(wrappers: &[AppWrapper], settings: &Settings) -> PendingQueue {
    let mut lines = PendingQueue::default();
    for it in wrappers {
        lines.insert(it, settings);
    }
    lines
}

/// Scenario C2.
#[test]
fn q_1_q_4_and_c_2_higher_priority_is_first_whatever_came_first() {
    let all = [
        wrapper("low", 1, 0.0, 1, 1),
        wrapper("high", 9, 0.0, 5, 1),
        wrapper("none", 0, 9.0, 0, 2),
    ];
    assert_eq!(names(&queue(&all, &Settings::default()), at(99)), ["high", "low", "none"]);
}

#[test]
fn q_2_ties_go_by_age_and_then_by_name() {
    let all = [
        wrapper("c", 1, 0.0, 5, 1),
        wrapper("b", 1, 0.0, 5, 2),
        wrapper("z", 1, 0.0, 4, 3),
        wrapper("a", 1, 0.0, 6, 1),
    ];
    assert_eq!(names(&queue(&all, &Settings::default()), at(99)), ["z", "b", "c", "a"]);
}

#[test]
fn q_3_an_app_wrapper_inserted_twice_is_queued_once() {
    let mut lines = PendingQueue::default();
    lines.insert(&wrapper("a", 1, 0.0, 5, 1), &Settings::default());
    lines.insert(&wrapper("a", 7, 0.0, 5, 2), &Settings::default());
    assert_eq!((names(&lines, at(9)), lines.len()), (vec!["a".to_owned()], 1));
    lines.remove(&Key::new("n", "a"));
    assert_eq!(lines, PendingQueue::default(), "and leaves nothing behind");
}

#[test]
fn priority_grows_with_age_when_dynamic() {
    let settings = Settings { dynamic_priority: true, ..Settings::default() };
    let all = [
        wrapper("fixed", 10, 0.0, 0, 1),
        wrapper("slow", 0, 0.5, 0, 1),
        wrapper("fast", 0, 1.0, 10, 1),
        wrapper("falling", 40, -1.0, 0, 1),
    ];
    let lines = queue(&all, &settings);
    assert_eq!(names(&lines, at(12)), ["falling", "fixed", "slow", "fast"]);
    assert_eq!(names(&lines, at(35)), ["fast", "slow", "fixed", "falling"]);
    assert_eq!(priority(&all[2], &settings, at(35)).total_cmp(&25.0), Ordering::Equal);
    assert_eq!(priority(&all[2], &Settings::default(), at(35)).total_cmp(&0.0), Ordering::Equal);
}

#[test]
fn a_class_that_is_not_continued_is_skipped() {
    let all = [
        wrapper("big1", 9, 0.0, 1, 8),
        wrapper("big2", 8, 0.0, 1, 8),
        wrapper("small", 1, 0.0, 1, 1),
    ];
    let lines = queue(&all, &Settings::default());
    let mut walk = lines.cursor(at(9));
    assert_eq!(walk.next_item().unwrap().key().name(), "big1");
    assert_eq!(walk.next_item().unwrap().key().name(), "small", "its like is not asked");
    assert!(walk.next_item().is_none());
}

proptest! {
    /// A cursor yields the order of sorting by the formula, at any time.
    #[test]
    fn the_cursor_is_sorted(
        list in prop::collection::vec((-5..5_i32, -2..3_i32, 0..50_i64, 0..3_i64), 0..30),
        now in 0..200_i64,
        dynamic in any::<bool>(),
    ) {
        let settings = Settings { dynamic_priority: dynamic, ..Settings::default() };
        let wrappers: Vec<AppWrapper> = list.iter().enumerate().map(|(at, (priority, slope, seen, cpu))| {
            wrapper(&format!("w{at:02}"), *priority, f64::from(*slope), *seen, *cpu)
        }).collect();
        let mut sorted: Vec<&AppWrapper> = wrappers.iter().collect();
        sorted.sort_by(|one, two| {
            let of = |it: &AppWrapper| priority(it, &settings, at(now));
            of(two).total_cmp(&of(one))
                .then(one.first_seen().cmp(&two.first_seen()))
                .then(one.metadata.name.cmp(&two.metadata.name))
        });
        let sorted: Vec<String> = sorted.iter().map(|it| it.metadata.name.clone()).collect();
        prop_assert_eq!(names(&queue(&wrappers, &settings), at(now)), sorted);
    }
}
