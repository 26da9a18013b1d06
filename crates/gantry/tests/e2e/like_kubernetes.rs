//! The cases of `gantry-conformance` on both servers, compared.

use std::collections::BTreeSet;

use gantry_conformance::case::Case;
use gantry_conformance::cases;
use gantry_conformance::run::{Settings, run};
use gantry_process::clock::Clock;
use gantry_testkit::cluster::RealCluster;

use super::{embedded, say};

/// Cases in which the two are known to differ, and why that is so. A row that is no longer true
/// fails the test.
const KNOWN_DIFFERENCES: &[(&str, &str)] = &[];

#[tokio::test(flavor = "multi_thread")]
async fn the_embedded_server_answers_like_kubernetes() {
    let clock = Clock::system();
    let cases: Vec<Case> = cases::all().collect();
    let real = RealCluster::start().await.unwrap();
    let ours = embedded(&clock).await;
    let settings = |label| Settings { label, clock: &clock };
    let judge = run(&cases, real.admin().target(), settings("one")).await.unwrap();
    assert!(judge.all_passed(), "a case that the real server fails is wrong:\n{judge}");
    let began = clock.moment();
    let report = run(&cases, ours.target(), settings("two")).await.unwrap();
    let took = clock.moment() - began;
    let (known, new): (Vec<_>, Vec<_>) =
        judge.differences(&report).into_iter().partition(|it| is_known_difference(&it.case));
    say(&format!("{} cases took the embedded server {took:.1?}", cases.len()));
    for difference in &new {
        say(&difference.to_string());
    }
    assert!(new.is_empty(), "{} new differences, listed above\n{}", new.len(), ours.tails());
    let seen: BTreeSet<&str> = known.iter().map(|it| it.case.as_str()).collect();
    let stale: Vec<&str> = KNOWN_DIFFERENCES
        .iter()
        .map(|(case, _)| *case)
        .filter(|case| !seen.contains(case))
        .collect();
    assert!(stale.is_empty(), "these differ no longer, so take them off the list: {stale:?}");
}

fn is_known_difference(case: &str) -> bool {
    KNOWN_DIFFERENCES.iter().any(|(known, _)| *known == case)
}
