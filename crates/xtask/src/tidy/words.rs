//! Checks that names and text use the words of Kubernetes, as CONTRIBUTING.md asks.
//!
//! Only the worst offenders are listed. A reviewer finds the others.

use regex::Regex;

use super::Violation;
use crate::rust_text::{RustFile, line_of};
use crate::tree::Tree;

/// This file, which has to name what it refuses.
const THIS_FILE: &str = "crates/xtask/src/tidy/words.rs";

/// Names of types that say how somebody relates to a thing and not what the thing is.
const TYPES: &str = "Seen|Told|Known|Kept|Said|Wish|Taken|Turn|Found|Standing|Books|Seat|Desk|\
                     Hall|Shelf|Stand|Lookout|Strangers";

/// Names of constants that do not say what they bound.
const CONSTANTS: &str = "PATIENCE|AGAIN|ROUND|SIDE_BY_SIDE|FOREVER|A_WHILE|SOON|OFTEN";

/// Phrases for which the field has a word, with that word.
const PHRASES: [(&str, &str); 7] = [
    ("taken back", "preempted, evicted or revoked"),
    ("takes? back", "preempt, evict or revoke"),
    ("(?:made|created) anew", "recreated"),
    ("pretend(?:s|ed|ing)?", "simulate"),
    ("whoever", "the user, or the client"),
    ("in vain", "failed"),
    ("put off", "deferred"),
];

/// Looks at the names in Rust code, and at the words in Rust code, documents, scripts and settings.
pub(super) fn check(tree: &Tree, sources: &[RustFile]) -> anyhow::Result<Vec<Violation>> {
    let mut violations = Vec::new();
    let types = Regex::new(&format!(r"\b(?:struct|enum|trait|type)\s+({TYPES})\b"))?;
    let constants = Regex::new(&format!(r"\b(?:const|static)\s+({CONSTANTS})\b"))?;
    for file in sources.iter().filter(|file| file.path != THIS_FILE) {
        for (names, remedy) in [
            (&types, "name the type after what it is: observed what, cached what"),
            (&constants, "name the constant after what it bounds"),
        ] {
            for name in names.captures_iter(&file.code).filter_map(|found| found.get(1)) {
                let line = line_of(&file.code, name.start());
                let what = format!("`{}` does not say what it is", name.as_str());
                violations.push(Violation::new(&file.path, line, what, remedy));
            }
        }
    }
    let phrases = PHRASES.map(|(phrase, word)| (Regex::new(&format!(r"(?i)\b{phrase}\b")), word));
    for (path, text) in tree.texts().filter(|(path, _)| is_read(path)) {
        for (phrase, word) in &phrases {
            let phrase = phrase.as_ref().map_err(|error| anyhow::anyhow!("{error}"))?;
            for found in phrase.find_iter(text) {
                let what = format!("\"{}\" is not a word of the field", found.as_str());
                let line = line_of(text, found.start());
                violations.push(Violation::new(path, line, what, format!("write {word}")));
            }
        }
    }
    Ok(violations)
}

/// Data of tests and of others is not ours to change.
fn is_read(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let ours = name.ends_with(".rs") || name.ends_with(".md") || name.ends_with(".toml");
    (ours || name == "Makefile" || path.starts_with("scripts/")) && path != THIS_FILE
}

#[cfg(test)]
mod tests {
    use super::super::lines;
    use super::*;

    #[test]
    fn words_are_found() {
        let table = [
            // why                path                 text                      line
            ("a type", "crates/a/src/b.rs", "\nstruct Seen;", Some(2)),
            ("an enum", "crates/a/src/b.rs", "pub(crate) enum Turn {}", Some(1)),
            ("a longer name", "crates/a/src/b.rs", "struct SeenPods;", None),
            ("a variant", "crates/a/src/b.rs", "enum A { Known }", None),
            ("a type in a comment", "crates/a/src/b.rs", "// struct Seen;", None),
            ("a constant", "crates/a/src/b.rs", "const PATIENCE: u8 = 1;", Some(1)),
            ("a phrase in a comment", "crates/a/src/b.rs", "// It is taken back.", Some(1)),
            ("a phrase in a string", "crates/a/src/b.rs", "a(\"Whoever asks\")", Some(1)),
            ("a phrase in a document", "docs/a.md", "a\npretended nodes", Some(2)),
            ("a phrase in data", "docs/a.yaml", "pretended nodes", None),
            ("another word", "docs/a.md", "a pretender puts offers down", None),
        ];
        for (why, path, text, line) in table {
            let tree = Tree::sample(&[(path, text)]);
            let found = lines(&check(&tree, &RustFile::all(&tree)).unwrap());
            assert_eq!(found.len(), usize::from(line.is_some()), "{why}: {found:?}");
            let start = line.map(|line| format!("{path}:{line}: "));
            assert!(start.is_none_or(|start| found[0].starts_with(&start)), "{why}: {found:?}");
        }
    }
}
