//! The form of expressions.

use std::fmt;

use serde_json::Number;

use crate::value::Value;

/// A part of a text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Part {
    Text(String),
    Expression(Expression),
}

/// What stands between braces.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Expression {
    pub(crate) term: Term,
    pub(crate) default: Option<Term>,
}

/// What an expression names.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Term {
    Variable(String),
    /// `lookup('env', …)`.
    Environment(String),
    /// `groups['…']`.
    Group(String),
    /// Only as a default.
    Literal(Value),
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name) => write!(f, "`{name}`"),
            Self::Environment(name) => write!(f, "environment variable `{name}`"),
            Self::Group(name) => write!(f, "group `{name}`"),
            Self::Literal(_) => f.write_str("the default"),
        }
    }
}

/// Why a text is not an expression of the known forms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExpressionError {
    /// Where it begins, in characters from the start of the text.
    pub(crate) offset: usize,
    /// How many characters are wrong.
    pub(crate) width: usize,
    pub(crate) message: String,
}

/// Whether a text has anything in braces.
pub(crate) fn contains_expression(text: &str) -> bool {
    ["{{", "{%", "{#"].iter().any(|braces| text.contains(braces))
}

/// Splits a text into expressions and what is between them.
pub(crate) fn parse(text: &str) -> Result<Vec<Part>, ExpressionError> {
    let mut parts = Vec::new();
    let mut literal = String::new();
    let mut scanner = Scanner { chars: text.chars().collect(), at: 0 };
    while let Some(c) = scanner.peek(0) {
        match (c, scanner.peek(1)) {
            ('{', Some('{')) => {
                let start = scanner.at;
                scanner.at += 2;
                // `{{-` and `{{+` change blanks around an expression.
                if matches!(scanner.peek(0), Some('-' | '+')) {
                    return Err(scanner.error(start, 3, "blanks cannot be controlled here"));
                }
                let expression = scanner.expression(start)?;
                if !literal.is_empty() {
                    parts.push(Part::Text(std::mem::take(&mut literal)));
                }
                parts.push(Part::Expression(expression));
            }
            ('{', Some('%' | '#')) => {
                return Err(scanner.error(
                    scanner.at,
                    2,
                    "statements and comments in braces are not read",
                ));
            }
            _ => {
                literal.push(c);
                scanner.at += 1;
            }
        }
    }
    if !literal.is_empty() {
        parts.push(Part::Text(literal));
    }
    Ok(parts)
}

struct Scanner {
    chars: Vec<char>,
    at: usize,
}

type Parsed<T> = Result<T, ExpressionError>;

impl Scanner {
    fn expression(&mut self, start: usize) -> Parsed<Expression> {
        let term = self.term()?;
        let default = if self.eat("|") { Some(self.default()?) } else { None };
        if self.eat("}}") {
            return Ok(Expression { term, default });
        }
        Err(match self.peek(0) {
            None => self.error(start, 2, "braces are not closed"),
            Some(_) => self.unexpected(),
        })
    }

    fn term(&mut self) -> Parsed<Term> {
        let start = self.skip_blanks();
        let Some(name) = self.name() else { return Err(self.unexpected()) };
        match name.as_str() {
            "lookup" | "query" | "q" if self.eat("(") => {
                let kind_at = self.skip_blanks();
                let kind = self.text()?;
                if name != "lookup" || kind != "env" {
                    let width = self.at - kind_at;
                    return Err(self.error(kind_at, width, "only `lookup('env', …)` is read"));
                }
                self.expect(",")?;
                let variable = self.text()?;
                self.expect(")")?;
                Ok(Term::Environment(variable))
            }
            "groups" => {
                self.expect("[")?;
                let group = self.text()?;
                self.expect("]")?;
                Ok(Term::Group(group))
            }
            "true" | "false" | "none" | "True" | "False" | "None" | "not" | "and" | "or" | "if"
            | "else" | "in" | "is" => {
                let width = name.chars().count();
                Err(self.error(start, width, format!("`{name}` is not a variable")))
            }
            _ => Ok(Term::Variable(name)),
        }
    }

