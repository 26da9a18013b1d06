//! Rules, and what a real server said about them.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::compile::compile;
use crate::invalid::Invalid;
use crate::structural::structural;
use crate::validate::validate;

/// Field, reason and message of each cause, in order of text: upstream walks maps in any order.
fn causes(faults: &[Invalid]) -> Vec<[String; 3]> {
    let mut causes: Vec<_> = faults
        .iter()
        .map(|fault| [fault.field.clone(), fault.reason.word().to_owned(), fault.message.clone()])
        .collect();
    causes.sort();
    causes
}

fn recorded(causes: &Value) -> Vec<[String; 3]> {
    let mut causes: Vec<[String; 3]> = serde_json::from_value(causes.clone()).unwrap();
    causes.sort();
    causes
}

/// What a real server refuses and this one takes: it knows less of some types and sizes, and takes
/// what it cannot rule out.
const TAKEN: [&str; 2] = ["objects compared", "string() in a message"];

/// apiserver.md 9.2, scenario 53.
#[test]
fn definitions_are_judged_as_a_real_server_judges_them() {
    let answers: Vec<Value> = serde_json::from_str(include_str!("tests/definitions.json")).unwrap();
    assert!(answers.len() > 60);
    for answer in answers {
        let mut expected = recorded(&answer["causes"]);
        let found = causes(&structural(&answer["schema"], "spec.validation.openAPIV3Schema"));
        let why = answer["why"].as_str().unwrap();
        if TAKEN.contains(&why) {
            let before = expected.len();
            expected.retain(|cause| found.contains(cause));
            assert!(expected.len() < before, "{why}: nothing more is taken");
        }
        assert_eq!(found, expected, "{why}");
    }
}

/// apiserver.md 9.2, scenario 53.
#[test]
fn objects_are_judged_as_a_real_server_judges_them() {
    let groups: Vec<Value> = serde_json::from_str(include_str!("tests/objects.json")).unwrap();
    let mut judged = 0;
    for group in groups {
        let schema = compile(&group["schema"]).unwrap();
        let rules = Rules::compile(&schema);
        for case in group["cases"].as_array().unwrap() {
            let object = |spec: &Value| {
                json!({
                    "apiVersion": "rules.example.com/v1", "kind": "Widget",
                    "metadata": { "name": "c" }, "spec": spec,
                })
            };
            let new = object(&case["new"]);
            let old = Some(object(&case["old"])).filter(|_| !case["old"].is_null());
            let mut faults = validate(&schema, &new, old.as_ref());
            let mut warnings = rules.ask_after(&schema, &new, old.as_ref(), &mut faults);
            warnings.sort();
            let why = format!("{}: {}", group["group"], case["why"]);
            assert_eq!(causes(&faults), recorded(&case["causes"]), "{why}");
            let told: Vec<String> = serde_json::from_value(case["warnings"].clone()).unwrap();
            assert_eq!(warnings, told, "{why}");
            judged += 1;
        }
    }
    assert!(judged > 40);
}
