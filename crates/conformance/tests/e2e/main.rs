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
async fn run_cases(cluster: &RealCluster, cases: &[Case], label: &str) -> Report {
    let _tails = cluster.tails_on_panic();
    let clock = Clock::system();
    let began = clock.moment();
    let settings = Settings { label, clock: &clock };
    let report = run(cases, cluster.admin().target(), settings).await.unwrap();
    let took = clock.moment() - began;
    print_past_harness(&format!("{report} in {took:.1?} (run {label})"));
    assert!(
        report.all_passed(),
        "a case that the real server fails is wrong; they are listed above"
    );
    report
}

/// Two runs of the same cases must not differ.
fn assert_no_differences(one: &Report, two: &Report) {
    let differences = one.differences(two);
    for difference in &differences {
        print_past_harness(&difference.to_string());
    }
    print_past_harness(&format!("{} differences between two real servers", differences.len()));
    assert!(differences.is_empty(), "the comparison takes an accident for a promise");
}

/// Prints past the test harness, which captures the output of passing tests.
fn print_past_harness(what: &str) {
    std::io::stderr().write_all(format!("{what}\n").as_bytes()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn cases_pass_on_two_real_servers() {
    let cases: Vec<Case> = cases::all().collect();
    let mut reports = Vec::new();
    for label in ["one", "two"] {
        let cluster = RealCluster::start().await.unwrap();
        reports.push(run_cases(&cluster, &cases, label).await);
    }
    assert_no_differences(&reports[0], &reports[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn controller_cases_pass_twice() {
    let cases: Vec<Case> = cases::controlled().chain(cases::whole_cluster()).collect();
    let plan = RealCluster::plan().controllers();
    let plan = plan.api_server_flag("--etcd-compaction-interval=2s");
    let cluster = Box::pin(plan.start()).await.unwrap();
    let one = run_cases(&cluster, &cases, "one").await;
    let two = run_cases(&cluster, &cases, "two").await;
    assert_no_differences(&one, &two);
}
