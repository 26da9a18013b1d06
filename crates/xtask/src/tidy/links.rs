//! Checks that links between documents lead to existing files.

use std::collections::BTreeSet;

use regex::Regex;

use super::Violation;
use crate::markdown;
use crate::tree::Tree;

/// Follows every link of every Markdown file that points into the repository.
pub(super) fn check(tree: &Tree) -> anyhow::Result<Vec<Violation>> {
    let patterns = Patterns::new()?;
    let places = places(tree);
    let mut violations = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| path.ends_with(".md")) {
        for (line, prose) in markdown::outside_fences(text) {
            for target in patterns.targets(prose) {
                if !resolve(path, &target).is_some_and(|place| places.contains(place.as_str())) {
                    let what = format!("link `{target}` leads nowhere");
                    violations.push(Violation::new(path, line, what, "correct or remove it"));
                }
            }
        }
    }
    Ok(violations)
}

/// Every file and every folder that holds one; the root is the empty path.
fn places(tree: &Tree) -> BTreeSet<&str> {
    let mut places = BTreeSet::from([""]);
    for path in tree.paths() {
        places.insert(path);
        places.extend(path.match_indices('/').map(|(at, _)| &path[..at]));
    }
    places
}

/// How links look, compiled once.
struct Patterns {
    code: Regex,
    inline: Regex,
    reference: Regex,
    scheme: Regex,
}

impl Patterns {
    /// Compiles the patterns.
    fn new() -> anyhow::Result<Self> {
        Ok(Self {
            code: Regex::new(r"``[^`].*?``|`[^`]*`")?,
            inline: Regex::new(r"\]\(\s*(<[^>]*>|[^)\s]+)")?,
            reference: Regex::new(r"^\s{0,3}\[[^\]^][^\]]*\]:\s+(<[^>]*>|\S+)")?,
            scheme: Regex::new(r"^(?:[A-Za-z][A-Za-z0-9+.-]*:|//|#)")?,
        })
    }

    /// The targets on one line that are meant to be in the repository.
    fn targets(&self, line: &str) -> Vec<String> {
        // `[code](not a link)`: what is in backticks is taken out, the brackets around it stay.
        let line = self.code.replace_all(line, "");
        let found = self.inline.captures_iter(&line).chain(self.reference.captures(&line));
        let targets = found.map(|found| found[1].trim_matches(['<', '>']).to_owned());
        targets.filter(|target| !target.is_empty() && !self.scheme.is_match(target)).collect()
    }
}

/// The path a link means, seen from the file it is in; `None` if it leaves the repository.
fn resolve(from: &str, target: &str) -> Option<String> {
    let target = target.split(['#', '?']).next().unwrap_or_default().replace("%20", " ");
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    let whole = match target.strip_prefix('/') {
        Some(from_root) => from_root.to_owned(),
        None => format!("{folder}/{target}"),
    };
    let mut parts: Vec<&str> = Vec::new();
    for part in whole.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::super::lines;
    use super::*;

    #[test]
    fn links_into_the_repository_resolve() {
        let table = [
            // why                          line in docs/guide/a.md              broken target
            ("a neighbour", "[x](b.md)", None),
            ("with a place in it", "[x](b.md#part)", None),
            ("a way up", "[x](../../README.md)", None),
            ("from the root", "[x](/README.md)", None),
            ("a folder", "[x](../guide/)", None),
            ("the root itself", "[x](../../)", None),
            ("a name with a space", "[x](<c d.md>) [y](c%20d.md)", None),
            ("with a title", "[x](b.md \"title\")", None),
            ("a place in the same file", "[x](#part)", None),
            ("another site", "[x](https://example.org/b.md) [y](mailto:a@b)", None),
            ("a missing file", "[x](gone.md)", Some("gone.md")),
            ("a missing picture", "![x](gone.png)", Some("gone.png")),
            ("a picture inside a link", "[![x](b.md)](gone.md)", Some("gone.md")),
            ("too far up", "[x](../../../README.md)", Some("../../../README.md")),
            ("a reference", "[x]: gone.md", Some("gone.md")),
            ("a footnote is none", "[^1]: gone.md", None),
            ("code is none", "`[x](gone.md)` and ``a ` [x](gone.md)``", None),
            ("code as the text of one", "[`x`](gone.md)", Some("gone.md")),
        ];
        for (why, line, broken) in table {
            let tree = Tree::sample(&[
                ("README.md", ""),
                ("docs/guide/a.md", &format!("\n{line}\n```\n[x](fenced.md)\n```\n")),
                ("docs/guide/b.md", ""),
                ("docs/guide/c d.md", ""),
            ]);
            let expected = broken.map(|target| {
                format!("docs/guide/a.md:2: link `{target}` leads nowhere; correct or remove it")
            });
            let found = lines(&check(&tree).unwrap());
            assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{why}");
        }
    }
}
