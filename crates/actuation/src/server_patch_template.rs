//! Expands the template of a server patch.
//!
//! The language is the part of Go's templates that patches use: text, the fields `.NodeName` and
//! `.LocalVolume`, trim markers, comments, and `if`, `else if`, `else` and `end` with `eq`, `ne`,
//! `and`, `or` and `not` over these fields and string literals. Everything else is an error that
//! names the line and the construct: a patch that is misread would start the wrong engine.

mod lexer;

use std::collections::BTreeMap;

use self::lexer::{Lexeme, Token, actions};

/// The values of a template's fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TemplateData<'a> {
    /// The requester's node.
    pub node_name: &'a str,
    /// The local volume; always empty.
    pub local_volume: &'a str,
}

/// Why a template cannot be expanded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("server-patch line {line}: {what}")]
pub struct TemplateError {
    /// The line, counted from one.
    pub line: usize,
    /// The construct, and what is wrong with it.
    pub what: String,
}

impl TemplateError {
    fn new(line: usize, what: impl Into<String>) -> Self {
        Self { line, what: what.into() }
    }
}

/// How deep `if` and parentheses may be nested.
const MAX_DEPTH: usize = 32;

/// Expands a template.
///
/// # Errors
/// The template has a construct that is not supported, or is malformed.
pub fn expand(template: &str, data: TemplateData<'_>) -> Result<String, TemplateError> {
    let fields = BTreeMap::from([("NodeName", data.node_name), ("LocalVolume", data.local_volume)]);
    let mut expansion = Expansion { fields, text: String::new(), branches: Vec::new() };
    for lexeme in actions(template)? {
        match lexeme {
            Lexeme::Text(text) => expansion.write(text),
            Lexeme::Action { line, tokens } => expansion.act(line, &tokens)?,
        }
    }
    match expansion.branches.last() {
        Some(open) => Err(TemplateError::new(open.line, "{{if}} without {{end}}")),
        None => Ok(expansion.text),
    }
}

/// A value of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    Text(String),
    Bool(bool),
}

impl Value {
    fn is_true(&self) -> bool {
        match self {
            Self::Text(text) => !text.is_empty(),
            Self::Bool(value) => *value,
        }
    }

    fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Bool(true) => "true",
            Self::Bool(false) => "false",
        }
    }
}

/// An `if` that is open.
struct Branch {
    line: usize,
    /// Whether the text of the current branch is written.
    active: bool,
    /// Whether one of the branches was true.
    done: bool,
    has_else: bool,
}

struct Expansion<'a> {
    fields: BTreeMap<&'static str, &'a str>,
    text: String,
    branches: Vec<Branch>,
}

