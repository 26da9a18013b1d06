//! Checks that crates import one another only as the table in ARCHITECTURE.md allows.

use std::collections::BTreeSet;

use super::Violation;
use crate::markdown;
use crate::tree::Tree;
use crate::workspace::{Kind, Package, crate_name};

/// Where the table is.
const MAP: &str = "ARCHITECTURE.md";

/// The header by which the table is known.
const HEADER: [&str; 3] = ["crate", "in one sentence", "may import"];

/// One row: a crate and what it may import.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    line: usize,
    crate_name: String,
    imports: Imports,
}

/// What a crate may import.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Imports {
    /// Any crate that is meant to be imported.
    All,
    /// These only.
    Only(BTreeSet<String>),
}

/// Compares the table with the dependencies among packages of the workspace.
pub(super) fn check(tree: &Tree, packages: &[Package]) -> Vec<Violation> {
    let header = format!("| {} |", HEADER.join(" | "));
    let Some(rows) = tree.text(MAP).and_then(table) else {
        let what = format!("there is no table with the header `{header}`");
        return vec![Violation::new(MAP, 1, what, "write it, one row per crate")];
    };
    let mut violations = rows_against_crates(&rows, packages);
    for package in packages {
        let manifest = tree.text(&package.manifest).unwrap_or_default();
        let row = rows.iter().find(|row| row.crate_name == package.crate_name());
        violations.extend(imports(package, manifest, row, packages));
    }
    violations
}

/// Every row has a crate, every crate a row, and rows name only crates.
fn rows_against_crates(rows: &[Row], packages: &[Package]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let rooms: BTreeSet<&str> = packages.iter().map(Package::crate_name).collect();
    for row in rows {
        let name = &row.crate_name;
        if !rooms.contains(name.as_str()) {
            let what = format!("`{name}` is no crate of the workspace");
            violations.push(Violation::new(MAP, row.line, what, "drop the row or add the crate"));
        }
        if rows.iter().any(|other| other.crate_name == *name && other.line < row.line) {
            let what = format!("`{name}` has a row already");
            violations.push(Violation::new(MAP, row.line, what, "keep one"));
        }
        if let Imports::Only(imports) = &row.imports {
            for import in imports.iter().filter(|import| !rooms.contains(import.as_str())) {
                let what = format!("`{name}` may import `{import}`, which is no crate");
                violations.push(Violation::new(MAP, row.line, what, "correct the name"));
            }
        }
    }
    for package in
        packages.iter().filter(|it| !rows.iter().any(|row| row.crate_name == it.crate_name()))
    {
        let what = format!("crate `{}` has no row in {MAP}", package.crate_name());
        violations.push(Violation::new(&package.manifest, 1, what, "add one"));
    }
    violations
}

/// The dependencies of one package that its row does not allow.
fn imports(
    package: &Package,
    manifest: &str,
    row: Option<&Row>,
    packages: &[Package],
) -> Vec<Violation> {
    let from = package.crate_name();
    let mut violations = Vec::new();
    for dependency in &package.dependencies {
        let ours = packages.iter().any(|other| other.name == dependency.package);
        let to = crate_name(&dependency.package);
        if !ours || to == from || allowed(from, to, dependency.kind, row.map(|row| &row.imports)) {
            continue;
        }
        let line = line_naming(manifest, &dependency.package);
        let (what, remedy) = if matches!(to, "gantry" | "xtask") {
            (
                format!("`{from}` imports `{to}`"),
                "nothing may: move what both need below".to_owned(),
            )
        } else {
            let what = format!("`{from}` may not import `{to}`");
            (what, format!("meet in `api`, or change the table in {MAP} on purpose"))
        };
        violations.push(Violation::new(&package.manifest, line, what, remedy));
    }
    violations
}

