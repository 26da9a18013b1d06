//! Crashes of the server process.

use gantry_process::clock::Clock;
use gantry_testkit::crash::Plan;

/// Enough for every moment of a batch and of a start to have been hit many times; thousands more
/// are for `cargo run --package gantry-testkit --bin crash`.
const KILLS: u32 = 200;

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_survive_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_gantry").into();
    let data = folder.path().join("data");
    let plan = Plan { program, data, kills: KILLS, seed: fastrand::u64(..) };
    let report =
        Box::pin(plan.run(&Clock::system())).await.unwrap_or_else(|fault| panic!("{fault}"));
    println!("{report:#?}");
    assert_eq!(report.under_load + report.while_stopping + report.while_starting, KILLS);
    assert!(report.acknowledged > u64::from(KILLS), "hardly anything was written: {report:#?}");
    assert!(report.events > report.acknowledged, "hardly anything was watched: {report:#?}");
}
