//! Deployments.

use gantry_reconcile::{Meta, Resource, Selector, View};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::{Condition, IntOrPercent};

/// A deployment.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Deployment {
    /// Metadata.
    pub metadata: Meta,
    /// The desired state.
    pub spec: DeploymentSpec,
    /// The observed state.
    pub status: DeploymentStatus,
}

impl View for Deployment {
    const RESOURCE: Resource = Resource::namespaced("apps", "v1", "deployments", "Deployment");

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// The spec of a deployment.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeploymentSpec {
    /// The desired number of pods.
    pub replicas: i64,
    /// How long a pod must be ready to count as available, in seconds.
    pub min_ready_seconds: i64,
    /// The selector of its replica sets and pods.
    pub selector: ParsedSelector,
    /// The template of its pods.
    pub template: Value,
    /// How old pods are replaced by new ones.
    pub strategy: DeploymentStrategy,
    /// Whether rollouts are paused.
    pub paused: bool,
    /// How many old replica sets are kept.
    pub revision_history_limit: Option<i64>,
    /// The progress deadline, in seconds.
    pub progress_deadline_seconds: Option<i64>,
}

impl Default for DeploymentSpec {
    fn default() -> Self {
        Self {
            replicas: 1,
            min_ready_seconds: 0,
            selector: ParsedSelector::default(),
            template: Value::Null,
            strategy: DeploymentStrategy::default(),
            paused: false,
            revision_history_limit: None,
            progress_deadline_seconds: None,
        }
    }
}

/// A selector that is both evaluated and copied.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ParsedSelector {
    /// The selector.
    pub selector: Selector,
    /// The selector, unparsed.
    pub raw: Value,
}

impl<'de> Deserialize<'de> for ParsedSelector {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = Value::deserialize(from)?;
        let selector = Selector::deserialize(&text).map_err(serde::de::Error::custom)?;
        Ok(Self { selector, raw: text })
    }
}

/// How old pods are replaced by new ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeploymentStrategy {
    /// The type of the strategy.
    #[serde(rename = "type")]
    pub kind: DeploymentStrategyKind,
    /// The limits of a rolling update.
    pub rolling_update: RollingUpdate,
}

/// The types of strategies that replace old pods by new ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum DeploymentStrategyKind {
    /// A few at a time.
    #[default]
    RollingUpdate,
    /// All old pods are deleted before the first new one is created.
    Recreate,
}

/// How many pods are replaced at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RollingUpdate {
    /// How many pods there may be beyond the desired number.
    pub max_surge: Option<IntOrPercent>,
    /// How many of the desired pods may be unavailable.
    pub max_unavailable: Option<IntOrPercent>,
}

/// The status of a deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeploymentStatus {
    /// The generation this status is for.
    pub observed_generation: i64,
    /// The number of pods.
    pub replicas: i64,
    /// The number of pods with the current template.
    pub updated_replicas: i64,
    /// The number of ready pods.
    pub ready_replicas: i64,
    /// The number of available pods.
    pub available_replicas: i64,
    /// The number of unavailable pods.
    pub unavailable_replicas: i64,
    /// The number of name collisions of replica sets.
    pub collision_count: Option<i64>,
    /// The conditions.
    pub conditions: Vec<Condition>,
}
