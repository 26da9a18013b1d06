//! Objects that AppWrappers wrap, whatever their kind.

use gantry_reconcile::{Meta, Resource, View};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// An object of a kind that may be wrapped: whose it is, and its conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Wrapped {
    /// Metadata.
    pub metadata: Meta,
    /// What is true of it.
    #[serde(rename = "status", deserialize_with = "conditions")]
    pub conditions: Vec<Truth>,
}

/// Something that is said about an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Truth {
    /// What: a condition's `type`.
    pub kind: String,
    /// Whether: a condition's `status`.
    pub status: String,
}

impl View for Wrapped {
    /// Stands for all of them; each has a shelf at its own address.
    const RESOURCE: Resource = Resource::namespaced("gantry.dev", "v1", "wrapped", "Wrapped");

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// The conditions of a status of any shape. A kind may use the word for something else.
fn conditions<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Truth>, D::Error> {
    let status = Value::deserialize(from)?;
    let list = status["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |it: &Value, name: &str| it[name].as_str().unwrap_or_default().to_owned();
    let truth = |it: &Value| Truth { kind: text(it, "type"), status: text(it, "status") };
    Ok(list.iter().map(truth).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn any_status_can_be_read() {
        let truth = |kind: &str, status: &str| Truth { kind: kind.into(), status: status.into() };
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
            let view: Wrapped = serde_json::from_value(object.clone()).unwrap();
            assert_eq!(view.conditions, expected, "{object}");
        }
    }
}
