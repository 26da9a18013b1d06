//! The keys of maps.

use std::borrow::Borrow;
use std::cmp::Ordering;

use crate::value::{Text, Value};

/// A key of a map. Integers are the same key whether signed or not.
#[derive(Clone, Debug)]
pub enum Key<'v> {
    /// A truth value.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// Text.
    String(Text<'v>),
}

impl Key<'_> {
    fn rank(&self) -> (u8, i128) {
        match self {
            Self::Bool(truth) => (0, i128::from(*truth)),
            Self::Int(number) => (1, i128::from(*number)),
            Self::Uint(number) => (1, i128::from(*number)),
            Self::String(_) => (2, 0),
        }
    }
}

impl Ord for Key<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::String(one), Self::String(two)) => one.as_bytes().cmp(two.as_bytes()),
            (one, two) => one.rank().cmp(&two.rank()),
        }
    }
}

impl PartialOrd for Key<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Key<'_> {}

/// What can be looked up among keys, however long it lives: no copy is made to look.
pub(crate) trait AsKey {
    fn as_key(&self) -> Key<'_>;
}

impl AsKey for Key<'_> {
    fn as_key(&self) -> Key<'_> {
        match self {
            Self::Bool(truth) => Key::Bool(*truth),
            Self::Int(number) => Key::Int(*number),
            Self::Uint(number) => Key::Uint(*number),
            Self::String(text) => Key::String(Text::Borrowed(text)),
        }
    }
}

impl AsKey for &str {
    fn as_key(&self) -> Key<'_> {
        Key::String(Text::Borrowed(self))
    }
}

impl<'a, 'v: 'a> Borrow<dyn AsKey + 'a> for Key<'v> {
    fn borrow(&self) -> &(dyn AsKey + 'a) {
        self
    }
}

impl Ord for dyn AsKey + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_key().cmp(&other.as_key())
    }
}

impl PartialOrd for dyn AsKey + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for dyn AsKey + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for dyn AsKey + '_ {}

impl<'v> From<Key<'v>> for Value<'v> {
    fn from(key: Key<'v>) -> Self {
        match key {
            Key::Bool(truth) => Self::Bool(truth),
            Key::Int(number) => Self::Int(number),
            Key::Uint(number) => Self::Uint(number),
            Key::String(text) => Self::String(text),
        }
    }
}
