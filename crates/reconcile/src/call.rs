//! Calls: changes outside the API that a plan wants made.
//!
//! The calls of a plan are those that should be in flight now for its key. The runtime compares
//! them with those of the previous plan: a call that is wanted and in flight is left alone, one
//! that is no longer wanted is cancelled. The state of a call is a fact about its id
//! ([`CallState`]), and a change of it enqueues the key; so no worker blocks on a slow peer.

mod table;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::fact::Fact;
use crate::object::Uid;
use crate::write::Refusal;

pub use table::{CallAttempt, CallBounds, CallChange, CallTable, CancelledCall};

/// Identifies a call. The id is derived from the plan: two plans that want the same action give the
/// same id, and a plan that wants it once more gives another.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(Arc<str>);

impl CallId {
    /// An id with this text.
    #[must_use]
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The text of the id.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0)
    }
}

impl fmt::Debug for CallId {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "CallId({})", self.0)
    }
}

/// The target of a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Target {
    /// The protocol; calls of one protocol are executed by one caller.
    pub protocol: &'static str,
    /// The address, in the terms of the protocol: a pod and a port, a pool.
    pub address: String,
    /// The UID of the object behind the address; empty where there is none. A caller that finds
    /// another object there does not call it.
    pub uid: Uid,
    /// The group of targets that share a concurrency limit: usually the node they are on.
    pub group: String,
}

impl fmt::Display for Target {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} {}", self.protocol, self.address)
    }
}

/// A change outside the API that should be in flight.
///
/// It may be executed more than once: requests and replies get lost, and another process may have
/// sent it before. For a target that supports fencing, `request` carries the fence, and the target
/// refuses older ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The id of the call.
    pub id: CallId,
    /// The target.
    pub target: Target,
    /// The purpose in one word, for metrics and logs: `sleep`, `wake`, `resize`.
    pub purpose: &'static str,
    /// The request, in the terms of the protocol.
    pub request: Value,
    /// How long one attempt may take.
    pub timeout: Duration,
}

/// The reply of a target.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// The target did what was requested, and returned this.
    Done(Value),
    /// The target refused.
    Refused(Refusal),
}

/// The state of a call, as far as this process knows it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallState {
    /// Whether an attempt is in flight.
    pub under_way: bool,
    /// The last reply of the target.
    pub reply: Option<Reply>,
    /// How many attempts in a row ended without a reply, or with a refusal.
    pub failures: u32,
    /// Why the last attempt ended without a reply. It is unknown then whether the call was
    /// executed.
    pub error: Option<String>,
    /// When the next attempt is made while the call is wanted.
    pub retry_at: Option<Timestamp>,
}

impl CallState {
    /// The value that the target returned, if the last reply was a success.
    #[must_use]
    pub fn done(&self) -> Option<&Value> {
        match self.reply.as_ref()? {
            Reply::Done(value) => Some(value),
            Reply::Refused(_) => None,
        }
    }

    /// The target's refusal, if that was the last reply.
    #[must_use]
    pub fn refused(&self) -> Option<&Refusal> {
        match self.reply.as_ref()? {
            Reply::Refused(refusal) => Some(refusal),
            Reply::Done(_) => None,
        }
    }
}

impl Fact for CallState {
    type Subject = CallId;
    const NAME: &'static str = "call";
}
