//! Why an expression was refused, or failed.

use std::fmt;

use crate::types::Type;

/// Why an expression was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// The text has more bytes than allowed.
    #[error("expression of {size} bytes is longer than {most} bytes")]
    TooLong {
        /// How many bytes it has.
        size: usize,
        /// How many are allowed.
        most: usize,
    },
    /// The expression nests deeper than evaluation could follow.
    #[error("expression nests {depth} levels deep, {most} are allowed")]
    TooDeep {
        /// How deep it nests.
        depth: usize,
        /// How deep it may nest.
        most: usize,
    },
    /// The text is not an expression, or one that cannot be right whatever its variables are.
    #[error("compilation failed: {}", Lines(.0))]
    Invalid(Vec<Issue>),
    /// The expression is right, and its answer of another type than wanted.
    #[error("must evaluate to {expected} but got {found}")]
    WrongResult {
        /// The type that was wanted.
        expected: Type,
        /// The type it has.
        found: Type,
    },
    /// The parser itself failed; nothing is known about the expression.
    #[error("could not parse the expression: {0}")]
    Internal(String),
}

/// One fault at one place of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// The line, from one.
    pub line: usize,
    /// The column in characters, from one.
    pub column: usize,
    /// What is wrong.
    pub message: String,
    /// The text of the line.
    pub text: String,
}

impl Issue {
    /// A fault at a byte of `source`.
    pub(crate) fn at(source: &str, offset: usize, message: String) -> Self {
        let mut start = 0;
        let mut line = 1;
        for (place, byte) in source.bytes().enumerate().take(offset) {
            if byte == b'\n' {
                start = place + 1;
                line += 1;
            }
        }
        let text = source[start..].lines().next().unwrap_or_default().to_owned();
        let column = source
            .get(start..offset.min(source.len()))
            .map_or(1, |before| before.chars().count() + 1);
        Self { line, column, message, text }
    }
}

impl fmt::Display for Issue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ERROR: <input>:{}:{}: {}", self.line, self.column, self.message)?;
        write!(f, "\n | {}\n | ", self.text)?;
        for _ in 1..self.column {
            f.write_str(".")?;
        }
        f.write_str("^")
    }
}

struct Lines<'a>(&'a [Issue]);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, finding) in self.0.iter().enumerate() {
            if place > 0 {
                f.write_str("\n")?;
            }
            finding.fmt(f)?;
        }
        Ok(())
    }
}

/// Why an expression gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// A map or object has no such entry.
    #[error("no such key: {0}")]
    NoSuchKey(String),
    /// A list has no such place.
    #[error("index out of bounds: {0}")]
    OutOfBounds(i64),
    /// A function or operator is not defined for the values it met.
    #[error("no such overload")]
    NoSuchOverload,
    /// A variable is not bound.
    #[error("no such attribute(s): {0}")]
    NoSuchAttribute(String),
    /// An operation failed in the way the text says.
    #[error("{0}")]
    Failed(String),
    /// The budget is used up: the expression is too expensive for its input.
    #[error("operation cancelled: actual cost limit exceeded")]
    CostExceeded,
    /// The evaluator itself failed; nothing is known about the answer.
    #[error("could not evaluate the expression: {0}")]
    Internal(String),
}

impl EvalError {
    pub(crate) fn failed(text: impl Into<String>) -> Self {
        Self::Failed(text.into())
    }

    /// Whether `&&`, `||`, `all` and `exists` may answer in spite of it.
    pub(crate) fn is_absorbable(&self) -> bool {
        match self {
            Self::NoSuchKey(_)
            | Self::OutOfBounds(_)
            | Self::NoSuchOverload
            | Self::NoSuchAttribute(_)
            | Self::Failed(_) => true,
            Self::CostExceeded | Self::Internal(_) => false,
        }
    }
}
