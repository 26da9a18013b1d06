//! Every conformance case against the embedded server. `make e2e` puts the same cases before a real
//! server and compares the two, word by word.

use gantry_conformance::case::Case;
use gantry_conformance::cases;
use gantry_conformance::run::{Settings, run};
use gantry_process::clock::Clock;
use gantry_testkit::embedded::Plan;

#[tokio::test(flavor = "multi_thread")]
async fn every_conformance_case_holds() {
    let clock = Clock::system();
    let server = Plan::new(env!("CARGO_BIN_EXE_gantry")).start(&clock).await.unwrap();
    let cases: Vec<Case> = cases::all().collect();
    let settings = Settings { label: "one", clock: &clock };
    let report = run(&cases, server.target(), settings).await.unwrap();
    assert!(report.all_passed(), "{report}\n{}", server.tails());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_conformance_case_of_a_whole_cluster_holds() {
    let clock = Clock::system();
    let plan = Plan::new(env!("CARGO_BIN_EXE_gantry")).whole_cluster().flag("--ephemeral");
    let server = plan.start(&clock).await.unwrap();
    let cases: Vec<Case> = cases::whole_cluster().collect();
    let settings = Settings { label: "one", clock: &clock };
    let report = run(&cases, server.target(), settings).await.unwrap();
    assert!(report.all_passed(), "{report}\n{}", server.tails());
}
