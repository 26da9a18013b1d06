//! What is wrong with an inventory: place, offending line, what was expected, a suggestion.

use gantry_yaml::node::Position;

/// The index of a text in [`Files`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub(crate) usize);

/// A position in one of the texts of an inventory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The text.
    pub file: FileId,
    /// Line and column; zero for a text as a whole.
    pub at: Position,
}

/// The texts that an inventory was read from.
#[derive(Clone, Debug, Default)]
pub struct Files(Vec<ReadFile>);

#[derive(Clone, Debug)]
struct ReadFile {
    name: String,
    text: String,
    /// Whether only its owner can read it.
    is_private: bool,
    /// Whether it is a list of hosts of the command line.
    is_host_list: bool,
}

impl Files {
    /// Adds a text under the name that messages give it.
    pub(crate) fn add(&mut self, name: &str, text: &str) -> FileId {
        self.0.push(ReadFile {
            name: name.to_owned(),
            text: text.to_owned(),
            is_private: false,
            is_host_list: false,
        });
        FileId(self.0.len() - 1)
    }

    /// Records that only its owner can read a file.
    pub(crate) fn set_private(&mut self, file: FileId, is_private: bool) {
        if let Some(read) = self.0.get_mut(file.0) {
            read.is_private = is_private;
        }
    }

    /// Records that a text is a list of hosts of the command line.
    pub(crate) fn set_host_list(&mut self, file: FileId) {
        if let Some(read) = self.0.get_mut(file.0) {
            read.is_host_list = true;
        }
    }

    /// Forgets the text of a file: its lines are not those of what was decrypted.
    pub(crate) fn forget_text(&mut self, file: FileId) {
        if let Some(read) = self.0.get_mut(file.0) {
            read.text.clear();
        }
    }

    /// Whether only its owner can read a file.
    pub(crate) fn is_private(&self, file: FileId) -> bool {
        self.0.get(file.0).is_some_and(|read| read.is_private)
    }

    /// Whether a text is a list of hosts of the command line.
    pub(crate) fn is_host_list(&self, file: FileId) -> bool {
        self.0.get(file.0).is_some_and(|read| read.is_host_list)
    }

    /// The name of a text.
    #[must_use]
    pub fn name(&self, file: FileId) -> &str {
        self.0.get(file.0).map_or("", |read| &read.name)
    }

    /// The text of a file.
    #[must_use]
    pub fn text(&self, file: FileId) -> &str {
        self.0.get(file.0).map_or("", |read| &read.text)
    }

    /// The line with this number, counted from 1.
    #[must_use]
    pub fn line(&self, file: FileId, number: u32) -> Option<&str> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        self.text(file).lines().nth(index)
    }

    /// Returns `file:line` of a place.
    #[must_use]
    pub fn origin(&self, place: Place) -> String {
        match place.at.line {
            0 => self.name(place.file).to_owned(),
            line => format!("{}:{line}", self.name(place.file)),
        }
    }
}

/// Whether a finding makes the inventory unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The inventory cannot be used.
    Error,
    /// The inventory can be used; it may not be what its author meant.
    Warning,
}

/// Something wrong in an inventory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Whether the inventory can be used.
    pub severity: Severity,
    /// Where it is.
    pub place: Place,
    /// How many characters are wrong; at least one is marked.
    pub width: usize,
    /// What is wrong.
    pub message: String,
    /// What was expected or what to do, with a suggestion.
    pub remedy: String,
    /// Whether the line may be printed. Lines with passwords are not.
    pub shows_line: bool,
}

