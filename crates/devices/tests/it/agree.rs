//! The allocator and the oracle agree: in yes or no, in the choice, in amounts and in scores.

use gantry_devices::allocate;
use gantry_devices::problem::{Answer, Budget};

use crate::generate::{Case, case};
use crate::oracle::{self, Chosen};
use crate::shrink::{show, shrink};
use crate::twins::twins;

/// How the two differ, if they do.
fn difference(case: &Case) -> Option<String> {
    let inventory = case.inventory();
    let expected = oracle::solve(&inventory, 0, &case.request);
    let answer = allocate(&inventory, 0, &case.request, &Budget::default());
    match (&expected, answer) {
        (None, Answer::Unsatisfiable(_)) => None,
        (Some(expected), Answer::Allocated(allocation)) => {
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

/// Compares on the problems of these seeds; tells how many of them have a solution.
fn agree(make: fn(u64) -> Case, seeds: std::ops::Range<u64>) -> u64 {
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

#[test]
fn the_allocator_does_what_the_oracle_does() {
    let solved = agree(case, 0..2_000);
    assert!((100..1_900).contains(&solved), "{solved} of 2000 problems have a solution");
}

#[test]
fn the_allocator_does_what_the_oracle_does_among_twins() {
    let solved = agree(twins, 0..1_000);
    assert!((100..900).contains(&solved), "{solved} of 1000 problems have a solution");
}

#[test]
#[ignore = "takes minutes; the short form runs with every change"]
fn the_allocator_does_what_the_oracle_does_a_hundred_thousand_times() {
    agree(case, 2_000..102_000);
    agree(twins, 2_000..102_000);
}
