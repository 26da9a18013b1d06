//! Common input mistakes: one line with file, line and remedy, and code 1.

use super::{check, gantry, gantry_with};

const HEAD: &str =
    "apiVersion: fma.llm-d.ai/v1alpha1\nkind: LauncherConfig\nmetadata: {name: lc}\n";

#[test]
fn each_kind_of_bad_input_gets_one_line() {
    let garbage: Vec<u8> =
        (0..100_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let table: Vec<(&str, Vec<u8>, &str, &str)> = vec![
        (
            "a wrong type",
            format!("{HEAD}spec:\n  maxInstances: three\n").into(),
            "input.yaml:5:3: LauncherConfig lc: spec.maxInstances: ",
            "remove the quotes",
        ),
        (
            "an unknown field",
            format!("{HEAD}spec:\n  maxInstances: 3\n  podTemplat: {{}}\n").into(),
            "input.yaml:6:3: LauncherConfig lc: spec.podTemplat: ",
            "did you mean \"podTemplate\"?",
        ),
        (
            "a duplicate key",
            format!("{HEAD}spec:\n  maxInstances: 3\n  maxInstances: 4\n").into(),
            "input.yaml:6:3: duplicate key \"maxInstances\"",
            "keep one",
        ),
        (
            "a tab",
            format!("{HEAD}spec:\n\tmaxInstances: 3\n").into(),
            "input.yaml:5:2: a tab",
            "indent with spaces",
        ),
        ("100 MB of garbage", garbage, "input.yaml:1:1: larger than 32 MiB", "split the file"),
        (
            "text that is not text",
            b"a: 1\nb: \xff\xfe\n".to_vec(),
            "input.yaml:2:1: not UTF-8",
            "save it as UTF-8",
        ),
        ("binary zeros", vec![0; 4096], "input.yaml:1:1: ", "check that this is a YAML file"),
        ("very deep nesting", b"[".repeat(1_000_000), "input.yaml:1:101: ", "nest less deeply"),
        ("a number alone", b"42\n".to_vec(), "input.yaml:1:1: ", "a manifest is a map"),
    ];
    for (why, content, place, remedy) in table {
        let run = check(&content);
        assert_eq!(run.code, 1, "{why}: {}", run.err);
        let errors: Vec<_> = run.err.lines().filter(|line| line.starts_with("error: ")).collect();
        let [error] = errors.as_slice() else { panic!("{why}: {}", run.err) };
        assert!(error.starts_with(&format!("error: {place}")), "{why}: {error}");
        assert!(error.contains(remedy), "{why}: {error}");
        assert!(!run.err.contains("panicked"), "{why}: {}", run.err);
    }
}

/// A file name or a field from a hostile file must not reach the terminal as control characters.
#[test]
fn complaints_do_not_forward_control_characters() {
    let run = check(format!("{HEAD}spec:\n  maxInstances: 1\n  \"\\e[31mred\\n\": 1\n").as_bytes());
    assert_eq!(run.code, 1);
    assert!(run.err.contains("unknown field"), "{}", run.err);
    assert!(!run.err.contains('\u{1b}'), "{:?}", run.err);
}

#[test]
fn one_bad_file_does_not_hide_the_others() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.yaml"), "a: [1\n").unwrap();
    std::fs::write(folder.path().join("b.yaml"), format!("{HEAD}spec: {{maxInstances: 1}}\n"))
        .unwrap();
    let run = gantry(&["check", folder.path().to_str().unwrap(), "/nowhere/c.yaml"]);
    assert_eq!(run.code, 1);
    assert!(run.out.contains("b.yaml[0] LauncherConfig lc: accepted"), "{}", run.out);
    assert!(run.err.contains("a.yaml:1:4: "), "{}", run.err);
    assert!(run.err.contains("could not open /nowhere/c.yaml"), "{}", run.err);
    assert!(
        run.err
            .ends_with("1 accepted, 0 refused, 0 of other kinds, 1 warnings, 2 files not read\n"),
        "{}",
        run.err
    );
}

#[test]
fn a_wrong_command_line_is_code_2_and_says_what_is_right() {
    let table = [
        (&["frob"][..], "unrecognized subcommand"),
        (&["crds", "--output", "xml"], "possible values: yaml, json"),
        (&["check"], "<FILE>"),
        (&["--v", "11", "version"], "11"),
    ];
    for (arguments, text) in table {
        let run = gantry(arguments);
        assert_eq!(run.code, 2, "{arguments:?}: {}", run.err);
        assert!(run.err.contains(text), "{arguments:?}: {}", run.err);
        assert_eq!(run.out, "", "{arguments:?}");
    }
    let run = gantry(&["crds", "--group", "apps"]);
    assert_eq!(run.code, 1);
    assert!(run.err.contains("choose from devmgmtproto.k8s.io, fma.llm-d.ai"), "{}", run.err);
}

#[test]
fn colour_is_used_on_terminals_or_on_request() {
    let table = [
        (&["check", "/nowhere"][..], &[][..], false),
        (&["check", "/nowhere", "--color", "always"], &[], true),
        (&["check", "/nowhere"], &[("NO_COLOR", "1")], false),
        (&["check", "/nowhere"], &[("CLICOLOR_FORCE", "1")], true),
        (&["check", "/nowhere"], &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], false),
    ];
    for (arguments, environment, coloured) in table {
        let run = gantry_with(arguments, environment, "");
        assert_eq!(
            run.err.contains('\u{1b}'),
            coloured,
            "{arguments:?} {environment:?}: {:?}",
            run.err
        );
    }
}

