use std::collections::BTreeMap;

use gantry_queue::outlook::{Reason, Wait};
use gantry_queue::story::{
    Charge, Event, Found, Item, NodeUse, Pods, Requeuing, Room, Share, Source, Story, Unschedulable,
};

use super::*;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn now() -> Timestamp {
    at("2026-01-01T01:00:00Z")
}

fn row(name: &str) -> Row {
    Row {
        position: None,
        namespace: "test".to_owned(),
        name: name.to_owned(),
        priority: 0.0,
        state: "Pending".to_owned(),
        step: "Backoff".to_owned(),
        since: Some(at("2026-01-01T00:55:00Z")),
        waits_for: None,
        expected: None,
        message: None,
    }
}

fn wait(reason: Reason, message: &str, until: Option<&str>) -> Option<Wait> {
    Some(Wait { reason, message: message.to_owned(), until: until.map(at) })
}

fn expect(what: Happens, when: &str) -> Option<Expected> {
    Some(Expected { what, at: at(when) })
}

fn rows() -> Vec<Row> {
    let lacks = "cpu: needs 5, 3 available, 2 missing";
    vec![
        Row {
            position: Some(1),
            priority: 7.5,
            waits_for: wait(Reason::Resources, lacks, None),
            expected: expect(Happens::StartsAfterDeadlines, "2026-01-01T01:05:00Z"),
            ..row("large")
        },
        Row {
            position: Some(2),
            waits_for: wait(Reason::Backoff, "it was taken back", Some("2026-01-01T01:00:20Z")),
            expected: expect(Happens::StartsNotBefore, "2026-01-01T01:00:20Z"),
            ..row("back")
        },
        Row {
            position: Some(3),
            step: "Queueing".to_owned(),
            waits_for: wait(Reason::Turn, "there is room for it", Some("2026-01-01T01:00:00Z")),
            expected: expect(Happens::Starts, "2026-01-01T01:00:00Z"),
            ..row("next")
        },
        Row {
            state: String::new(),
            step: String::new(),
            since: None,
            waits_for: wait(Reason::Unseen, "the queue has not seen it yet", None),
            ..row("new")
        },
        Row {
            state: "Running".to_owned(),
            step: "Running".to_owned(),
            expected: expect(Happens::EndsAtLatest, "2026-01-01T04:00:00Z"),
            since: Some(at("2025-12-01T00:00:00Z")),
            ..row("runs")
        },
        Row {
            state: "Failed".to_owned(),
            message: Some("test/bad creation failure: no".to_owned()),
            ..row("bad")
        },
    ]
}

#[test]
fn a_line_says_all_that_is_known() {
    let expected = "\
POS   NAMESPACE   NAME    PRIORITY   STATE     SINCE   EXPECTED     WAITS FOR
1     test        large   7.5        Pending   5m      ~5m          Resources: cpu: needs 5, 3 available, 2 missing
2     test        back    0          Pending   5m      after 20s    Backoff: it was taken back
3     test        next    0          Pending   5m      now          Turn: there is room for it
-     test        new     0          Unseen    -       -            Unseen: the queue has not seen it yet
-     test        runs    0          Running   31d     ends by 3h   -
-     test        bad     0          Failed    5m      -            test/bad creation failure: no
";
    assert_eq!(table(&rows(), false, now()), expected);
}

#[test]
fn a_wide_line_has_steps_and_times() {
    let text = table(&rows(), true, now());
    let back = text.lines().nth(2).unwrap();
    let words: Vec<&str> = back.split_whitespace().collect();
    assert_eq!(words[4..7], ["Pending", "Backoff", "5m"]);
    assert!(back.contains("2026-01-01T01:00:20Z   Backoff: it was taken back"), "{back}");
}

