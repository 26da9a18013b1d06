//! Every case against a real Kubernetes API server; `make e2e` builds what is needed and runs them.
//!
//! This proves the cases: one that the real server fails is a wrong case. And it proves the
//! comparison: two real servers differ in every uid, time and revision, and in nothing that a
//! client may rely on.

#![expect(clippy::unwrap_used, reason = "all of this is tests")]

use std::io::Write as _;

use gantry_conformance::case::Case;
use gantry_conformance::cases;
use gantry_conformance::run::{Report, Settings, run};
use gantry_process::clock::Clock;
use gantry_testkit::cluster::RealCluster;

/// Runs every case on a cluster that is started for it and ends with it.
async fn report(label: &str) -> Report {
    let cluster = RealCluster::start().await.unwrap();
    let _tails = cluster.tails_on_panic();
    let clock = Clock::system();
    let cases: Vec<Case> = cases::all().collect();
    let began = clock.moment();
    let settings = Settings { label, clock: &clock };
    let report = run(&cases, cluster.admin().target(), settings).await.unwrap();
    let took = clock.moment() - began;
    say(&format!("{report} in {took:.1?} (run {label})"));
    assert!(report.holds(), "a case that the real server fails is wrong; they are listed above");
    report
}

/// Tells whoever runs the tests, past the harness, which holds back what a passing test prints.
fn say(what: &str) {
    std::io::stderr().write_all(format!("{what}\n").as_bytes()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_case_holds_and_two_real_servers_agree() {
    let (one, two) = (report("one").await, report("two").await);
    let differences = one.differences(&two);
    for difference in &differences {
        say(&difference.to_string());
    }
    say(&format!("{} differences between two real servers", differences.len()));
    assert!(differences.is_empty(), "the comparison takes an accident for a promise");
}
