//! The index of requirement ids, so that a test can cite one and tidy can tell if it exists.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;

use super::Generated;
use crate::markdown;
use crate::tree::Tree;

/// Where the index is kept.
pub(crate) const INDEX: &str = "docs/specs/index.txt";

/// Folder of the specifications.
const SPECS: &str = "docs/specs/";

/// Characters of a requirement's text that the index repeats: one line of a terminal.
const MAX_TEXT_CHARS: usize = 80;

/// Prefix and number of a requirement: `AS-24` is `("AS", 24)`. Order is the natural one.
type Id = (String, u32);

/// Makes the index from every specification; nothing if there is none.
pub(super) fn index(tree: &Tree) -> anyhow::Result<Vec<Generated>> {
    let finder = Finder::new()?;
    let mut lines = String::new();
    let mut specs = 0;
    for (path, text) in tree.texts() {
        let Some(stem) = path.strip_prefix(SPECS).and_then(|name| name.strip_suffix(".md")) else {
            continue;
        };
        if stem.contains('/') {
            continue;
        }
        specs += 1;
        for found in finder.requirements(text).values() {
            lines.push_str(format!("{stem} {} {}", found.id, shorten(&found.text)).trim_end());
            lines.push('\n');
        }
    }
    let generated = Generated { path: INDEX.to_owned(), content: lines };
    Ok(if specs == 0 { Vec::new() } else { vec![generated] })
}

/// The ids an index holds.
#[derive(Debug, Default)]
pub(crate) struct RequirementIndex {
    ids: BTreeSet<Id>,
}

impl RequirementIndex {
    /// Reads an index as [`index`] writes it; other lines are passed over.
    pub(crate) fn parse(index: &str) -> Self {
        let ids = index.lines().filter_map(|line| {
            let (prefix, number) = line.split(' ').nth(1)?.split_once('-')?;
            Some((prefix.to_owned(), number.parse().ok()?))
        });
        Self { ids: ids.collect() }
    }

    /// Whether any id has this prefix.
    pub(crate) fn has_prefix(&self, prefix: &str) -> bool {
        self.ids.iter().any(|(known, _)| known == prefix)
    }

    /// Whether this very id exists, in any specification.
    pub(crate) fn has(&self, prefix: &str, number: u32) -> bool {
        self.ids.contains(&(prefix.to_owned(), number))
    }
}

/// One requirement: its id as written, and what follows it.
#[derive(Debug, PartialEq, Eq)]
struct Requirement {
    id: String,
    text: String,
}

/// Finds ids in Markdown. The patterns are compiled once.
struct Finder {
    cell: Regex,
    heading: Regex,
    start: Regex,
    inline: Regex,
}

impl Finder {
    /// Compiles the patterns.
    fn new() -> anyhow::Result<Self> {
        Ok(Self {
            cell: Regex::new(r"^([A-Z]{1,4})-(\d+)$")?,
            heading: Regex::new(r"^[A-Z]{1,4}$")?,
            // Without a list marker the id must be in the first column: an indented id is the
            // wrapped line of a list item, where ids are cited, not defined.
            start: Regex::new(
                r"^(?:\s*[-*+]\s+|\s*\d+[.)]\s+)?(?:\*\*|`)*([A-Z]{1,4})-(\d+)(?:[\s:*`]|$)",
            )?,
            inline: Regex::new(
                r"[.;:](?:\*\*)?\)?\s+(?:\*\*|`)*([A-Z]{1,4})-(\d+)(?:\*\*|`)?(?:\s|$)",
            )?,
        })
    }

    /// Every requirement of one specification, in natural order.
    ///
    /// An id is defined by the first cell of a table row, or at the start of a line or list item.
    /// Two shorter forms are in use too. Several short requirements may share a paragraph, each
    /// opening a sentence; such an id counts only if the same specification also defines number 1
    /// of its prefix, which keeps names like P-256 and DNS-1123 out. And a table whose first
    /// column is headed by a bare prefix may hold bare numbers.
    fn requirements(&self, text: &str) -> BTreeMap<Id, Requirement> {
        let (mut defined, mut inline) = (BTreeMap::new(), BTreeMap::new());
        let mut column: Option<String> = None;
        let mut in_table = false;
        for (_, line) in markdown::outside_fences(text) {
            if let Some(cells) = markdown::cells(line) {
                let first = cells[0].trim_matches(['*', '`', ' ']);
                if !in_table {
                    in_table = true;
                    column = self.heading.is_match(first).then(|| first.to_owned());
                }
                let id = match (&column, first.parse::<u32>()) {
                    (Some(prefix), Ok(_)) => format!("{prefix}-{first}"),
                    (_, _) => first.to_owned(),
                };
                if let Some(found) = self.cell.captures(&id) {
                    add(&mut defined, &found[1], &found[2], &cells[1..].join(" | "));
                }
                continue;
            }
            in_table = false;
            self.prose(line, &mut defined, &mut inline);
        }
        let series: BTreeSet<String> = defined
            .keys()
            .chain(inline.keys())
            .filter(|(_, number)| *number == 1)
            .map(|(prefix, _)| prefix.clone())
            .collect();
        inline.retain(|(prefix, _), _| series.contains(prefix));
        inline.append(&mut defined); // a definition proper wins over a mention in a sentence
        inline
    }

