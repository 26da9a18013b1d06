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
    (answer.map(gantry_cel::EvaluatedValue::into_json).map_err(|error| error.to_string()), cost)
}

fn records() -> Vec<Json> {
    include_str!("upstream.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Where we differ, and why that is right or does not matter.
const KNOWN_DIFFERENCES: [(&str, &str); 20] = [
    (r#""%d".format(["a"])"#, FORMATS),
    (r#""%s".format([])"#, FORMATS),
    (r#""%z".format([1])"#, FORMATS),
    (r#""%".format([1])"#, FORMATS),
    (r#""abc".find("[")"#, "a pattern that is wrong is found when it is used"),
    ("[?self.?x, 1]", "dyn and int may be of one type"),
    (r#"{?"a": self.?x, "b": 1}"#, "dyn and int may be of one type"),
    (r#"ip("010.0.0.1")"#, "one text for all that is no address"),
    (r#"url("/a b")"#, OPAQUE),
    (r#"quantity("1").add(quantity("2"))"#, OPAQUE),
    (r#"quantity("-1").sign()"#, SIGN),
    (r#"quantity("0").sign()"#, SIGN),
    (r#"quantity("1").sign()"#, SIGN),
    ("1.0 / 0.0", "JSON has no infinity"),
    ("self.a.size()", OVERLOAD),
    ("null < null", OVERLOAD),
    ("self.l.transformMapEntry(i, v, v)", OVERLOAD),
    (r#"{"a"}"#, "the grammar lists what else could follow"),
    ("{1.5: 2}", "a floating point number is no key"),
    (r#"type(1) == "int""#, "the type of a type is one type"),
];
const FORMATS: &str = "a format is looked at when it is used";
const OPAQUE: &str = "a value of the library has no form in JSON";
const SIGN: &str = "documented as a member, and taken as one and as a function";
const OVERLOAD: &str = "the text does not name the function";

/// How far costs may be apart: a server charges an operand once more where it expands `optMap`, and
/// a step less where a type is unknown or an operand failed.
const COST_TOLERANCE: u64 = 2;

#[test]
fn results_and_costs_match_upstream() {
    let mut wrong = Vec::new();
    let mut exceptions: Vec<&str> =
        KNOWN_DIFFERENCES.iter().map(|(expression, _)| *expression).collect();
    let mut exact = 0_u32;
    let records = records();
    for record in &records {
        let expression = record["expr"].as_str().unwrap();
        let (ours, cost) = outcome(expression);
        let theirs = if let Some(error) = record.get("refused") {
            Err(format!("REFUSED {}", error.as_str().unwrap()))
        } else if let Some(error) = record.get("error") {
            Err(error.as_str().unwrap().to_owned())
        } else {
            Ok(record["value"].clone())
        };
        if !same(&ours, &theirs) {
            match exceptions.iter().position(|known| *known == expression) {
                Some(place) => {
                    exceptions.swap_remove(place);
                }
                None => {
                    wrong.push(format!("{expression}\n  ours   {ours:?}\n  theirs {theirs:?}"));
                }
            }
            continue;
        }
        if let (Ok(_), Some(theirs)) = (&ours, record["cost"].as_u64()) {
            exact += u32::from(cost == theirs);
            if cost.abs_diff(theirs) > COST_TOLERANCE {
                wrong.push(format!("{expression}\n  cost ours {cost} theirs {theirs}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(exceptions.is_empty(), "no longer different: {exceptions:?}");
    assert!(records.len() > 900 && exact > 600, "{exact} of {} costs are exact", records.len());
}

/// A whole number is the same whether it is written with a fraction or without; and what a server
/// finds when it makes the program, we find while we check.
fn same(ours: &Result<Json, String>, theirs: &Result<Json, String>) -> bool {
    match (ours, theirs) {
        (Ok(ours), Ok(theirs)) if ours.is_f64() => ours.as_f64() == theirs.as_f64(),
        (Err(ours), Err(theirs)) => match theirs.strip_prefix("REFUSED PROGRAM ") {
            Some(why) => ours.starts_with("REFUSED") && ours.contains(why),
            None => ours == theirs,
        },
        _ => ours == theirs,
    }
}
