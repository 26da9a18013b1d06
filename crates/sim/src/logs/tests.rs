use std::pin::pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use proptest::prelude::*;
use serde_json::json;

use super::ring::{MAX_LINE_BYTES, MAX_RUN_BYTES};
use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::new(second, 5).unwrap()
}

/// Returns what can be read now, and whether that is the end.
fn drain(reader: &mut LogReader) -> (String, bool) {
    let mut text = String::new();
    loop {
        let next = pin!(reader.next());
        match Future::poll(next, &mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(bytes)) => text.push_str(std::str::from_utf8(&bytes).unwrap()),
            Poll::Ready(None) => return (text, true),
            Poll::Pending => return (text, false),
        }
    }
}

fn read(logs: &Logs, options: &LogReadOptions) -> (String, bool) {
    drain(&mut logs.read("p", "c", ContainerRun::Current, options).unwrap())
}

/// A container that has logged 1, 2, 3 and 4 at those seconds.
fn four_lines() -> Logs {
    let logs = Logs::new();
    logs.start_run("p", "c", 0, at(1), ["one"]);
    for (second, line) in [(2, "two"), (3, "three"), (4, "four")] {
        logs.append("p", "c", at(second), line);
    }
    logs
}

#[test]
fn options_apply_as_on_a_node() {
    let none = LogReadOptions::default;
    let table = [
        ("everything", none(), "one\ntwo\nthree\nfour\n"),
        ("the last two", LogReadOptions { tail: Some(2), ..none() }, "three\nfour\n"),
        ("none of the last", LogReadOptions { tail: Some(0), ..none() }, ""),
        (
            "more than there are",
            LogReadOptions { tail: Some(9), ..none() },
            "one\ntwo\nthree\nfour\n",
        ),
        ("since then", LogReadOptions { since: Some(at(3)), ..none() }, "three\nfour\n"),
        (
            "the tail is counted first",
            LogReadOptions { since: Some(at(3)), tail: Some(3), ..none() },
            "three\nfour\n",
        ),
        ("so many bytes", LogReadOptions { limit: Some(6), ..none() }, "one\ntw"),
        ("just a line", LogReadOptions { limit: Some(4), ..none() }, "one\n"),
        (
            "bytes of lines that are shown",
            LogReadOptions { limit: Some(3), since: Some(at(2)), ..none() },
            "two",
        ),
        (
            "with the time",
            LogReadOptions { timestamps: true, tail: Some(1), ..none() },
            "1970-01-01T00:00:04.000000005Z four\n",
        ),
        (
            "the time counts as bytes",
            LogReadOptions { timestamps: true, limit: Some(10), ..none() },
            "1970-01-01",
        ),
    ];
    for (why, options, expected) in table {
        assert_eq!(read(&four_lines(), &options), (expected.to_owned(), true), "{why}");
    }
}

#[test]
fn a_log_is_followed_to_the_end_of_its_run() {
    let logs = four_lines();
    let follow = LogReadOptions { follow: true, tail: Some(1), ..LogReadOptions::default() };
    let mut reader = logs.read("p", "c", ContainerRun::Current, &follow).unwrap();
    assert_eq!(drain(&mut reader), ("four\n".to_owned(), false));
    assert_eq!(drain(&mut reader), (String::new(), false));
    logs.append("p", "c", at(5), "five\nsix");
    assert_eq!(drain(&mut reader), ("five\nsix\n".to_owned(), false));
    logs.append("p", "c", at(6), "seven");
    logs.end_run("p", "c");
    logs.append("p", "c", at(7), "never said");
    assert_eq!(drain(&mut reader), ("seven\n".to_owned(), true));
    let limited = LogReadOptions { follow: true, limit: Some(1), ..LogReadOptions::default() };
    assert_eq!(read(&four_lines(), &limited), ("o".to_owned(), true), "no more is wanted");
}

#[tokio::test]
async fn followers_are_notified() {
    let logs = four_lines();
    let follow = LogReadOptions { follow: true, tail: Some(0), ..LogReadOptions::default() };
    let mut reader = logs.read("p", "c", ContainerRun::Current, &follow).unwrap();
    let (said, ()) = tokio::join!(reader.next(), async {
        logs.append("p", "c", at(5), "five");
    });
    assert_eq!(said.unwrap(), "five\n");
    let (said, ()) = tokio::join!(reader.next(), async { logs.remove_pod("p") });
    assert_eq!(said, None);
}

#[test]
fn only_the_previous_run_is_retained() {
    let logs = four_lines();
    let follow = LogReadOptions { follow: true, tail: Some(0), ..LogReadOptions::default() };
    let mut old = logs.read("p", "c", ContainerRun::Current, &follow).unwrap();
    assert!(logs.read("p", "c", ContainerRun::Previous, &follow).is_none());
    logs.start_run("p", "c", 1, at(9), ["again"]);
    logs.start_run("p", "c", 1, at(9), ["not twice"]);
    logs.start_run("p", "c", 0, at(9), ["nor late"]);
    assert_eq!(drain(&mut old), (String::new(), true), "a follower ends with its run");
    let all = LogReadOptions::default();
    assert_eq!(read(&logs, &all).0, "again\n");
    let mut previous = logs.read("p", "c", ContainerRun::Previous, &all).unwrap();
    assert_eq!(drain(&mut previous).0, "one\ntwo\nthree\nfour\n");
    logs.start_run("p", "c", 2, at(10), []);
    let mut previous = logs.read("p", "c", ContainerRun::Previous, &all).unwrap();
    assert_eq!(drain(&mut previous).0, "again\n");
}

