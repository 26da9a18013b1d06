//! What is said of an autoscaler.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kubelet::second;
use crate::view::{Condition, HorizontalPodAutoscaler, Truth};

/// The status of an autoscaler as it is to be.
#[derive(Clone, Debug)]
pub(super) struct Status {
    pub(super) last_scale_time: Option<Timestamp>,
    pub(super) current_replicas: Option<i64>,
    pub(super) desired_replicas: i64,
    pub(super) current_metrics: Vec<Value>,
    conditions: Vec<Condition>,
    generation: i64,
    now: Timestamp,
}

impl Status {
    /// As it is.
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

    /// Says that something is true or not, and why.
    pub(super) fn set(
        &mut self,
        kind: &str,
        truth: bool,
        reason: &str,
        message: impl Into<String>,
    ) {
        let truth = if truth { Truth::True } else { Truth::False };
        let before = self.conditions.iter().position(|it| it.kind == kind);
        let at = before.unwrap_or_else(|| {
            self.conditions.push(Condition { kind: kind.to_owned(), ..Condition::default() });
            self.conditions.len() - 1
        });
        let now = second(self.now);
        if let Some(condition) = self.conditions.get_mut(at) {
            if condition.status != truth || condition.last_transition_time.is_none() {
                condition.last_transition_time = Some(now);
            }
            condition.status = truth;
            reason.clone_into(&mut condition.reason);
            condition.message = message.into();
        }
    }

    /// Whether an autoscaler says something else.
    pub(super) fn is_news(&self, hpa: &HorizontalPodAutoscaler) -> bool {
        let old = &hpa.status;
        old.observed_generation != Some(self.generation)
            || old.last_scale_time != self.last_scale_time
            || old.current_replicas != self.current_replicas
            || old.desired_replicas != self.desired_replicas
            || old.current_metrics != self.current_metrics
            || old.conditions != self.conditions
    }

    /// As a patch has it.
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
