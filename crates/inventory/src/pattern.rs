//! Patterns that select hosts: names, globs, `~regex`, `group[0]`, unions, `&` and `!`.

use std::collections::HashSet;

use regex::Regex;

use crate::finding::did_you_mean;
use crate::host_range;
use crate::tree::{HostId, Tree};

/// Why a pattern selects nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternError {
    /// The pattern.
    pub pattern: String,
    /// What is wrong with it, and what to do.
    pub message: String,
}

impl std::fmt::Display for PatternError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "pattern `{}`: {}", self.pattern, self.message)
    }
}

/// Splits a union at commas, or at colons if there is no comma.
#[must_use]
pub fn split(text: &str) -> Vec<String> {
    let parts: Vec<&str> = if text.contains(',') {
        text.split(',').collect()
    } else if host_range::is_host(text) || host_range::split_port(text).is_some() {
        // A colon of an address or of a range separates nothing.
        vec![text]
    } else {
        return split_at_colons(text);
    };
    parts.into_iter().map(str::trim).filter(|it| !it.is_empty()).map(str::to_owned).collect()
}

fn split_at_colons(text: &str) -> Vec<String> {
    let mut parts = Vec::new();
    let mut part = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let bracketed = if c == '[' { rest.find(']') } else { None };
        if let Some(end) = bracketed {
            part.push_str(&rest[..=end]);
            rest = &rest[end + 1..];
            continue;
        }
        rest = &rest[c.len_utf8()..];
        if c == ':' || c == '[' || c == ']' || c.is_whitespace() {
            parts.push(std::mem::take(&mut part));
        } else {
            part.push(c);
        }
    }
    parts.push(part);
    parts.retain(|part| !part.is_empty());
    parts
}

/// Returns the hosts that patterns select: the union of those without a prefix (all hosts, if there
/// is none), of it what every `&` pattern selects, without what `!` patterns select.
///
/// # Errors
/// A pattern names no host and no group, or no host is left.
pub fn select(tree: &Tree, patterns: &[String]) -> Result<Vec<HostId>, PatternError> {
    let of = |prefix: char| {
        patterns.iter().filter_map(move |pattern| pattern.strip_prefix(prefix).map(str::to_owned))
    };
    let mut plain: Vec<String> =
        patterns.iter().filter(|it| !it.starts_with(['&', '!'])).cloned().collect();
    if plain.is_empty() {
        plain.push("all".to_owned());
    }
    let mut hosts = Vec::new();
    for pattern in &plain {
        hosts.extend(select_one(tree, pattern)?);
    }
    for pattern in of('&') {
        let also: HashSet<HostId> = select_one(tree, &pattern)?.into_iter().collect();
        hosts.retain(|host| also.contains(host));
    }
    for pattern in of('!') {
        let without: HashSet<HostId> = select_one(tree, &pattern)?.into_iter().collect();
        hosts.retain(|host| !without.contains(host));
    }
    let mut has_host = HashSet::new();
    hosts.retain(|host| has_host.insert(*host));
    if hosts.is_empty() {
        let message = "no host is left; see them with: gantry cluster inventory --graph";
        return Err(PatternError { pattern: patterns.join(":"), message: message.to_owned() });
    }
    Ok(hosts)
}

fn select_one(tree: &Tree, pattern: &str) -> Result<Vec<HostId>, PatternError> {
    let error = |message: String| PatternError { pattern: pattern.to_owned(), message };
    if pattern.is_empty() {
        return Err(error("expected a name after the prefix".to_owned()));
    }
    if let Some(host) = tree.host_named(pattern) {
        return Ok(vec![host]);
    }
    let (expression, subscript) = match Subscript::split(pattern) {
        Some((expression, subscript)) => (expression, Some(subscript)),
        None => (pattern, None),
    };
    let matcher = Matcher::new(expression).map_err(error)?;
    let mut hosts = Vec::new();
    let mut has_group = false;
    for (id, group) in tree.groups() {
        if matcher.matches(&group.name) {
            has_group = true;
            hosts.extend(tree.members(id));
        }
    }
    if !has_group || expression.starts_with('~') || expression.contains(['.', '?', '*', '[']) {
        let matching = tree.hosts().filter(|(_, host)| matcher.matches(&host.name));
        hosts.extend(matching.map(|(id, _)| id));
    }
    if hosts.is_empty() && !has_group {
        let names = tree.groups().map(|(_, group)| group.name.as_str());
        let names = names.chain(tree.hosts().map(|(_, host)| host.name.as_str()));
        let hint = did_you_mean(expression, names);
        return Err(error(format!("no host and no group has this name{hint}")));
    }
    match subscript {
        Some(subscript) if !hosts.is_empty() => subscript
            .apply(&hosts)
            .ok_or_else(|| error(format!("there are only {} hosts", hosts.len()))),
        _ => Ok(hosts),
    }
}

