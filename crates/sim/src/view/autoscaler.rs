//! HorizontalPodAutoscalers, and the scales of what they move.

use gantry_api::quantity::Quantity;
use gantry_reconcile::{Fact, Meta, Resource, Uid, View};
use jiff::Timestamp;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::Condition;

/// A HorizontalPodAutoscaler.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct HorizontalPodAutoscaler {
    /// Metadata.
    pub metadata: Meta,
    /// What is wanted.
    pub spec: AutoscalerSpec,
    /// What is.
    pub status: AutoscalerStatus,
}

impl View for HorizontalPodAutoscaler {
    const RESOURCE: Resource = Resource::namespaced(
        "autoscaling",
        "v2",
        "horizontalpodautoscalers",
        "HorizontalPodAutoscaler",
    );

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// What is wanted of an autoscaler.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AutoscalerSpec {
    /// What is scaled.
    pub scale_target_ref: ScaleTarget,
    /// At least so many; one if absent.
    pub min_replicas: Option<i64>,
    /// At most so many.
    pub max_replicas: i64,
    /// What decides.
    pub metrics: Vec<MetricSpec>,
    /// How fast it may go; by the rules of old if absent.
    pub behavior: Option<Behavior>,
}

/// What is scaled.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ScaleTarget {
    /// Group and version.
    pub api_version: String,
    /// The kind.
    pub kind: String,
    /// The name.
    pub name: String,
}

/// One thing that decides.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MetricSpec {
    /// Which of the others is set.
    #[serde(rename = "type")]
    pub kind: String,
    /// What pods use of a resource.
    pub resource: Option<ResourceMetric>,
    /// What containers of one name use of a resource.
    pub container_resource: Option<ResourceMetric>,
    /// What pods say of themselves, as it is written.
    pub pods: Option<Value>,
    /// What another object says, as it is written.
    pub object: Option<Value>,
    /// What somebody outside says, as it is written.
    pub external: Option<Value>,
}

/// What pods or containers use of a resource.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ResourceMetric {
    /// The resource.
    pub name: String,
    /// The containers, for those of one name.
    pub container: String,
    /// What it should be.
    pub target: MetricTarget,
}

/// What a metric should be.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MetricTarget {
    /// Hundredths of what is requested.
    pub average_utilization: Option<i64>,
    /// An amount for each pod.
    pub average_value: Option<Quantity>,
}

/// How fast an autoscaler may go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Behavior {
    /// Up.
    pub scale_up: ScalingRules,
    /// Down.
    pub scale_down: ScalingRules,
}

/// How fast an autoscaler may go in one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ScalingRules {
    /// How long recommendations count.
    pub stabilization_window_seconds: Option<i64>,
    /// `Max`, `Min` or `Disabled`.
    pub select_policy: Option<String>,
    /// How much in which time.
    pub policies: Vec<ScalingPolicy>,
}

/// How much an autoscaler may change in a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ScalingPolicy {
    /// `Pods` or `Percent`.
    #[serde(rename = "type")]
    pub kind: String,
    /// How much.
    pub value: i64,
    /// In which time.
    pub period_seconds: i64,
}

/// What is true of an autoscaler.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AutoscalerStatus {
    /// What was wanted when this was written.
    pub observed_generation: Option<i64>,
    /// When it last changed the scale.
    pub last_scale_time: Option<Timestamp>,
    /// How many there were.
    pub current_replicas: Option<i64>,
    /// How many there should be.
    pub desired_replicas: i64,
    /// What was measured, as it is written.
    #[serde(deserialize_with = "none_if_null")]
    pub current_metrics: Vec<Value>,
    /// What is true of it.
    #[serde(deserialize_with = "none_if_null")]
    pub conditions: Vec<Condition>,
}

/// Servers write lists without entries as `null` in a status that nobody has written yet.
fn none_if_null<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    Ok(Option::<Vec<T>>::deserialize(from)?.unwrap_or_default())
}

/// What an autoscaler moves.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AutoscalerTarget {
    /// The namespace of the autoscaler, and of what it moves.
    pub namespace: String,
    /// What it moves.
    pub target: ScaleTarget,
}

impl AutoscalerTarget {
    /// What this autoscaler moves.
    #[must_use]
    pub fn of(autoscaler: &HorizontalPodAutoscaler) -> Self {
        Self {
            namespace: autoscaler.metadata.namespace.clone(),
            target: autoscaler.spec.scale_target_ref.clone(),
        }
    }
}

/// The scale of what an autoscaler moves, or why it could not be read. Targets may be of any kind, so no cache
/// has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetScale(pub Result<Scale, String>);

impl Fact for TargetScale {
    type Subject = AutoscalerTarget;
    const NAME: &'static str = "target-scale";
}

/// A scale that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scale {
    /// The plural name of the target's kind.
    pub plural: String,
    /// The identity of the target.
    pub uid: Uid,
    /// How many there should be.
    pub spec_replicas: i64,
    /// How many there are.
    pub status_replicas: i64,
    /// Which pods are its.
    pub selector: String,
}
