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

/// Runs cases on a cluster; each must hold.
async fn report(cluster: &RealCluster, cases: &[Case], label: &str) -> Report {
    let _tails = cluster.tails_on_panic();
    let clock = Clock::system();
    let began = clock.moment();
    let settings = Settings { label, clock: &clock };
    let report = run(cases, cluster.admin().target(), settings).await.unwrap();
    let took = clock.moment() - began;
    say(&format!("{report} in {took:.1?} (run {label})"));
    assert!(report.holds(), "a case that the real server fails is wrong; they are listed above");
    report
}

/// Two runs of the same cases must not differ.
fn agree(one: &Report, two: &Report) {
    let differences = one.differences(two);
    for difference in &differences {
        say(&difference.to_string());
    }
    say(&format!("{} differences between two real servers", differences.len()));
    assert!(differences.is_empty(), "the comparison takes an accident for a promise");
}

/// Tells whoever runs the tests, past the harness, which holds back what a passing test prints.
fn say(what: &str) {
    std::io::stderr().write_all(format!("{what}\n").as_bytes()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_case_holds_and_two_real_servers_agree() {
    let cases: Vec<Case> = cases::all().collect();
    let mut reports = Vec::new();
    for label in ["one", "two"] {
        let cluster = RealCluster::start().await.unwrap();
        reports.push(report(&cluster, &cases, label).await);
    }
    agree(&reports[0], &reports[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_case_of_controllers_holds_twice() {
    let cases: Vec<Case> = cases::controlled().chain(cases::whole_cluster()).collect();
    let plan = RealCluster::plan().controllers();
    let plan = plan.api_server_flag("--etcd-compaction-interval=2s");
    let cluster = Box::pin(plan.start()).await.unwrap();
    let one = report(&cluster, &cases, "one").await;
    let two = report(&cluster, &cases, "two").await;
    agree(&one, &two);
}
