//! What controllers other than its node say of a pod.

use gantry_reconcile::{Part, View, Write};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::view::{Condition, Pod, Truth};

/// A condition to be said of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// What.
    pub kind: &'static str,
    /// Whether.
    pub status: Truth,
    /// Why, in one word.
    pub reason: String,
    /// Why, in a sentence.
    pub message: String,
}

impl Said {
    /// That a pod is to go for the sake of something else.
    #[must_use]
    pub fn to_go(reason: &str, message: &str) -> Self {
        Self {
            kind: "DisruptionTarget",
            status: Truth::True,
            reason: reason.to_owned(),
            message: message.to_owned(),
        }
    }

    /// Whether it is said already.
    #[must_use]
    pub fn is_true_of(&self, pod: &Pod) -> bool {
        pod.condition(self.kind).is_some_and(|it| {
            it.status == self.status && it.reason == self.reason && it.message == self.message
        })
    }
}

/// Says something of a pod, and perhaps that it is in a phase.
#[must_use]
pub fn say(pod: &Pod, said: Option<&Said>, phase: Option<&str>, now: Timestamp) -> Write {
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let mut status = json!({});
    if let Some(phase) = phase {
        status["phase"] = json!(phase);
    }
    if let Some(said) = said {
        let others = pod.status.conditions.iter().filter(|it| it.kind != said.kind);
        let mut conditions: Vec<Value> = others.map(spell).collect();
        let before = pod
            .condition(said.kind)
            .filter(|it| it.status == said.status && it.reason == said.reason);
        conditions.push(spell(&Condition {
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
        part: Part::Status,
        fence: pod.metadata.fence(),
        body: json!({"status": status}),
    }
}

/// Takes a pod away at once, whatever its node says; nothing when that was asked before.
#[must_use]
pub fn remove_now(pod: &Pod) -> Option<Write> {
    let asked = pod.metadata.is_going() && pod.metadata.deletion_grace_period_seconds == Some(0);
    (!asked).then(|| Write::Delete {
        resource: Pod::RESOURCE,
        key: pod.metadata.key(),
        fence: pod.metadata.fence(),
        grace: Some(0),
        propagation: None,
    })
}

fn spell(condition: &Condition) -> Value {
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
