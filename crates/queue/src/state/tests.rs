#![expect(
    clippy::needless_pass_by_value,
    reason = "tests read best when they say what a value is where it is used"
)]

use serde_json::json;

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// Returns an AppWrapper of which nothing is known.
fn nothing() -> AppWrapperFacts {
    AppWrapperFacts {
        state: None,
        step: None,
        can_run: false,
        is_deleting: false,
        awaits_first_cycle: false,
        removal: None,
        items: ItemsState::Missing,
        has_objects: false,
        has_old_objects: false,
        has_pods: false,
        is_complete: false,
        running: 0,
        pending: 0,
        eviction: None,
        counts_changed: false,
        priority_changed: false,
        denied: None,
    }
}

fn waiting() -> AppWrapperFacts {
    AppWrapperFacts {
        state: Some(AppWrapperState::Pending),
        step: Some(QueueState::Queueing),
        ..nothing()
    }
}

fn admitted() -> AppWrapperFacts {
    AppWrapperFacts { can_run: true, step: Some(QueueState::HeadOfLine), ..waiting() }
}

fn running() -> AppWrapperFacts {
    AppWrapperFacts {
        state: Some(AppWrapperState::Running),
        step: Some(QueueState::Dispatched),
        items: ItemsState::Present,
        has_objects: true,
        ..admitted()
    }
}

fn holding() -> AppWrapperFacts {
    AppWrapperFacts {
        state: Some(AppWrapperState::RunningHoldCompletion),
        step: Some(QueueState::RunningHoldCompletion),
        is_complete: true,
        ..running()
    }
}

fn finished(state: AppWrapperState) -> AppWrapperFacts {
    AppWrapperFacts { state: Some(state), can_run: false, has_old_objects: true, ..running() }
}

const SHORT: EvictionReason = EvictionReason::MinPods { minimum: 2, running: 1, completed: 0 };

