//! Patterns.
//!
//! Patterns are written for another engine, whose classes are ASCII and which takes for literal
//! what ours takes for syntax; they are translated before they are compiled.

use std::sync::Arc;

use regex::{Regex, RegexBuilder};

use super::{EvalResult, LibraryFunction, no_overload};
use crate::cost::CostRule;
use crate::eval_context::EvalContext;
use crate::value::{Text, Value};

pub(super) const FUNCTIONS: &[LibraryFunction] = &[
    LibraryFunction {
        name: "matches",
        signatures: &["string.(string) bool", "(string,string) bool"],
        charge: CostRule::Pattern,
        run: matches,
    },
    LibraryFunction {
        name: "find",
        signatures: &["string.(string) string"],
        charge: CostRule::Pattern,
        run: find,
    },
    LibraryFunction {
        name: "findAll",
        signatures: &["string.(string) list(string)", "string.(string,int) list(string)"],
        charge: CostRule::Pattern,
        run: find_all,
    },
];

/// A compiled pattern.
#[derive(Clone, Debug)]
pub(crate) struct Pattern(Arc<Regex>);

/// Memory that a pattern may take that is spelled out and compiled once: repetitions of repetitions
/// multiply.
pub(crate) const LITERAL_PATTERN_MEMORY: usize = 10 * 1024 * 1024;
/// Memory that a pattern may take that an evaluation computes.
pub(crate) const COMPUTED_PATTERN_MEMORY: usize = 1024 * 1024;

impl Pattern {
    pub(crate) fn compile(text: &str, memory: usize) -> Result<Self, String> {
        let regex =
            RegexBuilder::new(&translate(text)).size_limit(memory).dfa_size_limit(memory).build();
        match regex {
            Ok(regex) => Ok(Self(Arc::new(regex))),
            Err(_) => Err(format!("error parsing regexp: invalid pattern: `{text}`")),
        }
    }
}

fn matches<'v>(work: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [Value::String(text), Value::String(pattern)] = args else { return no_overload() };
    Ok(Value::Bool(work.pattern(pattern)?.0.is_match(text)))
}

fn part<'v>(text: &Text<'v>, found: regex::Match<'_>) -> Value<'v> {
    match text {
        Text::Borrowed(text) => Value::String(Text::Borrowed(&text[found.range()])),
        Text::Shared(text) => Value::text(&text[found.range()]),
    }
}

fn find<'v>(work: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [Value::String(text), Value::String(pattern)] = args else { return no_overload() };
    let found = work.pattern(pattern)?.0.find(text).map(|found| part(text, found));
    Ok(found.unwrap_or_else(|| Value::text("")))
}

fn find_all<'v>(work: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let (text, pattern, most) = match args {
        [Value::String(text), Value::String(pattern)] => (text, pattern, -1),
        [Value::String(text), Value::String(pattern), Value::Int(most)] => (text, pattern, *most),
        _ => return no_overload(),
    };
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let pattern = work.pattern(pattern)?;
    let found = pattern.0.find_iter(text).take(most).map(|found| part(text, found));
    Ok(Value::list(found.collect()))
}

/// The pattern in the syntax of our engine.
fn translate(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    let mut rest = text.chars().peekable();
    let mut in_class = false;
    let mut class_start = false;
    while let Some(letter) = rest.next() {
        let first_in_class = std::mem::take(&mut class_start);
        match letter {
            '\\' => escape(&mut out, &mut rest, in_class),
            '[' if !in_class => {
                in_class = true;
                class_start = true;
                out.push('[');
                if rest.next_if_eq(&'^').is_some() {
                    out.push('^');
                }
            }
            // A bracket that opens a class of its own, as in `[[:alpha:]]`, stays one.
            '[' if rest.peek() == Some(&':') => {
                out.push('[');
                for letter in rest.by_ref() {
                    out.push(letter);
                    if letter == ']' {
                        break;
                    }
                }
            }
            '[' => out.push_str("\\["),
            ']' if in_class && first_in_class => out.push_str("\\]"),
            ']' if in_class => {
                in_class = false;
                out.push(']');
            }
            '&' | '~' if in_class => {
                out.push('\\');
                out.push(letter);
            }
            '-' if in_class && rest.peek() == Some(&'-') => out.push_str("\\-"),
            '{' if !in_class && !is_repetition(rest.clone()) => out.push_str("\\{"),
            other => out.push(other),
        }
    }
    out
}

fn escape(out: &mut String, rest: &mut std::iter::Peekable<std::str::Chars<'_>>, in_class: bool) {
    let Some(letter) = rest.next() else {
        out.push('\\');
        return;
    };
    match (letter, in_class) {
        ('d', true) => out.push_str("0-9"),
        ('d', false) => out.push_str("[0-9]"),
        ('w', true) => out.push_str("0-9A-Za-z_"),
        ('w', false) => out.push_str("[0-9A-Za-z_]"),
        ('s', true) => out.push_str(r"\t\n\x0C\r "),
        ('s', false) => out.push_str(r"[\t\n\x0C\r ]"),
        ('D', _) => out.push_str("[^0-9]"),
        ('W', _) => out.push_str("[^0-9A-Za-z_]"),
        ('S', _) => out.push_str(r"[^\t\n\x0C\r ]"),
        ('b', false) => out.push_str(r"(?-u:\b)"),
        ('Q', false) => {
            let mut quoted = String::new();
            while let Some(letter) = rest.next() {
                if letter == '\\' && rest.next_if_eq(&'E').is_some() {
                    break;
                }
                quoted.push(letter);
            }
            out.push_str(&regex::escape(&quoted));
        }
        // Escaped, these would be boundaries of words.
        ('<' | '>', _) => out.push(letter),
        (other, _) => {
            out.push('\\');
            out.push(other);
        }
    }
}

/// Whether what follows a brace makes it a repetition: `2}`, `2,}` or `2,3}`.
fn is_repetition(mut rest: std::iter::Peekable<std::str::Chars<'_>>) -> bool {
    let mut digits = 0;
    while rest.next_if(char::is_ascii_digit).is_some() {
        digits += 1;
    }
    if digits == 0 {
        return false;
    }
    if rest.next_if_eq(&',').is_some() {
        while rest.next_if(char::is_ascii_digit).is_some() {}
    }
    rest.next() == Some('}')
}
