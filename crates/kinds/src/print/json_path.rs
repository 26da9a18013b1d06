//! The paths of printer columns: JSONPath as Kubernetes understands it.
//!
//! Fields (`.spec.replicas`), escaped or quoted keys (`.metadata.labels.a\.b`, `['a']`), indexes,
//! slices and unions (`[0]`, `[-1]`, `[1:3]`, `[0,2]`), wildcards (`.*`, `[*]`), recursive descent
//! (`..name`) and filters (`[?(@.type=="Ready")]`).

mod eval;
mod parse;

use std::fmt;

use gantry_schema::FieldError;
use serde_json::Value;

/// A parsed path.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

impl JsonPath {
    /// Parses a path as a column definition has it, without braces.
    ///
    /// # Errors
    ///
    /// The path is invalid. Kubernetes accepts such a path when a definition is written, and then
    /// prints the columns before it: see [`super::CustomColumns::compile`].
    pub fn parse(path: &str) -> Result<Self, SyntaxError> {
        parse::parse_path(path).map(|steps| Self { steps })
    }

    /// Returns the first value that the path selects; `None` also where evaluation fails, as where
    /// an index is out of bounds or a filter compares a number with a text.
    #[must_use]
    pub fn first<'a>(&'a self, object: &'a Value) -> Option<PathValue<'a>> {
        eval::evaluate(&self.steps, object).ok()?.into_iter().next()
    }
}

/// Validates a path in a definition that is being written, with the messages of kube-apiserver.
///
/// It checks much less than [`JsonPath::parse`], as kube-apiserver does. The paths of the scale
/// subresource are checked by it too.
#[must_use]
pub fn check(path: &str, field: &str) -> Option<FieldError> {
    let detail = match path.chars().next() {
        None => "must not be empty",
        Some('.') => return None,
        Some(_) => "must be a simple json path starting with .",
    };
    Some(FieldError::invalid(field, &path.into(), detail))
}

/// A value that a path selects.
#[derive(Clone, Debug, PartialEq)]
pub enum PathValue<'a> {
    /// A value of the object.
    Value(&'a Value),
    /// A literal of the path itself.
    Literal(&'a Literal),
    /// A byte of a text, which is what a wildcard selects of texts.
    Byte(u8),
}

/// A literal in a path.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// `"text"` or `'text'`.
    Text(String),
    /// `3`.
    Int(i64),
    /// `3.5`.
    Float(f64),
    /// `true` or `false`.
    Bool(bool),
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    Slice(Slice),
    Wildcard,
    Recursive,
    Union(Vec<Vec<Self>>),
    Filter {
        left: Vec<Self>,
        test: FilterTest,
    },
    Literal(Literal),
    /// `range`, `end`, and unknown words: they parse, and select nothing.
    Word,
}

#[derive(Clone, Debug, PartialEq)]
enum FilterTest {
    Exists,
    Compare(Operator, Vec<Step>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Less,
    LessOrEqual,
    Equal,
    NotEqual,
    GreaterOrEqual,
    Greater,
    /// An operator like `=>`, which parses, and compares nothing.
    Unknown,
}

/// `[from:to:by]`; an index is the slice from it to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slice {
    from: i64,
    to: Option<i64>,
    /// Whether `to` is only set because this is an index.
    index: bool,
    by: Option<i64>,
}

/// A syntax error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError(String);

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SyntaxError {}

#[cfg(test)]
mod tests;
