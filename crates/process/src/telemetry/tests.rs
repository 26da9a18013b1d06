use std::io;

use tracing::{debug, error, info, trace, warn};

use super::*;
use crate::clock::FakeClock;

/// A writer whose content can be read.
#[derive(Clone, Default)]
struct LogBuffer(Arc<Mutex<Vec<u8>>>);

impl Write for LogBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl LogBuffer {
    fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut self.0.lock().unwrap())).unwrap()
    }
}

fn logged(settings: &Settings, events: impl FnOnce(&LogHandle)) -> String {
    let page = LogBuffer::default();
    let hand = FakeClock::at("2026-11-15T19:53:02.123456789Z".parse().unwrap());
    let (subscriber, handle) = subscriber(settings, hand.clock(), page.clone()).unwrap();
    tracing::subscriber::with_default(subscriber, || events(&handle));
    page.take()
}

#[derive(Debug, thiserror::Error)]
#[error("could not write\nthe log")]
struct Outer(#[source] Box<dyn std::error::Error>);

/// Everything a line can contain, at known lines of this file.
fn sample() -> u32 {
    let pass = tracing::info_span!("pass", controller = "queue", node = tracing::field::Empty);
    let _pass = pass.enter();
    pass.record("node", "n1");
    let _inner = tracing::info_span!("inner", depth = 2, controller = "inner").entered();
    info!(count = 3, ok = true, share = 0.5, nothing = f64::NAN, kind = ?Some("x"), "it \"works\"");
    let failure = Outer(Outer("disk\nfull".into()).into());
    error!(error = &failure as &dyn std::error::Error, msg = "mine", "failed {}", 1);
    warn!(depth = %"own", "three\nlines\nhere");
    line!()
}

#[test]
fn text_is_klog_like() {
    let mut line = 0;
    let page = logged(&Settings::default(), |_| line = sample());
    let head = |letter: char, back: u32| {
        format!("{letter}1115 19:53:02.123456 {:>7} tests.rs:{}] ", std::process::id(), line - back)
    };
    let expected = [
        head('I', 4)
            + r#""it \"works\"" node="n1" depth=2 controller="inner" count=3 ok=true share=0.5 nothing="NaN" kind="Some(\"x\")""#,
        head('E', 2)
            + r#""failed 1" node="n1" depth=2 controller="inner" error="could not write\nthe log: disk\nfull" msg="mine""#,
        head('W', 1) + r#""three\nlines\nhere" node="n1" controller="inner" depth="own""#,
    ];
    assert_eq!(page.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn json_is_one_object_a_line() {
    let settings = Settings { format: Format::Json, verbosity: 6, filter: None };
    let mut line = 0;
    let page = logged(&settings, |_| {
        line = sample();
        trace!(v = 5, "deep");
    });
    let lines: Vec<&str> = page.lines().collect();
    let first = r#"{"ts":"2026-11-15T19:53:02.123456Z","level":"info","v":0,"msg":"it \"works\"","#;
    let caller = format!(r#""caller":"tests.rs:{}","#, line - 4);
    let fields = r#""node":"n1","depth":2,"controller":"inner","count":3,"ok":true,"share":0.5,"#;
    let rest = r#""nothing":"NaN","kind":"Some(\"x\")"}"#;
    assert_eq!(lines[0], format!("{first}{caller}{fields}{rest}"));
    let objects: Vec<serde_json::Value> =
        lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(objects[1]["error"], "could not write\nthe log: disk\nfull");
    assert_eq!((&objects[1]["msg"], &objects[1]["msg_"]), (&"failed 1".into(), &"mine".into()));
    assert_eq!(objects[2]["level"], "warn");
    assert_eq!((&objects[3]["level"], &objects[3]["v"]), (&"info".into(), &5.into()));
    assert_eq!(objects.len(), 4);
}

/// Each event and the verbosity from which the module's table shows it.
const EVENTS: [(&str, u8, fn()); 14] = [
    ("error", 0, || error!("")),
    ("an error is never hidden", 0, || error!(v = 9, "")),
    ("warning", 0, || warn!(v = 9, "")),
    ("information", 0, || info!("")),
    ("deeper information", 2, || info!(v = 2, "")),
    ("debug", 1, || debug!("")),
    ("debug is never nothing", 1, || debug!(v = 0, "")),
    ("debug at its own depth", 3, || debug!(v = 3, "")),
    ("trace", 4, || trace!("")),
    ("trace is never debug", 4, || trace!(v = 2, "")),
    ("trace at its own depth", 6, || trace!(v = 6, "")),
    ("as deep as it goes", 10, || trace!(v = 300, "")),
    ("debug of others", 8, || debug!(target: "hyper::proto", "")),
    ("trace of others", 10, || trace!(target: "h2", v = 5, "")),
];

#[test]
fn verbosity_shows_what_the_table_says_and_changes_at_run_time() {
    let page = LogBuffer::default();
    let settings = Settings::default();
    let (subscriber, handle) = subscriber(&settings, Clock::system(), page.clone()).unwrap();
    tracing::subscriber::with_default(subscriber, || {
        // Up and down again: events that were hidden must be shown again.
        for verbosity in (0..=MOST_VERBOSE).chain((0..=MOST_VERBOSE).rev()) {
            handle.set_verbosity(verbosity).unwrap();
            for (why, from, event) in EVENTS {
                event();
                assert_eq!(!page.take().is_empty(), from <= verbosity, "{why} at {verbosity}");
            }
        }
    });
}

#[test]
fn a_filter_overrides_the_verbosity() {
    let filter = Some("gantry_process=debug,h2=trace".to_owned());
    let settings = Settings { filter, ..Settings::default() };
    let page = logged(&settings, |handle| {
        debug!(v = 9, "shown by target");
        trace!("hidden by level");
        trace!(target: "h2", "shown by target too");
        info!(target: "other", "hidden by target");
        handle.set_filter(None).unwrap();
        debug!("hidden by verbosity");
        handle.set_filter(Some("other=info")).unwrap();
        info!(target: "other", "shown by the new filter");
        assert!(handle.set_filter(Some("other=loud")).is_err());
        info!(target: "other", "shown by the filter that stays");
    });
    assert_eq!(page.lines().count(), 4, "{page}");
    assert_eq!(page.matches("\"shown").count(), 4, "{page}");
}

#[test]
fn settings_are_checked() {
    let refused = |settings: &Settings| {
        let outcome = subscriber(settings, Clock::system(), LogBuffer::default());
        outcome.map(|_| ()).unwrap_err().to_string()
    };
    let loud = Settings { verbosity: 11, ..Settings::default() };
    assert_eq!(refused(&loud), "cannot use verbosity 11: choose 0 to 10");
    let odd = Settings { filter: Some("a=b=c".to_owned()), ..Settings::default() };
    let expected = "cannot use log filter \"a=b=c\": write target=level, separated by commas";
    assert_eq!(refused(&odd), expected);
}

#[test]
fn refused_lines_are_counted() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let (subscriber, handle) = subscriber(&Settings::default(), Clock::system(), Full).unwrap();
    tracing::subscriber::with_default(subscriber, || {
        info!("one");
        info!("two");
    });
    assert_eq!(handle.lost_lines(), 2);
}