    fn default(&mut self) -> Parsed<Term> {
        let start = self.skip_blanks();
        let name = self.name().unwrap_or_default();
        if name != "default" {
            if name.is_empty() {
                return Err(self.unexpected());
            }
            let width = name.chars().count();
            return Err(self.error(start, width, format!("filter `{name}` is not read")));
        }
        self.expect("(")?;
        let start = self.skip_blanks();
        let term = match self.peek(0) {
            Some('\'' | '"') => Term::Literal(Value::Text(self.text()?)),
            Some('[') => {
                self.at += 1;
                self.expect("]")?;
                Term::Literal(Value::List(Vec::new()))
            }
            Some('{') => {
                self.at += 1;
                self.expect("}")?;
                Term::Literal(Value::Map(Vec::new()))
            }
            Some(c) if c == '-' || c.is_ascii_digit() => Term::Literal(self.number(start)?),
            Some(_) => match self.name().as_deref() {
                Some("true" | "True") => Term::Literal(Value::Bool(true)),
                Some("false" | "False") => Term::Literal(Value::Bool(false)),
                Some("none" | "None") => Term::Literal(Value::Null),
                Some(_) => {
                    self.at = start;
                    self.term()?
                }
                None => return Err(self.unexpected()),
            },
            None => return Err(self.unexpected()),
        };
        self.expect(")")?;
        Ok(term)
    }

    fn number(&mut self, start: usize) -> Parsed<Value> {
        let is_part = |c: char| c == '-' || c == '.' || c.is_ascii_digit();
        while self.peek(0).is_some_and(is_part) {
            self.at += 1;
        }
        let text: String = self.chars[start..self.at].iter().collect();
        let integer = text.parse::<i64>().ok().map(Number::from);
        let real = || text.parse::<f64>().ok().and_then(Number::from_f64);
        let number = integer.or_else(real).filter(|_| !text.ends_with('.'));
        let width = self.at - start;
        number.map(Value::Number).ok_or_else(|| self.error(start, width, "not a number"))
    }

    fn text(&mut self) -> Parsed<String> {
        let start = self.skip_blanks();
        let Some(quote) = self.peek(0).filter(|c| matches!(c, '\'' | '"')) else {
            return Err(self.unexpected());
        };
        self.at += 1;
        let mut text = String::new();
        loop {
            let Some(c) = self.peek(0) else {
                return Err(self.error(start, 1, "a quote is not closed"));
            };
            self.at += 1;
            match c {
                c if c == quote => return Ok(text),
                '\\' => {
                    return Err(self.error(self.at - 1, 1, "escapes are not read here"));
                }
                c => text.push(c),
            }
        }
    }

    fn name(&mut self) -> Option<String> {
        let start = self.at;
        if !self.peek(0).is_some_and(|c| c == '_' || c.is_ascii_alphabetic()) {
            return None;
        }
        while self.peek(0).is_some_and(|c| c == '_' || c.is_ascii_alphanumeric()) {
            self.at += 1;
        }
        Some(self.chars[start..self.at].iter().collect())
    }

    fn expect(&mut self, token: &str) -> Parsed<()> {
        if self.eat(token) { Ok(()) } else { Err(self.unexpected()) }
    }

    fn eat(&mut self, token: &str) -> bool {
        self.skip_blanks();
        let found = token.chars().enumerate().all(|(index, c)| self.peek(index) == Some(c));
        if found {
            self.at += token.chars().count();
        }
        found
    }

