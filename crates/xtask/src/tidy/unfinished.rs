//! Checks that unfinished work names an issue, and that silenced lints have a reason.

use regex::Regex;

use super::Violation;
use crate::rust_text::{self, RustFile, attributes, line_of};
use crate::tree::Tree;

/// Looks for skipped tests, placeholders, notes to oneself, and lints silenced in silence.
pub(super) fn check(tree: &Tree, sources: &[RustFile]) -> anyhow::Result<Vec<Violation>> {
    let patterns = Patterns::new()?;
    let mut violations = Vec::new();
    for file in sources {
        violations.extend(patterns.code(file));
        violations.extend(patterns.notes(&file.path, &file.comments));
    }
    for (path, text) in tree.texts().filter(|(path, _)| is_ours(path)) {
        violations.extend(patterns.notes(path, text));
    }
    Ok(violations)
}

/// Scripts and settings of our own. Documents may speak of notes, and data is not ours to change.
fn is_ours(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let script = path.starts_with("scripts/") || path.starts_with(".ci/");
    script || name == "Makefile" || name.ends_with(".toml")
}

/// What we look for, compiled once.
struct Patterns {
    placeholder: Regex,
    skipped: Regex,
    silenced: Regex,
    reason: Regex,
    note: Regex,
    issue: Regex,
}

impl Patterns {
    /// Compiles the patterns.
    fn new() -> anyhow::Result<Self> {
        Ok(Self {
            placeholder: Regex::new(r"\b(todo|unimplemented)!\s*[(\[{]")?,
            skipped: Regex::new(r"^\s*(?:ignore\b|cfg_attr\b[\s\S]*,\s*ignore\b)")?,
            silenced: Regex::new(r"\b(allow|expect)\s*\(")?,
            reason: Regex::new(r"\breason\s*=")?,
            note: Regex::new(r"\b(TODO|FIXME)\b")?,
            issue: Regex::new(r"#\d+")?,
        })
    }

    /// Skipped tests, placeholders and silenced lints of one file.
    fn code(&self, file: &RustFile) -> Vec<Violation> {
        let mut violations = Vec::new();
        let mut add = |offset: usize, what: String, remedy: &str| {
            let line = line_of(&file.code, offset);
            violations.push(Violation::new(&file.path, line, what, remedy));
        };
        for found in self.placeholder.captures_iter(&file.code) {
            let start = found.get(0).map_or(0, |all| all.start());
            add(start, format!("`{}!` stands for missing code", &found[1]), "write the code");
        }
        for attribute in attributes(&file.code) {
            if self.skipped.is_match(attribute.body) {
                let remedy = "make it pass, or delete it";
                add(attribute.start, "a skipped test proves nothing".to_owned(), remedy);
            }
            for found in self.silenced.captures_iter(attribute.body) {
                let inside = &attribute.body[found.get(0).map_or(0, |all| all.end())..];
                let inside =
                    rust_text::closing(inside, '(', ')').map_or(inside, |end| &inside[..end]);
                if !self.reason.is_match(inside) {
                    let what = format!("`{}` silences a lint without a reason", &found[1]);
                    add(attribute.start, what, "add `reason = \"…\"`, or obey the lint");
                }
            }
        }
        violations
    }

    /// Notes to oneself that name no issue.
    fn notes(&self, path: &str, text: &str) -> Vec<Violation> {
        let mut violations = Vec::new();
        for (index, line) in text.lines().enumerate() {
            if let Some(found) = self.note.find(line).filter(|_| !self.issue.is_match(line)) {
                let what = format!("{} names no issue", found.as_str());
                let remedy = "add the issue as `#123`, or do it now";
                violations.push(Violation::new(path, index + 1, what, remedy));
            }
        }
        violations
    }
}

#[cfg(test)]
mod tests {
    use super::super::lines;
    use super::*;

    #[test]
    fn unfinished_code_is_found() {
        let skipped = "a skipped test proves nothing; make it pass, or delete it";
        let silent = "`allow` silences a lint without a reason; \
                      add `reason = \"…\"`, or obey the lint";
        let todo = "`todo!` stands for missing code; write the code";
        let note = "TODO names no issue; add the issue as `#123`, or do it now";
        let table = [
            // why                          source                                    expected
            ("a skipped test", "#[ignore]\nfn a() {}", Some((1, skipped))),
            ("skipped with words", "#[test]\n#[ignore = \"slow\"]\nfn a() {}", Some((2, skipped))),
            ("skipped sometimes", "#[cfg_attr(miri, ignore)]", Some((1, skipped))),
            ("another attribute's word", "#[a(ignore)]\nfn ignore() {}", None),
            ("a placeholder", "fn a() {\n    todo!(\"b\")\n}", Some((2, todo))),
            ("a placeholder in a literal", "a(\"todo!()\")", None),
            ("a function of that name", "todo();", None),
            ("a note", "\n// TODO: b", Some((2, note))),
            ("a note in a doc comment", "/// TODO b", Some((1, note))),
            ("a note with its issue", "// TODO(#12): b", None),
            ("a note in a literal", "a(\"TODO\")", None),
            ("another word", "// TODOS and MASTODON", None),
            ("a silenced lint", "#[allow(a)]", Some((1, silent))),
            ("for the whole file", "#![allow(a)]", Some((1, silent))),
            ("under a condition", "#[cfg_attr(a, allow(b))]", Some((1, silent))),
            ("with a reason", "#[allow(a, reason = \"b\")]", None),
            ("over several lines", "#[allow(\n    a,\n    reason = \"b\"\n)]", None),
            (
                "someone else's reason",
                "#[cfg_attr(a, allow(b), c(reason = \"\"))]",
                Some((1, silent)),
            ),
            ("a method", "a.expect(\"b\")", None),
        ];
        for (why, source, expected) in table {
            let file = RustFile::new("a.rs", source);
            let found = lines(&check(&Tree::default(), &[file]).unwrap());
            let expected = expected.map(|(line, text)| format!("a.rs:{line}: {text}"));
            assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{why}");
        }
    }

    #[test]
    fn other_words_are_found_too() {
        let found = |source: &str| {
            let file = RustFile::new("a.rs", source);
            lines(&check(&Tree::default(), &[file]).unwrap()).join("\n")
        };
        assert!(found("unimplemented!{}").contains("`unimplemented!` stands for"));
        assert!(found("// FIXME").contains("FIXME names no issue"));
        assert!(found("#[expect(a)]").contains("`expect` silences a lint"));
    }

    #[test]
    fn scripts_are_read_and_documents_are_not() {
        let table = [
            ("Makefile", true),
            ("scripts/check-tools", true),
            (".ci/run", true),
            ("Cargo.toml", true),
            ("docs/a.md", false),
            ("crates/a/tests/data/b.txt", false),
        ];
        for (path, expected) in table {
            let tree = Tree::sample(&[(path, "a\n# TODO b\n")]);
            assert_eq!(check(&tree, &[]).unwrap().len(), usize::from(expected), "{path}");
        }
    }
}
