//! Splits a template into text and actions.

use std::fmt;

use super::TemplateError;

/// A part of a template.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lexeme<'a> {
    /// Text that is written as it is.
    Text(&'a str),
    /// An action; one without tokens is a comment.
    Action { line: usize, tokens: Vec<Token> },
}

/// A token of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// A keyword or the name of a function.
    Word(String),
    /// A field, without its dot.
    Field(String),
    /// A string literal.
    Literal(String),
    Open,
    Close,
}

impl fmt::Display for Token {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) => to.write_str(word),
            Self::Field(name) => write!(to, ".{name}"),
            Self::Literal(text) => write!(to, "{text:?}"),
            Self::Open => to.write_str("\"(\""),
            Self::Close => to.write_str("\")\""),
        }
    }
}

/// What Go's templates trim.
const SPACE: [char; 4] = [' ', '\t', '\r', '\n'];

/// The parts of a template, with spaces trimmed where its markers say so.
pub(super) fn actions(template: &str) -> Result<Vec<Lexeme<'_>>, TemplateError> {
    let mut lexemes = Vec::new();
    let (mut rest, mut line, mut trim) = (template, 1, false);
    while let Some((text, after)) = rest.split_once("{{") {
        let trims_before = after.strip_prefix('-').filter(|it| it.starts_with(SPACE));
        let mut shown = if trim { text.trim_start_matches(SPACE) } else { text };
        if trims_before.is_some() {
            shown = shown.trim_end_matches(SPACE);
        }
        lexemes.push(Lexeme::Text(shown));
        line += text.matches('\n').count();
        let body = trims_before.unwrap_or(after);
        let (tokens, end, trims_after) = action(body, line)?;
        lexemes.push(Lexeme::Action { line, tokens });
        line += body[..end].matches('\n').count();
        rest = &body[end..];
        trim = trims_after;
    }
    lexemes.push(Lexeme::Text(if trim { rest.trim_start_matches(SPACE) } else { rest }));
    Ok(lexemes)
}

/// The tokens of the action that begins here, where it ends, and whether it trims what follows.
fn action(body: &str, line: usize) -> Result<(Vec<Token>, usize, bool), TemplateError> {
    let unclosed = || TemplateError::new(line, "{{ without }}");
    let leading = body.len() - body.trim_start_matches(SPACE).len();
    if let Some(comment) = body[leading..].strip_prefix("/*") {
        let (_, after) = comment
            .split_once("*/")
            .ok_or_else(|| TemplateError::new(line, "a comment without */"))?;
        let end = body.len() - after.len();
        let trims = after.starts_with(SPACE) && after.trim_start_matches(SPACE).starts_with("-}}");
        let close =
            if trims { after.find("}}") } else { Some(0).filter(|_| after.starts_with("}}")) };
        let close =
            close.ok_or_else(|| TemplateError::new(line, "text between a comment and }}"))?;
        return Ok((Vec::new(), end + close + 2, trims));
    }
    let mut tokens = Vec::new();
    let mut at = 0;
    loop {
        let rest = &body[at..];
        if rest.starts_with("}}") {
            return non_empty(tokens, line).map(|tokens| (tokens, at + 2, false));
        }
        let first = rest.chars().next().ok_or_else(unclosed)?;
        if SPACE.contains(&first) {
            at += first.len_utf8();
            if body[at..].starts_with("-}}") {
                return non_empty(tokens, line).map(|tokens| (tokens, at + 3, true));
            }
            continue;
        }
        let (token, length) = token(rest, first, line)?;
        tokens.push(token);
        at += length;
    }
}

fn non_empty(tokens: Vec<Token>, line: usize) -> Result<Vec<Token>, TemplateError> {
    match tokens.is_empty() {
        true => Err(TemplateError::new(line, "an empty action")),
        false => Ok(tokens),
    }
}

/// The first token, and its length.
fn token(text: &str, first: char, line: usize) -> Result<(Token, usize), TemplateError> {
    let is_name = |it: char| it.is_ascii_alphanumeric() || it == '_';
    let name = |from: usize| {
        let rest = &text[from..];
        rest.find(|it| !is_name(it)).map_or(rest.len(), |end| end)
    };
    match first {
        '(' => Ok((Token::Open, 1)),
        ')' => Ok((Token::Close, 1)),
        '.' => {
            let length = name(1);
            if length == 0 || text[1 + length..].starts_with('.') {
                let what = "\".\" is not supported alone or in a chain; use .NodeName or \
                            .LocalVolume";
                return Err(TemplateError::new(line, what));
            }
            Ok((Token::Field(text[1..=length].to_owned()), 1 + length))
        }
        '`' => match text[1..].split_once('`') {
            Some((raw, _)) => Ok((Token::Literal(raw.to_owned()), raw.len() + 2)),
            None => Err(TemplateError::new(line, "a literal without closing `")),
        },
        '"' => literal(text, line),
        it if is_name(it) && !it.is_ascii_digit() => {
            let length = name(0);
            Ok((Token::Word(text[..length].to_owned()), length))
        }
        other => Err(TemplateError::new(line, format!("{other:?} is not supported"))),
    }
}

/// A literal in double quotes.
fn literal(text: &str, line: usize) -> Result<(Token, usize), TemplateError> {
    let mut value = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, it)) = chars.next() {
        match it {
            '"' => return Ok((Token::Literal(value), at + 1)),
            '\n' => break,
            '\\' => match chars.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, 't')) => value.push('\t'),
                Some((_, escaped @ ('"' | '\\'))) => value.push(escaped),
                Some((_, other)) => {
                    let what = format!("the escape \\{other} is not supported");
                    return Err(TemplateError::new(line, what));
                }
                None => break,
            },
            other => value.push(other),
        }
    }
    Err(TemplateError::new(line, "a literal without closing \""))
}