#[test]
fn each_state_follows_the_transition_table() {
    use Transition as T;
    let become_ = NextAction::UpdateStatus;
    let leaving = |leaving, has_objects, has_pods| AppWrapperFacts {
        removal: Some(leaving),
        has_objects,
        has_pods,
        ..running()
    };
    let table = [
        ("T1 first contact", nothing(), become_(T::Queue)),
        (
            "T1 is left to the cycle for a while",
            AppWrapperFacts { awaits_first_cycle: true, ..nothing() },
            NextAction::Idle,
        ),
        ("T2 to T6 are decided for all at once", waiting(), NextAction::Idle),
        ("T7 items are made", admitted(), NextAction::CreateItems),
        (
            "T7 all are there",
            AppWrapperFacts { items: ItemsState::Present, ..admitted() },
            become_(T::Dispatch),
        ),
        (
            "T7 and T11 all are there, and complete",
            AppWrapperFacts { items: ItemsState::Present, is_complete: true, ..admitted() },
            become_(T::DispatchAndComplete),
        ),
        (
            "T7 alone while a pod runs",
            AppWrapperFacts {
                items: ItemsState::Present,
                is_complete: true,
                running: 1,
                ..admitted()
            },
            become_(T::Dispatch),
        ),
        (
            "T7 alone while a pod waits",
            AppWrapperFacts {
                items: ItemsState::Present,
                is_complete: true,
                pending: 1,
                ..admitted()
            },
            become_(T::Dispatch),
        ),
        (
            "4.15 they are tried once more",
            AppWrapperFacts { items: ItemsState::Late, ..admitted() },
            become_(T::Retry),
        ),
        (
            "T8 one cannot be made",
            AppWrapperFacts { items: ItemsState::Impossible("no".to_owned()), ..admitted() },
            become_(T::Fail("no".to_owned())),
        ),
        (
            "T8 those that were made go",
            leaving(RemovalOutcome::Failed, true, false),
            NextAction::RemoveObjects,
        ),
        (
            "T8 and it has failed",
            leaving(RemovalOutcome::Failed, false, false),
            become_(T::FinishRemoval(RemovalOutcome::Failed)),
        ),
        (
            "T8 its author may not have it",
            AppWrapperFacts { denied: Some("no".to_owned()), ..waiting() },
            become_(T::Deny("no".to_owned())),
        ),
        (
            "T8 even before it was greeted",
            AppWrapperFacts {
                denied: Some("no".to_owned()),
                awaits_first_cycle: true,
                ..nothing()
            },
            become_(T::Deny("no".to_owned())),
        ),
        (
            "dispatched, and no pod runs",
            AppWrapperFacts { pending: 1, ..running() },
            NextAction::Idle,
        ),
        ("T9 a pod runs", AppWrapperFacts { running: 1, ..running() }, become_(T::Run)),
        (
            "T9 is written once",
            AppWrapperFacts { running: 1, step: Some(QueueState::Running), ..running() },
            NextAction::Idle,
        ),
        (
            "pods are counted",
            AppWrapperFacts {
                running: 1,
                step: Some(QueueState::Running),
                counts_changed: true,
                ..running()
            },
            become_(T::UpdateCounts),
        ),
        (
            "T10 complete, and a pod waits",
            AppWrapperFacts { is_complete: true, pending: 1, ..running() },
            become_(T::HoldCompletion),
        ),
        ("T10 stays", AppWrapperFacts { running: 1, ..holding() }, NextAction::Idle),
        (
            "T10 is exempt from requeuing",
            AppWrapperFacts { running: 1, eviction: Some(SHORT), ..holding() },
            NextAction::Idle,
        ),
        ("T11 from there", holding(), become_(T::Complete)),
        ("T11 at once", AppWrapperFacts { is_complete: true, ..running() }, become_(T::Complete)),
        (
            "T11 rather than T12",
            AppWrapperFacts { is_complete: true, eviction: Some(SHORT), ..running() },
            become_(T::Complete),
        ),
        (
            "T12 too few pods",
            AppWrapperFacts { eviction: Some(SHORT), running: 1, ..running() },
            become_(T::Evict(SHORT)),
        ),
        (
            "T12 objects go first",
            leaving(RemovalOutcome::Requeued, true, true),
            NextAction::RemoveObjects,
        ),
        ("T12 then pods", leaving(RemovalOutcome::Requeued, false, true), NextAction::Idle),
        (
            "T12 then it waits",
            leaving(RemovalOutcome::Requeued, false, false),
            become_(T::FinishRemoval(RemovalOutcome::Requeued)),
        ),
        (
            "T13 it is given up",
            leaving(RemovalOutcome::GivenUp, false, false),
            become_(T::FinishRemoval(RemovalOutcome::GivenUp)),
        ),
        (
            "T14 it waits",
            leaving(RemovalOutcome::Rescheduled, false, false),
            become_(T::FinishRemoval(RemovalOutcome::Rescheduled)),
        ),
        (
            "T15 it has failed",
            leaving(RemovalOutcome::DeadlineExceeded, false, false),
            become_(T::FinishRemoval(RemovalOutcome::DeadlineExceeded)),
        ),
        (
            "T16 it made room",
            leaving(RemovalOutcome::Preempted, false, false),
            become_(T::FinishRemoval(RemovalOutcome::Preempted)),
        ),
        (
            "T17 it goes",
            AppWrapperFacts { is_deleting: true, eviction: Some(SHORT), ..running() },
            NextAction::Idle,
        ),
        (
            "T17 it goes before it was seen",
            AppWrapperFacts { is_deleting: true, ..nothing() },
            NextAction::Idle,
        ),
        (
            "T18 another priority",
            AppWrapperFacts { priority_changed: true, ..waiting() },
            become_(T::UpdatePriority),
        ),
        (
            "T18 only while it waits",
            AppWrapperFacts { priority_changed: true, ..running() },
            NextAction::Idle,
        ),
        (
            "what came late goes",
            AppWrapperFacts { has_objects: true, has_old_objects: true, ..waiting() },
            NextAction::RemoveObjects,
        ),
        (
            "what may be newer than the news stays",
            AppWrapperFacts { has_objects: true, ..waiting() },
            NextAction::Idle,
        ),
        (
            "completed stays, and keeps its items",
            finished(AppWrapperState::Completed),
            NextAction::Idle,
        ),
        (
            "failed stays",
            AppWrapperFacts {
                has_old_objects: false,
                eviction: Some(SHORT),
                ..finished(AppWrapperState::Failed)
            },
            NextAction::Idle,
        ),
        ("failed keeps nothing", finished(AppWrapperState::Failed), NextAction::RemoveObjects),
        (
            "deleted stays",
            AppWrapperFacts { has_old_objects: false, ..finished(AppWrapperState::Deleted) },
            NextAction::Idle,
        ),
        ("deleted keeps nothing", finished(AppWrapperState::Deleted), NextAction::RemoveObjects),
        (
            "words of others are left alone",
            finished(AppWrapperState::Other("Odd".to_owned())),
            NextAction::Idle,
        ),
    ];
    for (why, facts, expected) in table {
        assert_eq!(next_action(&facts), expected, "{why}");
    }
}

