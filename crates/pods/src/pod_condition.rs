//! Pod conditions that controllers other than the kubelet write.

use gantry_reconcile::{Subresource, View, Write};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::view::{Condition, ConditionStatus, Pod};

/// A condition to write to a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodConditionUpdate {
    /// The type of the condition.
    pub kind: &'static str,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// The reason, in CamelCase.
    pub reason: String,
    /// The reason, as a sentence.
    pub message: String,
}

impl PodConditionUpdate {
    /// Creates the condition that announces the disruption of a pod, such as preemption or
    /// eviction.
    #[must_use]
    pub fn disruption_target(reason: &str, message: &str) -> Self {
        Self {
            kind: "DisruptionTarget",
            status: ConditionStatus::True,
            reason: reason.to_owned(),
            message: message.to_owned(),
        }
    }

    /// Whether the pod has this condition already.
    #[must_use]
    pub fn is_set_on(&self, pod: &Pod) -> bool {
        pod.condition(self.kind).is_some_and(|it| {
            it.status == self.status && it.reason == self.reason && it.message == self.message
        })
    }
}

/// Writes a condition of a pod, and optionally its phase.
#[must_use]
pub fn update_pod_status(
    pod: &Pod,
    said: Option<&PodConditionUpdate>,
    phase: Option<&str>,
    now: Timestamp,
) -> Write {
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let mut status = json!({});
    if let Some(phase) = phase {
        status["phase"] = json!(phase);
    }
    if let Some(said) = said {
        let others = pod.status.conditions.iter().filter(|it| it.kind != said.kind);
        let mut conditions: Vec<Value> = others.map(condition_to_json).collect();
        let before = pod
            .condition(said.kind)
            .filter(|it| it.status == said.status && it.reason == said.reason);
        conditions.push(condition_to_json(&Condition {
            kind: said.kind.to_owned(),
            status: said.status,
            reason: said.reason.clone(),
            message: said.message.clone(),
            last_transition_time: before.map_or(Some(now), |it| it.last_transition_time),
            observed_generation: Some(pod.metadata.generation).filter(|it| *it > 0),
            ..Condition::default()
        }));
        status["conditions"] = Value::Array(conditions);
    }
    Write::Merge {
        resource: Pod::RESOURCE,
        key: pod.metadata.key(),
        subresource: Subresource::Status,
        fence: pod.metadata.fence(),
        body: json!({"status": status}),
    }
}

/// Deletes a pod at once, without waiting for its kubelet; `None` if that was requested before.
#[must_use]
pub fn force_delete(pod: &Pod) -> Option<Write> {
    let asked =
        pod.metadata.is_terminating() && pod.metadata.deletion_grace_period_seconds == Some(0);
    (!asked).then(|| Write::Delete {
        resource: Pod::RESOURCE,
        key: pod.metadata.key(),
        fence: pod.metadata.fence(),
        grace: Some(0),
        propagation: None,
    })
}

fn condition_to_json(condition: &Condition) -> Value {
    let mut text = json!({
        "type": condition.kind, "status": condition.status.as_str(), "lastProbeTime": null,
    });
    if let Some(generation) = condition.observed_generation {
        text["observedGeneration"] = json!(generation);
    }
    if let Some(since) = condition.last_transition_time {
        text["lastTransitionTime"] = json!(since.to_string());
    }
    for (name, words) in [("reason", &condition.reason), ("message", &condition.message)] {
        if !words.is_empty() {
            text[name] = json!(words);
        }
    }
    text
}
