//! Daemon sets.

use gantry_reconcile::{Meta, Resource, View};
use serde::Deserialize;
use serde_json::Value;

use super::stateful_set::UpdateKind;
use super::{Picked, RollingUpdate};

/// A daemon set.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonSet {
    /// Metadata.
    pub metadata: Meta,
    /// What is wanted.
    pub spec: DaemonSetSpec,
    /// What is.
    pub status: DaemonSetStatus,
}

impl View for DaemonSet {
    const RESOURCE: Resource = Resource::namespaced("apps", "v1", "daemonsets", "DaemonSet");

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// What is wanted of a daemon set.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonSetSpec {
    /// Which pods are meant.
    pub selector: Picked,
    /// What its pods are like.
    pub template: Value,
    /// How old pods are replaced.
    pub update_strategy: DaemonStrategy,
    /// How long a pod must be ready to count as available, in seconds.
    pub min_ready_seconds: i64,
    /// How many former templates are kept.
    pub revision_history_limit: Option<i64>,
}

/// How old pods of a daemon set are replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonStrategy {
    /// Which way.
    #[serde(rename = "type")]
    pub kind: UpdateKind,
    /// How many at a time.
    pub rolling_update: RollingUpdate,
}

/// What is true of a daemon set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonSetStatus {
    /// On how many nodes a pod is where it should be.
    pub current_number_scheduled: i64,
    /// On how many nodes a pod is where it should not be.
    pub number_misscheduled: i64,
    /// On how many nodes a pod should be.
    pub desired_number_scheduled: i64,
    /// On how many of those it is ready.
    pub number_ready: i64,
    /// What was wanted when this was written.
    pub observed_generation: i64,
    /// On how many it has the template as it is now.
    pub updated_number_scheduled: i64,
    /// On how many it has been ready for long enough.
    pub number_available: i64,
    /// On how many it has not.
    pub number_unavailable: i64,
    /// How often the name of a template was taken by another.
    pub collision_count: Option<i64>,
}