    fn skip_blanks(&mut self) -> usize {
        while self.peek(0).is_some_and(char::is_whitespace) {
            self.at += 1;
        }
        self.at
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn unexpected(&self) -> ExpressionError {
        match self.peek(0) {
            Some(c) => self.error(self.at, 1, format!("`{c}` cannot stand here")),
            None => self.error(self.at.saturating_sub(1), 1, "braces are not closed"),
        }
    }

    fn error(&self, offset: usize, width: usize, message: impl Into<String>) -> ExpressionError {
        let offset = offset.min(self.chars.len().saturating_sub(1));
        ExpressionError { offset, width, message: message.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn variable(name: &str) -> Term {
        Term::Variable(name.to_owned())
    }

    fn text(text: &str) -> Term {
        Term::Literal(Value::Text(text.to_owned()))
    }

    #[test]
    fn prv_3_five_forms_are_read() {
        let table = [
            ("{{ a }}", variable("a"), None),
            ("{{a}}", variable("a"), None),
            ("{{ inventory_hostname }}", variable("inventory_hostname"), None),
            ("{{ groups['g-1'] }}", Term::Group("g-1".to_owned()), None),
            ("{{ lookup(\"env\", 'X') }}", Term::Environment("X".to_owned()), None),
            ("{{ a | default('x') }}", variable("a"), Some(text("x"))),
            ("{{ a|default(b) }}", variable("a"), Some(variable("b"))),
            (
                "{{ a | default(-1) }}",
                variable("a"),
                Some(Term::Literal(Value::Number((-1).into()))),
            ),
            ("{{ a | default([]) }}", variable("a"), Some(Term::Literal(Value::List(Vec::new())))),
            ("{{ a | default(none) }}", variable("a"), Some(Term::Literal(Value::Null))),
            (
                "{{ lookup('env','X') | default('y') }}",
                Term::Environment("X".to_owned()),
                Some(text("y")),
            ),
        ];
        for (source, term, default) in table {
            let expected = vec![Part::Expression(Expression { term, default })];
            assert_eq!(parse(source), Ok(expected), "{source}");
        }
        let parts = parse("a{{ b }}c}}{d").unwrap();
        assert_eq!(parts.len(), 3);
        assert_eq!(parts[2], Part::Text("c}}{d".to_owned()));
    }

    #[test]
    fn prv_3_everything_else_is_refused_with_its_place() {
        let table = [
            ("x {{ a.b }}", 6, "`.`"),
            ("{{ a[0] }}", 4, "`[`"),
            ("{{ a | upper }}", 7, "filter `upper`"),
            ("{{ a + 1 }}", 5, "`+`"),
            ("{{ 'a' }}", 3, "`'`"),
            ("{{ a", 0, "not closed"),
            ("{{", 1, "not closed"),
            ("{% if x %}", 0, "statements"),
            ("a {# c #}", 2, "comments"),
            ("{{- a }}", 0, "blanks"),
            ("{{ lookup('file', 'x') }}", 10, "env"),
            ("{{ groups.g }}", 9, "`.`"),
            ("{{ true }}", 3, "`true`"),
            ("{{ a | default('x', true) }}", 18, "`,`"),
            ("{{ a | default('x) }}", 15, "quote"),
            ("{{ a if b else c }}", 5, "`i`"),
            ("{{ a | default(1.) }}", 15, "number"),
            ("é {{ b() }}", 6, "`(`"),
        ];
        for (source, offset, message) in table {
            let error = parse(source).unwrap_err();
            assert_eq!(error.offset, offset, "{source}: {error:?}");
            assert!(error.message.contains(message), "{source}: {error:?}");
        }
    }

    proptest! {
        #[test]
        fn text_without_braces_is_itself(source in "[a-z }%#']{1,20}") {
            let parsed = parse(&source);
            prop_assert_eq!(parsed, Ok(vec![Part::Text(source)]));
        }

        #[test]
        fn no_text_makes_it_panic(source in "[{}%#a|()'\"\\[\\]., 1-]{0,20}") {
            if let Err(error) = parse(&source) {
                prop_assert!(error.offset < source.chars().count().max(1));
            }
        }
    }
}