/// Whether one edge is fine. A crate without a row is reported for that, not for its edges.
fn allowed(from: &str, to: &str, kind: Kind, imports: Option<&Imports>) -> bool {
    match (from, to, kind) {
        ("xtask", _, _) | (_, "testkit", Kind::Dev) => true,
        (_, "gantry" | "xtask", _) => false,
        (_, _, Kind::Normal | Kind::Dev | Kind::Build) => match imports {
            None => true,
            // Product code is never built with the test kit, whatever else it may import.
            Some(Imports::All) => to != "testkit",
            Some(Imports::Only(imports)) => imports.contains(to),
        },
    }
}

/// The line of a manifest that names a dependency, or the first.
fn line_naming(manifest: &str, package: &str) -> usize {
    let names = |line: &str| {
        let key = line.split(['=', '.']).next().unwrap_or_default().trim().trim_matches('"');
        key == package || line.contains(&format!("\"{package}\""))
    };
    let dependencies = manifest.lines().position(|line| line.contains("dependencies"));
    let start = dependencies.unwrap_or_default();
    let found = manifest.lines().skip(start).position(names);
    found.map_or(1, |line| start + line + 1)
}

/// Reads the table; `None` if there is none.
fn table(text: &str) -> Option<Vec<Row>> {
    let mut lines = markdown::outside_fences(text).skip_while(|(_, line)| {
        markdown::cells(line).is_none_or(|cells| !cells.iter().map(String::as_str).eq(HEADER))
    });
    lines.next()?;
    let mut rows = Vec::new();
    for (line, text) in lines {
        let Some(cells) = markdown::cells(text) else { break };
        if markdown::is_separator_row(&cells) {
            continue;
        }
        let allowed = imports_of(cells.last().map_or("", String::as_str));
        for crate_name in list(&cells[0]) {
            rows.push(Row { line, crate_name, imports: allowed.clone() });
        }
    }
    Some(rows)
}

/// Reads the cell that says what may be imported.
fn imports_of(cell: &str) -> Imports {
    let names = list(cell);
    match names.as_slice() {
        [only] if only == "all" => Imports::All,
        _ => Imports::Only(names.into_iter().collect()),
    }
}

