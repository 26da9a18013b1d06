//! Tests manifests of the originals: accepted, or rejected with the field named, as each file
//! states.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use gantry_api::decode::{self, Decoded, LocatedFinding, Options};

#[test]
fn every_manifest_reads_as_its_first_lines_say() {
    let mut wrong = Vec::new();
    let files = files();
    assert!(files.len() > 10, "only {} manifests found", files.len());
    for file in files {
        let name = file.strip_prefix(root()).unwrap().display().to_string();
        let text = fs::read_to_string(&file).unwrap();
        let (mut errors, mut warnings) = (Vec::new(), Vec::new());
        match decode::documents(&text, Options::default()) {
            Err(error) => errors.push(format!("line {}: {error}", error.at.line)),
            Ok(documents) => {
                for document in &documents {
                    errors.extend(document.errors.iter().map(show));
                    warnings.extend(document.warnings.iter().map(show));
                }
            }
        }
        compare(&name, "refused at ", &text, &errors, &mut wrong);
        compare(&name, "warns at ", &text, &warnings, &mut wrong);
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Shapes of the manifests of the original's tests, examples and guides. `make e2e` sends them to a
/// server, too.
#[test]
fn as_13_manifests_of_the_original_are_accepted() {
    let mut kinds = BTreeSet::new();
    for name in [
        "around",
        "inferenceserverconfig-shapes",
        "launcherconfig-shapes",
        "launcherpopulationpolicy-shapes",
        "requesters-direct",
        "requesters-launcher",
    ] {
        let text = fs::read_to_string(root().join(format!("models/{name}.yaml"))).unwrap();
        for document in decode::documents(&text, Options::default()).unwrap() {
            assert_eq!(document.errors, [], "{name}");
        }
        for tree in gantry_yaml::read(&text).unwrap() {
            kinds.insert(tree.to_json()["kind"].as_str().unwrap().to_owned());
        }
    }
    let expected = [
        "ClusterRole",
        "ConfigMap",
        "Deployment",
        "HorizontalPodAutoscaler",
        "InferenceServerConfig",
        "LauncherConfig",
        "LauncherPopulationPolicy",
        "Pod",
        "ReplicaSet",
        "Role",
        "RoleBinding",
        "ServiceAccount",
        "StatefulSet",
    ];
    assert_eq!(kinds.iter().map(String::as_str).collect::<Vec<_>>(), expected);
}

/// The samples that users apply are accepted without a warning.
#[test]
fn samples_are_accepted() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/samples");
    let files = files_below(folder);
    assert!(files.len() >= 5, "only {} samples found", files.len());
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        for document in decode::documents(&text, Options::default()).unwrap() {
            assert_eq!((&document.errors, &document.warnings), (&vec![], &vec![]), "{file:?}");
        }
    }
}

/// Reading, writing and reading again changes nothing and gives no more findings.
#[test]
fn canonical_form_is_a_fixed_point() {
    for file in files() {
        let text = fs::read_to_string(&file).unwrap();
        for document in decode::documents(&text, Options::default()).unwrap_or_default() {
            let Decoded::Object(object) = document.content else { continue };
            let written = gantry_yaml::write(&object.to_value().unwrap()).unwrap();
            let again = decode::documents(&written, Options::default()).unwrap().remove(0);
            assert_eq!(again.errors, [], "{}\n{written}", file.display());
            assert_eq!(again.content, Decoded::Object(object), "{}\n{written}", file.display());
        }
    }
}

fn compare(file: &str, word: &str, text: &str, found: &[String], wrong: &mut Vec<String>) {
    let expected: Vec<&str> = text
        .lines()
        .take_while(|line| line.starts_with('#'))
        .filter_map(|line| line.trim_start_matches(['#', ' ']).strip_prefix(word))
        .collect();
    let fits = |expected: &str, found: &str| {
        let (path, text) = expected.split_once(": ").unwrap_or((expected, ""));
        found.split_once(": ").is_some_and(|(at, said)| at == path && said.contains(text))
    };
    for expected in &expected {
        if !found.iter().any(|found| fits(expected, found)) {
            wrong.push(format!("{file}: expected: {word}{expected}"));
        }
    }
    for found in found {
        if !expected.iter().any(|expected| fits(expected, found)) {
            wrong.push(format!("{file}: not announced: {word}{found}"));
        }
    }
}

fn show(remark: &LocatedFinding) -> String {
    format!("{}: {}", remark.path, remark.text)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/manifests")
}

/// Every fixture, by name.
pub(crate) fn files() -> Vec<PathBuf> {
    files_below(root())
}

fn files_below(folder: PathBuf) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "yaml") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}
