//! Checks that files stay short enough to read in one go.

use std::collections::BTreeMap;

use super::Violation;
use crate::rust_text::RustFile;
use crate::tree::Tree;

/// Lines of a Rust file, tests apart. What is longer holds more than one idea.
const FILE: usize = 500;

/// A `lib.rs` is a table of contents and stays under this.
const CONTENTS: usize = 80;

/// ARCHITECTURE.md is read by every newcomer and stays under this. The rows of tables that describe
/// a crate do not count: each crate has to have one.
const MAP: usize = 200;

/// Files that may exceed [`FILE`], each with the reason.
const EXCEPTIONS: &str = "crates/xtask/long-files.txt";

/// Compares the length of files with their limits, and the list of exceptions with the files.
pub(super) fn check(tree: &Tree, sources: &[RustFile]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let exceptions = tree.text(EXCEPTIONS).unwrap_or_default();
    let (listed, bad) = read_exceptions(exceptions);
    violations.extend(bad);

    let lengths: BTreeMap<&str, usize> = sources
        .iter()
        .filter(|file| !file.is_test_file())
        .map(|file| (file.path.as_str(), production_lines(file).len()))
        .collect();
    for (&path, &length) in &lengths {
        if length > FILE && !listed.contains_key(path) {
            let remedy = format!("split it, or give the reason in {EXCEPTIONS}");
            violations.push(too_long(path, length, &format!("more than {FILE}"), &remedy));
        }
        if path.ends_with("/lib.rs") && length >= CONTENTS {
            let remedy = "move logic to a module; lib.rs is the table of contents";
            violations.push(too_long(path, length, &format!("not under {CONTENTS}"), remedy));
        }
    }
    for (path, line) in listed {
        if lengths.get(path).is_none_or(|length| *length <= FILE) {
            let what = format!("`{path}` needs no exception");
            violations.push(Violation::new(EXCEPTIONS, line, what, "delete the line"));
        }
    }
    if let Some(map) = tree.text("ARCHITECTURE.md") {
        let length = map.lines().filter(|line| !is_crate_row(line)).count();
        if length >= MAP {
            let remedy = "move detail to docs/";
            let limit = format!("not under {MAP}");
            violations.push(too_long("ARCHITECTURE.md", length, &limit, remedy));
        }
    }
    violations
}

/// Whether a line is the row of a table whose first cell is one name in backticks.
fn is_crate_row(line: &str) -> bool {
    let name = line.strip_prefix("| `").and_then(|rest| rest.split_once("` |"));
    name.is_some_and(|(name, _)| name.chars().all(|it| it.is_ascii_lowercase() || it == '-'))
}

/// A file that exceeds its limit.
fn too_long(path: &str, length: usize, limit: &str, remedy: &str) -> Violation {
    Violation::new(path, 1, format!("{length} lines, {limit}"), remedy)
}

/// The listed paths with their lines, and the lines that list nothing.
fn read_exceptions(text: &str) -> (BTreeMap<&str, usize>, Vec<Violation>) {
    let (mut listed, mut bad) = (BTreeMap::new(), Vec::new());
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        match line.split_once(':') {
            Some((path, reason)) if !reason.trim().is_empty() => {
                listed.insert(path.trim(), index + 1);
            }
            Some(_) | None => {
                let remedy = "write `path: reason`";
                bad.push(Violation::new(EXCEPTIONS, index + 1, "no reason given", remedy));
            }
        }
    }
    (listed, bad)
}

/// The lines, counted from zero, of a file without its inline test modules.
pub(super) fn production_lines(file: &RustFile) -> Vec<usize> {
    let lines: Vec<&str> = file.code.lines().map(str::trim_end).collect();
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        match test_module_length(&lines[at..]) {
            Some(length) if *line == "#[cfg(test)]" => at += length,
            Some(_) | None => {
                found.push(at);
                at += 1;
            }
        }
    }
    found
}

/// Lines from an attribute to the end of the inline module it belongs to.
///
/// Formatted code closes a top-level module with a brace in the first column and nothing else
/// inside it does; literals and comments are blank already.
fn test_module_length(lines: &[&str]) -> Option<usize> {
    let head = lines.iter().position(|line| !line.is_empty() && !line.starts_with("#["))?;
    let module = lines[head];
    if !module.starts_with("mod ") || module.ends_with(';') {
        return None;
    }
    if module.ends_with('}') {
        return Some(head + 1);
    }
    let body = lines[head..].iter().position(|line| *line == "}")?;
    Some(head + body + 1)
}

