//! What a plan does not do, and why.

use std::borrow::Cow;

use jiff::Timestamp;

use crate::object::Reference;

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
