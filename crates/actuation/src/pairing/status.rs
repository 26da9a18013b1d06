//! What a requester says about its server: status, accelerators, labels, finalizer, readiness gate.

use gantry_pods::view::ConditionStatus;
use gantry_reconcile::{Subresource, Write};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{PODS, finalizers_with, patch};
use crate::labels::{
    ACCELERATORS_ANNOTATION, DUAL_LABEL, INSTANCE_LABEL, READINESS_GATE, REQUESTER_FINALIZER,
    STATUS_ANNOTATION,
};
use crate::view::ActuationPod;

/// The provider of a requester.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paired<'a> {
    pub(super) provider: &'a str,
    pub(super) instance: Option<&'a str>,
    pub(super) accelerators: &'a [String],
}

/// Writes that a requester is paired; `None` if it says so.
pub(super) fn paired(requester: &ActuationPod, pair: Paired<'_>) -> Option<Write> {
    let mut metadata = json!({});
    let mut set = |map: &str, key: &str, old: Option<&String>, value: Option<&str>| {
        if old.map(String::as_str) != value {
            metadata[map][key] = value.map_or(Value::Null, Value::from);
        }
    };
    let (labels, annotations) = (&requester.metadata.labels, &requester.metadata.annotations);
    set("labels", DUAL_LABEL, labels.get(DUAL_LABEL), Some(pair.provider));
    set("labels", INSTANCE_LABEL, labels.get(INSTANCE_LABEL), pair.instance);
    let status = status_text(&[]);
    set("annotations", STATUS_ANNOTATION, annotations.get(STATUS_ANNOTATION), Some(&status));
    let uuids = pair.accelerators.join(",");
    let old = annotations.get(ACCELERATORS_ANNOTATION);
    set("annotations", ACCELERATORS_ANNOTATION, old, Some(&uuids));
    if let Some(finalizers) = finalizers_with(requester, REQUESTER_FINALIZER) {
        metadata["finalizers"] = json!(finalizers);
    }
    metadata.as_object().is_some_and(|it| !it.is_empty()).then(|| patch(requester, &metadata))
}

/// Writes what is wrong with a requester that has no provider; `None` if it says so.
pub(super) fn problem(
    requester: &ActuationPod,
    problems: &[String],
    accelerators: &[String],
) -> Option<Write> {
    let mut annotations = Map::new();
    let uuids = accelerators.join(",");
    for (key, value) in
        [(STATUS_ANNOTATION, status_text(problems)), (ACCELERATORS_ANNOTATION, uuids)]
    {
        if requester.metadata.annotations.get(key) != Some(&value) {
            annotations.insert(key.to_owned(), json!(value));
        }
    }
    (!annotations.is_empty()).then(|| patch(requester, &json!({ "annotations": annotations })))
}

/// The status as JSON.
fn status_text(problems: &[String]) -> String {
    match problems {
        [] => r#"{"Errors":null}"#.to_owned(),
        problems => json!({ "Errors": problems }).to_string(),
    }
}

/// Writes the condition of the readiness gate; `None` if it is not declared, or is right.
pub(super) fn readiness_gate(
    requester: &ActuationPod,
    ready: bool,
    now: Timestamp,
) -> Option<Write> {
    if !requester.has_readiness_gate {
        return None;
    }
    let old = requester.condition(READINESS_GATE).map(|it| it.status);
    let status = if ready { ConditionStatus::True } else { ConditionStatus::False };
    if old == Some(status) || (old.is_none() && !ready) {
        return None;
    }
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let others = requester.conditions.iter().filter(|it| it.kind != READINESS_GATE);
    let mut conditions: Vec<Value> = others
        .map(|it| {
            json!({
                "type": it.kind, "status": it.status.as_str(), "reason": it.reason,
                "message": it.message,
                "lastTransitionTime": it.last_transition_time.map(|it| it.to_string()),
            })
        })
        .collect();
    conditions.push(json!({
        "type": READINESS_GATE, "status": status.as_str(), "lastTransitionTime": now.to_string(),
        "reason": if ready { "Serving" } else { "NotServing" },
    }));
    Some(Write::Merge {
        resource: PODS,
        key: requester.metadata.key(),
        subresource: Subresource::Status,
        fence: requester.metadata.fence(),
        body: json!({ "status": { "conditions": conditions } }),
    })
}
