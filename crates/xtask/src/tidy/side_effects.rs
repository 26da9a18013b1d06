//! Checks that only `effects` modules use the runtime or the cluster, and decisions do not.

use regex::Regex;

use super::Violation;
use crate::rust_text::{RustFile, line_of};

/// Crates that decide. Their `effects` module carries decisions out.
const DECISION_CRATES: [&str; 7] =
    ["actuation", "kernel-modules", "kube-controllers", "placement", "queue", "scaling", "sharing"];

/// Crates without any I/O.
const DATA_CRATES: [&str; 21] = [
    "admission",
    "api",
    "builtin",
    "cel",
    "columns",
    "devices",
    "dockerfile",
    "inventory",
    "kinds",
    "kmod",
    "oci",
    "openapi",
    "patch",
    "pods",
    "provision",
    "quantity",
    "rbac",
    "reconcile",
    "schema",
    "token",
    "yaml",
];

/// Looks for the runtime and the client in crates that decide.
pub(super) fn check(sources: &[RustFile]) -> anyhow::Result<Vec<Violation>> {
    let named = Regex::new(
        r"\b(tokio|tokio_util|tokio_stream|kube|kube_client|kube_core|kube_runtime|kube_derive)\s*(?:::|;|\s+as\b)",
    )?;
    let mut violations = Vec::new();
    for file in sources {
        let Some((crate_name, below)) = inside(&file.path) else { continue };
        let remedy = if DATA_CRATES.contains(&crate_name) {
            "this crate has no I/O: take the value as an argument"
        } else if DECISION_CRATES.contains(&crate_name) && !is_effects(below) {
            "decide here, and act in `effects`"
        } else {
            continue;
        };
        for found in named.captures_iter(&file.code) {
            let line = line_of(&file.code, found.get(1).map_or(0, |name| name.start()));
            violations.push(Violation::new(
                &file.path,
                line,
                format!("names `{}`", &found[1]),
                remedy,
            ));
        }
    }
    Ok(violations)
}

/// The crate a file belongs to, and its path below `src`.
fn inside(path: &str) -> Option<(&str, &str)> {
    let (crate_name, rest) = path.strip_prefix("crates/")?.split_once('/')?;
    Some((crate_name, rest.strip_prefix("src/")?))
}

/// Whether a path below `src` is the crate's `effects` module or part of it.
fn is_effects(below: &str) -> bool {
    below == "effects.rs" || below.starts_with("effects/")
}

#[cfg(test)]
mod tests {
    use super::super::lines;
    use super::*;

    #[test]
    fn only_effects_may_act() {
        let act = "decide here, and act in `effects`";
        let never = "this crate has no I/O: take the value as an argument";
        let table = [
            // why                          path                                  remedy
            ("a decision may not", "crates/queue/src/plan.rs", Some(act)),
            ("effects may", "crates/scaling/src/effects.rs", None),
            ("so may its parts", "crates/scaling/src/effects/write.rs", None),
            ("a namesake may not", "crates/scaling/src/plan/effects.rs", Some(act)),
            ("tests outside src may", "crates/queue/tests/it/main.rs", None),
            ("words may not", "crates/api/src/meta.rs", Some(never)),
            ("not even as effects", "crates/cel/src/effects.rs", Some(never)),
            ("an engine may", "crates/controller/src/run.rs", None),
        ];
        for (why, path, remedy) in table {
            let file = RustFile::new(path, "\nuse tokio::net;\n");
            let expected = remedy.map(|remedy| format!("{path}:2: names `tokio`; {remedy}"));
            let found = lines(&check(&[file]).unwrap());
            assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{why}");
        }
    }

    #[test]
    fn a_name_is_a_path_in_code() {
        let table = [
            ("a path", "kube::Client::new()", 1),
            ("an import", "use kube;", 1),
            ("a renamed import", "use tokio as runtime;", 1),
            ("a companion", "use tokio_util::sync::CancellationToken;", 1),
            ("an attribute", "#[tokio::test]", 1),
            ("twice is two", "use kube::{A, B};\nuse tokio::C;", 2),
            ("a comment", "// kube::Client", 0),
            ("a literal", "a(\"kube::Client\")", 0),
            ("a longer name", "use kubeadm::Config;", 0),
            ("a value", "let kube = 1 + 2", 0),
        ];
        for (why, source, expected) in table {
            let file = RustFile::new("crates/devices/src/plan.rs", source);
            assert_eq!(check(&[file]).unwrap().len(), expected, "{why}");
        }
    }
}
