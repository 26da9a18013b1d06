//! Writes to objects, and their outcomes.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::object::{Key, Resource, Revision, Uid};

/// One change to one object.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Creates an object. The body contains its name: a name that is derived from the plan makes a
    /// retry harmless.
    Create {
        /// The resource.
        resource: Resource,
        /// The object, with its name and namespace.
        body: Value,
    },
    /// Changes fields by a JSON merge patch: lists are replaced, `null` removes.
    Merge {
        /// The resource.
        resource: Resource,
        /// The object.
        key: Key,
        /// The subresource.
        subresource: Subresource,
        /// The UID and revision that the object must have.
        fence: Fence,
        /// The fields.
        body: Value,
    },
    /// Applies the fields that this controller owns, by server-side apply.
    Apply {
        /// The resource.
        resource: Resource,
        /// The object; it is created if it does not exist and there is no fence.
        key: Key,
        /// The subresource.
        subresource: Subresource,
        /// The UID and revision that the object must have; absent when the object need not exist.
        fence: Option<Fence>,
        /// All fields that this controller owns.
        body: Value,
    },
    /// Deletes an object.
    Delete {
        /// The resource.
        resource: Resource,
        /// The object.
        key: Key,
        /// The UID and revision that the object must have.
        fence: Fence,
        /// The grace period in seconds; the object's own when absent.
        grace: Option<u32>,
        /// What happens to its dependents.
        propagation: Option<Propagation>,
    },
    /// Binds a pod to a node.
    Bind {
        /// The pod.
        key: Key,
        /// The UID that the pod must have.
        uid: Uid,
        /// The node.
        node: String,
        /// Annotations that the binding adds to the pod.
        annotations: BTreeMap<String, String>,
    },
    /// Evicts a pod: deletes it, unless a PodDisruptionBudget would be violated. The server refuses
    /// that with the code 429.
    Evict {
        /// The pod.
        key: Key,
        /// The UID and revision that the pod must have.
        fence: Fence,
    },
}

/// A user as API servers know them, to be impersonated by a write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: String,
    /// The UID of the user; empty where the server has none.
    pub uid: String,
    /// The groups.
    pub groups: Vec<String>,
    /// Extra attributes of the user, by key.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// The part of an object that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subresource {
    /// Everything but the status.
    Main,
    /// The status.
    Status,
    /// The `scale` subresource of any kind that has one. The response contains a `Scale`, not the
    /// object: nothing is assumed from it.
    Scale,
}

/// The UID and revision that an object must have for a write to succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The UID.
    pub uid: Uid,
    /// The revision; absent for writes that are right whatever else has changed.
    pub revision: Option<Revision>,
}

/// What happens to the dependents of a deleted object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Propagation {
    /// They are deleted later.
    Background,
    /// They are deleted first.
    Foreground,
    /// They stay.
    Orphan,
}

impl Propagation {
    /// The value of `propagationPolicy` in delete options.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Background => "Background",
            Self::Foreground => "Foreground",
            Self::Orphan => "Orphan",
        }
    }
}

/// The pods resource, which [`Write::Bind`] and [`Write::Evict`] write.
pub static PODS: Resource = Resource::namespaced("", "v1", "pods", "Pod");

impl Write {
    /// Binds a pod to a node, without annotations.
    #[must_use]
    pub fn bind(key: Key, uid: Uid, node: String) -> Self {
        Self::Bind { key, uid, node, annotations: BTreeMap::new() }
    }

    /// The resource that is written.
    #[must_use]
    pub fn resource(&self) -> &Resource {
        match self {
            Self::Create { resource, .. }
            | Self::Merge { resource, .. }
            | Self::Apply { resource, .. }
            | Self::Delete { resource, .. } => resource,
            Self::Bind { .. } | Self::Evict { .. } => &PODS,
        }
    }

    /// The namespace and name of the object that is written.
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
            | Self::Bind { key, .. }
            | Self::Evict { key, .. } => key.clone(),
        }
    }

    /// The UID and revision that the object must have.
    #[must_use]
    pub fn fence(&self) -> Option<&Fence> {
        match self {
            Self::Merge { fence, .. } | Self::Delete { fence, .. } | Self::Evict { fence, .. } => {
                Some(fence)
            }
            Self::Apply { fence, .. } => fence.as_ref(),
            Self::Create { .. } | Self::Bind { .. } => None,
        }
    }

    /// The verb, for logs and metrics.
    #[must_use]
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Create { .. } => "create",
            Self::Merge { .. } => "patch",
            Self::Apply { .. } => "apply",
            Self::Delete { .. } => "delete",
            Self::Bind { .. } => "bind",
            Self::Evict { .. } => "evict",
        }
    }
}

/// The outcome of a write.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It succeeded; this is the object after it, if the response contains it.
    Done(Option<Value>),
    /// The object does not exist.
    NotFound,
    /// Another writer was first: the fence did not match, or the name is taken. The key is planned
    /// again.
    Conflict(String),
    /// The server refused it.
    Refused(Refusal),
    /// No response arrived, so it is unknown whether the write was applied.
    Unknown(String),
}

/// A refusal of the server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The HTTP status.
    pub code: u16,
    /// The reason, such as `Forbidden`.
    pub reason: String,
    /// The server's message.
    pub message: String,
}
