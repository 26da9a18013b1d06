use proptest::prelude::*;

use super::*;

const DATA: TemplateData<'_> = TemplateData { node_name: "n1", local_volume: "" };

#[test]
fn as_12_templates_expand() {
    let table = [
        ("", ""),
        ("a: b\n", "a: b\n"),
        ("claimName: weights-{{ .NodeName }}", "claimName: weights-n1"),
        ("{{.NodeName}}{{.LocalVolume}}x", "n1x"),
        ("a {{- .NodeName -}} \n b", "an1b"),
        ("a{{/* {{ is text }} */}}b", "ab"),
        ("a {{- /* trimmed */ -}} b", "ab"),
        ("{{if .LocalVolume}}a{{else}}b{{end}}", "b"),
        ("{{if eq .NodeName \"n1\"}}a{{end}}", "a"),
        ("{{if ne .NodeName `n1`}}a{{else if eq .NodeName \"n0\" \"n1\"}}b{{else}}c{{end}}", "b"),
        ("{{if and .NodeName (not .LocalVolume)}}a{{end}}", "a"),
        ("{{or .LocalVolume \"x\\\"y\"}}", "x\"y"),
        ("{{if eq .NodeName \"n2\"}}{{if .NodeName}}a{{end}}{{else}}b{{end}}", "b"),
        ("{{eq .NodeName \"n1\"}}", "true"),
        ("-{{\"}}\"}}-", "-}}-"),
    ];
    for (template, expected) in table {
        assert_eq!(expand(template, DATA).as_deref(), Ok(expected), "{template}");
    }
}

#[test]
fn as_17_unsupported_constructs_are_named_with_their_line() {
    let table = [
        ("a\n{{ .Node }}", 2, "unknown field .Node"),
        ("{{ range .NodeName }}{{ end }}", 1, "\"range\" is not supported"),
        ("\n\n{{ .NodeName | quote }}", 3, "'|' is not supported"),
        ("{{ $x := 1 }}", 1, "'$' is not supported"),
        ("{{ .A.B }}", 1, "in a chain"),
        ("{{ . }}", 1, "is not supported alone"),
        ("{{ printf \"%s\" .NodeName }}", 1, "\"printf\" is not supported"),
        ("{{ .NodeName", 1, "{{ without }}"),
        ("{{if .NodeName}}", 1, "{{if}} without {{end}}"),
        ("{{end}}", 1, "{{end}} without {{if}}"),
        ("{{else}}", 1, "{{else}} without {{if}}"),
        ("{{if .NodeName}}{{else}}{{else}}{{end}}", 1, "{{else}} without {{if}}"),
        ("{{}}", 1, "an empty action"),
        ("{{if}}{{end}}", 1, "a value is missing"),
        ("{{ eq .NodeName }}", 1, "eq has 1 arguments"),
        ("{{ \"a }}", 1, "without closing"),
        ("{{ \"\\q\" }}", 1, "escape \\q"),
        ("{{/* a }}", 1, "comment without */"),
        ("{{ (eq .NodeName .NodeName }}", 1, "without \")\""),
        ("{{ .NodeName .NodeName }}", 1, "unexpected .NodeName"),
        ("{{else range}}{{end}}", 1, "{{else range}} is not supported"),
    ];
    for (template, line, expected) in table {
        let error = expand(template, DATA).unwrap_err();
        assert_eq!(error.line, line, "{template}: {error}");
        assert!(error.to_string().contains(expected), "{template}: {error}");
    }
    let deep = "{{if .NodeName}}".repeat(40) + &"{{end}}".repeat(40);
    assert!(expand(&deep, DATA).is_err());
}

proptest! {
    /// Text without actions is unchanged, and no input panics.
    #[test]
    fn text_is_unchanged(text in "[^{]{0,60}", any in ".{0,60}", braces in "[-{}(). \"a-z/*\\\\`\n]{0,40}") {
        let expanded = expand(&text, DATA);
        prop_assert_eq!(expanded.as_deref(), Ok(text.as_str()));
        let _ = expand(&any, DATA);
        let _ = expand(&braces, DATA);
    }
}
