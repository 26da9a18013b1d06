//! The paths of printer columns: JSONPath as Kubernetes understands it.
//!
//! Fields (`.spec.replicas`), escaped or quoted keys (`.metadata.labels.a\.b`, `['a']`), indexes,
//! slices and unions (`[0]`, `[-1]`, `[1:3]`, `[0,2]`), wildcards (`.*`, `[*]`), recursive descent
//! (`..name`) and filters (`[?(@.type=="Ready")]`).

mod eval;
mod parse;

use std::fmt;

use gantry_schema::Invalid;
use serde_json::Value;

/// A path that parsed.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

impl JsonPath {
    /// Reads a path as a column definition has it, without braces.
    ///
    /// # Errors
    ///
    /// The path breaks the grammar. Kubernetes takes such a path all the same when a definition is
    /// written, and then prints the columns before it: see [`super::CustomColumns::compile`].
    pub fn parse(path: &str) -> Result<Self, SyntaxError> {
        parse::action(path).map(|steps| Self { steps })
    }

    /// The first value that the path leads to; `None` also where it cannot be followed, as where
    /// an index is out of bounds or a filter compares a number with a text.
    #[must_use]
    pub fn first<'a>(&'a self, object: &'a Value) -> Option<Found<'a>> {
        eval::walk(&self.steps, object).ok()?.into_iter().next()
    }
}

/// What is wrong with a path for a definition that is being written, in the words of an API
/// server.
///
/// It asks for much less than [`JsonPath::parse`], as real servers do. The paths of the scale
/// subresource are checked by it too.
#[must_use]
pub fn check(path: &str, field: &str) -> Option<Invalid> {
    let detail = match path.chars().next() {
        None => "must not be empty",
        Some('.') => return None,
        Some(_) => "must be a simple json path starting with .",
    };
    Some(Invalid::value(field, &path.into(), detail))
}

/// What a path leads to.
#[derive(Clone, Debug, PartialEq)]
pub enum Found<'a> {
    /// A value of the object.
    Value(&'a Value),
    /// A value that the path itself holds.
    Literal(&'a Literal),
    /// A byte of a text, which is what a wildcard makes of texts.
    Byte(u8),
}

/// A value written in a path.
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
        test: Test,
    },
    Literal(Literal),
    /// `range`, `end`, and words that mean nothing: they parse, and lead nowhere.
    Word,
}

#[derive(Clone, Debug, PartialEq)]
enum Test {
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
    /// One like `=>`, which parses, and compares nothing.
    Unknown,
}

/// `[from:to:by]`; an index is the slice from it to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slice {
    from: i64,
    to: Option<i64>,
    /// Whether `to` is only there because this is an index.
    index: bool,
    by: Option<i64>,
}

/// What breaks the grammar.
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
