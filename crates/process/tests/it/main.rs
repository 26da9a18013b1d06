//! Tests that change the whole process and therefore cannot share one with the unit tests.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::io::{self, Write};
use std::process::{self, Command};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_process::metrics::{BuildInfo, Metrics};
use gantry_process::shutdown::{self, RemainingTasks, Signal, Signals};
use gantry_process::tasks::{OnLoss, TaskMetrics, Tasks};
use gantry_process::telemetry::{self, Settings, TelemetryError};
use tokio_util::sync::CancellationToken;

#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn send(signal: &str) {
    let command = format!("kill -{signal} {}", process::id());
    assert!(Command::new("sh").args(["-c", &command]).status().unwrap().success());
}

/// One test for all of it: signals, the log and the panic hook belong to the process.
#[tokio::test]
async fn a_process_logs_its_panics_and_stops_on_real_signals() {
    let page = Page::default();
    telemetry::install(&Settings::default(), Clock::system(), page.clone()).unwrap();
    let again = telemetry::install(&Settings::default(), Clock::system(), io::sink());
    assert!(matches!(again, Err(TelemetryError::AlreadyInstalled)));

    let counters = TaskMetrics::register(&Metrics::new(&BuildInfo::default())).unwrap();
    let jitter = fastrand::Rng::with_seed(1);
    let mut tasks = Tasks::new(Clock::system(), counters, jitter, &CancellationToken::new());
    tasks.spawn("clumsy", OnLoss::CarryOn, |_| async { panic!("two\nlines") });
    tasks.join().await.unwrap();
    let text = String::from_utf8(page.0.lock().unwrap().clone()).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[0].starts_with('E') && lines[0].contains(r#"panic="two\nlines""#), "{text}");
    assert!(lines[0].contains("main.rs:"), "it says where: {text}");
    assert!(lines[1].starts_with('W') && lines[1].contains(r#"task="clumsy""#), "{text}");

    let mut signals = Signals::listen().unwrap();
    tasks.spawn("deaf", OnLoss::EndOwner, |stop| async move {
        send("TERM");
        stop.cancelled().await;
        send("INT");
        std::future::pending().await
    });
    let ending = shutdown::run(&mut tasks, &mut signals, Duration::MAX).await;
    assert_eq!(ending.signal, Some(Signal::Terminate));
    let running = vec![Arc::from("deaf")];
    assert_eq!(
        ending.remaining,
        RemainingTasks::SecondSignal { signal: Signal::Interrupt, running }
    );
}
