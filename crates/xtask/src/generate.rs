//! Generates files from other files, or from our own types.
//!
//! A generator is a function in [`GENERATORS`]; everything about reading, comparing, writing and
//! deleting is done here, once. To add one: write a module below this one with a function
//! `fn(&Tree) -> anyhow::Result<Vec<Generated>>`, and add a line to the list.

mod admin_roles;
mod chart;
mod chart_values;
mod cli_reference;
mod configuration;
mod crds;
mod fma_chart;
mod kubernetes_schemas;
mod operator;
mod requirements;
mod roles;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Component, Path};

use anyhow::{Context as _, bail, ensure};
use similar::TextDiff;

pub(crate) use self::kubernetes_schemas::refresh;
pub(crate) use self::requirements::{INDEX, RequirementIndex};
use crate::tree::Tree;

/// Every generator, in the order they run.
const GENERATORS: &[Generator] = &[
    Generator { name: "CustomResourceDefinitions", owns: &["config/crd"], make: crds::make },
    Generator { name: "ClusterRoles", owns: &["config/rbac"], make: roles::make },
    Generator {
        name: "ClusterRoles of administrators",
        owns: &["config/fma-cluster-admin", "config/gantry-cluster-admin"],
        make: admin_roles::make,
    },
    Generator { name: "operator's manifests", owns: &["config/operator"], make: operator::make },
    Generator { name: "chart", owns: &["charts/gantry"], make: chart::make },
    Generator {
        name: "chart of the actuation controllers",
        owns: &["charts/fma-controllers"],
        make: fma_chart::make,
    },
    Generator { name: "configuration reference", owns: &[], make: configuration::make },
    Generator { name: "command-line reference", owns: &[], make: cli_reference::make },
    Generator { name: "requirement index", owns: &[], make: requirements::index },
];

/// Lines of difference shown per file: enough to see what changed, not to page through a CRD.
const DIFF_LINES: usize = 30;

/// Whether to change files or only to compare them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Write what differs, delete what is stale.
    Write,
    /// Write nothing; report what differs.
    Check,
}

/// A source of generated files.
struct Generator {
    /// What it generates, for error messages.
    name: &'static str,
    /// Folders that hold nothing but its output: a file that is no longer generated is deleted.
    owns: &'static [&'static str],
    /// Generates the files. The tree is what was there before any generator ran.
    make: fn(&Tree) -> anyhow::Result<Vec<Generated>>,
}

/// One generated file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Generated {
    /// Its path relative to the workspace root, with `/`.
    pub(crate) path: String,
    /// Its content.
    pub(crate) content: String,
}

/// One change that brings the disk in line with the generators.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    /// The file is missing.
    Create { path: String, content: String },
    /// The file has other content.
    Replace { path: String, old: String, content: String },
    /// The file is in an owned folder and no generator makes it.
    Delete { path: String },
}

impl Change {
    /// The file it is about.
    fn path(&self) -> &str {
        match self {
            Self::Create { path, .. } | Self::Replace { path, .. } | Self::Delete { path } => path,
        }
    }

    /// Returns what is wrong with the file, in a word.
    fn word(&self) -> &'static str {
        match self {
            Self::Create { .. } => "missing",
            Self::Replace { .. } => "out of date",
            Self::Delete { .. } => "stale",
        }
    }
}

/// Runs every generator; false means that `Mode::Check` found a difference.
pub(crate) fn run(tree: &Tree, mode: Mode, out: &mut impl Write) -> anyhow::Result<bool> {
    run_these(GENERATORS, tree, mode, out)
}

/// Runs these generators; see [`run`].
fn run_these(
    generators: &[Generator],
    tree: &Tree,
    mode: Mode,
    out: &mut impl Write,
) -> anyhow::Result<bool> {
    let mut wanted = BTreeMap::new();
    let mut owned = Vec::new();
    for generator in generators {
        let made = (generator.make)(tree)
            .with_context(|| format!("could not make the {}", generator.name))?;
        collect(&mut wanted, made).with_context(|| format!("bad {}", generator.name))?;
        owned.extend_from_slice(generator.owns);
    }
    let present = present(tree.root(), &wanted, &owned)?;
    let changes = plan(&wanted, &present);
    match mode {
        Mode::Write => {
            apply(tree.root(), &changes, out)?;
            Ok(true)
        }
        Mode::Check => {
            report(&changes, out)?;
            Ok(changes.is_empty())
        }
    }
}

