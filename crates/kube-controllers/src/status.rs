//! How times and conditions are written into the statuses of objects.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::view::Condition;

/// Cuts a time to whole seconds, as objects have it.
#[must_use]
pub fn truncate_to_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// Renders a condition of a pod.
#[must_use]
pub fn condition_body(condition: &Condition) -> Value {
    let mut body = json!({
        "type": condition.kind,
        "status": condition.status.as_str(),
        "lastProbeTime": null,
    });
    if let Some(generation) = condition.observed_generation {
        body["observedGeneration"] = json!(generation);
    }
    if let Some(since) = condition.last_transition_time {
        body["lastTransitionTime"] = json!(since.to_string());
    }
    for (name, text) in [("reason", &condition.reason), ("message", &condition.message)] {
        if !text.is_empty() {
            body[name] = json!(text);
        }
    }
    body
}
