//! Replica sets.

use gantry_reconcile::{Meta, Resource, Selector, View};
use serde::Deserialize;
use serde_json::Value;

use super::Condition;

/// A replica set.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicaSet {
    /// Metadata.
    pub metadata: Meta,
    /// What is wanted.
    pub spec: ReplicaSetSpec,
    /// What is.
    pub status: ReplicaSetStatus,
}

impl View for ReplicaSet {
    const RESOURCE: Resource = Resource::namespaced("apps", "v1", "replicasets", "ReplicaSet");

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// What is wanted of a replica set.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicaSetSpec {
    /// How many pods there should be.
    pub replicas: i64,
    /// How long a pod must be ready to count as available, in seconds.
    pub min_ready_seconds: i64,
    /// Which pods are meant; none when absent.
    pub selector: Option<Selector>,
    /// What its pods are like.
    pub template: Value,
}

impl Default for ReplicaSetSpec {
    fn default() -> Self {
        Self { replicas: 1, min_ready_seconds: 0, selector: None, template: Value::Null }
    }
}

/// What is true of a replica set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicaSetStatus {
    /// How many pods there are.
    pub replicas: i64,
    /// How many have all labels of the template.
    pub fully_labeled_replicas: i64,
    /// How many are ready.
    pub ready_replicas: i64,
    /// How many have been ready for long enough.
    pub available_replicas: i64,
    /// What was wanted when this was written.
    pub observed_generation: i64,
    /// What is true of it.
    pub conditions: Vec<Condition>,
}
