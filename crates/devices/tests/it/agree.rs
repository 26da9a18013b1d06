//! The allocator and the oracle agree: on whether there is a solution, on the choice, on amounts
//! and on scores.

use gantry_devices::allocate;
use gantry_devices::problem::{AllocationOutcome, Budget};
use proptest::test_runner::Config as ProptestConfig;

use crate::generate::{ProblemCase, case};
use crate::oracle::{self, Chosen};
use crate::shrink::{show, shrink};
use crate::twins::{siblings, twins};

/// Returns how the two differ, if they do.
fn difference(case: &ProblemCase) -> Option<String> {
    let inventory = case.inventory();
    let expected = oracle::solve(&inventory, 0, &case.request);
    let answer = allocate(&inventory, 0, &case.request, &Budget::default());
    match (&expected, answer) {
        (None, AllocationOutcome::Unsatisfiable(_)) => None,
        (Some(expected), AllocationOutcome::Allocated(allocation)) => {
            let claims = allocation.claims.iter().enumerate();
            let given: Vec<Chosen> = claims
                .flat_map(|(claim, of)| {
                    of.terms.iter().enumerate().map(move |(term, of)| Chosen {
                        claim,
                        term,
                        alternative: of.alternative,
                        score: of.score,
                        holds: of.holds.clone(),
                    })
                })
                .collect();
            let score = oracle::score(&case.request, expected);
            let same = given == *expected && allocation.score == score;
            (!same).then(|| {
                let given_score = allocation.score;
                format!("given    {given:#?} {given_score}\nexpected {expected:#?} {score}")
            })
        }
        (expected, answer) => Some(format!("given    {answer:#?}\nexpected {expected:#?}")),
    }
}

/// Compares on the problems of these seeds; returns how many of them have a solution.
fn agree(make: fn(u64) -> ProblemCase, seeds: std::ops::Range<u64>) -> u64 {
    let mut solved = 0;
    for seed in seeds {
        let problem = make(seed);
        if difference(&problem).is_some() {
            let small = shrink(problem, |case| difference(case).is_some());
            let told = difference(&small).unwrap();
            panic!("seed {seed}\n{}\n{told}", show(&small));
        }
        let inventory = problem.inventory();
        solved += u64::from(oracle::solve(&inventory, 0, &problem.request).is_some());
    }
    solved
}

/// Problems for each case of a property test: 2,048 by default, and 100,000 with
/// `PROPTEST_CASES=12500`.
const PROBLEMS_PER_CASE: u64 = 8;

/// Problems with twins for each case: they take longer, so 1,024 by default.
const TWINS_PER_CASE: u64 = 4;

/// Compares on so many problems for each case, of which neither almost all nor almost none have a
/// solution.
fn agree_on(make: fn(u64) -> ProblemCase, per_case: u64) {
    let problems = per_case * u64::from(ProptestConfig::default().cases);
    let solved = agree(make, 0..problems);
    let share = problems / 5..problems * 4 / 5;
    assert!(share.contains(&solved), "{solved} of {problems} problems have a solution");
}

#[test]
fn the_allocator_does_what_the_oracle_does() {
    agree_on(case, PROBLEMS_PER_CASE);
}

/// Problems for which the allocator once differed from the oracle.
#[test]
fn past_defects_stay_fixed() {
    let table = [
        (11_263, "administrators share devices of counted pools"),
        (42_550, "twins give amounts in another order when something stands between them"),
    ];
    for (seed, why) in table {
        assert_eq!(difference(&twins(seed)), None, "{why}");
    }
}

#[test]
fn the_allocator_does_what_the_oracle_does_among_twins() {
    agree_on(twins, TWINS_PER_CASE);
}

/// Whether two terms of one claim have the same device.
fn shares(chosen: &[Chosen]) -> bool {
    let mut seen = std::collections::BTreeSet::new();
    let devices = chosen.iter().flat_map(|it| it.holds.iter().map(move |hold| (it.claim, hold)));
    let mut devices = devices.filter(|(_, hold)| hold.device.is_some());
    devices.any(|(claim, hold)| !seen.insert((claim, hold.pool, hold.device)))
}

#[test]
fn the_allocator_does_what_the_oracle_does_where_terms_share_devices() {
    agree_on(siblings, TWINS_PER_CASE);
    let sharing = (0..256).filter(|seed| {
        let problem = siblings(*seed);
        let chosen = oracle::solve(&problem.inventory(), 0, &problem.request);
        chosen.is_some_and(|chosen| shares(&chosen))
    });
    let sharing = sharing.count();
    assert!(sharing >= 32, "terms share devices in {sharing} of 256 problems");
}
