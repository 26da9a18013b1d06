#![expect(
    clippy::needless_pass_by_value,
    reason = "tests read best when they say what a value is where it is used"
)]

use serde_json::json;

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// An AppWrapper of which nothing is known.
fn nothing() -> Facts {
    Facts {
        state: None,
        step: None,
        can_run: false,
        is_going: false,
        is_fresh: false,
        leaving: None,
        items: Items::Missing,
        has_objects: false,
        has_old_objects: false,
        has_pods: false,
        is_complete: false,
        running: 0,
        pending: 0,
        due: None,
        is_miscounted: false,
        is_reprioritised: false,
        barred: None,
    }
}

fn waiting() -> Facts {
    Facts { state: Some(AppWrapperState::Pending), step: Some(QueueState::Queueing), ..nothing() }
}

fn passed() -> Facts {
    Facts { can_run: true, step: Some(QueueState::HeadOfLine), ..waiting() }
}

fn running() -> Facts {
    Facts {
        state: Some(AppWrapperState::Running),
        step: Some(QueueState::Dispatched),
        items: Items::Present,
        has_objects: true,
        ..passed()
    }
}

fn holding() -> Facts {
    Facts {
        state: Some(AppWrapperState::RunningHoldCompletion),
        step: Some(QueueState::RunningHoldCompletion),
        is_complete: true,
        ..running()
    }
}

fn over(state: AppWrapperState) -> Facts {
    Facts { state: Some(state), can_run: false, has_old_objects: true, ..running() }
}

const SHORT: Recall = Recall::MinPods { minimum: 2, running: 1, completed: 0 };

