//! The grammar of patterns, and matching of one name.

use std::fmt;
use std::str::FromStr;

use crate::layer::MAX_PATH_LENGTH;
use crate::tree::TreePath;

/// A pattern of absolute paths.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pattern {
    text: String,
    parts: Vec<PathComponent>,
}

/// One name of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum PathComponent {
    Literal(String),
    Wildcard(Vec<Token>),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Token {
    Star,
    Any,
    Char(char),
    Class { negated: bool, ranges: Vec<(char, char)> },
}

impl Pattern {
    /// The pattern as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the pattern has no wildcard, so that it matches at most one path.
    #[must_use]
    pub fn is_literal(&self) -> bool {
        self.parts.iter().all(|part| matches!(part, PathComponent::Literal(_)))
    }

    /// How many names a path has that it matches.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.parts.len()
    }

    /// Whether it matches a path.
    #[must_use]
    pub fn matches(&self, path: &TreePath) -> bool {
        self.parts.len() == path.names().len() && self.matches_start(path)
    }

    /// Whether it matches a path, or paths in this directory.
    #[must_use]
    pub fn matches_start(&self, path: &TreePath) -> bool {
        let mut names = self.parts.iter().zip(path.names());
        path.names().len() <= self.parts.len()
            && names.all(|(part, name)| match part {
                PathComponent::Literal(literal) => literal.as_bytes() == name,
                PathComponent::Wildcard(tokens) => matches(tokens, name),
            })
    }

    pub(super) fn parts(&self) -> &[PathComponent] {
        &self.parts
    }

    /// The same pattern for files with this suffix.
    pub(super) fn with_suffix(&self, suffix: &str) -> Self {
        let mut parts = self.parts.clone();
        match parts.last_mut() {
            Some(PathComponent::Literal(name)) => name.push_str(suffix),
            Some(PathComponent::Wildcard(tokens)) => tokens.extend(suffix.chars().map(Token::Char)),
            None => {}
        }
        Self { text: format!("{}{suffix}", self.text), parts }
    }
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let refuse = |why| PatternError { pattern: text.chars().take(200).collect(), why };
        if text.len() > MAX_PATH_LENGTH {
            return Err(refuse("it is longer than 4096 bytes"));
        }
        let Some(path) = text.strip_prefix('/') else {
            return Err(refuse("it must start with a slash"));
        };
        if path.contains('\0') {
            return Err(refuse("it contains a zero byte"));
        }
        let mut parts = Vec::new();
        for name in path.split('/') {
            match name {
                // Two slashes are one.
                "" | "." => {}
                ".." => return Err(refuse("it contains `..`; write the path without it")),
                _ => parts.push(parse_component(name).map_err(refuse)?),
            }
        }
        if parts.is_empty() {
            return Err(refuse("it names no file"));
        }
        if path.ends_with('/') {
            return Err(refuse("it ends with a slash, and directories are not files"));
        }
        Ok(Self { text: text.to_owned(), parts })
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

/// A text that is not a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot use {pattern:?} as a pattern of files: {why}")]
pub struct PatternError {
    /// The text, cut if it is long.
    pub pattern: String,
    /// What is wrong with it.
    pub why: &'static str,
}

fn parse_component(name: &str) -> Result<PathComponent, &'static str> {
    let mut tokens = Vec::new();
    let mut chars = name.chars();
    while let Some(char) = chars.next() {
        tokens.push(match char {
            '*' if tokens.last() == Some(&Token::Star) => {
                return Err("`**` is not supported; write one pattern for each depth");
            }
            '*' => Token::Star,
            '?' => Token::Any,
            '[' => parse_class(&mut chars)?,
            '\\' => Token::Char(chars.next().ok_or("it ends with a backslash")?),
            char => Token::Char(char),
        });
    }
    let literal = tokens.iter().map(|token| match token {
        Token::Char(char) => Some(*char),
        Token::Star | Token::Any | Token::Class { .. } => None,
    });
    match literal.collect::<Option<String>>() {
        Some(literal) => Ok(PathComponent::Literal(literal)),
        None => Ok(PathComponent::Wildcard(tokens)),
    }
}

fn parse_class(chars: &mut std::str::Chars<'_>) -> Result<Token, &'static str> {
    const UNFINISHED: &str = "a class has no closing bracket; write \\[ for the character itself";
    let mut negated = false;
    let mut ranges: Vec<(char, char)> = Vec::new();
    if chars.as_str().starts_with(['!', '^']) {
        chars.next();
        negated = true;
    }
    loop {
        let low = match chars.next().ok_or(UNFINISHED)? {
            // A bracket right at the start is a character of the class.
            ']' if !ranges.is_empty() => return Ok(Token::Class { negated, ranges }),
            '\\' => chars.next().ok_or(UNFINISHED)?,
            char => char,
        };
        let mut high = low;
        let mut after = chars.as_str().chars();
        if after.next() == Some('-') && after.next().is_some_and(|next| next != ']') {
            chars.next();
            high = match chars.next().ok_or(UNFINISHED)? {
                '\\' => chars.next().ok_or(UNFINISHED)?,
                char => char,
            };
        }
        if high < low {
            return Err("a class has a range whose end is before its start");
        }
        ranges.push((low, high));
    }
}

impl Token {
    fn matches(&self, char: char) -> bool {
        match self {
            Self::Star => false,
            Self::Any => true,
            Self::Char(own) => *own == char,
            Self::Class { negated, ranges } => {
                ranges.iter().any(|(low, high)| (*low..=*high).contains(&char)) != *negated
            }
        }
    }
}

/// Matches a whole name. It takes at most the product of both lengths: only the last `*` is tried
/// again, since an earlier one could not reach further.
pub(super) fn matches(tokens: &[Token], name: &[u8]) -> bool {
    let name: Vec<char> = String::from_utf8_lossy(name).chars().collect();
    let (mut token, mut position) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while position < name.len() {
        match tokens.get(token) {
            Some(Token::Star) => {
                retry = Some((token, position));
                token += 1;
            }
            Some(other) if other.matches(name[position]) => {
                token += 1;
                position += 1;
            }
            Some(_) | None => match retry {
                Some((star, from)) => {
                    retry = Some((star, from + 1));
                    token = star + 1;
                    position = from + 1;
                }
                None => return false,
            },
        }
    }
    tokens[token..].iter().all(|token| *token == Token::Star)
}
