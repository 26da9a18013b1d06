//! Patterns of schemas. They are written for Go's engine, which is of the same family as ours but
//! does not spell everything alike.

use std::collections::HashMap;
use std::fmt;

use regex::{Regex, RegexBuilder};

/// The memory one compiled pattern may take. Patterns come from all users that may define kinds;
/// the engine is linear in the text, so size is what is left to bound.
const MAX_COMPILED_BYTES: usize = 1 << 20;

/// A compiled pattern.
#[derive(Clone)]
pub struct Pattern {
    text: Box<str>,
    regex: Regex,
}

/// Why a pattern cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("error parsing regexp: {reason}")]
pub struct PatternError {
    reason: String,
}

impl Pattern {
    /// Compiles a pattern in Go's spelling.
    ///
    /// # Errors
    /// If it is malformed, or too large once compiled.
    pub fn new(text: &str) -> Result<Self, PatternError> {
        let translated = translate(text)?;
        let regex = RegexBuilder::new(&translated)
            .size_limit(MAX_COMPILED_BYTES)
            .dfa_size_limit(MAX_COMPILED_BYTES)
            .nest_limit(250)
            .build()
            .map_err(|error| PatternError { reason: explain(&error, text) })?;
        Ok(Self { text: text.into(), regex })
    }

    /// The pattern as it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it matches somewhere in `text`.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }
}

/// The compiled patterns of one schema, by text: schemas repeat few patterns often, and compiling
/// one takes longer than all else that is done with its node.
#[derive(Debug, Default)]
pub(crate) struct PatternCache(HashMap<Box<str>, Pattern>);

impl PatternCache {
    /// Compiles a pattern, or returns it if the schema had it before.
    pub(crate) fn compile(&mut self, text: &str) -> Result<&Pattern, PatternError> {
        if !self.0.contains_key(text) {
            self.0.insert(text.into(), Pattern::new(text)?);
        }
        Ok(&self.0[text])
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}/", self.text)
    }
}

/// Go's words for what the engine reports; it does not point at the same letters, so most of them
/// are followed by the whole pattern.
fn explain(error: &regex::Error, text: &str) -> String {
    let report = error.to_string();
    let reason = report.lines().next_back().unwrap_or_default();
    let reason = reason.strip_prefix("error: ").unwrap_or(reason);
    let (words, part) = match reason {
        "unclosed character class" => ("missing closing ]", text.rfind('[').unwrap_or_default()),
        "unclosed group" => ("missing closing )", 0),
        "unopened group" => ("unexpected )", 0),
        "repetition operator missing expression" => ("missing argument to repetition operator", 0),
        "incomplete escape sequence, reached end of pattern prematurely" => {
            ("trailing backslash at end of expression", text.len())
        }
        "unrecognized escape sequence" => ("invalid escape sequence", 0),
        "invalid repetition count range, the start must be <= the end" => {
            ("invalid repeat count", 0)
        }
        _ if matches!(error, regex::Error::CompiledTooBig(_)) => {
            return "expression too large".to_owned();
        }
        _ => (reason, 0),
    };
    format!("{words}: `{}`", &text[part..])
}

/// Rewrites what the two engines read differently: classes like `\d` know only ASCII in Go, braces
/// that count nothing are letters, classes do not nest, and `\Q…\E` quotes.
fn translate(text: &str) -> Result<String, PatternError> {
    let letters: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len() + 8);
    let mut at = 0;
    while let Some(&letter) = letters.get(at) {
        let rest = &letters[at..];
        at += match letter {
            '\\' => escape(rest, &mut out),
            '[' => class(rest, &mut out),
            '{' if !counts(rest) => {
                out.push_str("\\{");
                1
            }
            '(' => group(rest, &mut out, text)?,
            _ => {
                out.push(letter);
                1
            }
        };
    }
    Ok(out)
}

/// Reads an escape outside a class; answers how many letters it took.
fn escape(rest: &[char], out: &mut String) -> usize {
    let Some(&letter) = rest.get(1) else {
        out.push('\\');
        return 1;
    };
    match letter {
        'd' => out.push_str("[0-9]"),
        'D' => out.push_str("[^0-9]"),
        'w' => out.push_str("[0-9A-Za-z_]"),
        'W' => out.push_str("[^0-9A-Za-z_]"),
        's' => out.push_str("[\\t\\n\\x0c\\r ]"),
        'S' => out.push_str("[^\\t\\n\\x0c\\r ]"),
        'b' => out.push_str("(?-u:\\b)"),
        '<' | '>' => out.push(letter),
        'Q' => return quoted(rest, out),
        _ => {
            out.push('\\');
            out.push(letter);
        }
    }
    2
}

fn quoted(rest: &[char], out: &mut String) -> usize {
    let body = &rest[2..];
    let end = body.windows(2).position(|pair| pair == ['\\', 'E']);
    let inside: String = body[..end.unwrap_or(body.len())].iter().collect();
    out.push_str(&regex::escape(&inside));
    end.map_or(rest.len(), |end| end + 4)
}

