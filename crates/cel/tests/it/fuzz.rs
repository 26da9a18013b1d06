//! Nothing that can be typed brings the process down.

use gantry_cel::{Binding, Budget, CompileError, Environment, EvalError, Type};
use proptest::prelude::{Strategy, prop};
use proptest::{prop_assert, proptest};
use serde_json::json;

const TOKENS: [&str; 96] = [
    "self",
    ".",
    "?",
    ":",
    "[",
    "]",
    "(",
    ")",
    "{",
    "}",
    ",",
    "+",
    "-",
    "*",
    "/",
    "%",
    "==",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "&&",
    "||",
    "!",
    "in",
    "has",
    "true",
    "false",
    "null",
    "1",
    "0",
    "-1",
    "2u",
    "1.5",
    "1e300",
    "'a'",
    "'é'",
    "b'x'",
    "\"\"",
    "a",
    "b",
    "s",
    "l",
    "m",
    "x",
    "y",
    ".a",
    ".s",
    ".l",
    ".m",
    ".all(x,",
    ".exists(x,",
    ".map(x,",
    ".filter(x,",
    ".exists_one(x,",
    ".transformMap(k,v,",
    ".transformMapEntry(k,v,",
    ".sortBy(x,",
    ".optMap(x,",
    "cel.bind(x,",
    ".?",
    "[?",
    "[1,2]",
    "{'a':1}",
    "size(",
    "string(",
    "int(",
    "double(",
    "duration('1h')",
    "timestamp('2020-01-01T00:00:00Z')",
    "quantity('1Ki')",
    "ip('::1')",
    "cidr('::/0')",
    "url('http://a')",
    "semver('1.2.3')",
    "format.uuid()",
    "'%s %d'.format(",
    ".matches(",
    ".find(",
    ".split(",
    ".substring(",
    ".replace(",
    ".join(",
    ".sum()",
    ".min()",
    ".flatten()",
    ".slice(",
    "lists.range(",
    "sets.contains(",
    "optional.of(",
    "optional.none()",
    ".orValue(",
    "9223372036854775807",
    "`",
    "\\",
];

fn any_tokens() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(TOKENS.to_vec()), 1..24)
        .prop_map(|tokens| tokens.concat())
}

/// Calls of two values with what functions and operators there are: soup that is nearly always
/// right.
fn any_call() -> impl Strategy<Value = String> {
    let values = vec![
        "self",
        "self.a",
        "self.s",
        "self.l",
        "self.m",
        "1",
        "-1",
        "2u",
        "1.5",
        "'a'",
        "'é'",
        "b'x'",
        "null",
        "true",
        "[1, 2]",
        "['a', 'b']",
        "{'a': 1}",
        "duration('1h')",
        "optional.none()",
        "timestamp('9999-12-31T23:59:59Z')",
        "quantity('-1.5Ki')",
        "ip('::1')",
        "cidr('10.0.0.0/8')",
        "semver('1.2.3-a')",
        "9223372036854775807",
        "-9223372036854775808",
        "dyn(0)",
    ];
    let shapes = vec![
        "A + B",
        "A - B",
        "A * B",
        "A / B",
        "A % B",
        "A == B",
        "A < B",
        "A in B",
        "A[B]",
        "A[?B]",
        "A && B",
        "A ? B : A",
        "-A",
        "!A",
        "A.all(x, x == B)",
        "A.map(x, [x, B])",
        "A.filter(x, x != B)",
        "A.sortBy(x, x)",
        "A.transformMap(k, v, k)",
        "A.substring(B)",
        "A.substring(B, 5)",
        "A.charAt(B)",
        "A.indexOf(B)",
        "A.lastIndexOf(B, 1)",
        "A.split(B, 2)",
        "A.replace(B, 'zz')",
        "'%s %d %f %x'.format([A, B, A, B])",
        "A.slice(B, 2)",
        "A.flatten(B)",
        "lists.range(A)",
        "A.sum()",
        "A.max()",
        "A.matches(B)",
        "A.findAll(B, 3)",
        "A.add(B)",
        "A.containsIP(B)",
        "A.getHours(B)",
        "A.join(B)",
        "sets.equivalent(A, B)",
        "A.orValue(B)",
        "A.optMap(x, B)",
        "string(A)",
        "int(A)",
        "uint(A)",
        "double(A)",
        "type(A)",
        "timestamp(A)",
        "duration(A)",
        "size(A)",
        "A.?b",
        "has(A.b)",
        "A.sort()",
        "A.distinct()",
    ];
    (
        prop::sample::select(shapes),
        prop::sample::select(values.clone()),
        prop::sample::select(values),
    )
        .prop_map(|(shape, one, two)| {
            shape
                .split_inclusive(['A', 'B'])
                .map(|part| match part.strip_suffix('A') {
                    Some(head) => format!("{head}({one})"),
                    None => match part.strip_suffix('B') {
                        Some(head) => format!("{head}({two})"),
                        None => part.to_owned(),
                    },
                })
                .collect()
        })
}

/// Whether compiling and running `expression` ends as it should: with an answer or a fault.
fn gives_value_or_error(expression: &str, ty: &Type) -> Result<(), String> {
    let tree = json!({"a": 1, "l": [1, 2, 3], "s": "hello", "m": {"x": "y"}});
    let environment = Environment::new().with_variable("self", ty.clone());
    match environment.compile(expression, None) {
        Ok(program) => {
            let bindings = [("self", Binding::Tree(&tree, ty))];
            let mut budget = Budget::new(100_000, 100_000);
            match program.evaluate_value(&bindings, &mut budget) {
                Err(EvalError::Internal(what)) => Err(what),
                Ok(_) | Err(_) => Ok(()),
            }
        }
        Err(CompileError::Internal(what)) => Err(what),
        Err(_) => Ok(()),
    }
}

proptest! {
    #[test]
    fn any_tokens_give_value_or_error(expression in any_tokens()) {
        let ended = gives_value_or_error(&expression, &Type::Dyn);
        prop_assert!(ended.is_ok(), "{}: {:?}", expression, ended);
    }

    #[test]
    fn any_call_gives_value_or_error(expression in any_call()) {
        let ended = gives_value_or_error(&expression, &Type::Dyn);
        prop_assert!(ended.is_ok(), "{}: {:?}", expression, ended);
    }

    #[test]
    fn unescape_reverses_escape(name in "[a-z_./-]{1,12}|if|in|__if__|namespace") {
        let escaped = gantry_cel::escape(&name).unwrap();
        prop_assert!(escaped.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric()));
        prop_assert!(gantry_cel::unescape(&escaped) == name, "{} as {}", name, escaped);
    }

    #[test]
    fn any_text_gives_value_or_error(expression in "\\PC{0,40}") {
        let ended = gives_value_or_error(&expression, &Type::Dyn);
        prop_assert!(ended.is_ok(), "{}: {:?}", expression, ended);
    }
}
