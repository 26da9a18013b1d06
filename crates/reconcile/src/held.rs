//! What a plan does not do, and why.

use std::borrow::Cow;

use jiff::Timestamp;

use crate::object::{Key, Reference, Resource, Uid};
use crate::write::{Outcome, Write};

/// Something that is wanted and not done for now.
///
/// Controllers make it from reasons of their own, which are enums. The same value becomes the
/// condition, the event, and what `gantry status` prints, so nobody composes an explanation twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// What is held.
    pub about: Reference,
    /// Why, in one word in camel case, as conditions and events have it.
    pub reason: Cow<'static, str>,
    /// Why, in a sentence a person can act on.
    pub message: String,
    /// When it is looked at again even if nothing changes.
    pub until: Option<Timestamp>,
}

impl Held {
    /// An object that is there and cannot be read, so that nothing is done about it.
    #[must_use]
    pub fn unreadable(resource: Resource, key: Key, message: String) -> Self {
        let about = Reference { resource, key, uid: Uid::default(), field: String::new() };
        Self { about, reason: Cow::Borrowed("Unreadable"), message, until: None }
    }

    /// A write that did not take, which is tried again at `until`; nothing when it took, or when
    /// there was nothing left to do.
    #[must_use]
    pub fn failed(write: &Write, outcome: &Outcome, until: Option<Timestamp>) -> Option<Self> {
        let (reason, why) = match outcome {
            Outcome::Done(_) => return None,
            Outcome::Absent if matches!(write, Write::Delete { .. }) => return None,
            Outcome::Absent => (Cow::Borrowed("NotFound"), "there is no such object"),
            Outcome::Stale(why) => (Cow::Borrowed("Conflict"), why.as_str()),
            Outcome::Refused(refusal) => {
                (Cow::Owned(refusal.reason.clone()), refusal.message.as_str())
            }
            Outcome::Unanswered(why) => (Cow::Borrowed("Unanswered"), why.as_str()),
        };
        let (resource, key) = (write.resource().clone(), write.key());
        let uid = write.fence().map(|fence| fence.uid.clone()).unwrap_or_default();
        let message = format!("could not {} {resource} {key}: {why}", write.verb());
        let about = Reference { resource, key, uid, field: String::new() };
        Some(Self { about, reason, message, until })
    }
}
