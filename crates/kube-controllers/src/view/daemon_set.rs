//! DaemonSets.

use gantry_reconcile::{Meta, Resource, View};
use serde::Deserialize;
use serde_json::Value;

use super::stateful_set::UpdateStrategyKind;
use super::{ParsedSelector, RollingUpdate};

/// A DaemonSet.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonSet {
    /// Metadata.
    pub metadata: Meta,
    /// The desired state.
    pub spec: DaemonSetSpec,
    /// The observed state.
    pub status: DaemonSetStatus,
}

impl View for DaemonSet {
    const RESOURCE: Resource = Resource::namespaced("apps", "v1", "daemonsets", "DaemonSet");

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// The spec of a daemon set.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonSetSpec {
    /// The selector of its pods.
    pub selector: ParsedSelector,
    /// The template of its pods.
    pub template: Value,
    /// How old pods are replaced.
    pub update_strategy: DaemonSetUpdateStrategy,
    /// How long a pod must be ready to count as available, in seconds.
    pub min_ready_seconds: i64,
    /// How many former templates are kept.
    pub revision_history_limit: Option<i64>,
}

/// How old pods of a daemon set are replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonSetUpdateStrategy {
    /// The type of the strategy.
    #[serde(rename = "type")]
    pub kind: UpdateStrategyKind,
    /// The limits of a rolling update.
    pub rolling_update: RollingUpdate,
}

/// The status of a daemon set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonSetStatus {
    /// The number of nodes that have a pod and should.
    pub current_number_scheduled: i64,
    /// The number of nodes that have a pod and should not.
    pub number_misscheduled: i64,
    /// The number of nodes that should have a pod.
    pub desired_number_scheduled: i64,
    /// The number of those whose pod is ready.
    pub number_ready: i64,
    /// The generation this status is for.
    pub observed_generation: i64,
    /// The number of those whose pod has the current template.
    pub updated_number_scheduled: i64,
    /// The number of those whose pod is available.
    pub number_available: i64,
    /// The number of those whose pod is not available.
    pub number_unavailable: i64,
    /// The number of name collisions of revisions.
    pub collision_count: Option<i64>,
}
