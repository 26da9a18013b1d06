//! JSON in a form that depends on the value alone.

use serde_json::{Map, Value};

/// The text of a value, with the keys of objects sorted.
#[must_use]
pub fn canonical_text(value: &Value) -> String {
    sorted(value).to_string()
}

/// The value with the keys of objects sorted.
#[must_use]
pub fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut entries: Vec<(&String, &Value)> = fields.iter().collect();
            entries.sort_by_key(|(name, _)| *name);
            let entries = entries.into_iter().map(|(name, value)| (name.clone(), sorted(value)));
            Value::Object(entries.collect::<Map<String, Value>>())
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_sorted_at_every_depth() {
        let value = json!({"b": [{"d": 1, "c": 2}], "a": null});
        assert_eq!(canonical_text(&value), r#"{"a":null,"b":[{"c":2,"d":1}]}"#);
    }
}