/// The names in a cell: separated by commas, in backticks or bare; a remark in brackets is not one.
fn list(cell: &str) -> Vec<String> {
    let names = cell.split('(').next().unwrap_or_default();
    let names = names.split(',').map(|name| name.trim().trim_matches('`'));
    names.filter(|name| !matches!(*name, "" | "–" | "-")).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::super::lines;
    use super::*;
    use crate::workspace::Dependency;

    const ARCHITECTURE: &str = "\
# Map

| crate | in one sentence | may import |
|---|---|---|
| `api` | Words. | – |
| `process` | Clock. | – |
| `queue` | Order. | `api` |
| `gantry` | Binary. | all |
| `testkit`, `xtask` | Tests; chores. | all (never imported by product code) |

| crate | other |
|---|---|
| `ghost` | not in the table |
";

    fn package(name: &str, dependencies: &[(&str, Kind)]) -> Package {
        let dependency =
            |&(package, kind): &(&str, Kind)| Dependency { package: package.to_owned(), kind };
        Package {
            name: name.to_owned(),
            manifest: format!("crates/{}/Cargo.toml", crate_name(name)),
            dependencies: dependencies.iter().map(dependency).collect(),
        }
    }

    /// All crates of the sample, with the dependencies of one of them replaced.
    fn workspace(changed: &str, dependencies: &[(&str, Kind)]) -> Vec<Package> {
        ["gantry-api", "gantry-process", "gantry-queue", "gantry", "gantry-testkit", "xtask"]
            .map(|name| package(name, if name == changed { dependencies } else { &[] }))
            .to_vec()
    }

    #[test]
    fn edges_follow_the_table() {
        use Kind::{Build, Dev, Normal};
        let refused = "meet in `api`, or change the table in ARCHITECTURE.md on purpose";
        let table = [
            // why                                from            to                kind    allowed
            ("a listed import is fine", "gantry-queue", "gantry-api", Normal, true),
            ("an unlisted one is not", "gantry-queue", "gantry-process", Normal, false),
            ("not for tests either", "gantry-queue", "gantry-process", Dev, false),
            ("nor for a build script", "gantry-queue", "gantry-process", Build, false),
            ("none means none", "gantry-api", "gantry-process", Normal, false),
            ("other people's crates are free", "gantry-api", "serde", Normal, true),
            ("tests may use the test kit", "gantry-api", "gantry-testkit", Dev, true),
            ("product code may not", "gantry-queue", "gantry-testkit", Normal, false),
            ("not even with `all`", "gantry", "gantry-testkit", Normal, false),
            ("the binary imports the rest", "gantry", "gantry-queue", Normal, true),
            ("a crate may test itself", "gantry-api", "gantry-api", Dev, true),
            ("xtask imports the binary", "xtask", "gantry", Normal, true),
        ];
        for (why, from, to, kind, fine) in table {
            let tree = Tree::sample(&[(MAP, ARCHITECTURE)]);
            let (crate_, import) = (crate_name(from), crate_name(to));
            let found = lines(&check(&tree, &workspace(from, &[(to, kind)])));
            let line = format!(
                "crates/{crate_}/Cargo.toml:1: `{crate_}` may not import `{import}`; {refused}"
            );
            assert_eq!(found, if fine { vec![] } else { vec![line] }, "{why}");
        }
    }

    #[test]
    fn nothing_imports_the_binary_or_the_chores() {
        let tree = Tree::sample(&[(MAP, ARCHITECTURE)]);
        for to in ["gantry", "xtask"] {
            let found = lines(&check(&tree, &workspace("gantry-testkit", &[(to, Kind::Dev)])));
            let expected = format!(
                "crates/testkit/Cargo.toml:1: `testkit` imports `{to}`; \
                 nothing may: move what both need below"
            );
            assert_eq!(found, [expected]);
        }
    }

    #[test]
    fn rows_and_crates_match() {
        let map = ARCHITECTURE.replace(
            "| `queue` | Order. | `api` |",
            "| `api` | Twice. | `apy` |\n| `gone` | x | – |",
        );
        let tree = Tree::sample(&[(MAP, &map)]);
        let expected = [
            "ARCHITECTURE.md:7: `api` has a row already; keep one",
            "ARCHITECTURE.md:7: `api` may import `apy`, which is no crate; correct the name",
            "ARCHITECTURE.md:8: `gone` is no crate of the workspace; drop the row or add the crate",
            "crates/queue/Cargo.toml:1: crate `queue` has no row in ARCHITECTURE.md; add one",
        ];
        assert_eq!(lines(&check(&tree, &workspace("", &[]))), expected);
    }

    #[test]
    fn a_missing_table_is_said_once() {
        let expected = "ARCHITECTURE.md:1: there is no table with the header \
                        `| crate | in one sentence | may import |`; write it, one row per crate";
        for tree in [Tree::default(), Tree::sample(&[(MAP, "# Map\n\n| crate |\n|---|\n")])] {
            assert_eq!(lines(&check(&tree, &workspace("", &[]))), [expected]);
        }
    }

    #[test]
    fn a_violation_points_at_the_dependency() {
        let manifest = "[package]\nname = \"x\"\n\n[dependencies]\nother = \"1\"\n";
        let table = [
            ("an inherited one", "gantry-process.workspace = true", 6),
            ("a table", "gantry-process = { workspace = true }", 6),
            ("a renamed one", "clock = { package = \"gantry-process\", path = \"..\" }", 6),
            ("one we cannot see", "", 1),
        ];
        for (why, line, expected) in table {
            let manifest = format!("{manifest}{line}\n");
            assert_eq!(line_naming(&manifest, "gantry-process"), expected, "{why}");
        }
    }
}