    /// Adds the ids of a line that is no table row.
    fn prose(
        &self,
        line: &str,
        defined: &mut BTreeMap<Id, Requirement>,
        inline: &mut BTreeMap<Id, Requirement>,
    ) {
        let start = self.start.captures(line);
        let from = start.as_ref().and_then(|found| found.get(2)).map_or(0, |number| number.end());
        let rest = &line[from..];
        let later: Vec<_> = self.inline.captures_iter(rest).collect();
        // The text of an id ends with the sentence before the next one.
        let until = |index: usize| {
            let next = later.get(index).and_then(|found| found.get(0));
            next.map_or(rest.len(), |all| all.start() + 1)
        };
        if let Some(found) = start {
            add(defined, &found[1], &found[2], &rest[..until(0)]);
        }
        for (index, found) in later.iter().enumerate() {
            let from = found.get(2).map_or(0, |number| number.end());
            add(inline, &found[1], &found[2], &rest[from..until(index + 1)]);
        }
    }
}

/// Records an id where it is met first; later places cite it.
fn add(found: &mut BTreeMap<Id, Requirement>, prefix: &str, digits: &str, text: &str) {
    // Ten digits do not fit, and are no requirement.
    let Ok(number) = digits.parse() else { return };
    // The mark that closes the id itself; a later one opens a word of the text.
    let text = text.strip_prefix('`').unwrap_or(text).replace("**", "");
    let text = text.trim_start_matches([':', ' ', '—', '–']);
    found
        .entry((prefix.to_owned(), number))
        .or_insert_with(|| Requirement { id: format!("{prefix}-{digits}"), text: text.to_owned() });
}

/// The beginning of a text on one line.
fn shorten(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().take(MAX_TEXT_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The index of one specification called `a`.
    fn index_of(text: &str) -> String {
        let tree = Tree::sample(&[("docs/specs/a.md", text)]);
        index(&tree).unwrap().remove(0).content
    }

    #[test]
    fn ids_are_found_where_they_are_defined() {
        let table = [
            // why                                  specification              index
            ("first cell of a row", "| MOD-1 | text | more |", "a MOD-1 text | more\n"),
            ("a bold cell", "| **R-1** | text |", "a R-1 text\n"),
            ("a cell in backticks", "| `R-1` | text |", "a R-1 text\n"),
            ("not a later cell", "| text | R-1 |", ""),
            ("not a cell with more in it", "| R-1 and R-2 | text |", ""),
            ("start of a line", "QU-1 text", "a QU-1 text\n"),
            ("start of a list item", "- CF-1 text", "a CF-1 text\n"),
            ("a starred item, bold id", "* **G-1** text", "a G-1 text\n"),
            ("a bold id with its title", "* **G-1 title**: text", "a G-1 title: text\n"),
            ("a numbered item", "1. CS-1 text", "a CS-1 text\n"),
            ("not a wrapped line", "- CF-1 text (see\n  OP-8), else", "a CF-1 text (see\n"),
            ("an id and a word in backticks", "- `CF-1` `x` text", "a CF-1 `x` text\n"),
            ("not five letters", "ABCDE-1 text", ""),
            ("not inside a fence", "```\nCF-1 text\n```", ""),
            ("the first place wins", "CF-1 text\n\nCF-1 asks", "a CF-1 text\n"),
            ("a number column", "| AS | must show |\n|---|---|\n| 1 | help |", "a AS-1 help\n"),
            ("numbers need such a column", "| No | show |\n|---|---|\n| 1 | help |", ""),
            ("columns end with their table", "| AS |\n|---|\n\n| n |\n|---|\n| 1 |", ""),
            ("leading zeros stay", "| D-01 | text |", "a D-01 text\n"),
            ("sentences share a line", "Q-1 one. Q-2 two.", "a Q-1 one.\na Q-2 two.\n"),
            ("a paragraph of them", "**Part (U)**: A-1 one. A-2 two", "a A-1 one.\na A-2 two\n"),
            ("bold ones too", "**G-1** one. **G-2** two", "a G-1 one.\na G-2 two\n"),
            ("a name in a sentence is none", "Keys; P-256 only. Names: DNS-1123 label", ""),
            ("a mention yields to a row", "Q-1 x. Q-2 y\n\n| Q-2 | z |", "a Q-1 x.\na Q-2 z\n"),
            ("order is natural", "R-10 c\n\nR-9 b\n\nM-1 a", "a M-1 a\na R-9 b\na R-10 c\n"),
        ];
        for (why, text, expected) in table {
            assert_eq!(index_of(text), expected, "{why}");
        }
    }

    #[test]
    fn text_is_cut_by_characters() {
        let long = "ä".repeat(200);
        assert_eq!(index_of(&format!("CF-1 {long}")), format!("a CF-1 {}\n", &long[..160]));
    }

    #[test]
    fn only_specifications_are_read() {
        let tree = Tree::sample(&[
            ("docs/specs/b.md", "B-1 text"),
            ("docs/specs/a.md", "A-1 text"),
            ("docs/specs/deep/c.md", "C-1 text"),
            ("docs/d.md", "D-1 text"),
        ]);
        let made = index(&tree).unwrap();
        assert_eq!(made[0].path, INDEX);
        assert_eq!(made[0].content, "a A-1 text\nb B-1 text\n");
        assert_eq!(index(&Tree::sample(&[("docs/d.md", "D-1")])).unwrap(), []);
    }

    #[test]
    fn the_index_is_read_back() {
        let known = RequirementIndex::parse("a AS-24 text\nb D-01 text\n\nnonsense\n");
        assert!(known.has("AS", 24) && known.has("D", 1));
        assert!(!known.has("AS", 1) && !known.has("MOD", 24));
        assert!(known.has_prefix("D") && !known.has_prefix("A"));
    }
}
