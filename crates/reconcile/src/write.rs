//! What may be done to objects, and what becomes of it.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::object::{Key, Resource, Revision, Uid};

/// One change to one object.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Makes an object. It carries its name: a name that follows from the plan makes a second try
    /// harmless.
    Create {
        /// The kind.
        resource: Resource,
        /// The object, with its name and namespace.
        body: Value,
    },
    /// Changes fields, by the rules of JSON merge patch: lists are replaced, `null` removes.
    Merge {
        /// The kind.
        resource: Resource,
        /// Which object.
        key: Key,
        /// Which part of it.
        part: Part,
        /// What must be found.
        fence: Fence,
        /// The fields.
        body: Value,
    },
    /// States the fields this controller owns, by server-side apply.
    Apply {
        /// The kind.
        resource: Resource,
        /// Which object; it is made if it is not there and the fence is absent.
        key: Key,
        /// Which part of it.
        part: Part,
        /// What must be found; absent when the object need not exist.
        fence: Option<Fence>,
        /// The fields, all of them.
        body: Value,
    },
    /// Asks for an object to go.
    Delete {
        /// The kind.
        resource: Resource,
        /// Which object.
        key: Key,
        /// What must be found.
        fence: Fence,
        /// How long it may take, in seconds; its own time when absent.
        grace: Option<u32>,
        /// What becomes of what belongs to it.
        propagation: Option<Propagation>,
    },
    /// Gives a pod to a node.
    Bind {
        /// Which pod.
        key: Key,
        /// Which of all pods with that name.
        uid: Uid,
        /// The node.
        node: String,
        /// What the pod is told in the same moment.
        annotations: BTreeMap<String, String>,
    },
}

/// Which part of an object is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// All but the status.
    Main,
    /// The status.
    Status,
    /// How many replicas there are to be, whatever kind it is. The answer shows a `Scale`, not the
    /// object: nothing is learned from it.
    Scale,
}

/// What a write must find, or be refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// Which of all objects with the name.
    pub uid: Uid,
    /// In which state; any when absent, for writes that are right whatever else has changed.
    pub revision: Option<Revision>,
}

/// What becomes of what belongs to an object that goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Propagation {
    /// It goes later.
    Background,
    /// It goes first.
    Foreground,
    /// It stays.
    Orphan,
}

impl Propagation {
    /// As delete options spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Background => "Background",
            Self::Foreground => "Foreground",
            Self::Orphan => "Orphan",
        }
    }
}

/// Pods, which [`Write::Bind`] is about.
pub static PODS: Resource = Resource::namespaced("", "v1", "pods", "Pod");

impl Write {
    /// Gives a pod to a node, and tells it nothing.
    #[must_use]
    pub fn bind(key: Key, uid: Uid, node: String) -> Self {
        Self::Bind { key, uid, node, annotations: BTreeMap::new() }
    }

    /// The kind that is written.
    #[must_use]
    pub fn resource(&self) -> &Resource {
        match self {
            Self::Create { resource, .. }
            | Self::Merge { resource, .. }
            | Self::Apply { resource, .. }
            | Self::Delete { resource, .. } => resource,
            Self::Bind { .. } => &PODS,
        }
    }

    /// The object that is written.
    #[must_use]
    pub fn key(&self) -> Key {
        match self {
            Self::Create { body, .. } => {
                let text = |name: &str| body["metadata"][name].as_str().unwrap_or_default();
                Key::new(text("namespace"), text("name"))
            }
            Self::Merge { key, .. }
            | Self::Apply { key, .. }
            | Self::Delete { key, .. }
            | Self::Bind { key, .. } => key.clone(),
        }
    }

    /// What must be found.
    #[must_use]
    pub fn fence(&self) -> Option<&Fence> {
        match self {
            Self::Merge { fence, .. } | Self::Delete { fence, .. } => Some(fence),
            Self::Apply { fence, .. } => fence.as_ref(),
            Self::Create { .. } | Self::Bind { .. } => None,
        }
    }

    /// What it does, in one word, for logs and counters.
    #[must_use]
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Create { .. } => "create",
            Self::Merge { .. } => "patch",
            Self::Apply { .. } => "apply",
            Self::Delete { .. } => "delete",
            Self::Bind { .. } => "bind",
        }
    }
}

/// What became of a write.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It took; this is the object then, if the answer shows it.
    Done(Option<Value>),
    /// There is no such object.
    Absent,
    /// Somebody else was first: the fence did not hold, or the name is taken. Look again.
    Stale(String),
    /// The server said no.
    Refused(Refusal),
    /// Nobody knows whether it took.
    Unanswered(String),
}

/// A no of the server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The HTTP status.
    pub code: u16,
    /// The reason in one word, such as `Forbidden`.
    pub reason: String,
    /// The server's words.
    pub message: String,
}
