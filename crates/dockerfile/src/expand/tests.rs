use super::*;

fn lookup(name: &str) -> Option<String> {
    match name {
        "A" => Some("one".to_owned()),
        "EMPTY" => Some(String::new()),
        "SPACE" => Some("a b".to_owned()),
        "LONG" => Some("x".repeat(MAX_EXPANDED_BYTES / 2 + 1)),
        _ => None,
    }
}

#[test]
fn variables_are_expanded_as_docker_does() {
    for (text, expected) in [
        ("$A", "one"),
        ("${A}", "one"),
        ("x$A.y", "xone.y"),
        ("$A_B", ""),
        ("${A}_B", "one_B"),
        ("$NONE", ""),
        ("${NONE:-x}", "x"),
        ("${NONE-x}", "x"),
        ("${EMPTY:-x}", "x"),
        ("${EMPTY-x}", ""),
        ("${A:-x}", "one"),
        ("${A:+x}", "x"),
        ("${NONE:+x}", ""),
        ("${EMPTY:+x}", ""),
        ("${EMPTY+x}", "x"),
        ("${A:?no}", "one"),
        ("${NONE:-${A}-$A}", "one-one"),
        ("${NONE:-'}'}", "}"),
        (r"\$A", "$A"),
        (r"\\$A", r"\one"),
        (r"'$A'", "$A"),
        (r#""$A \$A \x""#, r"one $A \x"),
        (r#""a'b""#, "a'b"),
        ("$SPACE", "a b"),
        ("$", "$"),
        ("a$ b", "a$ b"),
        ("$1$@", ""),
        ("ends\\", "ends"),
    ] {
        assert_eq!(expand(text, '\\', &lookup).as_deref(), Ok(expected), "{text}");
    }
    assert_eq!(expand("`$A\\$A", '`', &lookup).as_deref(), Ok(r"$A\one"));
}

#[test]
fn what_is_no_variable_is_refused() {
    let nested = format!("{}x{}", "${N:-".repeat(20), "}".repeat(20));
    for (text, expected) in [
        ("${A", "has no closing brace"),
        ("${A:-b", "has no closing brace"),
        ("${", "has no closing brace"),
        ("${}", "is not a variable"),
        ("${1}", "is not a variable"),
        ("${A%x}", "the modifier of ${A%} is not supported"),
        ("${A:x}", "the modifier of ${Ax} is not supported"),
        ("${NONE:?give it}", "variable NONE is not set: give it"),
        ("'a", "a quote ' is not closed"),
        ("\"a", "a quote \" is not closed"),
        ("$LONG$LONG", "bytes after expansion"),
        (&nested, "nested more than 16 deep"),
    ] {
        let error = expand(text, '\\', &lookup).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn quotes_stay_in_here_documents() {
    let text = "'$A' \"${A}\" \\$A \\n\n";
    assert_eq!(expand_heredoc(text, '\\', &lookup).as_deref(), Ok("'one' \"one\" $A \\n\n"));
}
