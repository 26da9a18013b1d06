//! The packages of the workspace, as `cargo metadata` describes them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::Value;

/// One package of the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Package {
    /// Its name in the manifest, for example `gantry-queue`.
    pub(crate) name: String,
    /// Its manifest, relative to the workspace root.
    pub(crate) manifest: String,
    /// What it depends on, inside and outside the workspace.
    pub(crate) dependencies: Vec<Dependency>,
}

/// One dependency of a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dependency {
    /// The name of the package depended on, even where the manifest renames it.
    pub(crate) package: String,
    /// What it is needed for.
    pub(crate) kind: Kind,
}

/// What a dependency is needed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The crate itself.
    Normal,
    /// Its tests, examples and benches.
    Dev,
    /// Its build script.
    Build,
}

impl Package {
    /// Returns the short name of the crate: the package without `gantry-`.
    pub(crate) fn crate_name(&self) -> &str {
        crate_name(&self.name)
    }
}

/// Returns the short name of a package: `gantry-queue` is `queue`, the binary stays `gantry`.
pub(crate) fn crate_name(package: &str) -> &str {
    package.strip_prefix("gantry-").unwrap_or(package)
}

/// Asks cargo for the packages of the workspace at `root`.
pub(crate) fn packages(root: &Path) -> anyhow::Result<Vec<Package>> {
    parse(&metadata(root)?)
}

/// Asks cargo for the directory of what it builds.
pub(crate) fn target_directory(root: &Path) -> anyhow::Result<PathBuf> {
    let metadata: Value =
        serde_json::from_str(&metadata(root)?).context("cannot read cargo metadata")?;
    Ok(PathBuf::from(string(&metadata, "target_directory")?))
}

fn metadata(root: &Path) -> anyhow::Result<String> {
    let answer = Command::new("cargo")
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .output()
        .context("could not run cargo metadata")?;
    ensure!(
        answer.status.success(),
        "cargo metadata failed: {}",
        String::from_utf8_lossy(&answer.stderr).trim()
    );
    String::from_utf8(answer.stdout).context("cargo metadata did not answer in UTF-8")
}

/// Reads the answer of `cargo metadata --no-deps`; packages come back sorted by name.
fn parse(json: &str) -> anyhow::Result<Vec<Package>> {
    let metadata: Value = serde_json::from_str(json).context("cannot read cargo metadata")?;
    let root = string(&metadata, "workspace_root")?;
    let mut packages = list(&metadata, "packages")?
        .iter()
        .map(|package| {
            let manifest = string(package, "manifest_path")?;
            let inside = manifest.strip_prefix(root).unwrap_or(manifest).trim_start_matches('/');
            Ok(Package {
                name: string(package, "name")?.to_owned(),
                manifest: inside.to_owned(),
                dependencies: list(package, "dependencies")?
                    .iter()
                    .map(dependency)
                    .collect::<anyhow::Result<_>>()?,
            })
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    packages.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(packages)
}

/// Reads one entry of a package's dependencies.
fn dependency(value: &Value) -> anyhow::Result<Dependency> {
    let kind = match value.get("kind").and_then(Value::as_str) {
        None => Kind::Normal,
        Some("dev") => Kind::Dev,
        Some("build") => Kind::Build,
        Some(other) => anyhow::bail!("cargo metadata names an unknown dependency kind `{other}`"),
    };
    Ok(Dependency { package: string(value, "name")?.to_owned(), kind })
}

/// Returns a text that must exist.
fn string<'a>(value: &'a Value, key: &str) -> anyhow::Result<&'a str> {
    let found = value.get(key).and_then(Value::as_str);
    found.with_context(|| format!("cargo metadata has no text `{key}`"))
}

/// Returns a list that must exist.
fn list<'a>(value: &'a Value, key: &str) -> anyhow::Result<&'a Vec<Value>> {
    let found = value.get(key).and_then(Value::as_array);
    found.with_context(|| format!("cargo metadata has no list `{key}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const METADATA: &str = r#"{
        "packages": [
            {"name": "gantry-queue", "manifest_path": "/w/crates/queue/Cargo.toml", "dependencies": [
                {"name": "gantry-api", "kind": null, "rename": "api", "path": "/w/crates/api"},
                {"name": "proptest", "kind": "dev", "rename": null},
                {"name": "cc", "kind": "build", "rename": null}
            ]},
            {"name": "gantry", "manifest_path": "/w/crates/gantry/Cargo.toml", "dependencies": []}
        ],
        "workspace_root": "/w"
    }"#;

    #[test]
    fn metadata_becomes_packages() {
        let dependency = |package: &str, kind| Dependency { package: package.to_owned(), kind };
        let packages = parse(METADATA).unwrap();
        assert_eq!(
            packages,
            [
                Package {
                    name: "gantry".to_owned(),
                    manifest: "crates/gantry/Cargo.toml".to_owned(),
                    dependencies: Vec::new(),
                },
                Package {
                    name: "gantry-queue".to_owned(),
                    manifest: "crates/queue/Cargo.toml".to_owned(),
                    dependencies: vec![
                        dependency("gantry-api", Kind::Normal),
                        dependency("proptest", Kind::Dev),
                        dependency("cc", Kind::Build),
                    ],
                },
            ]
        );
        assert_eq!([packages[0].crate_name(), packages[1].crate_name()], ["gantry", "queue"]);
    }

    #[test]
    fn metadata_of_another_shape_is_refused() {
        let table = [
            ("no JSON", "cargo", "cannot read cargo metadata"),
            ("no root", r#"{"packages": []}"#, "cargo metadata has no text `workspace_root`"),
            ("no packages", r#"{"workspace_root": "/w"}"#, "cargo metadata has no list `packages`"),
        ];
        for (why, json, expected) in table {
            assert_eq!(parse(json).unwrap_err().to_string(), expected, "{why}");
        }
        let odd = METADATA.replace("\"dev\"", "\"other\"");
        let error = parse(&odd).unwrap_err().to_string();
        assert_eq!(error, "cargo metadata names an unknown dependency kind `other`");
    }
}
