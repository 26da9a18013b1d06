//! Former templates of StatefulSets and DaemonSets.

use gantry_reconcile::{Meta, Resource, View};
use serde::Deserialize;
use serde_json::Value;

/// A former template.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ControllerRevision {
    /// Metadata.
    pub metadata: Meta,
    /// The patch that restores the template.
    pub data: Value,
    /// Its number in the order templates were used.
    pub revision: i64,
}

impl View for ControllerRevision {
    const RESOURCE: Resource =
        Resource::namespaced("apps", "v1", "controllerrevisions", "ControllerRevision")
            .without_status();

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}
