//! Checks that comments and strings end where code does, at 100 columns.
//!
//! The formatter breaks code, and leaves comments and literals as they are.

use std::collections::BTreeSet;

use super::Violation;
use super::length::production_lines;
use crate::rust_text::RustFile;
use crate::tree::Tree;

/// The width of a line, as in `rustfmt.toml`.
const COLUMNS: usize = 100;

/// A word of this length, such as an address or a pattern, may stand on a longer line.
const UNBREAKABLE: usize = 60;

/// Looks at comments of all Rust files and at all other lines outside tests, whose literals are
/// often data.
pub(super) fn check(tree: &Tree, sources: &[RustFile]) -> Vec<Violation> {
    sources
        .iter()
        .flat_map(|file| check_one(file, tree.text(&file.path).unwrap_or_default()))
        .collect()
}

fn check_one(file: &RustFile, text: &str) -> Vec<Violation> {
    let production: BTreeSet<usize> = if file.is_test_file() {
        BTreeSet::new()
    } else {
        production_lines(file).into_iter().collect()
    };
    let lines = text.lines().zip(file.comments.lines()).enumerate();
    lines
        .filter(|(index, (line, comment))| {
            is_long(line) && (production.contains(index) || !comment.trim().is_empty())
        })
        .map(|(index, (line, _))| {
            let what = format!("{} columns, more than {COLUMNS}", line.chars().count());
            Violation::new(&file.path, index + 1, what, "break the line")
        })
        .collect()
}

fn is_long(line: &str) -> bool {
    line.chars().count() > COLUMNS
        && !line.split_whitespace().any(|word| word.chars().count() >= UNBREAKABLE)
}

#[cfg(test)]
mod tests {
    use super::super::lines;
    use super::*;

    #[test]
    fn long_lines_are_found() {
        let words = "word ".repeat(20);
        let address = format!("https://example.com/{}", "a".repeat(90));
        let long = "1: 1";
        let table = [
            ("100 columns are fine", "crates/a/src/b.rs", format!("// {}", &words[..97]), None),
            ("a long comment", "crates/a/src/b.rs", format!("// {words}"), Some(long)),
            ("a long literal", "crates/a/src/b.rs", format!("a(\"{words}\")"), Some(long)),
            ("an address", "crates/a/src/b.rs", format!("// see {address}"), None),
            ("data of a test", "crates/a/src/b/tests.rs", format!("a(\"{words}\")"), None),
            ("a comment of a test", "crates/a/src/b/tests.rs", format!("// {words}"), Some(long)),
            (
                "data of a test module",
                "crates/a/src/b.rs",
                format!("#[cfg(test)]\nmod tests {{\n    a(\"{words}\")\n}}"),
                None,
            ),
        ];
        for (why, path, text, expected) in table {
            let tree = Tree::sample(&[(path, &text)]);
            let found = lines(&check(&tree, &RustFile::all(&tree)));
            assert_eq!(found.len(), usize::from(expected.is_some()), "{why}: {found:?}");
            let expected = expected.map(|line| format!("{path}:{line}"));
            assert!(expected.is_none_or(|start| found[0].starts_with(&start)), "{why}: {found:?}");
        }
    }
}