/// Invalid amounts and counts: rejected before any request is sent.
#[test]
fn amounts_that_are_not_more_than_zero_are_refused() {
    let amount = "must be more than zero; write an amount such as 8, 500m or 64Gi";
    let nodes = "write a whole number from 1 to 3840";
    let table: [(&[&str], &str, &str); 12] = [
        (&["node", "add", "a", "--cpu", "-4"], "'-4' for '--cpu <AMOUNT>'", amount),
        (&["node", "add", "a", "--cpu=0"], "'0' for '--cpu <AMOUNT>'", amount),
        (&["node", "add", "a", "--memory", "-64Gi"], "'-64Gi' for '--memory <AMOUNT>'", amount),
        (&["node", "add", "a", "--memory=0Gi"], "'0Gi' for '--memory <AMOUNT>'", amount),
        (&["node", "add", "a", "--count", "0"], "'0' for '--count <NUMBER>'", nodes),
        (&["node", "add", "a", "--count", "-1"], "'-1' for '--count <NUMBER>'", nodes),
        (&["node", "add", "a", "--count=5000"], "'5000' for '--count <NUMBER>'", nodes),
        (
            &["node", "add", "a", "--accelerators", "x.io/gpu=0"],
            "'x.io/gpu=0' for '--accelerators",
            "\"0\" is not a count: write a whole number from 1",
        ),
        (
            &["node", "add", "a", "--accelerators=x.io/gpu=-8"],
            "'x.io/gpu=-8' for '--accelerators",
            "\"-8\" is not a count",
        ),
        (&["devices", "gen", "1", "--nodes", "0"], "'0' for '--nodes <COUNT>'", "from 1 to"),
        (&["devices", "gen", "1", "--nets", "-1"], "'-1' for '--nets <COUNT>'", "from 1 to"),
        (&["schedule", "a", "--steps", "-5"], "'-5' for '--steps <STEPS>'", "0 or more"),
    ];
    for (arguments, found, remedy) in table {
        let run = gantry(arguments);
        // The commands of the original of `devices` and `schedule` end with 1, as that did.
        let code = if arguments[0] == "node" { 2 } else { 1 };
        assert_eq!((run.code, &*run.out), (code, ""), "{arguments:?}: {}", run.err);
        assert!(run.err.contains(&format!("invalid value {found}")), "{arguments:?}: {}", run.err);
        assert!(run.err.contains(remedy), "{arguments:?}: {}", run.err);
    }
}
