//! Checks the rules of the repository that no compiler checks.
//!
//! Each check is a function from data to violations, with a table of good and bad samples beside
//! it. A violation is one line that says what is wrong and what to do about it.

mod columns;
mod crate_dependencies;
mod length;
mod links;
mod make_commands;
mod manifest;
mod names;
mod one_version;
mod published;
mod requirement_ids;
mod side_effects;
mod unfinished;
mod words;

use std::fmt;
use std::io::Write;
use std::path::Path;

use crate::generate::{INDEX, RequirementIndex};
use crate::published::current;
use crate::rust_text::RustFile;
use crate::tree::Tree;
use crate::workspace::{self, Package};

/// One broken rule at one place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Violation {
    /// The file, relative to the workspace root.
    path: String,
    /// The line, counted from one.
    line: usize,
    /// What is wrong.
    what: String,
    /// What to do about it.
    remedy: String,
}

impl Violation {
    /// One violation. `what` and `remedy` are fragments without a full stop.
    fn new(path: &str, line: usize, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, what, remedy } = self;
        write!(f, "{path}:{line}: {what}; {remedy}")
    }
}

/// Checks the working tree at `root` and prints every violation; true if there is none.
pub(crate) fn run(root: &Path, out: &mut impl Write) -> anyhow::Result<bool> {
    let violations = check(&Tree::read(root)?, &workspace::packages(root)?)?;
    for violation in &violations {
        writeln!(out, "{violation}")?;
    }
    Ok(violations.is_empty())
}

/// Every violation, in order of path and line.
fn check(tree: &Tree, packages: &[Package]) -> anyhow::Result<Vec<Violation>> {
    let sources = RustFile::all(tree);
    let known = RequirementIndex::parse(tree.text(INDEX).unwrap_or_default());
    let versions = current();
    let mut violations = [
        crate_dependencies::check(tree, packages),
        length::check(tree, &sources),
        columns::check(tree, &sources),
        manifest::check(tree, packages),
        names::check(tree, &sources)?,
        requirement_ids::check(&sources, &known)?,
        unfinished::check(tree, &sources)?,
        words::check(tree, &sources)?,
        side_effects::check(&sources)?,
        links::check(tree)?,
        make_commands::check(tree)?,
        published::check(tree, &versions),
        one_version::check(tree, &versions)?,
    ]
    .concat();
    violations.sort();
    Ok(violations)
}

/// What a check prints, line by line, to compare in tests.
#[cfg(test)]
fn lines(violations: &[Violation]) -> Vec<String> {
    violations.iter().map(Violation::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree that breaks one rule of each check, so that a check left out of the list is seen.
    #[test]
    fn every_check_takes_part() {
        let tree = Tree::sample(&[
            ("crates/queue/Cargo.toml", "[package]\nname = \"gantry-queue\"\n"),
            ("crates/queue/src/util.rs", ""),
            ("crates/queue/src/plan.rs", "use tokio::net;\n#[test]\nfn as_9_waits() {}\n"),
            ("crates/queue/src/lib.rs", &"\n".repeat(80)),
            ("crates/xtask/src/main.rs", "// TODO later\n"),
            ("crates/xtask/src/words.rs", "struct Seen;\n"),
            ("crates/xtask/src/columns.rs", &format!("// {}\n", "word ".repeat(20))),
            ("docs/specs/index.txt", "a AS-1 text\n"),
            ("README.md", "[a](gone.md)\n```\nmake gone\n```\n"),
            ("Makefile", "test:\n"),
            ("config/published/x.test/v1/things.yaml", "group: x.test\n"),
            ("scripts/old", &format!("kubectl get {}/v0", "fma.llm-d.ai")),
        ]);
        let package = Package {
            name: "gantry-queue".to_owned(),
            manifest: "crates/queue/Cargo.toml".to_owned(),
            dependencies: Vec::new(),
        };
        let found = lines(&check(&tree, &[package]).unwrap());
        let parts = [
            "ARCHITECTURE.md:1: ",
            "README.md:1: link",
            "README.md:3: `make gone`",
            "crates/queue/Cargo.toml:1: package does not inherit",
            "crates/queue/src/lib.rs:1: 80 lines",
            "crates/queue/src/plan.rs:1: names `tokio`",
            "crates/queue/src/plan.rs:3: ",
            "crates/queue/src/util.rs:1: ",
            "crates/xtask/src/main.rs:1: ",
            "crates/xtask/src/words.rs:1: ",
            "crates/xtask/src/columns.rs:1: ",
            "config/published/x.test/v1/things.yaml:1: ",
            "scripts/old:1: ",
        ];
        for part in parts {
            assert!(found.iter().any(|line| line.starts_with(part)), "no {part} in {found:#?}");
        }
        assert!(found.is_sorted(), "{found:#?}");
    }
}
