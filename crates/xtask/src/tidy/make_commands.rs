//! Checks that the `make` commands in README.md exist.

use std::collections::BTreeSet;

use regex::Regex;

use super::Violation;
use crate::markdown;
use crate::tree::Tree;

/// Compares the `make` commands in README.md with the targets of the Makefile.
pub(super) fn check(tree: &Tree) -> anyhow::Result<Vec<Violation>> {
    let targets = targets(tree.text("Makefile").unwrap_or_default())?;
    let mut violations = Vec::new();
    for (number, line) in markdown::inside_fences(tree.text("README.md").unwrap_or_default()) {
        for target in asked_for(line).filter(|target| !targets.contains(*target)) {
            let what = format!("`make {target}` names no target of the Makefile");
            violations.push(Violation::new("README.md", number, what, "correct the command"));
        }
    }
    Ok(violations)
}

/// The targets a Makefile defines; those that start with a dot are for make itself.
fn targets(makefile: &str) -> anyhow::Result<BTreeSet<String>> {
    let rule = Regex::new(r"(?m)^([A-Za-z0-9_][A-Za-z0-9_ /.-]*?)\s*::?(?:[^=:]|$)")?;
    let names = rule
        .captures_iter(makefile)
        .flat_map(|found| found[1].split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    Ok(names.collect())
}

/// The targets a line of a code fence asks make for, if it is a make command.
fn asked_for(line: &str) -> impl Iterator<Item = &str> {
    let line = line.trim_start();
    let line = line.strip_prefix("$ ").unwrap_or(line);
    let words = line.strip_prefix("make ").unwrap_or_default().split_whitespace();
    let words = words.take_while(|word| !word.starts_with(['#', '&', '|', ';', '>', '<', '2']));
    words.filter(|word| !word.starts_with('-') && !word.contains('='))
}

#[cfg(test)]
mod tests {
    use super::super::lines;
    use super::*;

    const MAKEFILE: &str = "\
NAME := a b
.PHONY: ghost
test: build ## Run tests
\tcargo test: x
build gen:
all::
x ?= y
";

    #[test]
    fn targets_are_rules_only() {
        let found: Vec<String> = targets(MAKEFILE).unwrap().into_iter().collect();
        assert_eq!(found, ["all", "build", "gen", "test"]);
    }

    #[test]
    fn commands_name_targets() {
        let table = [
            // why                      line                                    missing
            ("a target", "make test", None),
            ("two targets", "make build gen", None),
            ("with a prompt", "$ make test", None),
            ("with options and variables", "make -j2 CARGO=x test # all of it", None),
            ("piped on", "make test 2>&1 | tee log", None),
            ("a missing target", "make up", Some("up")),
            ("a missing one after a good one", "make test up", Some("up")),
            ("another program", "makers up", None),
            ("in a sentence", "# then make up", None),
        ];
        for (why, line, missing) in table {
            let readme = format!("make ghost\n```sh\n{line}\n```\n");
            let tree = Tree::sample(&[("Makefile", MAKEFILE), ("README.md", &readme)]);
            let expected = missing.map(|target| {
                format!("README.md:3: `make {target}` names no target of the Makefile; correct the command")
            });
            let found = lines(&check(&tree).unwrap());
            assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{why}");
        }
    }
}
