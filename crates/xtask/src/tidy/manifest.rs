//! Every package takes its lints, edition, version, licence and compiler from the workspace.

use super::Violation;
use crate::tree::Tree;
use crate::workspace::Package;

/// What `[package]` must inherit.
const INHERITED: [&str; 4] = ["edition", "version", "license", "rust-version"];

/// Looks for what a package's manifest does not inherit.
pub(super) fn check(tree: &Tree, packages: &[Package]) -> Vec<Violation> {
    let manifests = packages
        .iter()
        .filter_map(|package| Some((package.manifest.as_str(), tree.text(&package.manifest)?)));
    manifests.flat_map(|(path, text)| check_one(path, text)).collect()
}

/// What one manifest does not inherit.
fn check_one(path: &str, text: &str) -> Vec<Violation> {
    let entries = entries(text);
    let inherits = |key: &str| entries.iter().any(|entry| entry.key == format!("{key}.workspace"));
    let mut violations = Vec::new();
    for key in INHERITED {
        let full = format!("package.{key}");
        if !inherits(&full) {
            let line = entries.iter().find(|entry| entry.key == full).map_or(1, |entry| entry.line);
            let what = format!("package does not inherit `{key}`");
            let remedy = format!("write `{key}.workspace = true`");
            violations.push(Violation::new(path, line, what, remedy));
        }
    }
    if !inherits("lints") {
        let remedy = "write `[lints]` with `workspace = true`";
        violations.push(Violation::new(path, 1, "package does not inherit the lints", remedy));
    }
    violations
}

/// One setting: its whole dotted key, and its line.
struct ManifestSetting {
    key: String,
    line: usize,
}

/// The settings of a manifest, the three spellings of inheritance made equal.
///
/// This reads as much TOML as our manifests use: one setting per line. `x = { workspace = true }`
/// becomes `x.workspace`; a `workspace` that is not true is dropped.
fn entries(text: &str) -> Vec<ManifestSetting> {
    let mut section = "";
    let mut entries = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name.trim();
            continue;
        }
        let Some((key, value)) = line.split_once('=') else { continue };
        let (key, value) = (key.trim(), value.replace(' ', ""));
        let mut key = if section.is_empty() { key.to_owned() } else { format!("{section}.{key}") };
        if value == "{workspace=true}" {
            key.push_str(".workspace");
        } else if key.ends_with(".workspace") && value != "true" {
            continue;
        }
        entries.push(ManifestSetting { key, line: index + 1 });
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::super::lines;
    use super::*;

    const GOOD: &str = "\
[package]
name = \"gantry-a\"
version.workspace = true # one version
edition = { workspace = true }
rust-version.workspace = true
license.workspace = true

[dependencies]
serde.workspace = true

[lints]
workspace = true
";

    #[test]
    fn inheritance_is_seen_in_every_spelling() {
        let version = "a:3: package does not inherit `version`; write `version.workspace = true`";
        let edition = "a:1: package does not inherit `edition`; write `edition.workspace = true`";
        let lints =
            "a:1: package does not inherit the lints; write `[lints]` with `workspace = true`";
        let table = [
            // why                          replace                      by                 expected
            ("all inherited", "", "", None),
            ("own version", "version.workspace = true #", "version = \"1\" #", Some(version)),
            ("nothing said", "edition = { workspace = true }\n", "", Some(edition)),
            (
                "inherited but not",
                "edition = { workspace = true }",
                "edition.workspace = false",
                Some(edition),
            ),
            ("no lints", "[lints]\nworkspace = true\n", "", Some(lints)),
            ("own lints", "[lints]\nworkspace = true", "[lints.rust]\na = \"warn\"", Some(lints)),
            ("lints in short", "[package]\n", "lints.workspace = true\n[package]\n", None),
            (
                "another section's",
                "[lints]\nworkspace = true",
                "[x]\nworkspace = true",
                Some(lints),
            ),
        ];
        for (why, replace, by, expected) in table {
            let manifest =
                if replace.is_empty() { GOOD.to_owned() } else { GOOD.replace(replace, by) };
            let found = lines(&check_one("a", &manifest));
            assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{why}");
        }
    }

    #[test]
    fn every_package_is_read() {
        let tree = Tree::sample(&[("crates/a/Cargo.toml", GOOD), ("crates/b/Cargo.toml", "")]);
        let package = |name: &str| Package {
            name: name.to_owned(),
            manifest: format!("crates/{name}/Cargo.toml"),
            dependencies: Vec::new(),
        };
        let found = check(&tree, &[package("a"), package("b")]);
        assert_eq!(found.len(), INHERITED.len() + 1);
        assert!(found.iter().all(|violation| violation.path == "crates/b/Cargo.toml"));
    }
}
