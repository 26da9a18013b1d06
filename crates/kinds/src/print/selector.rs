//! Formats labels and selectors as text.

use serde_json::Value;

use super::fields::{NONE, list, map, text};

/// A map of labels as `a=1,b=2`, or `<none>`.
pub(super) fn labels(labels: &Value) -> String {
    let Some(labels) = map(labels) else {
        return NONE.to_owned();
    };
    let mut parts: Vec<_> = labels.iter().map(|(key, value)| (key, text(value))).collect();
    parts.sort_unstable();
    let parts: Vec<String> = parts.iter().map(|(key, value)| format!("{key}={value}")).collect();
    parts.join(",")
}

/// Formats a label selector as a query, or `<none>`, or `<error>` if it is invalid.
pub(super) fn selector(selector: &Value) -> String {
    match query(selector) {
        Some(query) if query.is_empty() => NONE.to_owned(),
        Some(query) => query,
        None => "<error>".to_owned(),
    }
}

/// Formats a label selector as a query, empty if it selects all or nothing; `None` if it cannot be
/// written as a query.
pub(super) fn query(selector: &Value) -> Option<String> {
    let mut parts: Vec<(&str, String)> = Vec::new();
    for (key, value) in map(&selector["matchLabels"]).into_iter().flatten() {
        parts.push((key, format!("{key}={}", text(value))));
    }
    for expression in list(&selector["matchExpressions"]) {
        let key = text(&expression["key"]);
        let mut values: Vec<&str> = list(&expression["values"]).iter().map(text).collect();
        values.sort_unstable();
        let part = match (text(&expression["operator"]), values.is_empty()) {
            ("In", false) => format!("{key} in ({})", values.join(",")),
            ("NotIn", false) => format!("{key} notin ({})", values.join(",")),
            ("Exists", true) => key.to_owned(),
            ("DoesNotExist", true) => format!("!{key}"),
            _ => return None,
        };
        parts.push((key, part));
    }
    parts.sort_by_key(|(key, _)| *key);
    let parts: Vec<String> = parts.into_iter().map(|(_, part)| part).collect();
    Some(parts.join(","))
}

/// Formats a label selector as Go's protocol buffers print the struct, which is what kube-apiserver
/// puts into the cell of a binding that selects its parameters.
pub(super) fn struct_text(selector: &Value) -> String {
    let mut labels: Vec<_> = map(&selector["matchLabels"]).into_iter().flatten().collect();
    labels.sort_unstable_by_key(|(key, _)| *key);
    let mut out = "&LabelSelector{MatchLabels:map[string]string{".to_owned();
    for (key, value) in labels {
        out += &format!("{key}: {},", text(value));
    }
    out += "},MatchExpressions:[]LabelSelectorRequirement{";
    for expression in list(&selector["matchExpressions"]) {
        let values: Vec<&str> = list(&expression["values"]).iter().map(text).collect();
        out += &format!(
            "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{}],}},",
            text(&expression["key"]),
            text(&expression["operator"]),
            values.join(" "),
        );
    }
    out + "},}"
}
