use std::pin::pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use proptest::prelude::*;
use serde_json::json;

use super::ring::{LINE, RING};
use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::new(second, 5).unwrap()
}

/// What is there to read now, and whether that is the end.
fn drain(reader: &mut Reader) -> (String, bool) {
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

fn read(logs: &Logs, options: &Options) -> (String, bool) {
    drain(&mut logs.read("p", "c", Run::Current, options).unwrap())
}

/// A container that has said 1, 2, 3 and 4 at those seconds.
fn four() -> Logs {
    let logs = Logs::new();
    logs.begin("p", "c", 0, at(1), ["one"]);
    for (second, line) in [(2, "two"), (3, "three"), (4, "four")] {
        logs.append("p", "c", at(second), line);
    }
    logs
}

#[test]
fn options_apply_as_on_a_node() {
    let none = Options::default;
    let table = [
        ("everything", none(), "one\ntwo\nthree\nfour\n"),
        ("the last two", Options { tail: Some(2), ..none() }, "three\nfour\n"),
        ("none of the last", Options { tail: Some(0), ..none() }, ""),
        ("more than there are", Options { tail: Some(9), ..none() }, "one\ntwo\nthree\nfour\n"),
        ("since then", Options { since: Some(at(3)), ..none() }, "three\nfour\n"),
        (
            "the tail is counted first",
            Options { since: Some(at(3)), tail: Some(3), ..none() },
            "three\nfour\n",
        ),
        ("so many bytes", Options { limit: Some(6), ..none() }, "one\ntw"),
        ("just a line", Options { limit: Some(4), ..none() }, "one\n"),
        (
            "bytes of lines that are shown",
            Options { limit: Some(3), since: Some(at(2)), ..none() },
            "two",
        ),
        (
            "with the time",
            Options { timestamps: true, tail: Some(1), ..none() },
            "1970-01-01T00:00:04.000000005Z four\n",
        ),
        (
            "the time counts as bytes",
            Options { timestamps: true, limit: Some(10), ..none() },
            "1970-01-01",
        ),
    ];
    for (why, options, expected) in table {
        assert_eq!(read(&four(), &options), (expected.to_owned(), true), "{why}");
    }
}

#[test]
fn a_log_is_followed_to_the_end_of_its_run() {
    let logs = four();
    let follow = Options { follow: true, tail: Some(1), ..Options::default() };
    let mut reader = logs.read("p", "c", Run::Current, &follow).unwrap();
    assert_eq!(drain(&mut reader), ("four\n".to_owned(), false));
    assert_eq!(drain(&mut reader), (String::new(), false));
    logs.append("p", "c", at(5), "five\nsix");
    assert_eq!(drain(&mut reader), ("five\nsix\n".to_owned(), false));
    logs.append("p", "c", at(6), "seven");
    logs.end("p", "c");
    logs.append("p", "c", at(7), "never said");
    assert_eq!(drain(&mut reader), ("seven\n".to_owned(), true));
    let limited = Options { follow: true, limit: Some(1), ..Options::default() };
    assert_eq!(read(&four(), &limited), ("o".to_owned(), true), "no more is wanted");
}

#[tokio::test]
async fn whoever_waits_is_woken() {
    let logs = four();
    let follow = Options { follow: true, tail: Some(0), ..Options::default() };
    let mut reader = logs.read("p", "c", Run::Current, &follow).unwrap();
    let (said, ()) = tokio::join!(reader.next(), async {
        logs.append("p", "c", at(5), "five");
    });
    assert_eq!(said.unwrap(), "five\n");
    let (said, ()) = tokio::join!(reader.next(), async { logs.forget("p") });
    assert_eq!(said, None);
}

#[test]
fn the_run_before_is_kept_and_the_one_before_that_is_not() {
    let logs = four();
    let follow = Options { follow: true, tail: Some(0), ..Options::default() };
    let mut old = logs.read("p", "c", Run::Current, &follow).unwrap();
    assert!(logs.read("p", "c", Run::Previous, &follow).is_none());
    logs.begin("p", "c", 1, at(9), ["again"]);
    logs.begin("p", "c", 1, at(9), ["not twice"]);
    logs.begin("p", "c", 0, at(9), ["nor late"]);
    assert_eq!(drain(&mut old), (String::new(), true), "who follows a run ends with it");
    let all = Options::default();
    assert_eq!(read(&logs, &all).0, "again\n");
    let mut previous = logs.read("p", "c", Run::Previous, &all).unwrap();
    assert_eq!(drain(&mut previous).0, "one\ntwo\nthree\nfour\n");
    logs.begin("p", "c", 2, at(10), []);
    let mut previous = logs.read("p", "c", Run::Previous, &all).unwrap();
    assert_eq!(drain(&mut previous).0, "again\n");
}

#[test]
fn nothing_is_kept_of_what_is_gone() {
    let logs = four();
    logs.begin("q", "c", 0, at(1), ["x"]);
    let kept = logs.0.total.load(Ordering::Relaxed);
    logs.append("q", "no such container", at(1), "x");
    logs.append("no such pod", "c", at(1), "x");
    assert_eq!((logs.pods_known(), logs.0.total.load(Ordering::Relaxed)), (2, kept));
    logs.forget("p");
    logs.forget("q");
    assert_eq!((logs.pods_known(), logs.0.total.load(Ordering::Relaxed)), (0, 0));
}

#[test]
fn a_full_log_forgets_its_oldest_lines() {
    let logs = four();
    let follow = Options { follow: true, ..Options::default() };
    let mut slow = logs.read("p", "c", Run::Current, &follow).unwrap();
    let line = "x".repeat(1000);
    for second in 10..1_000 {
        logs.append("p", "c", at(second), &line);
    }
    assert!(logs.0.total.load(Ordering::Relaxed) <= RING);
    let (text, over) = drain(&mut slow);
    assert!(!over && !text.starts_with("one") && text.len() > RING / 2);
    logs.append("p", "c", at(1_000), "after all");
    assert_eq!(drain(&mut slow).0, "after all\n", "who was too slow goes on with what is left");
}

#[test]
fn long_lines_are_broken() {
    let logs = Logs::new();
    logs.begin("p", "c", 0, at(1), ["ä".repeat(LINE).as_str()]);
    let (text, _) = read(&logs, &Options::default());
    assert_eq!(text.lines().map(str::len).collect::<Vec<_>>(), [LINE, LINE]);
}

#[test]
fn which_run_is_read_is_decided_as_on_a_node() {
    let running = json!({ "running": {} });
    let ended = json!({ "terminated": { "exitCode": 1, "containerID": "x://1" } });
    let never = json!({ "terminated": { "exitCode": 1 } });
    let waiting = |why: &str| json!({ "waiting": { "reason": why } });
    let words = |rest: &str| Err(format!("container \"c\" in pod \"p\" {rest}"));
    let none = json!({});
    let table = [
        ("runs", &running, &none, false, Ok(Run::Current)),
        ("has ended", &ended, &none, false, Ok(Run::Current)),
        ("ran before", &running, &ended, true, Ok(Run::Previous)),
        ("is about to run again", &waiting("CrashLoopBackOff"), &ended, false, Ok(Run::Current)),
        ("ran last", &waiting("CrashLoopBackOff"), &ended, true, Ok(Run::Current)),
        ("could not run again", &never, &ended, false, Ok(Run::Current)),
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
            assert_eq!(readable(&pod, "c", previous), expected, "{why}");
        }
    }
    let pod = json!({ "metadata": { "name": "p" } });
    assert_eq!(readable(&pod, "c", false), words("is not available"));
}

proptest! {
    /// However a log is read, and however often it is waited for, every line is read once and in
    /// order.
    #[test]
    fn nothing_is_read_twice_or_left_out(steps in prop::collection::vec(0_usize..5, 0..60)) {
        let logs = Logs::new();
        logs.begin("p", "c", 0, at(0), []);
        let follow = Options { follow: true, ..Options::default() };
        let mut reader = logs.read("p", "c", Run::Current, &follow).unwrap();
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
        logs.end("p", "c");
        heard.push_str(&drain(&mut reader).0);
        prop_assert_eq!(heard, said);
    }
}