#[test]
fn logs_of_deleted_pods_are_removed() {
    let logs = four_lines();
    logs.start_run("q", "c", 0, at(1), ["x"]);
    let kept = logs.0.total.load(Ordering::Relaxed);
    logs.append("q", "no such container", at(1), "x");
    logs.append("no such pod", "c", at(1), "x");
    assert_eq!((logs.pod_count(), logs.0.total.load(Ordering::Relaxed)), (2, kept));
    logs.remove_pod("p");
    logs.remove_pod("q");
    assert_eq!((logs.pod_count(), logs.0.total.load(Ordering::Relaxed)), (0, 0));
}

#[test]
fn a_full_log_drops_its_oldest_lines() {
    let logs = four_lines();
    let follow = LogReadOptions { follow: true, ..LogReadOptions::default() };
    let mut slow = logs.read("p", "c", ContainerRun::Current, &follow).unwrap();
    let line = "x".repeat(1000);
    for second in 10..1_000 {
        logs.append("p", "c", at(second), &line);
    }
    assert!(logs.0.total.load(Ordering::Relaxed) <= MAX_RUN_BYTES);
    let (text, over) = drain(&mut slow);
    assert!(!over && !text.starts_with("one") && text.len() > MAX_RUN_BYTES / 2);
    logs.append("p", "c", at(1_000), "after all");
    assert_eq!(drain(&mut slow).0, "after all\n", "a slow reader continues with what is left");
}

#[test]
fn long_lines_are_broken() {
    let logs = Logs::new();
    logs.start_run("p", "c", 0, at(1), ["ä".repeat(MAX_LINE_BYTES).as_str()]);
    let (text, _) = read(&logs, &LogReadOptions::default());
    assert_eq!(text.lines().map(str::len).collect::<Vec<_>>(), [MAX_LINE_BYTES, MAX_LINE_BYTES]);
}

#[test]
fn the_run_is_selected_as_a_kubelet_does() {
    let running = json!({ "running": {} });
    let ended = json!({ "terminated": { "exitCode": 1, "containerID": "x://1" } });
    let never = json!({ "terminated": { "exitCode": 1 } });
    let waiting = |why: &str| json!({ "waiting": { "reason": why } });
    let words = |rest: &str| Err(format!("container \"c\" in pod \"p\" {rest}"));
    let none = json!({});
    let table = [
        ("runs", &running, &none, false, Ok(ContainerRun::Current)),
        ("has ended", &ended, &none, false, Ok(ContainerRun::Current)),
        ("ran before", &running, &ended, true, Ok(ContainerRun::Previous)),
        (
            "is about to run again",
            &waiting("CrashLoopBackOff"),
            &ended,
            false,
            Ok(ContainerRun::Current),
        ),
        ("ran last", &waiting("CrashLoopBackOff"), &ended, true, Ok(ContainerRun::Current)),
        ("could not run again", &never, &ended, false, Ok(ContainerRun::Current)),
        ("could not run", &never, &none, false, words("is terminated")),
        ("could not run twice", &waiting("x"), &never, false, words("is terminated")),
        (
            "did not run before",
            &running,
            &none,
            true,
            Err("previous terminated container \"c\" in pod \"p\" not found".to_owned()),
        ),
        (
            "is being made",
            &waiting("ContainerCreating"),
            &none,
            false,
            words("is waiting to start: ContainerCreating"),
        ),
        (
            "has no image",
            &waiting("ErrImagePull"),
            &none,
            false,
            words("is waiting to start: image can't be pulled"),
        ),
        (
            "has no image yet",
            &waiting("ImagePullBackOff"),
            &none,
            false,
            words("is waiting to start: trying and failing to pull image"),
        ),
        ("says nothing", &none, &none, false, words("is waiting to start - no logs yet")),
    ];
    for (why, state, last, previous, expected) in table {
        for list in ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
            let status = json!({ "name": "c", "state": state, "lastState": last });
            let pod = json!({ "metadata": { "name": "p" }, "status": { list: [status] } });
            assert_eq!(select_run(&pod, "c", previous), expected, "{why}");
        }
    }
    let pod = json!({ "metadata": { "name": "p" } });
    assert_eq!(select_run(&pod, "c", false), words("is not available"));
}

proptest! {
    /// However a log is read, and however often the reader waits, every line is read once and in
    /// order.
    #[test]
    fn every_line_is_read_once(steps in prop::collection::vec(0_usize..5, 0..60)) {
        let logs = Logs::new();
        logs.start_run("p", "c", 0, at(0), []);
        let follow = LogReadOptions { follow: true, ..LogReadOptions::default() };
        let mut reader = logs.read("p", "c", ContainerRun::Current, &follow).unwrap();
        let (mut said, mut heard) = (String::new(), String::new());
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                0 => heard.push_str(&drain(&mut reader).0),
                lines => for line in 0..lines {
                    let text = format!("{number} {line}");
                    logs.append("p", "c", at(1), &text);
                    said.push_str(&text);
                    said.push('\n');
                },
            }
        }
        logs.end_run("p", "c");
        heard.push_str(&drain(&mut reader).0);
        prop_assert_eq!(heard, said);
    }
}
