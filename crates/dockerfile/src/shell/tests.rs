use super::*;

/// Writes pipelines in short: `A|B`, with the connector before and `>file` after.
fn show(text: &str) -> Option<String> {
    let pipelines = parse_list(text)?;
    let shown = pipelines.iter().map(|pipeline| {
        let connector = match pipeline.connector {
            Connector::Always => ";",
            Connector::And => "&&",
            Connector::Or => "||",
        };
        let commands = pipeline.commands.iter().map(|command| {
            let mut text = command.words.join("_");
            if let Some(output) = &command.output {
                text.push_str(if output.append { ">>" } else { ">" });
                text.push_str(&output.target);
            }
            text
        });
        format!("{connector}{}", commands.collect::<Vec<_>>().join("|"))
    });
    Some(shown.collect::<Vec<_>>().join(" "))
}

#[test]
fn lists_of_commands_are_read() {
    for (text, expected) in [
        ("make -C x", ";make_-C_x"),
        ("a && b || c; d", ";a &&b ||c ;d"),
        ("a&&b", ";a &&b"),
        ("a &&\n  b\nc", ";a &&b ;c"),
        ("a | b -x | c", ";a|b_-x|c"),
        ("echo 'a && b' \"c;d\" e\\;f", ";echo_'a && b'_\"c;d\"_e\\;f"),
        ("echo a > /f 2>&1", ";echo_a>/f"),
        ("echo a>>/f", ";echo_a>>/f"),
        ("a 2>/dev/null && b 2>> x < y", ";a &&b"),
        ("make -j$(nproc) && x \"$(y)\"", ";make_-j$(nproc) &&x_\"$(y)\""),
        ("x `y z` ${a:-b c}", ";x_`y z`_${a:-b c}"),
        ("a # b && c\nd#e", ";a ;d#e"),
        ("a & b", ";a ;b"),
        ("a;", ";a"),
        ("", ""),
    ] {
        assert_eq!(show(text).as_deref(), Some(expected), "{text}");
    }
}

#[test]
fn what_is_not_understood_is_opaque() {
    for text in [
        "if a; then b; fi",
        "for a in b; do c; done",
        "(a)",
        "{ a; }",
        "! a",
        "a() { b; }",
        "cat <<EOF > x",
        "a &&",
        "&& a",
        "a |",
        "| a",
        "a >",
        "echo 'a",
        "echo \"a",
        "echo $(a",
        "a &> b",
        "a ;; b",
        "[[ -f x ]] && a",
    ] {
        assert_eq!(show(text), None, "{text}");
    }
    assert_eq!(show(&"a;".repeat(MAX_COMMANDS + 2)), None);
}

#[test]
fn values_that_only_the_shell_knows_are_found() {
    for (word, expected) in [
        ("$(a)", true),
        ("\"x$(a)\"", true),
        ("`a`", true),
        ("$?", true),
        ("$1", true),
        ("'$(a)'", false),
        ("\\$(a", false),
        ("$A${B}", false),
    ] {
        assert_eq!(has_substitution(word), expected, "{word}");
    }
}