fn wrapper(status: serde_json::Value) -> AppWrapper {
    serde_json::from_value(json!({
        "metadata": {"name": "a", "namespace": "n"},
        "spec": {"priority": 7, "schedulingSpec": {"minAvailable": 2,
            "requeuing": {"timeInSeconds": 60, "maxNumRequeuings": 2}}},
        "status": status,
    }))
    .unwrap()
}

/// Returns state, step and reservation after a transition, and the types of all conditions.
fn after(change: &Transition, wrapper: &AppWrapper) -> (String, AppWrapperStatus) {
    let tally = PodCounts { running: 3, pending: 1, ..PodCounts::default() };
    let status = change.apply(wrapper, &tally, 7.0, at(100));
    let value = serde_json::to_value(&status).unwrap();
    let text = |name: &str| value[name].as_str().unwrap_or("-").to_owned();
    let reserved = if status.can_run { "R" } else { "-" };
    let kinds: Vec<&str> = status.conditions.iter().map(|it| it.kind.as_str()).collect();
    let line =
        format!("{} {} {reserved} {}", text("state"), text("queuejobstate"), kinds.join(","));
    (line, status)
}

#[test]
fn transitions_write_what_the_table_says() {
    use Transition as T;
    let fresh = wrapper(json!({}));
    let waits = wrapper(json!({"state": "Pending", "queuejobstate": "Queueing"}));
    let passed =
        wrapper(json!({"state": "Pending", "queuejobstate": "HeadOfLine", "canrun": true}));
    let runs = wrapper(json!({"state": "Running", "queuejobstate": "Dispatched", "canrun": true}));
    let leaves = wrapper(
        json!({"state": "Running", "queuejobstate": "PreemptCandidate", "canrun": true,
        "running": 4, "pending": 4, "conditions": [
            {"type": "PreemptCandidate", "status": "True", "reason": "MinPodsNotRunning", "message": "why"}]}),
    );
    let table = [
        ("T1", T::Queue, &fresh, "Pending Queueing - Init,Queueing"),
        ("T1 and T4", T::HoldHeadOfLine, &fresh, "Pending HeadOfLine - Init,Queueing,HeadOfLine"),
        ("T1 and T3", T::Reserve, &fresh, "Pending HeadOfLine R Init,Queueing,HeadOfLine"),
        (
            "T1 and T5",
            T::BackOff(BackoffReason::Resources, "m".to_owned()),
            &fresh,
            "Pending Backoff - Init,Queueing,HeadOfLine,Backoff",
        ),
        ("T4", T::HoldHeadOfLine, &waits, "Pending HeadOfLine - HeadOfLine"),
        ("T3", T::Reserve, &waits, "Pending HeadOfLine R HeadOfLine"),
        (
            "T5",
            T::BackOff(BackoffReason::Resources, "m".to_owned()),
            &waits,
            "Pending Backoff - HeadOfLine,Backoff",
        ),
        ("T7", T::Dispatch, &passed, "Running Dispatched R Dispatched"),
        ("T8", T::Fail("no".to_owned()), &passed, "Pending Failed R Failed"),
        ("T8 end", T::FinishRemoval(RemovalOutcome::Failed), &passed, "Failed Failed - "),
        ("T9", T::Run, &runs, "Running Running R Running"),
        (
            "T10",
            T::HoldCompletion,
            &runs,
            "RunningHoldCompletion RunningHoldCompletion R RunningHoldCompletion",
        ),
        ("T11", T::Complete, &runs, "Completed Completed - Completed"),
        (
            "T7 and T11",
            T::DispatchAndComplete,
            &passed,
            "Completed Completed - Dispatched,Completed",
        ),
        ("T12", T::Evict(SHORT), &runs, "Running PreemptCandidate R PreemptCandidate"),
        (
            "T12 end",
            T::FinishRemoval(RemovalOutcome::Requeued),
            &leaves,
            "Pending Backoff - PreemptCandidate,Backoff",
        ),
        (
            "T13 end",
            T::FinishRemoval(RemovalOutcome::GivenUp),
            &leaves,
            "Deleted Deleted - PreemptCandidate",
        ),
        (
            "T14 end",
            T::FinishRemoval(RemovalOutcome::Rescheduled),
            &leaves,
            "Pending Backoff - PreemptCandidate,Backoff",
        ),
        (
            "T15 end",
            T::FinishRemoval(RemovalOutcome::DeadlineExceeded),
            &leaves,
            "Failed Failed - PreemptCandidate",
        ),
        (
            "T16",
            T::Preempt(PreemptionReason::Quota { by: "n/b".to_owned() }),
            &runs,
            "Running Preempted R Preempted",
        ),
        (
            "T16 end",
            T::FinishRemoval(RemovalOutcome::Preempted),
            &leaves,
            "Pending Queueing - PreemptCandidate,Queueing",
        ),
        ("T18", T::UpdatePriority, &waits, "Pending Queueing - "),
    ];
    for (why, change, wrapper, expected) in table {
        let (line, status) = after(&change, wrapper);
        assert_eq!(line, expected, "{why}");
        assert!(status.filter_ignore && status.sender.unwrap().starts_with("before "), "{why}");
    }
}

