//! Checks that modules are named after the noun they serve, not after being useful.

use std::collections::BTreeSet;

use regex::Regex;

use super::Violation;
use crate::rust_text::{RustFile, line_of};
use crate::tree::Tree;

/// Names that say nothing. They are refused as a whole name only: `field_manager` is a noun of
/// Kubernetes and `cgroup_v2` one of Linux.
const REFUSED_NAMES: [&str; 9] =
    ["util", "utils", "common", "helper", "helpers", "misc", "manager", "core", "v2"];

/// Words that say nothing in any company: `pod_utils` is `utils` again.
const REFUSED_WORDS: [&str; 5] = ["util", "utils", "helper", "helpers", "misc"];

/// What to do instead.
const REMEDY: &str = "name it after the noun it serves";

/// Looks at crates, and at folders, files and `mod` lines below `crates/*/src`.
pub(super) fn check(tree: &Tree, sources: &[RustFile]) -> anyhow::Result<Vec<Violation>> {
    let mut violations = Vec::new();
    let mut reported = BTreeSet::new();
    for path in tree.paths() {
        for part in named_parts(path).filter(|part| is_refused(stem(part))) {
            // One line per folder, not one per file in it.
            let place = path.split_inclusive(part).next().unwrap_or(path);
            if reported.insert(place.to_owned()) {
                let what = format!("`{part}` says nothing about what is in it");
                violations.push(Violation::new(path, 1, what, REMEDY));
            }
        }
    }
    let module = Regex::new(r"(?m)^\s*(?:pub(?:\([a-z ]+\))?\s+)?mod\s+(?:r#)?([a-z0-9_]+)")?;
    for file in sources.iter().filter(|file| named_parts(&file.path).count() > 1) {
        for found in module.captures_iter(&file.code) {
            let Some(name) = found.get(1).filter(|name| is_refused(name.as_str())) else {
                continue;
            };
            let line = line_of(&file.code, name.start());
            let what = format!("module `{}` says nothing about what is in it", name.as_str());
            violations.push(Violation::new(&file.path, line, what, REMEDY));
        }
    }
    Ok(violations)
}

/// The crate's folder, and every folder and file below its `src`.
fn named_parts(path: &str) -> impl Iterator<Item = &str> {
    let inside = path.strip_prefix("crates/");
    let (folder, rest) = inside.and_then(|path| path.split_once('/')).unwrap_or_default();
    let below = rest.strip_prefix("src/").unwrap_or_default();
    std::iter::once(folder).chain(below.split('/')).filter(|part| !part.is_empty())
}

/// A file's name without its ending; a folder's as it is.
fn stem(part: &str) -> &str {
    part.strip_suffix(".rs").unwrap_or(part)
}

/// Whether a name is one of the refused.
fn is_refused(name: &str) -> bool {
    REFUSED_NAMES.contains(&name)
        || name.split(['_', '-']).any(|word| REFUSED_WORDS.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::super::lines;
    use super::*;

    #[test]
    fn empty_names_are_found() {
        let table = [
            // why                          path                              name
            ("a noun is fine", "crates/queue/src/preempt.rs", None),
            ("util is not", "crates/queue/src/util.rs", Some("util.rs")),
            ("nor in company", "crates/queue/src/pod_utils.rs", Some("pod_utils.rs")),
            ("nor as a folder", "crates/queue/src/helpers/a.rs", Some("helpers")),
            ("nor as a crate", "crates/core/src/a.rs", Some("core")),
            ("nor as a crate's last word", "crates/store-util/Cargo.toml", Some("store-util")),
            ("v2 alone says nothing", "crates/api/src/v2.rs", Some("v2.rs")),
            ("cgroup_v2 is a thing", "crates/node/src/cgroup_v2.rs", None),
            ("field_manager is a thing", "crates/apiserver/src/field_manager.rs", None),
            ("utility is another word", "crates/queue/src/utility.rs", None),
            ("outside src we do not care", "crates/queue/tests/common/a.rs", None),
            ("nor outside crates", "docs/misc/a.md", None),
        ];
        for (why, path, name) in table {
            let tree = Tree::sample(&[(path, "")]);
            let expected = name.map(|name| {
                format!("{path}:1: `{name}` says nothing about what is in it; {REMEDY}")
            });
            let found = lines(&check(&tree, &RustFile::all(&tree)).unwrap());
            assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{why}");
        }
    }

    #[test]
    fn a_folder_is_reported_once() {
        let tree = Tree::sample(&[("crates/a/src/misc/b.rs", ""), ("crates/a/src/misc/c.rs", "")]);
        assert_eq!(check(&tree, &[]).unwrap().len(), 1);
    }

    #[test]
    fn modules_are_found_in_code_only() {
        let table = [
            ("a private module", "mod util;", vec![1]),
            ("a public one", "\npub mod common {\n}", vec![2]),
            ("a restricted one, indented", "mod a {\n    pub(in crate) mod misc;\n}", vec![2]),
            ("a raw name", "mod r#v2;", vec![1]),
            ("a comment", "// mod util;", vec![]),
            ("a literal", "const A: &str = \"\nmod util;\";", vec![]),
            ("a longer name", "mod corner;\nmod common_name;", vec![]),
        ];
        for (why, text, expected) in table {
            let found = |path: &str| {
                let files = [RustFile::new(path, text)];
                let found = check(&Tree::default(), &files).unwrap();
                found.iter().map(|violation| violation.line).collect::<Vec<_>>()
            };
            assert_eq!(found("crates/a/src/b.rs"), expected, "{why}");
            assert_eq!(found("crates/a/tests/it/main.rs"), [0; 0], "{why}, outside src");
        }
    }
}
