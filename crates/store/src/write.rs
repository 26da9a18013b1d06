//! What a change looks like when it is asked for.

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
