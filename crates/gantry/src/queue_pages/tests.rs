use std::collections::BTreeMap;

use gantry_queue::app_wrapper_report::{
    AppWrapperReport, CapacityReport, CapacityShare, DemandSource, HistoryEvent, ItemReport,
    ItemStatus, PodsReport, QuotaCharge, QuotaNodeUse, RequeuingReport, Unschedulable,
};
use gantry_queue::queue_report::{Wait, WaitReason};

use super::*;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn now() -> Timestamp {
    at("2026-01-01T01:00:00Z")
}

fn row(name: &str) -> QueueRow {
    QueueRow {
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

fn wait(reason: WaitReason, message: &str, until: Option<&str>) -> Option<Wait> {
    Some(Wait { reason, message: message.to_owned(), until: until.map(at) })
}

fn expect(what: ExpectedEvent, when: &str) -> Option<ExpectedTime> {
    Some(ExpectedTime { what, at: at(when) })
}

fn rows() -> Vec<QueueRow> {
    let lacks = "cpu: needs 5, 3 available, 2 missing";
    vec![
        QueueRow {
            position: Some(1),
            priority: 7.5,
            waits_for: wait(WaitReason::Resources, lacks, None),
            expected: expect(ExpectedEvent::StartsAfterDeadlines, "2026-01-01T01:05:00Z"),
            ..row("large")
        },
        QueueRow {
            position: Some(2),
            waits_for: wait(WaitReason::Backoff, "it was preempted", Some("2026-01-01T01:00:20Z")),
            expected: expect(ExpectedEvent::StartsNotBefore, "2026-01-01T01:00:20Z"),
            ..row("back")
        },
        QueueRow {
            position: Some(3),
            step: "Queueing".to_owned(),
            waits_for: wait(WaitReason::NextCycle, "it fits", Some("2026-01-01T01:00:00Z")),
            expected: expect(ExpectedEvent::Starts, "2026-01-01T01:00:00Z"),
            ..row("next")
        },
        QueueRow {
            state: String::new(),
            step: String::new(),
            since: None,
            waits_for: wait(WaitReason::Unseen, "not processed yet", None),
            ..row("new")
        },
        QueueRow {
            state: "Running".to_owned(),
            step: "Running".to_owned(),
            expected: expect(ExpectedEvent::EndsAtLatest, "2026-01-01T04:00:00Z"),
            since: Some(at("2025-12-01T00:00:00Z")),
            ..row("runs")
        },
        QueueRow {
            state: "Failed".to_owned(),
            message: Some("test/bad creation failure: no".to_owned()),
            ..row("bad")
        },
    ]
}

#[test]
fn a_row_shows_every_column() {
    let expected = "\
POS   NAMESPACE   NAME    PRIORITY   STATE     SINCE   EXPECTED     WAITS FOR
1     test        large   7.5        Pending   5m      ~5m          Resources: cpu: needs 5, 3 available, 2 missing
2     test        back    0          Pending   5m      after 20s    Backoff: it was preempted
3     test        next    0          Pending   5m      now          NextCycle: it fits
-     test        new     0          Unseen    -       -            Unseen: not processed yet
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
    assert!(back.contains("2026-01-01T01:00:20Z   Backoff: it was preempted"), "{back}");
}

#[test]
fn durations_use_one_unit() {
    let table = [(-5, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (7199, "119m"), (7200, "2h")];
    for (seconds, expected) in table.into_iter().chain([(172_799, "47h"), (172_800, "2d")]) {
        assert_eq!(format_duration(SignedDuration::from_secs(seconds)), expected);
    }
}

fn amounts(list: &[(&str, &str)]) -> BTreeMap<String, String> {
    list.iter().map(|(name, amount)| ((*name).to_owned(), (*amount).to_owned())).collect()
}

fn story() -> AppWrapperReport {
    let item = ItemReport {
        kind: "Job".to_owned(),
        name: "train".to_owned(),
        demand: amounts(&[("cpu", "5"), ("memory", "1Gi")]),
        source: DemandSource::Declared,
        standing: ItemStatus::Absent,
        fault: None,
        completion: "Complete".to_owned(),
        complete: Some(false),
        conditions: Vec::new(),
    };
    let share = |who: &str, cpu: &str| CapacityShare {
        who: who.to_owned(),
        amounts: amounts(&[("cpu", cpu)]),
    };
    AppWrapperReport {
        row: rows().remove(0),
        waiting: 3,
        static_priority: 3,
        slope: 0.5,
        history: vec![
            HistoryEvent {
                at: Some(at("2026-01-01T00:55:00Z")),
                kind: "Init".to_owned(),
                reason: None,
                message: None,
            },
            HistoryEvent {
                at: Some(at("2026-01-01T00:59:30Z")),
                kind: "Backoff".to_owned(),
                reason: Some("AppWrapperNotRunnable.".to_owned()),
                message: Some("Insufficient resources to dispatch AppWrapper.".to_owned()),
            },
        ],
        items: vec![item],
        demand: amounts(&[("cpu", "5"), ("memory", "1Gi")]),
        inference: "compat",
        room: Some(CapacityReport {
            total: amounts(&[("cpu", "8")]),
            free: amounts(&[("cpu", "4")]),
            reserved: amounts(&[("cpu", "1")]),
            reserved_by: vec![share("test/other", "1")],
            available: amounts(&[("cpu", "3")]),
            lacking: vec!["cpu: needs 5, 3 available, 2 missing".to_owned()],
            ..CapacityReport::default()
        }),
        quota: vec![QuotaCharge {
            tree: "team".to_owned(),
            node: "gold".to_owned(),
            is_labelled: true,
            placed: Some("all".to_owned()),
            borrows: true,
            holds: false,
            refused: None,
            is_forbidden: false,
            path: vec![
                QuotaNodeUse {
                    node: "gold".to_owned(),
                    hard: false,
                    used: amounts(&[("cpu", "1")]),
                    limit: amounts(&[("cpu", "2")]),
                },
                QuotaNodeUse {
                    node: "all".to_owned(),
                    hard: true,
                    used: amounts(&[("cpu", "1")]),
                    limit: amounts(&[("cpu", "9")]),
                },
            ],
            leaves: Vec::new(),
        }],
        victims: vec!["test/lent".to_owned()],
        pods: PodsReport {
            pending: 1,
            unschedulable: vec![Unschedulable {
                pod: "p".to_owned(),
                message: "0/1 nodes are available".to_owned(),
            }],
            ..PodsReport::default()
        },
        requeuing: RequeuingReport {
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
fn an_explain_page_shows_every_section() {
    let expected = "\
appwrapper  large -n test
state       Pending, Backoff since 2026-01-01T00:55:00Z (5m ago)
priority    7.5 now; spec.priority 3, slope 0.5 a second
position    1 of 3
waits for   Resources: cpu: needs 5, 3 available, 2 missing
expected    starts about 2026-01-01T01:05:00Z (in 5m), when running AppWrappers time out
demand      cpu 5, memory 1Gi (demandInference: compat)
pods        1 pending
requeued    if fewer than 2 pods run after 120s; 1 of 3 so far
victims     test/lent
items
  job/train   cpu 5, memory 1Gi, declared in custompodresources   not made, not complete (Complete)
capacity
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
unschedulable pods
  p: 0/1 nodes are available
history
  2026-01-01T00:55:00Z (5m ago)    Init
  2026-01-01T00:59:30Z (30s ago)   Backoff   AppWrapperNotRunnable.   Insufficient resources to dispatch AppWrapper.
next
  wait for others to end, or delete some
";
    assert_eq!(page(&story(), now()), expected);
}
