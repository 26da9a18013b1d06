//! Lists of conditions.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::view::{Condition, ConditionStatus};

/// Creates a condition with the current time.
pub(super) fn new_condition(
    kind: &str,
    status: ConditionStatus,
    reason: &str,
    message: String,
    now: Timestamp,
) -> Condition {
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    Condition {
        kind: kind.to_owned(),
        status,
        reason: reason.to_owned(),
        message,
        last_transition_time: Some(now),
        last_update_time: Some(now),
        observed_generation: None,
    }
}

/// Returns the condition of a type.
pub(super) fn find<'a>(list: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    list.iter().find(|it| it.kind == kind)
}

/// Sets a condition at the end of the list, unless it is there with the same status and reason. One
/// that changes only its reason keeps its transition time.
pub(super) fn set(list: &mut Vec<Condition>, mut condition: Condition) {
    if let Some(old) = find(list, &condition.kind)
        && old.status == condition.status
    {
        if old.reason == condition.reason {
            return;
        }
        condition.last_transition_time = old.last_transition_time;
    }
    remove(list, &condition.kind);
    list.push(condition);
}

/// Removes a condition from the list.
pub(super) fn remove(list: &mut Vec<Condition>, kind: &str) {
    list.retain(|it| it.kind != kind);
}

/// Returns the list as objects spell it; null when it is empty.
pub(super) fn conditions_body(list: &[Condition]) -> Value {
    if list.is_empty() { Value::Null } else { list.iter().map(condition_body).collect() }
}

fn condition_body(condition: &Condition) -> Value {
    let mut object = json!({"type": condition.kind, "status": condition.status.as_str()});
    let text = |text: &String| (!text.is_empty()).then(|| json!(text));
    let time = |time: Option<Timestamp>| time.map(|it| json!(it.to_string()));
    let fields = [
        ("lastUpdateTime", time(condition.last_update_time)),
        ("lastTransitionTime", time(condition.last_transition_time)),
        ("reason", text(&condition.reason)),
        ("message", text(&condition.message)),
    ];
    for (name, value) in fields {
        if let Some(value) = value {
            object[name] = value;
        }
    }
    object
}
