//! Tests grammar and evaluation; the resulting cells are recorded from kube-apiserver.

use proptest::prelude::*;
use serde_json::json;

use super::*;

#[test]
fn paths_lead_to_their_first_value() {
    let object = json!({
        "spec": { "list": ["a", "b", "c"], "a.b": 1, "empty": [] },
        "status": { "conditions": [
            { "type": "Init", "status": "False", "n": 1 },
            { "type": "Ready", "status": "True", "n": 2 },
            { "type": "a\")b", "n": 3, "list": [] },
        ] },
    });
    let table = [
        (".spec.list[1]", Some(json!("b"))),
        (".spec.list[-1]", Some(json!("c"))),
        (".spec.list[-3]", Some(json!("a"))),
        (".spec.list[-4]", None),
        (".spec.list[3]", None),
        (".spec.list[1:]", Some(json!("b"))),
        (".spec.list[*]", Some(json!("a"))),
        (".spec.list[2,0]", Some(json!("c"))),
        (".spec.empty[0]", None),
        (".spec.empty[*]", None),
        (".spec['a\\.b']", Some(json!(1))),
        (".spec.a\\.b", Some(json!(1))),
        (".spec['list','empty'][1]", None),
        (".status.conditions[?(@.type==\"Ready\")].status", Some(json!("True"))),
        (".status.conditions[?(@.type == 'Ready')].status", Some(json!("True"))),
        (".status.conditions[?(@.n>1)].type", Some(json!("Ready"))),
        (".status.conditions[?(@.n>\"x\")].type", None),
        (".status.conditions[?(@.missing)].type", None),
        (".status.conditions[?(@.type==\"a\\\")b\")].n", Some(json!(3))),
        (".status.conditions[?(@.list[0])].n", Some(json!(3))),
        (".status.conditions[?(@.list[0:0])].n", None),
        ("..type", Some(json!("Init"))),
        (".spec.missing.deeper", None),
        (".", None),
    ];
    for (path, expected) in table {
        let parsed = JsonPath::parse(path).unwrap();
        let found = parsed.first(&object).map(|found| match found {
            PathValue::Value(value) => value.clone(),
            PathValue::Literal(_) | PathValue::Byte(_) => panic!("{path}: {found:?}"),
        });
        assert_eq!(found, expected, "{path}");
    }
}

#[test]
fn literals_are_read_by_the_escapes_of_go() {
    let table = [
        (r#". "a\"b\n""#, Literal::Text("a\"b\n".to_owned())),
        (r". '\x41\102\u00e9\U0001F600'", Literal::Text("AB\u{e9}\u{1F600}".to_owned())),
        (". +12", Literal::Int(12)),
        (". -1.5", Literal::Float(-1.5)),
        (". 99999999999999999999", Literal::Float(1e20)),
        (". false", Literal::Bool(false)),
    ];
    for (path, expected) in table {
        let parsed = JsonPath::parse(path).unwrap();
        assert_eq!(parsed.steps.last(), Some(&Step::Literal(expected)), "{path}");
    }
}

#[test]
fn a_path_that_breaks_the_grammar_says_where() {
    let table = [
        (".a[x]", "invalid array index x"),
        (".a[\"b\"]", "invalid array index \"b\""),
        (".a[-]", "array index - is not a number"),
        (".a[1:2:3:4]", "invalid array index 1:2:3:4"),
        (".a[--1]", "invalid array index --1"),
        (".a[0", "unterminated array"),
        (".a[?(@.b", "unterminated filter"),
        (".a[?(@.b).c", "unclosed array expect ]"),
        (".a[?(\"b)].c", "unterminated filter"),
        (".a \"b", "unterminated quoted string"),
        (".a \"\\q\"", "unquote string \"\\q\" error invalid syntax"),
        (".a 1.2.3", "cannot parse number 1.2.3"),
        ("....a", "invalid multiple recursive descent"),
        (".a {", "unrecognized character in action: U+007B '{'"),
        (".a\n", "unclosed action"),
        (".a\\", "unclosed action"),
    ];
    for (path, expected) in table {
        let error = JsonPath::parse(path).unwrap_err();
        assert_eq!(error.to_string(), expected, "{path}");
    }
}

#[test]
fn definition_check_needs_leading_dot() {
    let message = |path| check(path, "f").map(|it| it.to_string());
    assert_eq!(message(".a["), None);
    assert_eq!(message("").unwrap(), "f: Invalid value: \"\": must not be empty");
    assert_eq!(
        message("a").unwrap(),
        "f: Invalid value: \"a\": must be a simple json path starting with .",
    );
}

/// Each union multiplies by its parts: without a limit this is 8 to the power of 40.
#[test]
fn exploding_paths_are_abandoned() {
    let mut object = json!("end");
    for _ in 0..40 {
        object = json!([object]);
    }
    let path = format!(".x{}", "[0,0,0,0,0,0,0,0]".repeat(40));
    assert_eq!(JsonPath::parse(&path).unwrap().first(&json!({ "x": object })), None);
}

proptest! {
    #[test]
    fn any_text_parses_or_is_refused(path in "\\PC{0,40}") {
        let parsed = JsonPath::parse(&path);
        prop_assert!(parsed.is_ok() || !parsed.unwrap_err().to_string().is_empty());
    }

    #[test]
    fn any_text_of_the_alphabet_parses_or_is_refused(path in "[.a\\[\\]?(@=<!>\"')0:,*\\-\\\\ é}{]{0,24}") {
        if let Ok(path) = JsonPath::parse(&path) {
            let object = json!({ "a": [{ "a": 0 }, { "a": "é" }, [[0]]], "": { "a": null } });
            let all = eval::evaluate(&path.steps, &object).unwrap_or_default();
            prop_assert_eq!(path.first(&object), all.into_iter().next());
        }
    }
}