#[cfg(test)]
mod tests {
    use super::super::lines;
    use super::*;

    /// Violations of one file at `path`, beside a list of exceptions.
    fn check_one(path: &str, text: &str, exceptions: &str) -> Vec<String> {
        let tree = Tree::sample(&[(path, text), (EXCEPTIONS, exceptions)]);
        lines(&check(&tree, &RustFile::all(&tree)))
    }

    #[test]
    fn rows_of_crates_are_recognised() {
        let table = [
            ("| `queue` | Which AppWrappers are admitted. | `api` |", true),
            ("| `http-client` | Sends requests. | – |", true),
            ("| authors, and whether they may create | `queue::author` |", false),
            ("| `queue::author`, `queue::access` | what |", false),
            ("text", false),
        ];
        for (line, expected) in table {
            assert_eq!(is_crate_row(line), expected, "{line}");
        }
    }

    fn code(lines: usize) -> String {
        "a;\n".repeat(lines)
    }

    #[test]
    fn limits_hold() {
        let long = "crates/a/src/b.rs:1: 501 lines, more than 500; \
                    split it, or give the reason in crates/xtask/long-files.txt";
        let contents = "crates/a/src/lib.rs:1: 80 lines, not under 80; \
                        move logic to a module; lib.rs is the table of contents";
        let map = "ARCHITECTURE.md:1: 200 lines, not under 200; move detail to docs/";
        let table = [
            // why                              path                      lines expected
            ("500 lines are fine", "crates/a/src/b.rs", 500, None),
            ("501 are not", "crates/a/src/b.rs", 501, Some(long)),
            ("tests.rs may be long", "crates/a/src/b/tests.rs", 501, None),
            ("so may files under tests", "crates/a/tests/it/c.rs", 501, None),
            ("a lib.rs of 79 is fine", "crates/a/src/lib.rs", 79, None),
            ("of 80 is not", "crates/a/src/lib.rs", 80, Some(contents)),
            ("a map of 199 is fine", "ARCHITECTURE.md", 199, None),
            ("of 200 is not", "ARCHITECTURE.md", 200, Some(map)),
            ("other text may be long", "docs/a.md", 501, None),
        ];
        for (why, path, count, expected) in table {
            let found = check_one(path, &code(count), "");
            assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{why}");
        }
    }

    #[test]
    fn inline_tests_do_not_count() {
        let table = [
            ("a test module at the end", "#[cfg(test)]\nmod tests {\n    b\n}\n", 2),
            ("with code after it", "#[cfg(test)]\nmod tests {\n    b\n}\nc\n", 3),
            ("with an attribute", "#[cfg(test)]\n// why\n#[rustfmt::skip]\nmod t {\n}\n", 2),
            ("an empty one", "#[cfg(test)]\nmod tests {}\n", 2),
            ("a module in its own file", "#[cfg(test)]\nmod tests;\n", 4),
            ("an import for tests", "#[cfg(test)]\nuse a;\nmod b {\n}\n", 6),
            ("a product module", "#[cfg(unix)]\nmod b {\n}\n", 5),
            ("a brace in a literal", "#[cfg(test)]\nmod t {\n    a(\"\n}\n\");\n}\n", 2),
        ];
        for (why, tail, expected) in table {
            let file = RustFile::new("a.rs", &format!("{}{tail}", code(2)));
            assert_eq!(production_lines(&file).len(), expected, "{why}");
        }
    }

    #[test]
    fn exceptions_are_needed_and_reasoned() {
        let stale = "crates/xtask/long-files.txt:2: `crates/a/src/b.rs` needs no exception; \
                     delete the line";
        let path = "crates/a/src/b.rs";
        let list = format!("# comment\n{path}: one table\n");
        assert_eq!(check_one(path, &code(501), &list), [""; 0], "a listed file may be long");
        assert_eq!(check_one(path, &code(500), &list), [stale], "until it is short again");
        assert_eq!(check_one("crates/a/src/c.rs", "", &list), [stale], "or gone");

        let found = check_one(path, &code(501), &format!("{path}:\n"));
        assert_eq!(found.len(), 2, "{found:?}");
        let expected = "crates/xtask/long-files.txt:1: no reason given; write `path: reason`";
        assert_eq!(found[0], expected);
    }
}
