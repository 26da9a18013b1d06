//! Validates label selectors as objects write them, and matches labels.

use serde_json::Value;

use crate::field_errors::{FieldErrors, Path};
use crate::metadata::check_labels;
use crate::names;
use crate::tree::{entries, list, text};

/// Validates a selector.
pub(crate) fn check(selector: &Value, path: &Path, faults: &mut FieldErrors) {
    check_labels(selector, path, "matchLabels", faults);
    for (place, expression) in list(selector, "matchExpressions").iter().enumerate() {
        let path = path.child("matchExpressions").index(place);
        check_expression(expression, &path, faults);
        for (place, value) in list(expression, "values").iter().enumerate() {
            let value = value.as_str().unwrap_or_default();
            faults.invalid_text(
                &path.child("values").index(place),
                value,
                names::label_value(value),
            );
        }
    }
}

/// Validates the parts of a requirement that node selectors have too.
pub(crate) fn check_expression(expression: &Value, path: &Path, faults: &mut FieldErrors) {
    let values = list(expression, "values");
    match text(expression, "operator") {
        "In" | "NotIn" => {
            if values.is_empty() {
                let detail = "must be specified when `operator` is 'In' or 'NotIn'";
                faults.required(path.child("values"), detail);
            }
        }
        "Exists" | "DoesNotExist" => {
            if !values.is_empty() {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                faults.forbidden(path.child("values"), detail);
            }
        }
        other => faults.value(path.child("operator"), other, "not a valid selector operator"),
    }
    let key = text(expression, "key");
    faults.invalid_text(&path.child("key"), key, names::qualified(key));
}

/// Returns whether a selector matches these labels. An empty one matches everything, a missing one
/// nothing.
#[must_use]
pub fn matches(selector: &Value, labels: &Value) -> bool {
    let label = |key: &str| labels.get(key).and_then(Value::as_str);
    let holds = |expression: &Value| {
        let has = label(text(expression, "key"));
        let listed = has.is_some_and(|it| list(expression, "values").iter().any(|v| v == it));
        match text(expression, "operator") {
            "In" => listed,
            "NotIn" => !listed,
            "Exists" => has.is_some(),
            "DoesNotExist" => has.is_none(),
            _ => false,
        }
    };
    selector.is_object()
        && entries(selector, "matchLabels")
            .into_iter()
            .all(|(key, value)| label(key).is_some() && label(key) == value.as_str())
        && list(selector, "matchExpressions").iter().all(holds)
}

/// Returns whether a selector has no requirements.
#[must_use]
pub fn is_empty(selector: &Value) -> bool {
    entries(selector, "matchLabels").is_empty() && list(selector, "matchExpressions").is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selectors_pick_what_they_describe() {
        let labels = json!({ "a": "1", "b": "2" });
        let one = |operator: &str, key: &str, values: &[&str]| {
            let expression = json!({ "key": key, "operator": operator, "values": values });
            json!({ "matchExpressions": [expression] })
        };
        let table = [
            (json!({}), true),
            (json!(null), false),
            (json!({ "matchLabels": { "a": "1" } }), true),
            (json!({ "matchLabels": { "a": "1", "c": "" } }), false),
            (one("In", "a", &["0", "1"]), true),
            (one("In", "c", &["1"]), false),
            (one("NotIn", "c", &["1"]), true),
            (one("NotIn", "a", &["1"]), false),
            (one("Exists", "b", &[]), true),
            (one("DoesNotExist", "b", &[]), false),
            (one("Some", "b", &[]), false),
        ];
        for (selector, expected) in table {
            assert_eq!(matches(&selector, &labels), expected, "{selector}");
        }
    }
}
