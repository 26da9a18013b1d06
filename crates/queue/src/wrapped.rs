//! Objects that AppWrappers wrap, of any kind.

use gantry_reconcile::{Meta, Resource, View};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// An object of a kind that may be wrapped: its owner, and its conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct WrappedObject {
    /// Metadata.
    pub metadata: Meta,
    /// Its conditions.
    #[serde(rename = "status", deserialize_with = "conditions")]
    pub conditions: Vec<ObjectCondition>,
}

/// A condition of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectCondition {
    /// The condition's `type`.
    pub kind: String,
    /// The condition's `status`.
    pub status: String,
}

impl View for WrappedObject {
    /// Stands for all wrapped kinds; each has a store under its own resource.
    const RESOURCE: Resource = Resource::namespaced("gantry.dev", "v1", "wrapped", "Wrapped");

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// Reads the conditions of a status of any shape. A kind may use the field name for something else.
fn conditions<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<ObjectCondition>, D::Error> {
    let status = Value::deserialize(from)?;
    let list = status["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |it: &Value, name: &str| it[name].as_str().unwrap_or_default().to_owned();
    let truth = |it: &Value| ObjectCondition { kind: text(it, "type"), status: text(it, "status") };
    Ok(list.iter().map(truth).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn any_status_can_be_read() {
        let truth =
            |kind: &str, status: &str| ObjectCondition { kind: kind.into(), status: status.into() };
        let table = [
            (json!({}), vec![]),
            (json!({"status": null}), vec![]),
            (json!({"status": "fine"}), vec![]),
            (json!({"status": {"conditions": {"ready": true}}}), vec![]),
            (
                json!({"status": {"conditions": [{"type": "Complete", "status": "True"}, 7]}}),
                vec![truth("Complete", "True"), truth("", "")],
            ),
        ];
        for (object, expected) in table {
            let view: WrappedObject = serde_json::from_value(object.clone()).unwrap();
            assert_eq!(view.conditions, expected, "{object}");
        }
    }
}
