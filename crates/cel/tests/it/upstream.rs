//! Answers, faults and costs that a real server's own evaluator gave, recorded.
//!
//! Each line of `upstream.jsonl` has an expression and what became of it with `self`, `s` and `l`
//! bound as below: `value` and `type`, or `error`, with what it cost; or `refused`, with why.

use gantry_cel::{Binding, Budget, CompileError, Environment, Type};
use serde_json::{Value as Json, json};

fn environment() -> Environment {
    Environment::new()
        .with_variable("self", Type::Dyn)
        .with_variable("s", Type::string())
        .with_variable("l", Type::list(Type::Int))
}

fn outcome(expression: &str) -> (Result<Json, String>, u64) {
    let myself = json!({"a": 1, "l": [1, 2, 3], "s": "hello", "m": {"x": "y"}});
    let (text, list) = (json!("hello"), json!([3, 1, 2]));
    let (string, ints) = (Type::string(), Type::list(Type::Int));
    let program = match environment().compile(expression, None) {
        Ok(program) => program,
        Err(CompileError::Invalid(findings)) => {
            let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
            return (Err(format!("REFUSED {}", lines.join("\n"))), 0);
        }
        Err(other) => return (Err(format!("REFUSED {other}")), 0),
    };
    let bindings = [
        ("self", Binding::Tree(&myself, &Type::Dyn)),
        ("s", Binding::Tree(&text, &string)),
        ("l", Binding::Tree(&list, &ints)),
    ];
    let mut budget = Budget::default();
    let before = budget.remaining();
    let answer = program.evaluate(&bindings, &mut budget);
    let cost = before - budget.remaining();
    (answer.map(gantry_cel::Answer::into_json).map_err(|error| error.to_string()), cost)
}

fn records() -> Vec<Json> {
    include_str!("upstream.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn answers_are_those_of_a_real_server() {
    let mut wrong = Vec::new();
    for record in records() {
        let expression = record["expr"].as_str().unwrap();
        let (ours, cost) = outcome(expression);
        let theirs = if let Some(error) = record.get("refused") {
            Err(format!("REFUSED {}", error.as_str().unwrap()))
        } else if let Some(error) = record.get("error") {
            Err(error.as_str().unwrap().to_owned())
        } else {
            Ok(record["value"].clone())
        };
        if ours != theirs {
            wrong.push(format!("{expression}\n  ours   {ours:?}\n  theirs {theirs:?}"));
        } else if ours.is_ok() && Some(cost) != record["cost"].as_u64() {
            wrong.push(format!("COST {expression}: ours {cost} theirs {}", record["cost"]));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}
