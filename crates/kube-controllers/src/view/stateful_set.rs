//! StatefulSets.

use gantry_reconcile::{Meta, Resource, View};
use serde::Deserialize;
use serde_json::Value;

use super::{Condition, ParsedSelector};

/// A StatefulSet.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatefulSet {
    /// Metadata.
    pub metadata: Meta,
    /// The desired state.
    pub spec: StatefulSetSpec,
    /// The observed state.
    pub status: StatefulSetStatus,
}

impl View for StatefulSet {
    const RESOURCE: Resource = Resource::namespaced("apps", "v1", "statefulsets", "StatefulSet");

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// The spec of a stateful set.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatefulSetSpec {
    /// The desired number of pods.
    pub replicas: i64,
    /// How long a pod must be ready to count as available, in seconds.
    pub min_ready_seconds: i64,
    /// The selector of its pods.
    pub selector: ParsedSelector,
    /// The template of its pods.
    pub template: Value,
    /// The templates of the claims of each pod.
    pub volume_claim_templates: Vec<Value>,
    /// The service that governs the host names of its pods.
    pub service_name: String,
    /// Whether pods are created and deleted in order.
    pub pod_management_policy: PodManagementPolicy,
    /// How old pods are replaced.
    pub update_strategy: StatefulSetUpdateStrategy,
    /// How many former templates are kept.
    pub revision_history_limit: Option<i64>,
    /// What happens to the claims of deleted pods.
    pub persistent_volume_claim_retention_policy: ClaimRetentionPolicy,
    /// The numbering of pods.
    pub ordinals: Ordinals,
}

impl Default for StatefulSetSpec {
    fn default() -> Self {
        Self {
            replicas: 1,
            min_ready_seconds: 0,
            selector: ParsedSelector::default(),
            template: Value::Null,
            volume_claim_templates: Vec::new(),
            service_name: String::new(),
            pod_management_policy: PodManagementPolicy::default(),
            update_strategy: StatefulSetUpdateStrategy::default(),
            revision_history_limit: None,
            persistent_volume_claim_retention_policy: ClaimRetentionPolicy::default(),
            ordinals: Ordinals::default(),
        }
    }
}

/// Whether pods are created and deleted in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum PodManagementPolicy {
    /// Each pod waits for those before it.
    #[default]
    OrderedReady,
    /// No pod waits for another.
    Parallel,
}

/// How old pods of a stateful set are replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatefulSetUpdateStrategy {
    /// The type of the strategy.
    #[serde(rename = "type")]
    pub kind: UpdateStrategyKind,
    /// Which pods are replaced.
    pub rolling_update: Option<StatefulRollingUpdate>,
}

/// The types of update strategies of stateful sets and daemon sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum UpdateStrategyKind {
    /// A few at a time.
    #[default]
    RollingUpdate,
    /// When a user deletes the old pod.
    OnDelete,
}

/// Which pods are replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct StatefulRollingUpdate {
    /// The ordinal from which on pods are replaced.
    pub partition: i64,
}

/// What happens to claims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimRetentionPolicy {
    /// When the set is deleted.
    pub when_deleted: ClaimRetention,
    /// When the set is scaled down.
    pub when_scaled: ClaimRetention,
}

/// What happens to a claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum ClaimRetention {
    /// The claim is deleted.
    Delete,
    /// The claim is kept.
    #[default]
    #[serde(other)]
    Retain,
}

/// The numbering of pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Ordinals {
    /// The first ordinal.
    pub start: i64,
}

/// The status of a stateful set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatefulSetStatus {
    /// The generation this status is for.
    pub observed_generation: i64,
    /// The number of pods.
    pub replicas: i64,
    /// The number of ready pods.
    pub ready_replicas: i64,
    /// The number of available pods.
    pub available_replicas: i64,
    /// The number of pods with the revision that was rolled out last.
    pub current_replicas: i64,
    /// The number of pods with the current template.
    pub updated_replicas: i64,
    /// The revision that was rolled out last.
    pub current_revision: String,
    /// The revision of the current template.
    pub update_revision: String,
    /// The number of name collisions of revisions.
    pub collision_count: Option<i64>,
    /// The conditions.
    pub conditions: Vec<Condition>,
}
