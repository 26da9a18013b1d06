//! A requested change.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::{Revision, Value};

/// A change of one key.
#[derive(Debug, Clone)]
pub struct Write {
    /// The space, such as `apps/deployments`.
    pub space: Arc<str>,
    /// The key within the space.
    pub key: Bytes,
    /// What the key must contain for the change to be made.
    pub precondition: Precondition,
    /// The change.
    pub change: Change,
    /// A value that must not be released before the change is decided.
    pub hold: Option<Hold>,
}

/// A value that the store keeps until a change is visible, or refused.
///
/// A caller may stop waiting at any time, and its change is made all the same. What the change
/// relies on, such as a reservation, is therefore kept with it and not only by the caller. The
/// store drops its copy before it responds.
#[derive(Clone)]
pub struct Hold {
    /// Never read: it is only held.
    _value: Arc<dyn Any + Send + Sync>,
}

impl Hold {
    /// Lets the store keep a value.
    #[must_use]
    pub fn new(kept: Arc<dyn Any + Send + Sync>) -> Self {
        Self { _value: kept }
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hold")
    }
}

/// What a key must contain for a change to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precondition {
    /// Nothing: the key must not exist.
    Absent,
    /// The entry with this revision.
    Revision(Revision),
    /// Anything. A deletion still needs something to delete.
    Any,
}

/// What happens to a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It gets this value.
    Put(Value),
    /// It is removed; watches receive this last value.
    Delete(Value),
}

impl Change {
    pub(crate) fn value(&self) -> &Value {
        match self {
            Self::Put(value) | Self::Delete(value) => value,
        }
    }
}
