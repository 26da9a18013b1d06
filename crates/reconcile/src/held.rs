//! Held reasons: what a plan does not do, and why.

use std::borrow::Cow;

use jiff::Timestamp;

use crate::object::{Key, ObjectReference, Resource, Uid};
use crate::write::{Outcome, Write};

/// A wanted action that is not done for now, and why.
///
/// Controllers build it from reason enums of their own. The condition, the event and the output of
/// `gantry status` are all made from the same value, so an explanation is written only once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The object that is held.
    pub about: ObjectReference,
    /// The reason in CamelCase, as conditions and events have it.
    pub reason: Cow<'static, str>,
    /// The reason as a sentence that the user can act on.
    pub message: String,
    /// When the object is reconciled again even if nothing changes.
    pub until: Option<Timestamp>,
}

impl Held {
    /// An existing object that cannot be decoded, so that no controller acts on it.
    #[must_use]
    pub fn unreadable(resource: Resource, key: Key, message: String) -> Self {
        let about = ObjectReference { resource, key, uid: Uid::default(), field: String::new() };
        Self { about, reason: Cow::Borrowed("Unreadable"), message, until: None }
    }

    /// A write that failed and is retried at `until`; `None` when it succeeded, or when there was
    /// nothing left to do.
    #[must_use]
    pub fn failed_write(
        write: &Write,
        outcome: &Outcome,
        until: Option<Timestamp>,
    ) -> Option<Self> {
        let (reason, why) = match outcome {
            Outcome::Done(_) => return None,
            Outcome::NotFound if matches!(write, Write::Delete { .. } | Write::Evict { .. }) => {
                return None;
            }
            Outcome::NotFound => (Cow::Borrowed("NotFound"), "the object does not exist"),
            Outcome::Conflict(why) => (Cow::Borrowed("Conflict"), why.as_str()),
            Outcome::Refused(refusal) => {
                (Cow::Owned(refusal.reason.clone()), refusal.message.as_str())
            }
            Outcome::Unknown(why) => (Cow::Borrowed("NoResponse"), why.as_str()),
        };
        let (resource, key) = (write.resource().clone(), write.key());
        let uid = write.fence().map(|fence| fence.uid.clone()).unwrap_or_default();
        let message = format!("could not {} {resource} {key}: {why}", write.verb());
        let about = ObjectReference { resource, key, uid, field: String::new() };
        Some(Self { about, reason, message, until })
    }
}
