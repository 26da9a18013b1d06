//! What each command prints when all is well.

use std::process::{Command, Stdio};

use serde_json::Value;

use super::{gantry, gantry_with, manifests};

#[test]
fn crds_cover_every_kind_in_both_forms() {
    let json: Value = serde_json::from_str(&gantry(&["crds", "-o", "json"]).out).unwrap();
    let items = json["items"].as_array().unwrap();
    let names: Vec<_> = items.iter().map(|crd| crd["metadata"]["name"].as_str().unwrap()).collect();
    let expected: Vec<_> = gantry_api::object::KINDS.iter().map(|kind| kind.crd_name()).collect();
    assert_eq!(names, expected);

    let yaml = gantry(&["crds"]);
    assert_eq!(yaml.code, 0);
    let documents = gantry_yaml::read(&yaml.out).unwrap();
    assert_eq!(documents.iter().map(|d| d.to_json()).collect::<Vec<_>>(), *items);

    let some = gantry(&["crds", "--group", "quota.codeflare.dev"]);
    assert_eq!(gantry_yaml::read(&some.out).unwrap().len(), 1);
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_gantry"))
        .arg("crds")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn check_prints_canonical_objects_that_pass_again() {
    let file = manifests().join("queue/appwrapper-legacy-fields.yaml");
    let first = gantry(&["check", "-f", file.to_str().unwrap(), "-o", "yaml"]);
    assert_eq!(first.code, 0, "{}", first.err);
    assert!(first.err.contains("[0] spec.resources.Items: has no effect"), "{}", first.err);
    let second = gantry_with(&["check", "-", "-o", "yaml"], &[], &first.out);
    assert_eq!(second.out, first.out);
    assert_eq!(second.err, "1 accepted, 0 refused, 0 of other kinds, 0 warnings\n");
}

#[test]
fn lenient_mode_drops_unknown_fields() {
    let text = "apiVersion: quota.codeflare.dev/v1alpha1\nkind: QuotaSubtree\nmetadata: {name: a, labels: {tree: t}}\nspec: {extra: 1}\n";
    assert_eq!(gantry_with(&["check", "-"], &[], text).code, 1);
    let run = gantry_with(&["check", "-", "--lenient"], &[], text);
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.err.contains("warning: -[0] spec.extra: dropped: unknown field"), "{}", run.err);
}

#[test]
fn version_says_what_was_built() {
    let run = gantry(&["version"]);
    assert!(
        run.out.starts_with(concat!("gantry ", env!("CARGO_PKG_VERSION"), " (")),
        "{}",
        run.out
    );
    let facts: Value = serde_json::from_str(&gantry(&["version", "-o", "json"]).out).unwrap();
    for fact in ["version", "commit", "commitDate", "rustc", "target", "profile", "kubernetes"] {
        assert!(facts[fact].as_str().is_some_and(|text| !text.is_empty()), "{fact} in {facts}");
    }
}

#[test]
fn every_shell_gets_a_completion_script() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let run = gantry(&["completions", shell]);
        assert_eq!(run.code, 0, "{shell}");
        assert!(run.out.contains("completions"), "{shell}");
    }
    let script = gantry(&["completions", "bash"]).out;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gantry.bash");
    std::fs::write(&file, script).unwrap();
    let status = Command::new("bash").arg("-n").arg(&file).status().unwrap();
    assert!(status.success(), "bash cannot read its own completion script");
}

#[test]
fn every_command_has_examples() {
    for command in ["apiserver", "check", "crds", "operator", "user", "completions", "version"] {
        let run = gantry(&[command, "--help"]);
        assert_eq!(run.code, 0);
        assert!(run.out.contains("Examples:\n"), "{command}: {}", run.out);
    }
    assert!(gantry(&["--help"]).out.contains("Exit codes:"));
}
