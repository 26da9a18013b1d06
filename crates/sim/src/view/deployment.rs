//! Deployments.

use gantry_reconcile::{Meta, Resource, Selector, View};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::{Condition, Share};

/// A deployment.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Deployment {
    /// Metadata.
    pub metadata: Meta,
    /// What is wanted.
    pub spec: DeploymentSpec,
    /// What is.
    pub status: DeploymentStatus,
}

impl View for Deployment {
    const RESOURCE: Resource = Resource::namespaced("apps", "v1", "deployments", "Deployment");

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// What is wanted of a deployment.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeploymentSpec {
    /// How many pods there should be.
    pub replicas: i64,
    /// How long a pod must be ready to count as available, in seconds.
    pub min_ready_seconds: i64,
    /// Which replica sets and pods are meant.
    pub selector: Picked,
    /// What its pods are like.
    pub template: Value,
    /// How old pods are replaced by new ones.
    pub strategy: Strategy,
    /// Whether changes of the template wait.
    pub paused: bool,
    /// How many old replica sets are kept.
    pub revision_history_limit: Option<i64>,
    /// How long there may be no progress, in seconds.
    pub progress_deadline_seconds: Option<i64>,
}

impl Default for DeploymentSpec {
    fn default() -> Self {
        Self {
            replicas: 1,
            min_ready_seconds: 0,
            selector: Picked::default(),
            template: Value::Null,
            strategy: Strategy::default(),
            paused: false,
            revision_history_limit: None,
            progress_deadline_seconds: None,
        }
    }
}

/// A selector that is copied as well as asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Picked {
    /// The selector.
    pub selector: Selector,
    /// The selector as it is written.
    pub text: Value,
}

impl<'de> Deserialize<'de> for Picked {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = Value::deserialize(from)?;
        let selector = Selector::deserialize(&text).map_err(serde::de::Error::custom)?;
        Ok(Self { selector, text })
    }
}

/// How old pods are replaced by new ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Strategy {
    /// Which way.
    #[serde(rename = "type")]
    pub kind: StrategyKind,
    /// How many at a time.
    pub rolling_update: RollingUpdate,
}

/// The ways to replace old pods by new ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum StrategyKind {
    /// A few at a time.
    #[default]
    RollingUpdate,
    /// All old ones go before the first new one comes.
    Recreate,
}

/// How many pods are replaced at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RollingUpdate {
    /// How many there may be beyond those wanted.
    pub max_surge: Option<Share>,
    /// How many of those wanted may be unavailable.
    pub max_unavailable: Option<Share>,
}

/// What is true of a deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeploymentStatus {
    /// What was wanted when this was written.
    pub observed_generation: i64,
    /// How many pods there are.
    pub replicas: i64,
    /// How many have the template as it is now.
    pub updated_replicas: i64,
    /// How many are ready.
    pub ready_replicas: i64,
    /// How many have been ready for long enough.
    pub available_replicas: i64,
    /// How many of those asked for are not available.
    pub unavailable_replicas: i64,
    /// How often the name of a new replica set was taken by another.
    pub collision_count: Option<i64>,
    /// What is true of it.
    pub conditions: Vec<Condition>,
}