#[test]
fn transitions_keep_count() {
    let runs = wrapper(json!({"state": "Running", "canrun": true}));
    let (_, status) = after(&Transition::Run, &runs);
    assert_eq!((status.running, status.pending), (3, 1));
    assert_eq!(status.first_dispatched, Some(MicroTime(at(100))));
    let again = AppWrapper { status, ..runs };
    let later = Transition::Run.apply(&again, &PodCounts::default(), 0.0, at(900));
    assert_eq!(later.first_dispatched, Some(MicroTime(at(100))), "the first time stays");

    let leaves = wrapper(
        json!({"state": "Running", "canrun": true, "running": 4, "numberOfRequeueings": 1,
        "requeueingTimeInSeconds": 60, "conditions": [
            {"type": "PreemptCandidate", "status": "True", "reason": "MinPodsNotRunning", "message": "why"}]}),
    );
    let (_, status) = after(&Transition::FinishRemoval(RemovalOutcome::Requeued), &leaves);
    assert_eq!((status.number_of_requeuings, status.requeuing_time_in_seconds), (2, 120));
    assert_eq!(status.running, 0, "nothing of it runs");
    assert_eq!(status.conditions[1].reason.as_deref(), Some("PreemptionTriggered"));
    assert_eq!(status.conditions[1].message.as_deref(), Some("why"));
    let (_, status) = after(&Transition::FinishRemoval(RemovalOutcome::Rescheduled), &leaves);
    assert_eq!(
        (status.number_of_requeuings, status.requeuing_time_in_seconds),
        (1, 60),
        "T14 does not count"
    );

    let (_, status) =
        after(&Transition::Dispatch, &wrapper(json!({"state": "Pending", "canrun": true})));
    assert_eq!(status.first_dispatched, Some(MicroTime(at(100))), "without pods it begins at once");
}

#[test]
fn the_removal_outcome_follows_from_the_status() {
    let candidate = |reason: &str, count: i64| {
        wrapper(
            json!({"canrun": true, "queuejobstate": "PreemptCandidate", "numberOfRequeueings": count,
            "conditions": [
                {"type": "PreemptCandidate", "status": "True", "reason": "Old", "lastTransitionMicroTime": "2025-01-01T00:00:00.000000Z"},
                {"type": "PreemptCandidate", "status": "True", "reason": reason, "lastTransitionMicroTime": "2026-01-01T00:00:00.000000Z"}]}),
        )
    };
    let step =
        |step: &str, can_run: bool| wrapper(json!({"canrun": can_run, "queuejobstate": step}));
    let table = [
        ("T12", candidate("MinPodsNotRunning", 1), Some(RemovalOutcome::Requeued)),
        ("T13", candidate("MinPodsNotRunning", 2), Some(RemovalOutcome::GivenUp)),
        ("T14", candidate("PodsFailedScheduling", 2), Some(RemovalOutcome::Rescheduled)),
        ("T15", candidate("DispatchDeadlineExceeded", 2), Some(RemovalOutcome::DeadlineExceeded)),
        ("T16", step("Preempted", true), Some(RemovalOutcome::Preempted)),
        ("T8", step("Failed", true), Some(RemovalOutcome::Failed)),
        ("it has left", step("Failed", false), None),
        ("it stays", step("Running", true), None),
    ];
    for (why, wrapper, expected) in table {
        assert_eq!(removal_outcome(&wrapper), expected, "{why}");
    }
}
