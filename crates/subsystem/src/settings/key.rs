//! One key of the configuration.

use serde_json::Value;

use super::value_type::ValueType;

/// One key of the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its path from the root, with dots.
    pub path: &'static str,
    /// The type of its value.
    pub value_type: ValueType,
    /// Its default.
    pub default: DefaultValue,
    /// When a change takes effect.
    pub effect: Effect,
    /// Its description.
    pub about: &'static str,
}

/// The default of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultValue {
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

impl DefaultValue {
    /// Returns the default as JSON; null if there is none.
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

/// When a change of a key takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// While the operator runs: the next decision uses it, and no earlier one is undone.
    Live,
    /// After a restart of the operator, which logs that it is needed.
    Restart,
    /// Never: it is read because older configurations have it. The text says so.
    Never(&'static str),
}

/// Another path of a key in versions of the original.
#[derive(Clone, Copy, Debug)]
pub struct Alias {
    /// The other path.
    pub path: &'static str,
    /// The path of the key.
    pub key: &'static str,
}
