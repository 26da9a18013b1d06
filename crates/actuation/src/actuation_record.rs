//! How a provider came to serve its requester, as its annotation records it: for `gantry explain`
//! and metrics, also after a restart. No decision depends on it.

use gantry_reconcile::Uid;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::labels::RECORD_ANNOTATION;
use crate::view::ActuationPod;

/// The longest reason that is recorded.
const MAX_REASON_CHARS: usize = 500;

/// The path by which a requester got its engine, as metrics name it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ActuationPath {
    /// An engine that existed was woken.
    Hot,
    /// An instance was started in a launcher that existed.
    Warm,
    /// A pod was created.
    #[default]
    Cold,
}

impl ActuationPath {
    /// The name in metrics and texts.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hot => "hot",
            Self::Warm => "warm",
            Self::Cold => "cold",
        }
    }
}

/// How a provider came to serve its requester. Written when it is bound, and completed when its
/// engine is first routed to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ActuationRecord {
    /// The requester's UID: the record of an earlier binding says nothing about this one.
    pub requester: String,
    /// The path.
    pub path: ActuationPath,
    /// Why no better path was taken; empty if there is none.
    pub reason: String,
    /// How many instances had to make way.
    pub instances_deleted: usize,
    /// When the requester had reported its accelerators.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accelerators_known: Option<Timestamp>,
    /// When the provider was bound, or created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<Timestamp>,
    /// When the launcher had created the instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
    /// When the engine had answered, or was asked and then answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answered: Option<Timestamp>,
    /// When the engine had been woken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub woken: Option<Timestamp>,
    /// When the engine was first routed to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routed: Option<Timestamp>,
}

impl ActuationRecord {
    /// A record of a decision.
    #[must_use]
    pub fn new(path: ActuationPath, reason: &str) -> Self {
        let reason = reason.chars().take(MAX_REASON_CHARS).collect();
        Self { path, reason, ..Self::default() }
    }

    /// The record of a provider about its binding to this requester; `None` if there is none.
    #[must_use]
    pub fn read(provider: &ActuationPod, requester: &Uid) -> Option<Self> {
        let text = provider.annotation(RECORD_ANNOTATION)?;
        let record: Self = serde_json::from_str(text).ok()?;
        (record.requester == requester.as_str()).then_some(record)
    }

    /// The text of the annotation.
    #[must_use]
    pub fn text(&self) -> Value {
        // Texts, numbers and times always have a JSON form.
        serde_json::to_string(self).unwrap_or_default().into()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_record_is_read_for_its_own_requester_only() {
        let record = ActuationRecord {
            requester: "u1".to_owned(),
            bound: Some(Timestamp::UNIX_EPOCH),
            ..ActuationRecord::new(ActuationPath::Warm, &"x".repeat(600))
        };
        assert_eq!(record.reason.len(), MAX_REASON_CHARS);
        let provider: ActuationPod = serde_json::from_value(json!({
            "metadata": {"name": "l", "annotations": {RECORD_ANNOTATION: record.text()}},
        }))
        .unwrap();
        assert_eq!(ActuationRecord::read(&provider, &Uid::new("u1")), Some(record));
        assert_eq!(ActuationRecord::read(&provider, &Uid::new("u2")), None);
    }
}
