//! What a change looks like when it is asked for.

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
    /// What the key must hold for the change to be made.
    pub expect: Expect,
    /// What becomes of it.
    pub change: Change,
    /// What must not be released before the change is decided.
    pub hold: Option<Hold>,
}

/// A value that the store keeps until a change is visible to everyone, or refused.
///
/// A caller may stop waiting at any time, and its change is made all the same. Whatever the change
/// relies on, such as a reservation, is therefore kept beside it and not only by the caller. The
/// store drops its copy before it answers.
#[derive(Clone)]
pub struct Hold {
    /// Never read: holding it is all.
    _kept: Arc<dyn Any + Send + Sync>,
}

impl Hold {
    /// Has the store keep a value.
    #[must_use]
    pub fn new(kept: Arc<dyn Any + Send + Sync>) -> Self {
        Self { _kept: kept }
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hold")
    }
}

/// What a key must hold for a change to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// Nothing.
    Absent,
    /// The entry written by this change.
    Revision(Revision),
    /// Whatever there is. A deletion still needs something to delete.
    Any,
}

/// What becomes of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It gets this value.
    Put(Value),
    /// It is removed; watchers are shown this last value.
    Delete(Value),
}

impl Change {
    pub(crate) fn value(&self) -> &Value {
        match self {
            Self::Put(value) | Self::Delete(value) => value,
        }
    }
}
