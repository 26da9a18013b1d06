//! Conditions in the statuses of the device API group.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Value, json};

/// A condition to write to an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConditionUpdate {
    pub(crate) kind: &'static str,
    pub(crate) is_true: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl ConditionUpdate {
    pub(crate) fn new_true(kind: &'static str, reason: &'static str) -> Self {
        Self { kind, is_true: true, reason, message: String::new() }
    }

    pub(crate) fn new_false(kind: &'static str, reason: &'static str, message: String) -> Self {
        Self { kind, is_true: false, reason, message }
    }

    /// Whether the object has this condition already.
    pub(crate) fn is_current(&self, before: &[Condition]) -> bool {
        find(before, self.kind).is_some_and(|it| {
            it.status == status_text(self.is_true)
                && it.reason == self.reason
                && it.message == self.message
        })
    }
}

/// Returns the condition that reports that fields of an object were read in another way than they
/// are written. It is absent for most objects, which never had such fields.
pub(crate) fn spec_normalized(remarks: &[String], before: &[Condition]) -> Option<ConditionUpdate> {
    const KIND: &str = "SpecNormalized";
    if remarks.is_empty() {
        let known = find(before, KIND).is_some();
        return known.then(|| ConditionUpdate::new_false(KIND, "AsItShouldBe", String::new()));
    }
    let mut message = String::new();
    for (at, remark) in remarks.iter().enumerate() {
        if message.len() + remark.len() > MAX_MESSAGE_BYTES {
            message.push_str(&format!("; and {} more", remarks.len() - at));
            break;
        }
        if at > 0 {
            message.push_str("; ");
        }
        message.push_str(remark);
    }
    Some(ConditionUpdate { message, ..ConditionUpdate::new_true(KIND, "OldSpelling") })
}

/// The longest message in bytes that users read to its end; far less than a server allows.
const MAX_MESSAGE_BYTES: usize = 4 << 10;

/// Returns one of an object's conditions.
pub(crate) fn find<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|it| it.type_ == kind)
}

fn status_text(holds: bool) -> &'static str {
    if holds { "True" } else { "False" }
}

/// Truncates a timestamp to whole seconds, as objects store it.
pub(crate) fn truncate_to_second(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

/// Merges these conditions into others. A condition whose status stays the same keeps its
/// transition time.
pub(crate) fn merge(
    before: &[Condition],
    says: &[ConditionUpdate],
    generation: i64,
    now: Timestamp,
) -> Vec<Condition> {
    let others = before.iter().filter(|it| says.iter().all(|says| says.kind != it.type_));
    let said = says.iter().map(|says| {
        let since = find(before, says.kind).filter(|it| it.status == status_text(says.is_true));
        Condition {
            type_: says.kind.to_owned(),
            status: status_text(says.is_true).to_owned(),
            reason: says.reason.to_owned(),
            message: says.message.clone(),
            last_transition_time: since.map_or_else(
                || Time(truncate_to_second(now)),
                |it| it.last_transition_time.clone(),
            ),
            observed_generation: Some(generation).filter(|it| *it > 0),
        }
    });
    others.cloned().chain(said).collect()
}

/// Serializes conditions as objects store them.
pub(crate) fn to_json(conditions: &[Condition]) -> Value {
    json!(conditions)
}