#[test]
fn each_state_goes_on_as_the_table_says() {
    use Transition as T;
    let become_ = Next::Become;
    let leaving = |leaving, has_objects, has_pods| Facts {
        leaving: Some(leaving),
        has_objects,
        has_pods,
        ..running()
    };
    let table = [
        ("T1 first contact", nothing(), become_(T::Queue)),
        (
            "T1 is left to who decides for a while",
            Facts { is_fresh: true, ..nothing() },
            Next::Rest,
        ),
        ("T2 to T6 are decided for all at once", waiting(), Next::Rest),
        ("T7 items are made", passed(), Next::Create),
        ("T7 all are there", Facts { items: Items::Present, ..passed() }, become_(T::Dispatch)),
        (
            "T7 and T11 all are there, and complete",
            Facts { items: Items::Present, is_complete: true, ..passed() },
            become_(T::Finish),
        ),
        (
            "T7 alone while a pod runs",
            Facts { items: Items::Present, is_complete: true, running: 1, ..passed() },
            become_(T::Dispatch),
        ),
        (
            "T7 alone while a pod waits",
            Facts { items: Items::Present, is_complete: true, pending: 1, ..passed() },
            become_(T::Dispatch),
        ),
        (
            "4.15 they are tried once more",
            Facts { items: Items::Late, ..passed() },
            become_(T::Retry),
        ),
        (
            "T8 one cannot be made",
            Facts { items: Items::Impossible("no".to_owned()), ..passed() },
            become_(T::Fail("no".to_owned())),
        ),
        ("T8 those that were made go", leaving(Leaving::Failed, true, false), Next::Remove),
        (
            "T8 and it has failed",
            leaving(Leaving::Failed, false, false),
            become_(T::Settle(Leaving::Failed)),
        ),
        (
            "T8 its author may not have it",
            Facts { barred: Some("no".to_owned()), ..waiting() },
            become_(T::Bar("no".to_owned())),
        ),
        (
            "T8 even before it was greeted",
            Facts { barred: Some("no".to_owned()), is_fresh: true, ..nothing() },
            become_(T::Bar("no".to_owned())),
        ),
        ("dispatched, and no pod runs", Facts { pending: 1, ..running() }, Next::Rest),
        ("T9 a pod runs", Facts { running: 1, ..running() }, become_(T::Run)),
        (
            "T9 is told once",
            Facts { running: 1, step: Some(QueueState::Running), ..running() },
            Next::Rest,
        ),
        (
            "pods are counted",
            Facts { running: 1, step: Some(QueueState::Running), is_miscounted: true, ..running() },
            become_(T::Count),
        ),
        (
            "T10 complete, and a pod waits",
            Facts { is_complete: true, pending: 1, ..running() },
            become_(T::HoldCompletion),
        ),
        ("T10 stays", Facts { running: 1, ..holding() }, Next::Rest),
        (
            "T10 is exempt from requeuing",
            Facts { running: 1, due: Some(SHORT), ..holding() },
            Next::Rest,
        ),
        ("T11 from there", holding(), become_(T::Complete)),
        ("T11 at once", Facts { is_complete: true, ..running() }, become_(T::Complete)),
        (
            "T11 rather than T12",
            Facts { is_complete: true, due: Some(SHORT), ..running() },
            become_(T::Complete),
        ),
        (
            "T12 too few pods",
            Facts { due: Some(SHORT), running: 1, ..running() },
            become_(T::Recall(SHORT)),
        ),
        ("T12 objects go first", leaving(Leaving::Requeued, true, true), Next::Remove),
        ("T12 then pods", leaving(Leaving::Requeued, false, true), Next::Rest),
        (
            "T12 then it waits",
            leaving(Leaving::Requeued, false, false),
            become_(T::Settle(Leaving::Requeued)),
        ),
        (
            "T13 it is given up",
            leaving(Leaving::GivenUp, false, false),
            become_(T::Settle(Leaving::GivenUp)),
        ),
        (
            "T14 it waits",
            leaving(Leaving::Rescheduled, false, false),
            become_(T::Settle(Leaving::Rescheduled)),
        ),
        (
            "T15 it has failed",
            leaving(Leaving::Overrun, false, false),
            become_(T::Settle(Leaving::Overrun)),
        ),
        (
            "T16 it made room",
            leaving(Leaving::Preempted, false, false),
            become_(T::Settle(Leaving::Preempted)),
        ),
        ("T17 it goes", Facts { is_going: true, due: Some(SHORT), ..running() }, Next::Rest),
        ("T17 it goes before it was seen", Facts { is_going: true, ..nothing() }, Next::Rest),
        (
            "T18 another priority",
            Facts { is_reprioritised: true, ..waiting() },
            become_(T::Reprioritise),
        ),
        ("T18 only while it waits", Facts { is_reprioritised: true, ..running() }, Next::Rest),
        (
            "what came late goes",
            Facts { has_objects: true, has_old_objects: true, ..waiting() },
            Next::Remove,
        ),
        (
            "what may be newer than the news stays",
            Facts { has_objects: true, ..waiting() },
            Next::Rest,
        ),
        ("completed stays, and keeps its items", over(AppWrapperState::Completed), Next::Rest),
        (
            "failed stays",
            Facts { has_old_objects: false, due: Some(SHORT), ..over(AppWrapperState::Failed) },
            Next::Rest,
        ),
        ("failed keeps nothing", over(AppWrapperState::Failed), Next::Remove),
        (
            "deleted stays",
            Facts { has_old_objects: false, ..over(AppWrapperState::Deleted) },
            Next::Rest,
        ),
        ("deleted keeps nothing", over(AppWrapperState::Deleted), Next::Remove),
        (
            "words of others are left alone",
            over(AppWrapperState::Other("Odd".to_owned())),
            Next::Rest,
        ),
    ];
    for (why, facts, expected) in table {
        assert_eq!(next(&facts), expected, "{why}");
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

/// State, step and reservation after a transition, and the types of all conditions.
fn after(change: &Transition, wrapper: &AppWrapper) -> (String, AppWrapperStatus) {
    let tally = Tally { running: 3, pending: 1, ..Tally::default() };
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
        ("T1 and T4", T::Lead, &fresh, "Pending HeadOfLine - Init,Queueing,HeadOfLine"),
        ("T1 and T3", T::Reserve, &fresh, "Pending HeadOfLine R Init,Queueing,HeadOfLine"),
        (
            "T1 and T5",
            T::Park(Pause::Resources, "m".to_owned()),
            &fresh,
            "Pending Backoff - Init,Queueing,HeadOfLine,Backoff",
        ),
        ("T4", T::Lead, &waits, "Pending HeadOfLine - HeadOfLine"),
        ("T3", T::Reserve, &waits, "Pending HeadOfLine R HeadOfLine"),
        (
            "T5",
            T::Park(Pause::Resources, "m".to_owned()),
            &waits,
            "Pending Backoff - HeadOfLine,Backoff",
        ),
        ("T7", T::Dispatch, &passed, "Running Dispatched R Dispatched"),
        ("T8", T::Fail("no".to_owned()), &passed, "Pending Failed R Failed"),
        ("T8 end", T::Settle(Leaving::Failed), &passed, "Failed Failed - "),
        ("T9", T::Run, &runs, "Running Running R Running"),
        (
            "T10",
            T::HoldCompletion,
            &runs,
            "RunningHoldCompletion RunningHoldCompletion R RunningHoldCompletion",
        ),
        ("T11", T::Complete, &runs, "Completed Completed - Completed"),
        ("T7 and T11", T::Finish, &passed, "Completed Completed - Dispatched,Completed"),
        ("T12", T::Recall(SHORT), &runs, "Running PreemptCandidate R PreemptCandidate"),
        (
            "T12 end",
            T::Settle(Leaving::Requeued),
            &leaves,
            "Pending Backoff - PreemptCandidate,Backoff",
        ),
        ("T13 end", T::Settle(Leaving::GivenUp), &leaves, "Deleted Deleted - PreemptCandidate"),
        (
            "T14 end",
            T::Settle(Leaving::Rescheduled),
            &leaves,
            "Pending Backoff - PreemptCandidate,Backoff",
        ),
        ("T15 end", T::Settle(Leaving::Overrun), &leaves, "Failed Failed - PreemptCandidate"),
        (
            "T16",
            T::Yield(Preempted::Quota { by: "n/b".to_owned() }),
            &runs,
            "Running Preempted R Preempted",
        ),
        (
            "T16 end",
            T::Settle(Leaving::Preempted),
            &leaves,
            "Pending Queueing - PreemptCandidate,Queueing",
        ),
        ("T18", T::Reprioritise, &waits, "Pending Queueing - "),
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
    let later = Transition::Run.apply(&again, &Tally::default(), 0.0, at(900));
    assert_eq!(later.first_dispatched, Some(MicroTime(at(100))), "the first time stays");

    let leaves = wrapper(
        json!({"state": "Running", "canrun": true, "running": 4, "numberOfRequeueings": 1,
        "requeueingTimeInSeconds": 60, "conditions": [
            {"type": "PreemptCandidate", "status": "True", "reason": "MinPodsNotRunning", "message": "why"}]}),
    );
    let (_, status) = after(&Transition::Settle(Leaving::Requeued), &leaves);
    assert_eq!((status.number_of_requeuings, status.requeuing_time_in_seconds), (2, 120));
    assert_eq!(status.running, 0, "nothing of it runs");
    assert_eq!(status.conditions[1].reason.as_deref(), Some("PreemptionTriggered"));
    assert_eq!(status.conditions[1].message.as_deref(), Some("why"));
    let (_, status) = after(&Transition::Settle(Leaving::Rescheduled), &leaves);
    assert_eq!(
        (status.number_of_requeuings, status.requeuing_time_in_seconds),
        (1, 60),
        "T14 does not count"
    );

    let (_, status) =
        after(&Transition::Dispatch, &wrapper(json!({"state": "Pending", "canrun": true})));
    assert_eq!(status.first_dispatched, Some(MicroTime(at(100))), "who has no pods begins at once");
}

#[test]
fn what_becomes_of_who_leaves_follows_from_its_status() {
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
        ("T12", candidate("MinPodsNotRunning", 1), Some(Leaving::Requeued)),
        ("T13", candidate("MinPodsNotRunning", 2), Some(Leaving::GivenUp)),
        ("T14", candidate("PodsFailedScheduling", 2), Some(Leaving::Rescheduled)),
        ("T15", candidate("DispatchDeadlineExceeded", 2), Some(Leaving::Overrun)),
        ("T16", step("Preempted", true), Some(Leaving::Preempted)),
        ("T8", step("Failed", true), Some(Leaving::Failed)),
        ("it has left", step("Failed", false), None),
        ("it stays", step("Running", true), None),
    ];
    for (why, wrapper, expected) in table {
        assert_eq!(leaving(&wrapper), expected, "{why}");
    }
}