/// Adds one generator's files, refusing paths outside the workspace and files made twice.
fn collect(wanted: &mut BTreeMap<String, String>, made: Vec<Generated>) -> anyhow::Result<()> {
    for Generated { path, content } in made {
        let plain = Path::new(&path).components().all(|part| matches!(part, Component::Normal(_)));
        ensure!(plain && !path.is_empty(), "`{path}` is not a path inside the workspace");
        if wanted.insert(path.clone(), content).is_some() {
            bail!("`{path}` is made twice");
        }
    }
    Ok(())
}

/// What is on disk now: the wanted files that exist, and everything in owned folders.
fn present(
    root: &Path,
    wanted: &BTreeMap<String, String>,
    owned: &[&str],
) -> anyhow::Result<BTreeMap<String, String>> {
    let mut paths: Vec<String> = wanted.keys().cloned().collect();
    for folder in owned {
        files_below(root, folder, &mut paths)?;
    }
    let mut present = BTreeMap::new();
    for path in paths {
        let file = root.join(&path);
        if file.exists() {
            let bytes = fs::read(&file).with_context(|| format!("could not read {path}"))?;
            // Lossy on purpose: a file that is not UTF-8 differs from every generated one.
            present.insert(path, String::from_utf8_lossy(&bytes).into_owned());
        }
    }
    Ok(present)
}

/// Adds every file below `folder`; a folder that does not exist has none.
fn files_below(root: &Path, folder: &str, found: &mut Vec<String>) -> anyhow::Result<()> {
    let there = root.join(folder);
    if !there.exists() {
        return Ok(());
    }
    let entries = fs::read_dir(&there).with_context(|| format!("could not list {folder}"))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("could not list {folder}"))?;
        let name = entry.file_name();
        let name = name.to_str().with_context(|| format!("a name in {folder} is not UTF-8"))?;
        let path = format!("{folder}/{name}");
        if entry.file_type()?.is_dir() {
            files_below(root, &path, found)?;
        } else {
            found.push(path);
        }
    }
    Ok(())
}

/// Compares what should be with what is; changes come sorted by path.
fn plan(wanted: &BTreeMap<String, String>, present: &BTreeMap<String, String>) -> Vec<Change> {
    let mut changes = Vec::new();
    for (path, content) in wanted {
        let (path, content) = (path.clone(), content.clone());
        match present.get(&path) {
            None => changes.push(Change::Create { path, content }),
            Some(old) if *old != content => {
                changes.push(Change::Replace { path, old: old.clone(), content });
            }
            Some(_) => {}
        }
    }
    let stale = present.keys().filter(|path| !wanted.contains_key(*path));
    changes.extend(stale.map(|path| Change::Delete { path: path.clone() }));
    changes.sort_by(|one, other| one.path().cmp(other.path()));
    changes
}

/// Carries out the changes, naming each on a line.
fn apply(root: &Path, changes: &[Change], out: &mut impl Write) -> anyhow::Result<()> {
    for change in changes {
        let path = root.join(change.path());
        match change {
            Change::Create { content, .. } | Change::Replace { content, .. } => {
                if let Some(folder) = path.parent() {
                    fs::create_dir_all(folder)
                        .with_context(|| format!("could not make {}", folder.display()))?;
                }
                fs::write(&path, content)
                    .with_context(|| format!("could not write {}", change.path()))?;
                writeln!(out, "wrote {}", change.path())?;
            }
            Change::Delete { .. } => {
                fs::remove_file(&path)
                    .with_context(|| format!("could not delete {}", change.path()))?;
                writeln!(out, "deleted {}", change.path())?;
            }
        }
    }
    Ok(())
}

/// Says what would change, and what to do about it.
fn report(changes: &[Change], out: &mut impl Write) -> anyhow::Result<()> {
    for change in changes {
        writeln!(out, "{}:1: generated file is {}; run `make gen`", change.path(), change.word())?;
        if let Change::Replace { path, old, content } = change {
            write_diff(path, old, content, out)?;
        }
    }
    Ok(())
}

/// Writes the first [`DIFF_LINES`] lines of a unified difference.
fn write_diff(path: &str, old: &str, new: &str, out: &mut impl Write) -> anyhow::Result<()> {
    let diff = TextDiff::from_lines(old, new);
    let diff = diff.unified_diff().context_radius(1).header(path, "generated").to_string();
    for line in diff.lines().take(DIFF_LINES) {
        writeln!(out, "{line}")?;
    }
    let left = diff.lines().count().saturating_sub(DIFF_LINES);
    if left > 0 {
        writeln!(out, "… {left} more lines")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
