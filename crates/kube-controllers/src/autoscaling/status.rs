//! The status of an autoscaler.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::status::truncate_to_seconds;
use crate::view::{Condition, ConditionStatus, HorizontalPodAutoscaler};

/// The desired status of an autoscaler.
#[derive(Clone, Debug)]
pub(super) struct AutoscalerStatusUpdate {
    pub(super) last_scale_time: Option<Timestamp>,
    pub(super) current_replicas: Option<i64>,
    pub(super) desired_replicas: i64,
    pub(super) current_metrics: Vec<Value>,
    conditions: Vec<Condition>,
    generation: i64,
    now: Timestamp,
}

impl AutoscalerStatusUpdate {
    /// Creates an update from the current status.
    pub(super) fn of(hpa: &HorizontalPodAutoscaler, now: Timestamp) -> Self {
        let status = &hpa.status;
        Self {
            last_scale_time: status.last_scale_time,
            current_replicas: status.current_replicas,
            desired_replicas: status.desired_replicas,
            current_metrics: status.current_metrics.clone(),
            conditions: status.conditions.clone(),
            generation: hpa.metadata.generation,
            now,
        }
    }

    /// Sets a condition with its reason and message.
    pub(super) fn set(
        &mut self,
        kind: &str,
        truth: bool,
        reason: &str,
        message: impl Into<String>,
    ) {
        let truth = if truth { ConditionStatus::True } else { ConditionStatus::False };
        let before = self.conditions.iter().position(|it| it.kind == kind);
        let at = before.unwrap_or_else(|| {
            self.conditions.push(Condition { kind: kind.to_owned(), ..Condition::default() });
            self.conditions.len() - 1
        });
        let now = truncate_to_seconds(self.now);
        if let Some(condition) = self.conditions.get_mut(at) {
            if condition.status != truth || condition.last_transition_time.is_none() {
                condition.last_transition_time = Some(now);
            }
            condition.status = truth;
            reason.clone_into(&mut condition.reason);
            condition.message = message.into();
        }
    }

    /// Returns whether the status differs from that of the autoscaler.
    pub(super) fn differs_from(&self, hpa: &HorizontalPodAutoscaler) -> bool {
        let old = &hpa.status;
        old.observed_generation != Some(self.generation)
            || old.last_scale_time != self.last_scale_time
            || old.current_replicas != self.current_replicas
            || old.desired_replicas != self.desired_replicas
            || old.current_metrics != self.current_metrics
            || old.conditions != self.conditions
    }

    /// Returns the status as a patch has it.
    pub(super) fn body(&self) -> Value {
        let condition = |it: &Condition| {
            let since = it.last_transition_time.map(|it| it.to_string());
            json!({
                "type": it.kind, "status": it.status.as_str(), "lastTransitionTime": since,
                "reason": it.reason, "message": it.message,
            })
        };
        let conditions: Vec<Value> = self.conditions.iter().map(condition).collect();
        let metrics = match self.current_metrics.as_slice() {
            [] => Value::Null,
            metrics => json!(metrics),
        };
        json!({"status": {
            "observedGeneration": self.generation,
            "lastScaleTime": self.last_scale_time.map(|it| it.to_string()),
            "currentReplicas": self.current_replicas,
            "desiredReplicas": self.desired_replicas,
            "currentMetrics": metrics,
            "conditions": conditions,
        }})
    }
}