/// `[2]`, `[-1]`, `[1:3]` or `[1:]` after a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subscript {
    Index(i64),
    /// From the first to the last one, both included.
    Range(usize, Option<usize>),
}

impl Subscript {
    fn split(pattern: &str) -> Option<(&str, Self)> {
        if pattern.starts_with('~') {
            return None;
        }
        let open = pattern.strip_suffix(']')?.rfind('[').filter(|at| *at > 0)?;
        let inner = &pattern[open + 1..pattern.len() - 1];
        let is_number = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
        let subscript = if is_number(inner.strip_prefix('-').unwrap_or(inner)) {
            Self::Index(inner.parse().ok()?)
        } else {
            let (first, last) = inner.split_once([':', '-']).filter(|(it, _)| is_number(it))?;
            let last = match last {
                "" => None,
                last if is_number(last) => Some(last.parse().ok()?),
                _ => return None,
            };
            Self::Range(first.parse().ok()?, last)
        };
        Some((&pattern[..open], subscript))
    }

    /// Returns nothing if there is no such host.
    fn apply(self, hosts: &[HostId]) -> Option<Vec<HostId>> {
        match self {
            Self::Index(index) => {
                let at = if index < 0 {
                    hosts.len().checked_sub(usize::try_from(index.unsigned_abs()).ok()?)?
                } else {
                    usize::try_from(index).ok()?
                };
                hosts.get(at).map(|host| vec![*host])
            }
            // The original takes `[n:0]` for `[n]`.
            Self::Range(first, Some(0)) => hosts.get(first).map(|host| vec![*host]),
            Self::Range(first, last) => {
                let end = last.map_or(hosts.len(), |last| hosts.len().min(last.saturating_add(1)));
                Some(hosts.get(first..end).map(<[HostId]>::to_vec).unwrap_or_default())
            }
        }
    }
}

enum Matcher {
    Regex(Regex),
    Glob(Vec<Piece>),
}

enum Piece {
    Char(char),
    One,
    Many,
    Set { negated: bool, ranges: Vec<(char, char)> },
}

impl Matcher {
    fn new(expression: &str) -> Result<Self, String> {
        match expression.strip_prefix('~') {
            Some("") => Err("a regular expression follows `~`".to_owned()),
            Some(regex) => Regex::new(&format!("^(?:{regex})")).map(Self::Regex).map_err(|error| {
                let text = error.to_string();
                let last = text.lines().last().unwrap_or_default().to_owned();
                format!("not a regular expression: {last}")
            }),
            None => Ok(Self::Glob(glob(expression))),
        }
    }

    fn matches(&self, name: &str) -> bool {
        match self {
            Self::Regex(regex) => regex.is_match(name),
            Self::Glob(pieces) => glob_matches(pieces, &name.chars().collect::<Vec<_>>()),
        }
    }
}

fn glob(expression: &str) -> Vec<Piece> {
    let chars: Vec<char> = expression.chars().collect();
    let mut pieces = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        let c = chars[at];
        at += 1;
        pieces.push(match c {
            '*' => Piece::Many,
            '?' => Piece::One,
            '[' => {
                let negated = chars.get(at) == Some(&'!');
                let begin = at + usize::from(negated);
                // A bracket that closes nothing yet is one of the characters.
                let from = begin + usize::from(chars.get(begin) == Some(&']'));
                let close = (from..chars.len()).find(|index| chars[*index] == ']');
                match close {
                    Some(close) => {
                        at = close + 1;
                        Piece::Set { negated, ranges: ranges(&chars[begin..close]) }
                    }
                    None => Piece::Char('['),
                }
            }
            c => Piece::Char(c),
        });
    }
    pieces
}

fn ranges(chars: &[char]) -> Vec<(char, char)> {
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        if let [first, '-', last, ..] = chars[at..] {
            ranges.push((first, last));
            at += 3;
        } else {
            ranges.push((chars[at], chars[at]));
            at += 1;
        }
    }
    ranges
}

fn glob_matches(pieces: &[Piece], name: &[char]) -> bool {
    let (mut piece, mut at) = (0, 0);
    // Where to continue if what follows the last `*` does not fit.
    let mut resume: Option<(usize, usize)> = None;
    loop {
        match pieces.get(piece) {
            Some(Piece::Many) => {
                resume = Some((piece, at));
                piece += 1;
                continue;
            }
            Some(other) if name.get(at).is_some_and(|c| fits(other, *c)) => {
                (piece, at) = (piece + 1, at + 1);
                continue;
            }
            None if at == name.len() => return true,
            Some(_) | None => {}
        }
        match &mut resume {
            Some((star, from)) if *from < name.len() => {
                *from += 1;
                (piece, at) = (*star + 1, *from);
            }
            _ => return false,
        }
    }
}