/// Reads a bracketed class; answers how many letters it took.
fn class(rest: &[char], out: &mut String) -> usize {
    out.push('[');
    let mut at = 1;
    if rest.get(at) == Some(&'^') {
        out.push('^');
        at += 1;
    }
    let first = at;
    while let Some(&letter) = rest.get(at) {
        match letter {
            ']' if at > first => {
                out.push(']');
                return at + 1;
            }
            '[' if rest.get(at + 1) == Some(&':') => match named_class(&rest[at..]) {
                Some(length) => {
                    out.extend(&rest[at..at + length]);
                    at += length;
                    continue;
                }
                None => out.push_str("\\["),
            },
            '[' | '&' | '~' => {
                out.push('\\');
                out.push(letter);
            }
            ']' => out.push_str("\\]"),
            '\\' => {
                at += class_escape(rest.get(at + 1).copied(), out);
                continue;
            }
            // Two in a row would take one set from another.
            '-' if rest.get(at + 1) == Some(&'-') => out.push_str("\\-"),
            _ => out.push(letter),
        }
        at += 1;
    }
    at
}

fn class_escape(letter: Option<char>, out: &mut String) -> usize {
    match letter {
        Some('d') => out.push_str("0-9"),
        Some('D') => out.push_str("[^0-9]"),
        Some('w') => out.push_str("0-9A-Za-z_"),
        Some('W') => out.push_str("[^0-9A-Za-z_]"),
        Some('s') => out.push_str("\\t\\n\\x0c\\r "),
        Some('S') => out.push_str("[^\\t\\n\\x0c\\r ]"),
        Some('<' | '>') => out.extend(letter),
        Some(letter) => {
            out.push('\\');
            out.push(letter);
        }
        None => {
            out.push('\\');
            return 1;
        }
    }
    2
}

/// The length of `[:alpha:]` at the start of `rest`.
fn named_class(rest: &[char]) -> Option<usize> {
    let end = rest.windows(2).position(|pair| pair == [':', ']']).filter(|end| *end >= 2)?;
    let name = &rest[2..end];
    let name = name.strip_prefix(&['^']).unwrap_or(name);
    name.iter().all(char::is_ascii_lowercase).then_some(end + 2)
}

/// Whether `rest` begins with a count, as in `{2}`, `{2,}` or `{2,3}`.
fn counts(rest: &[char]) -> bool {
    let Some(end) = rest.iter().position(|letter| *letter == '}') else { return false };
    let body: String = rest[1..end].iter().collect();
    let is_count = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match body.split_once(',') {
        None => is_count(&body),
        Some((least, most)) => is_count(least) && (most.is_empty() || is_count(most)),
    }
}

/// Opens a group; flags that only our engine knows are refused.
fn group(rest: &[char], out: &mut String, text: &str) -> Result<usize, PatternError> {
    out.push('(');
    if rest.get(1) != Some(&'?') {
        return Ok(1);
    }
    let flags =
        rest[2..].iter().take_while(|letter| letter.is_ascii_alphabetic() || **letter == '-');
    let is_named = matches!(rest.get(2), Some('P' | '<'));
    if !is_named && flags.clone().any(|flag| !matches!(flag, 'i' | 'm' | 's' | 'U' | '-')) {
        let reason = format!("invalid or unsupported Perl syntax: `{text}`");
        return Err(PatternError { reason });
    }
    out.push('?');
    Ok(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_what_they_mean_in_go() {
        let table = [
            ("^[a-z]+$", "abc", true),
            ("^[a-z]+$", "aBc", false),
            (r"^\d+$", "٣", false),
            (r"^\d+$", "3", true),
            (r"^\w+$", "ä", false),
            (r"^\s$", "\u{a0}", false),
            (r"^[\w-]+$", "a-b_1", true),
            (r"^[\D]$", "3", false),
            (r"^\${[^}]+}$", "${name}", true),
            ("^a{2}$", "aa", true),
            ("^{a}$", "{a}", true),
            ("^[[a]+$", "[a", true),
            ("^[a&&b]+$", "&", true),
            ("^[[:alpha:]]+$", "ab", true),
            (r"^\Qa.b\E+$", "a.bbb", true),
            (r"^\Qa.b\E$", "axb", false),
            (r"^\<a\>$", "<a>", true),
            (r"^[]a]$", "]", true),
            (r"^[^]a]$", "b", true),
            ("(?i)^abc$", "ABC", true),
            ("^(?P<x>a)$", "a", true),
            (r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "a-b", true),
            (r"\bx\b", "a x b", true),
        ];
        for (pattern, text, expected) in table {
            let pattern = Pattern::new(pattern).unwrap();
            assert_eq!(pattern.matches(text), expected, "{pattern:?} on {text}");
        }
    }

    #[test]
    fn malformed_and_huge_patterns_are_refused() {
        for text in ["[a", "(", "a{1000}{1000}{1000}", "(?=a)", "(?x)a", "*", "\\"] {
            assert!(Pattern::new(text).is_err(), "{text}");
            assert!(PatternCache::default().compile(text).is_err(), "{text}");
        }
        let error = Pattern::new("[a").unwrap_err().to_string();
        assert_eq!(error, "error parsing regexp: missing closing ]: `[a`");
    }
}
