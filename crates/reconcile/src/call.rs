//! Calls: changes of something outside the API that a plan wants made.
//!
//! The calls of a plan are those that should be under way now for its key. The shell compares them with those
//! of the plan before: a call that is wanted and under way is left alone, one that is no
//! longer wanted is given up. What became of a call is a fact about its id ([`CallState`]), and a change of it
//! enqueues the key; so no worker waits for a slow peer.

mod table;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::fact::Fact;
use crate::object::Uid;
use crate::write::Refusal;

pub use table::{Attempt, CallBounds, CallChange, CallTable, GivenUp};

/// Which call. It follows from the plan: two plans that want the same thing done give the same id, and a plan
/// that wants it done once more gives another.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(Arc<str>);

impl CallId {
    /// An id of this text.
    #[must_use]
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// Its text.
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

/// What a call is made to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Target {
    /// How it is spoken to; calls of one protocol are carried out by one caller.
    pub protocol: &'static str,
    /// Where it is, in the terms of the protocol: a pod and a port, a pool.
    pub address: String,
    /// The identity of the object behind the address; empty where there is none. A caller that finds another
    /// object there does not call it.
    pub uid: Uid,
    /// Targets of one group share a bound of calls: usually the node they are on.
    pub group: String,
}

impl fmt::Display for Target {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} {}", self.protocol, self.address)
    }
}

/// A change of something outside that should be under way.
///
/// It may be carried out more than once: requests and replies get lost, and another process may have sent it
/// before. For a target that can fence, `request` carries the fence, and the target refuses older ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Which call.
    pub id: CallId,
    /// What it is made to.
    pub target: Target,
    /// What it is for, in one word: `sleep`, `wake`, `resize`. Metrics and logs have it.
    pub purpose: &'static str,
    /// What is asked for, in the terms of the protocol.
    pub request: Value,
    /// How long one attempt may take.
    pub timeout: Duration,
}

/// What a target said to a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// It did what was asked for, and says this.
    Done(Value),
    /// It does not do it.
    Refused(Refusal),
}

/// What became of a call, as far as it is known in this process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallState {
    /// Whether an attempt is under way.
    pub under_way: bool,
    /// What the target said last.
    pub reply: Option<Reply>,
    /// How many attempts in a row ended without a reply, or with a refusal.
    pub failures: u32,
    /// Why the last attempt ended without a reply. Whether it was carried out is not known then.
    pub error: Option<String>,
    /// When the next attempt is made while the call is wanted.
    pub retry_at: Option<Timestamp>,
}

impl CallState {
    /// What the target said when it did what was asked for.
    #[must_use]
    pub fn done(&self) -> Option<&Value> {
        match self.reply.as_ref()? {
            Reply::Done(value) => Some(value),
            Reply::Refused(_) => None,
        }
    }

    /// Why the target refused, if that is the last thing it said.
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
