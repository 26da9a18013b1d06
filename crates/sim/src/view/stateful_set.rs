//! Stateful sets.

use gantry_reconcile::{Meta, Resource, View};
use serde::Deserialize;
use serde_json::Value;

use super::{Condition, Picked};

/// A stateful set.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatefulSet {
    /// Metadata.
    pub metadata: Meta,
    /// What is wanted.
    pub spec: StatefulSetSpec,
    /// What is.
    pub status: StatefulSetStatus,
}

impl View for StatefulSet {
    const RESOURCE: Resource = Resource::namespaced("apps", "v1", "statefulsets", "StatefulSet");

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// What is wanted of a stateful set.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatefulSetSpec {
    /// How many pods there should be.
    pub replicas: i64,
    /// How long a pod must be ready to count as available, in seconds.
    pub min_ready_seconds: i64,
    /// Which pods are meant.
    pub selector: Picked,
    /// What its pods are like.
    pub template: Value,
    /// The volumes each pod claims.
    pub volume_claim_templates: Vec<Value>,
    /// The service that names its pods on the network.
    pub service_name: String,
    /// Whether pods wait for each other.
    pub pod_management_policy: Management,
    /// How old pods are replaced.
    pub update_strategy: UpdateStrategy,
    /// How many former templates are kept.
    pub revision_history_limit: Option<i64>,
    /// What becomes of claims whose pod goes for good.
    pub persistent_volume_claim_retention_policy: RetentionPolicy,
    /// How pods are numbered.
    pub ordinals: Ordinals,
}

impl Default for StatefulSetSpec {
    fn default() -> Self {
        Self {
            replicas: 1,
            min_ready_seconds: 0,
            selector: Picked::default(),
            template: Value::Null,
            volume_claim_templates: Vec::new(),
            service_name: String::new(),
            pod_management_policy: Management::default(),
            update_strategy: UpdateStrategy::default(),
            revision_history_limit: None,
            persistent_volume_claim_retention_policy: RetentionPolicy::default(),
            ordinals: Ordinals::default(),
        }
    }
}

/// Whether pods wait for each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Management {
    /// Each waits for those before it.
    #[default]
    OrderedReady,
    /// None does.
    Parallel,
}

/// How old pods of a stateful set are replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UpdateStrategy {
    /// Which way.
    #[serde(rename = "type")]
    pub kind: UpdateKind,
    /// Which of them.
    pub rolling_update: Option<Partition>,
}

/// The ways to replace pods that stand for themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum UpdateKind {
    /// A few at a time.
    #[default]
    RollingUpdate,
    /// When a user removes the old one.
    OnDelete,
}

/// Which pods are replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Partition {
    /// All from this place on.
    pub partition: i64,
}

/// What becomes of claims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RetentionPolicy {
    /// When the set goes.
    pub when_deleted: Retention,
    /// When the pod is one too many.
    pub when_scaled: Retention,
}

/// What becomes of a claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Retention {
    /// It goes too.
    Delete,
    /// It stays.
    #[default]
    #[serde(other)]
    Retain,
}

/// How pods are numbered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Ordinals {
    /// The first number.
    pub start: i64,
}

/// What is true of a stateful set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatefulSetStatus {
    /// What was wanted when this was written.
    pub observed_generation: i64,
    /// How many pods there are.
    pub replicas: i64,
    /// How many are ready.
    pub ready_replicas: i64,
    /// How many have been ready for long enough.
    pub available_replicas: i64,
    /// How many have the template that was rolled out last.
    pub current_replicas: i64,
    /// How many have the template as it is now.
    pub updated_replicas: i64,
    /// The template that was rolled out last.
    pub current_revision: String,
    /// The template as it is now.
    pub update_revision: String,
    /// How often the name of a template was taken by another.
    pub collision_count: Option<i64>,
    /// What is true of it.
    pub conditions: Vec<Condition>,
}
