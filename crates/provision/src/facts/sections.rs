//! The sections of the script's output.

use std::collections::{BTreeMap, BTreeSet};

use super::FactsError;

/// The lines of each section.
pub(super) struct Sections<'a>(BTreeMap<&'a str, Vec<&'a str>>);

/// What a line begins with that begins a section.
const PREFIX: &str = "@@ ";

impl<'a> Sections<'a> {
    pub(super) fn parse(output: &'a str) -> Result<Self, FactsError> {
        let mut sections: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut current = None;
        for line in output.lines() {
            if let Some(name) = line.strip_prefix(PREFIX) {
                current = Some(name.trim());
                sections.entry(name.trim()).or_default();
            } else if let Some(name) = current {
                sections.entry(name).or_default().push(line.trim_end());
            }
        }
        match current {
            Some("end") => Ok(Self(sections)),
            other => Err(FactsError::Truncated(other.unwrap_or("none").to_owned())),
        }
    }

    /// The lines of a section that are not blank.
    pub(super) fn lines(&self, name: &str) -> Vec<&'a str> {
        let lines = self.0.get(name).map(Vec::as_slice).unwrap_or_default();
        lines.iter().copied().filter(|line| !line.trim().is_empty()).collect()
    }

    /// The first line of a section; empty without one.
    pub(super) fn line(&self, name: &str) -> String {
        self.lines(name).first().map(|line| line.trim().to_owned()).unwrap_or_default()
    }

    /// The words of a section.
    pub(super) fn words(&self, name: &str) -> BTreeSet<String> {
        let lines = self.lines(name);
        lines.iter().flat_map(|line| line.split_whitespace()).map(str::to_owned).collect()
    }

    /// The first word of each line, with the rest.
    pub(super) fn pairs(&self, name: &str) -> BTreeMap<String, String> {
        let pair = |line: &&str| {
            let (key, value) = line.split_once(' ')?;
            Some((key.to_owned(), value.trim().to_owned()))
        };
        self.lines(name).iter().filter_map(pair).collect()
    }

    /// A value of the form `Key:  12 kB`.
    pub(super) fn kib(&self, name: &str, key: &str) -> u64 {
        let value = |line: &&str| {
            let rest = line.strip_prefix(key)?.strip_prefix(':')?;
            rest.split_whitespace().next()?.parse().ok()
        };
        self.lines(name).iter().find_map(value).unwrap_or(0)
    }
}
