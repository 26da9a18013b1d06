//! The drill of the queue, in small: `make drill-queue` holds it at full size.

use std::sync::{Arc, Mutex};

use gantry_process::clock::Clock;
use gantry_testkit::drill::{Plan, Size};

#[tokio::test(flavor = "multi_thread")]
async fn all_jobs_complete_though_nodes_operator_and_server_die() {
    let folder = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_gantry").into();
    let size = Size::small();
    let jobs = size.jobs;
    let plan = Plan { program, folder: folder.path().join("drill"), size, seed: fastrand::u64(..) };
    let lines: Arc<Mutex<Vec<String>>> = Arc::default();
    let told = Arc::clone(&lines);
    let tell = Box::new(move |line: &str| told.lock().unwrap().push(line.to_owned()));
    let ended = Box::pin(plan.run(&Clock::system(), tell)).await;
    let timeline = lines.lock().unwrap().join("\n");
    let report = ended.unwrap_or_else(|fault| panic!("{timeline}\n{fault}"));
    println!("{timeline}\n{report}");
    assert_eq!(report.completed, jobs);
    assert_eq!((report.kills.operators, report.kills.servers), (1, 1));
    assert!(report.dispatches >= jobs, "{report}");
    assert!(timeline.contains("power again: plain-0"), "{timeline}");
}
