//! Rules, and what a real server said about them.

use serde_json::{Value, json};

use super::*;
use crate::compile::compile;
use crate::invalid::Invalid;
use crate::structural::structural;

/// Field, reason and message of each cause, in order of text: upstream walks maps in any order.
fn causes(faults: &[Invalid]) -> Vec<[String; 3]> {
    let mut causes: Vec<_> = faults
        .iter()
        .map(|fault| [fault.field.clone(), fault.reason.word().to_owned(), fault.message.clone()])
        .collect();
    causes.sort();
    causes
}

/// apiserver.md 9.2, scenario 53.
#[test]
fn definitions_are_judged_as_a_real_server_judges_them() {
    let answers: Vec<Value> = serde_json::from_str(include_str!("tests/definitions.json")).unwrap();
    assert!(answers.len() > 60);
    let mut wrong = 0;
    for answer in answers {
        let mut expected: Vec<[String; 3]> =
            serde_json::from_value(answer["causes"].clone()).unwrap();
        expected.sort();
        let found = causes(&structural(&answer["schema"], "spec.validation.openAPIV3Schema"));
        if found != expected {
            wrong += 1;
            for it in &found {
                if !expected.contains(it) {
                    println!("{}: OURS {it:?}", answer["why"]);
                }
            }
            for it in &expected {
                if !found.contains(it) {
                    println!("{}: REAL {it:?}", answer["why"]);
                }
            }
        }
    }
    assert_eq!(wrong, 0);
}