#[test]
fn lengths_are_told_in_one_unit() {
    let table = [(-5, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (7199, "119m"), (7200, "2h")];
    for (seconds, expected) in table.into_iter().chain([(172_799, "47h"), (172_800, "2d")]) {
        assert_eq!(length(SignedDuration::from_secs(seconds)), expected);
    }
}

fn amounts(list: &[(&str, &str)]) -> BTreeMap<String, String> {
    list.iter().map(|(name, amount)| ((*name).to_owned(), (*amount).to_owned())).collect()
}

fn story() -> Story {
    let item = Item {
        kind: "Job".to_owned(),
        name: "train".to_owned(),
        demand: amounts(&[("cpu", "5"), ("memory", "1Gi")]),
        source: Source::Declared,
        standing: Found::Absent,
        fault: None,
        completion: "Complete".to_owned(),
        complete: Some(false),
        conditions: Vec::new(),
    };
    let share =
        |who: &str, cpu: &str| Share { who: who.to_owned(), amounts: amounts(&[("cpu", cpu)]) };
    Story {
        row: rows().remove(0),
        waiting: 3,
        static_priority: 3,
        slope: 0.5,
        history: vec![
            Event {
                at: Some(at("2026-01-01T00:55:00Z")),
                kind: "Init".to_owned(),
                reason: None,
                message: None,
            },
            Event {
                at: Some(at("2026-01-01T00:59:30Z")),
                kind: "Backoff".to_owned(),
                reason: Some("AppWrapperNotRunnable.".to_owned()),
                message: Some("Insufficient resources to dispatch AppWrapper.".to_owned()),
            },
        ],
        items: vec![item],
        demand: amounts(&[("cpu", "5"), ("memory", "1Gi")]),
        inference: "compat",
        room: Some(Room {
            total: amounts(&[("cpu", "8")]),
            free: amounts(&[("cpu", "4")]),
            reserved: amounts(&[("cpu", "1")]),
            reserved_by: vec![share("test/other", "1")],
            available: amounts(&[("cpu", "3")]),
            lacking: vec!["cpu: needs 5, 3 available, 2 missing".to_owned()],
            ..Room::default()
        }),
        quota: vec![Charge {
            tree: "team".to_owned(),
            node: "gold".to_owned(),
            is_labelled: true,
            placed: Some("all".to_owned()),
            borrows: true,
            holds: false,
            refused: None,
            is_forbidden: false,
            path: vec![
                NodeUse {
                    node: "gold".to_owned(),
                    hard: false,
                    used: amounts(&[("cpu", "1")]),
                    limit: amounts(&[("cpu", "2")]),
                },
                NodeUse {
                    node: "all".to_owned(),
                    hard: true,
                    used: amounts(&[("cpu", "1")]),
                    limit: amounts(&[("cpu", "9")]),
                },
            ],
            leaves: Vec::new(),
        }],
        victims: vec!["test/lent".to_owned()],
        pods: Pods {
            pending: 1,
            unschedulable: vec![Unschedulable {
                pod: "p".to_owned(),
                message: "0/1 nodes are available".to_owned(),
            }],
            ..Pods::default()
        },
        requeuing: Requeuing {
            min_available: 2,
            wait_seconds: 120,
            so_far: 1,
            most: Some(3),
            next_check: None,
            deadline: None,
        },
        advice: vec!["wait for others to end, or delete some".to_owned()],
    }
}

#[test]
fn a_page_tells_the_whole_story() {
    let expected = "\
appwrapper  large -n test
state       Pending, Backoff since 2026-01-01T00:55:00Z (5m ago)
priority    7.5 now; spec.priority 3, slope 0.5 a second
position    1 of 3
waits for   Resources: cpu: needs 5, 3 available, 2 missing
expected    starts about 2026-01-01T01:05:00Z (in 5m), when others have run for as long as they may
demand      cpu 5, memory 1Gi (demandInference: compat)
pods        1 pending
requeued    if fewer than 2 pods run after 120s; 1 of 3 so far
victims     test/lent
items
  job/train   cpu 5, memory 1Gi, declared in custompodresources   not made, not complete (Complete)
room
  all nodes     cpu 8
  free for it   cpu 4
  reserved      cpu 1
    by          test/other (cpu 1)
  available     cpu 3
  missing       cpu: needs 5, 3 available, 2 missing
quota
  team gold; could borrow from all
    gold: cpu 1 of 2
    all, hard: cpu 1 of 9
pods that no node takes
  p: 0/1 nodes are available
history
  2026-01-01T00:55:00Z (5m ago)    Init
  2026-01-01T00:59:30Z (30s ago)   Backoff   AppWrapperNotRunnable.   Insufficient resources to dispatch AppWrapper.
next
  wait for others to end, or delete some
";
    assert_eq!(page(&story(), now()), expected);
}