fn fits(piece: &Piece, c: char) -> bool {
    match piece {
        Piece::Char(expected) => *expected == c,
        Piece::One | Piece::Many => true,
        Piece::Set { negated, ranges } => {
            ranges.iter().any(|(first, last)| (*first..=*last).contains(&c)) != *negated
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Place;
    use proptest::prelude::*;

    fn tree() -> Tree {
        let mut tree = Tree::default();
        for (group, hosts) in
            [("web", "w1 w2 w3"), ("db", "d1 w2"), ("empty", ""), ("dots.x", "a.x b.x")]
        {
            let group = tree.add_group(group, Place::default());
            for host in hosts.split_whitespace() {
                let (host, _) = tree.add_host(host, Place::default());
                tree.add_member(group, host);
            }
        }
        tree.reconcile();
        tree
    }

    fn selected(text: &str) -> Result<String, PatternError> {
        let tree = tree();
        let hosts = select(&tree, &split(text))?;
        Ok(hosts.iter().map(|id| tree.host(*id).name.as_str()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn pvs_8_patterns_select_hosts() {
        let table = [
            ("all", "w1 w2 w3 d1 a.x b.x"),
            ("*", "w1 w2 w3 d1 a.x b.x"),
            ("web", "w1 w2 w3"),
            ("w1", "w1"),
            ("web:db", "w1 w2 w3 d1"),
            ("web,db", "w1 w2 w3 d1"),
            ("web:&db", "w2"),
            ("web:!db", "w1 w3"),
            ("!db", "w1 w3 a.x b.x"),
            ("&db", "w2 d1"),
            ("w?", "w1 w2 w3"),
            ("[wd]1", "w1 d1"),
            ("w[!13]", "w2"),
            ("w[!2-3]", "w1"),
            ("web[1-2]", "w2 w3"),
            ("~w[12]", "w1 w2"),
            ("~(w1|d).*", "d1 w2 a.x b.x w1"),
            ("web[0]", "w1"),
            ("web[-1]", "w3"),
            ("web[1:]", "w2 w3"),
            ("web[0:1]", "w1 w2"),
            ("web[1:0]", "w2"),
            ("web[1:9]", "w2 w3"),
            ("*.x", "a.x b.x"),
            ("dots.x", "a.x b.x"),
            ("web , db", "w1 w2 w3 d1"),
            ("web:empty", "w1 w2 w3"),
        ];
        for (pattern, expected) in table {
            assert_eq!(selected(pattern).as_deref(), Ok(expected), "{pattern}");
        }
    }

    #[test]
    fn a_pattern_that_selects_nothing_is_an_error() {
        let table = [
            ("wbe", "did you mean `web`?"),
            ("web:!nothing", "no host and no group"),
            ("web[7]", "only 3 hosts"),
            ("web[-4]", "only 3 hosts"),
            ("~(", "regular expression"),
            ("~[", "regular expression"),
            ("empty", "no host is left"),
            ("web:!web", "no host is left"),
            ("!", "expected a name"),
            ("localhost", "no host and no group"),
        ];
        for (pattern, expected) in table {
            let error = selected(pattern).unwrap_err().to_string();
            assert!(error.contains(expected), "{pattern}: {error}");
        }
    }

    #[test]
    fn pvs_8_unions_are_split_as_in_the_original() {
        let table: [(&str, &[&str]); 8] = [
            ("a:b", &["a", "b"]),
            ("a:22", &["a:22"]),
            ("::1", &["::1"]),
            ("a[1:2]", &["a[1:2]"]),
            ("a[1:2]:b", &["a[1:2]", "b"]),
            ("a[1:], b", &["a[1:]", "b"]),
            ("a:&b:!c", &["a", "&b", "!c"]),
            (",", &[]),
        ];
        for (text, expected) in table {
            assert_eq!(split(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_name_is_a_glob_for_itself(name in "[a-z0-9.-]{1,8}") {
            prop_assert!(Matcher::new(&name).unwrap().matches(&name));
            let prefix = format!("{}*", &name[..1]);
            prop_assert!(Matcher::new(&prefix).unwrap().matches(&name));
        }

        #[test]
        fn no_pattern_makes_it_panic(text in "[a-c*?~!&\\[\\]:,.()0-9-]{0,14}") {
            let _ = selected(&text);
        }
    }
}
