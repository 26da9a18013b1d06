//! HorizontalPodAutoscalers, and the scales of their targets.

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
    /// The desired state.
    pub spec: AutoscalerSpec,
    /// The observed state.
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

/// The spec of an autoscaler.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AutoscalerSpec {
    /// The scale target.
    pub scale_target_ref: ScaleTarget,
    /// The minimum of replicas; one if absent.
    pub min_replicas: Option<i64>,
    /// The maximum of replicas.
    pub max_replicas: i64,
    /// The metrics.
    pub metrics: Vec<MetricSpec>,
    /// The scaling behavior; the defaults if absent.
    pub behavior: Option<AutoscalerBehavior>,
}

/// A scale target.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ScaleTarget {
    /// The group and version.
    pub api_version: String,
    /// The kind.
    pub kind: String,
    /// The name.
    pub name: String,
}

/// A metric.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MetricSpec {
    /// The type: which of the other fields is set.
    #[serde(rename = "type")]
    pub kind: String,
    /// The resource usage of pods.
    pub resource: Option<ResourceMetric>,
    /// The resource usage of containers of one name.
    pub container_resource: Option<ResourceMetric>,
    /// A metric of pods, unparsed.
    pub pods: Option<Value>,
    /// A metric of another object, unparsed.
    pub object: Option<Value>,
    /// An external metric, unparsed.
    pub external: Option<Value>,
}

/// The resource usage of pods or containers.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ResourceMetric {
    /// The resource.
    pub name: String,
    /// The name of the containers, for a container metric.
    pub container: String,
    /// The target value.
    pub target: MetricTarget,
}

/// The target value of a metric.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MetricTarget {
    /// A percentage of the request.
    pub average_utilization: Option<i64>,
    /// A quantity for each pod.
    pub average_value: Option<Quantity>,
}

/// How fast an autoscaler may scale.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AutoscalerBehavior {
    /// The rules for scaling up.
    pub scale_up: ScalingRules,
    /// The rules for scaling down.
    pub scale_down: ScalingRules,
}

/// How fast an autoscaler may scale in one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ScalingRules {
    /// How long recommendations count.
    pub stabilization_window_seconds: Option<i64>,
    /// `Max`, `Min` or `Disabled`.
    pub select_policy: Option<String>,
    /// The policies.
    pub policies: Vec<ScalingPolicy>,
}

/// How much an autoscaler may change in a period.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ScalingPolicy {
    /// `Pods` or `Percent`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The limit of the change.
    pub value: i64,
    /// The period in seconds.
    pub period_seconds: i64,
}

/// The status of an autoscaler.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AutoscalerStatus {
    /// The generation this status is for.
    pub observed_generation: Option<i64>,
    /// When it last changed the scale.
    pub last_scale_time: Option<Timestamp>,
    /// The current number of replicas.
    pub current_replicas: Option<i64>,
    /// The desired number of replicas.
    pub desired_replicas: i64,
    /// The measured values, unparsed.
    #[serde(deserialize_with = "none_if_null")]
    pub current_metrics: Vec<Value>,
    /// The conditions.
    #[serde(deserialize_with = "none_if_null")]
    pub conditions: Vec<Condition>,
}

/// Deserializes `null` as `None`: servers write empty lists as `null` in a status that was never
/// written.
fn none_if_null<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    Ok(Option::<Vec<T>>::deserialize(from)?.unwrap_or_default())
}

/// The target of an autoscaler.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AutoscalerTarget {
    /// The namespace of the autoscaler, and of its target.
    pub namespace: String,
    /// The reference to the target.
    pub target: ScaleTarget,
}

impl AutoscalerTarget {
    /// Returns the target of this autoscaler.
    #[must_use]
    pub fn of(autoscaler: &HorizontalPodAutoscaler) -> Self {
        Self {
            namespace: autoscaler.metadata.namespace.clone(),
            target: autoscaler.spec.scale_target_ref.clone(),
        }
    }
}

/// The scale of an autoscaler's target, or why it could not be read. Targets may be of any kind, so
/// no cache has them.
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
    /// The UID of the target.
    pub uid: Uid,
    /// The desired number of replicas.
    pub spec_replicas: i64,
    /// The current number of replicas.
    pub status_replicas: i64,
    /// The selector of its pods.
    pub selector: String,
}
