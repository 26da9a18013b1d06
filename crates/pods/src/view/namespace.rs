//! Namespaces.

use gantry_reconcile::{Meta, Resource, View};
use serde::Deserialize;

/// A namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Namespace {
    /// Metadata.
    pub metadata: Meta,
    /// The observed state.
    pub status: NamespaceStatus,
}

impl View for Namespace {
    const RESOURCE: Resource =
        Resource::namespaced("", "v1", "namespaces", "Namespace").cluster_scoped();

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl Namespace {
    /// Whether objects may be created in it.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.status.phase == "Active" && !self.metadata.is_terminating()
    }
}

/// The status of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NamespaceStatus {
    /// `Active` or `Terminating`.
    pub phase: String,
}