impl Expansion<'_> {
    fn is_active(&self) -> bool {
        self.branches.iter().all(|it| it.active)
    }

    fn write(&mut self, text: &str) {
        if self.is_active() {
            self.text.push_str(text);
        }
    }

    fn act(&mut self, line: usize, tokens: &[Token]) -> Result<(), TemplateError> {
        let word = match tokens.first() {
            None => return Ok(()),
            Some(Token::Word(word)) => word.as_str(),
            Some(Token::Field(_) | Token::Literal(_) | Token::Open | Token::Close) => "",
        };
        match word {
            "if" => {
                if self.branches.len() == MAX_DEPTH {
                    let what = format!("{{{{if}}}} is nested deeper than {MAX_DEPTH}");
                    return Err(TemplateError::new(line, what));
                }
                let active = self.evaluate(line, &tokens[1..])?.is_true();
                self.branches.push(Branch { line, active, done: active, has_else: false });
            }
            "else" => {
                let condition = match tokens.get(1) {
                    None => None,
                    Some(Token::Word(word)) if word == "if" => {
                        Some(self.evaluate(line, &tokens[2..])?.is_true())
                    }
                    Some(other) => {
                        let what = format!("{{{{else {other}}}}} is not supported");
                        return Err(TemplateError::new(line, what));
                    }
                };
                let Some(branch) = self.branches.last_mut().filter(|it| !it.has_else) else {
                    return Err(TemplateError::new(line, "{{else}} without {{if}}"));
                };
                branch.active = !branch.done && condition.unwrap_or(true);
                branch.done |= branch.active;
                branch.has_else = condition.is_none();
            }
            "end" => {
                if tokens.len() > 1 || self.branches.pop().is_none() {
                    return Err(TemplateError::new(line, "{{end}} without {{if}}"));
                }
            }
            _ => {
                let value = self.evaluate(line, tokens)?;
                self.write(value.text());
            }
        }
        Ok(())
    }

    /// The value of an expression that consists of all these tokens.
    fn evaluate(&self, line: usize, tokens: &[Token]) -> Result<Value, TemplateError> {
        let mut rest = tokens;
        let value = self.call(line, &mut rest, 0)?;
        match rest.first() {
            None => Ok(value),
            Some(token) => Err(TemplateError::new(line, format!("unexpected {token}"))),
        }
    }

    /// A function with its arguments, or one operand.
    fn call(
        &self,
        line: usize,
        tokens: &mut &[Token],
        depth: usize,
    ) -> Result<Value, TemplateError> {
        let Some(Token::Word(name)) = tokens.first() else {
            return self.operand(line, tokens, depth);
        };
        *tokens = &tokens[1..];
        let mut arguments = Vec::new();
        while !matches!(tokens.first(), None | Some(Token::Close)) {
            arguments.push(self.operand(line, tokens, depth)?);
        }
        let count = |least: usize, most: usize| {
            if (least..=most).contains(&arguments.len()) {
                return Ok(());
            }
            let what = format!("{name} has {} arguments, not {least}", arguments.len());
            Err(TemplateError::new(line, what))
        };
        match name.as_str() {
            "eq" => {
                count(2, usize::MAX)?;
                Ok(Value::Bool(arguments[1..].contains(&arguments[0])))
            }
            "ne" => {
                count(2, 2)?;
                Ok(Value::Bool(arguments[0] != arguments[1]))
            }
            "not" => {
                count(1, 1)?;
                Ok(Value::Bool(!arguments[0].is_true()))
            }
            // Go's `and` and `or` return one of their arguments.
            "and" | "or" => {
                count(1, usize::MAX)?;
                let wanted = name == "or";
                let found = arguments.iter().find(|it| it.is_true() == wanted);
                Ok(found.or_else(|| arguments.last()).cloned().unwrap_or(Value::Bool(false)))
            }
            other => {
                let what = format!(
                    "{other:?} is not supported; use text, .NodeName, .LocalVolume, comments, and \
                     if, else and end with eq, ne, and, or, not"
                );
                Err(TemplateError::new(line, what))
            }
        }
    }

    fn operand(
        &self,
        line: usize,
        tokens: &mut &[Token],
        depth: usize,
    ) -> Result<Value, TemplateError> {
        let Some((first, rest)) = tokens.split_first() else {
            return Err(TemplateError::new(line, "a value is missing"));
        };
        *tokens = rest;
        match first {
            Token::Literal(text) => Ok(Value::Text(text.clone())),
            Token::Field(name) => match self.fields.get(name.as_str()) {
                Some(value) => Ok(Value::Text((*value).to_owned())),
                None => {
                    let what = format!("unknown field .{name}; use .NodeName or .LocalVolume");
                    Err(TemplateError::new(line, what))
                }
            },
            Token::Open if depth == MAX_DEPTH => {
                Err(TemplateError::new(line, format!("nested deeper than {MAX_DEPTH}")))
            }
            Token::Open => {
                let value = self.call(line, tokens, depth + 1)?;
                match tokens.split_first() {
                    Some((Token::Close, rest)) => {
                        *tokens = rest;
                        Ok(value)
                    }
                    Some(_) | None => Err(TemplateError::new(line, "\"(\" without \")\"")),
                }
            }
            Token::Word(_) | Token::Close => {
                Err(TemplateError::new(line, format!("{first} is not a value")))
            }
        }
    }
}

#[cfg(test)]
mod tests;