impl Finding {
    /// An error.
    pub(crate) fn error(
        place: Place,
        width: usize,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            severity: Severity::Error,
            place,
            width,
            message: message.into(),
            remedy: remedy.into(),
            shows_line: true,
        }
    }

    /// A warning.
    pub(crate) fn warning(
        place: Place,
        width: usize,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { severity: Severity::Warning, ..Self::error(place, width, message, remedy) }
    }

    /// Removes the offending line from what is printed.
    pub(crate) fn without_line(mut self) -> Self {
        self.shows_line = false;
        self
    }

    /// The finding as it is printed: place, message, the line, a caret and the remedy.
    #[must_use]
    pub fn render(&self, files: &Files) -> String {
        let Self { severity, place, width, message, remedy, shows_line } = self;
        let [name, message, remedy] =
            [files.name(place.file), message.as_str(), remedy.as_str()].map(printable);
        let kind = match severity {
            Severity::Error => "",
            Severity::Warning => "warning: ",
        };
        let Position { line, column } = place.at;
        let source = files.line(place.file, line).filter(|_| *shows_line);
        let source = source.filter(|line| !may_hold_secret(line));
        let Some(source) = source else {
            let at = if line == 0 { String::new() } else { format!(":{line}:{column}") };
            return format!("{name}{at}: {kind}{message}\n     = {remedy}\n");
        };
        let before = column.saturating_sub(1) as usize;
        // Tabs stay, so that the caret stands below the character however wide a tab is.
        let indent: String =
            source.chars().take(before).map(|c| if c == '\t' { c } else { ' ' }).collect();
        let left = source.chars().count().saturating_sub(before).max(1);
        let carets = "^".repeat((*width).clamp(1, left));
        let source = printable(source);
        format!(
            "{name}:{line}:{column}: {kind}{message}\n{line:>4} | {source}\n     | \
             {indent}{carets} {remedy}\n"
        )
    }
}

/// Whether a line may hold a password in plain text. It is better not shown in a log.
fn may_hold_secret(line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    ["pass", "secret", "token", "private"].iter().any(|word| line.contains(word))
        && !line.contains("_file")
}

/// Replaces control characters, with which the content of a file could control the terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c == '\t' || !c.is_control() { c } else { '?' }).collect()
}

/// Returns the known name that is closest to a misspelt one, if one is close.
#[must_use]
pub fn suggest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (wrong.chars().count() / 3).clamp(1, 4);
    known
        .into_iter()
        .map(|name| (distance(wrong, name), name))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, name)| name)
}

/// Returns ` (did you mean …?)`, or nothing.
pub(crate) fn did_you_mean<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    suggest(wrong, known).map(|name| format!(" (did you mean `{name}`?)")).unwrap_or_default()
}

/// The number of characters to insert, delete, replace or swap with their neighbour.
fn distance(left: &str, right: &str) -> usize {
    // Names are short; longer text is not compared, because the cost is the product of lengths.
    const MAX_COMPARED: usize = 80;
    let (a, b): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
    if a.len().max(b.len()) > MAX_COMPARED {
        return if left == right { 0 } else { usize::MAX };
    }
    let mut rows = vec![(0..=b.len()).collect::<Vec<_>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn prv_3_misspelt_names_get_a_suggestion() {
        let known = ["hosts", "children", "vars"];
        let table = [
            ("host", Some("hosts")),
            ("childern", Some("children")),
            ("var", Some("vars")),
            ("x", None),
            ("something else", None),
        ];
        for (wrong, expected) in table {
            assert_eq!(suggest(wrong, known), expected, "{wrong}");
        }
    }

    #[test]
    fn the_caret_stands_below_the_character() {
        let mut files = Files::default();
        let file = files.add("hosts.yaml", "a:\n\t\u{7}é: x\n");
        let place = Place { file, at: Position { line: 2, column: 3 } };
        let text = Finding::error(place, 9, "wrong", "right").render(&files);
        assert_eq!(text, "hosts.yaml:2:3: wrong\n   2 | \t?é: x\n     | \t ^^^^ right\n");
        let hidden = Finding::warning(place, 1, "wrong", "right").without_line();
        assert_eq!(hidden.render(&files), "hosts.yaml:2:3: warning: wrong\n     = right\n");
    }

    proptest! {
        #[test]
        fn distance_is_a_metric(a in "[a-c]{0,6}", b in "[a-c]{0,6}") {
            prop_assert_eq!(distance(&a, &b), distance(&b, &a));
            prop_assert_eq!(distance(&a, &b) == 0, a == b);
            prop_assert!(distance(&a, &b) <= a.len().max(b.len()));
        }
    }
}
