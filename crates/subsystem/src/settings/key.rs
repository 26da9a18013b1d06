//! One key of the configuration.

use serde_json::Value;

use super::form::Form;

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its way from the root, with dots.
    pub path: &'static str,
    /// What its value may look like.
    pub form: Form,
    /// What it is when nothing is said.
    pub default: Usual,
    /// When a change of it is noticed.
    pub effect: Effect,
    /// What it means.
    pub about: &'static str,
}

/// The value of a key when nothing is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usual {
    /// None.
    Unset,
    /// A switch.
    Flag(bool),
    /// A number.
    Count(i32),
    /// A text.
    Text(&'static str),
    /// A list without elements.
    Empty,
}

impl Usual {
    /// The same as JSON; null if there is none.
    #[must_use]
    pub fn value(self) -> Value {
        match self {
            Self::Unset => Value::Null,
            Self::Flag(flag) => flag.into(),
            Self::Count(number) => number.into(),
            Self::Text(text) => text.into(),
            Self::Empty => Value::Array(Vec::new()),
        }
    }
}

/// When a change of a key is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It is taken over while the operator runs: the next decision uses it, none is undone.
    Live,
    /// The operator has to start again, and says so.
    Restart,
    /// Never: it is read because older configurations have it. The text says so.
    Never(&'static str),
}

/// Another path by which versions of the original had a key.
#[derive(Clone, Copy, Debug)]
pub struct Alias {
    /// The other path.
    pub path: &'static str,
    /// The path of the key.
    pub key: &'static str,
}
