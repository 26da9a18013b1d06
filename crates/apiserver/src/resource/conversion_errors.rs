//! Error messages for patches whose result does not fit the type of the object.

use std::collections::BTreeMap;

use serde_json::Value;

/// Rephrases a type error in the words of Go's conversion instead of those of its JSON decoder.
pub(crate) fn conversion_message(words: &str) -> String {
    let mismatch = words.split_once("cannot unmarshal ").and_then(|(_, rest)| {
        let (found, rest) = rest.split_once(" into Go ")?;
        let (_, wanted) = rest.split_once(" of type ")?;
        Some((found, wanted))
    });
    // A value with a decoder of its own keeps the words of that decoder.
    let Some((found, wanted)) = mismatch.filter(|_| !words.contains("into Go value")) else {
        return words.to_owned();
    };
    let found = match found {
        "object" => "map",
        "array" => "slice",
        "number" => "int64",
        other if other.starts_with("number ") => "float64",
        other => other,
    };
    let integers =
        ["int", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"];
    match (found, wanted) {
        (found, list) if list.starts_with("[]") => format!("cannot restore slice from {found}"),
        (found, map) if map.starts_with("map[") => format!("cannot restore map from {found}"),
        ("int64", "string") => "cannot convert int64 to string".to_owned(),
        ("float64", integer) if integers.contains(&integer) => {
            format!("cannot convert float64 to {integer}")
        }
        // Only a named string type has a package and cannot be made of a map.
        ("map", named) if named.contains('.') => "unrecognized type: string".to_owned(),
        (found, named) if named.contains('.') => format!("cannot restore struct from: {found}"),
        (_, simple) => format!("unrecognized type: {simple}"),
    }
}

/// Sorts the entries of a tree by name, as custom objects are printed.
pub(crate) fn sorted_by_name(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let sorted: BTreeMap<&String, Value> =
                fields.iter().map(|(name, value)| (name, sorted_by_name(value))).collect();
            sorted.into_iter().map(|(name, value)| (name.clone(), value)).collect()
        }
        Value::Array(items) => items.iter().map(sorted_by_name).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// Prints a tree as Go prints a map.
pub(crate) fn go_map(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_map).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(fields) => {
            let mut names: Vec<&String> = fields.keys().collect();
            names.sort();
            let fields: Vec<String> = names
                .iter()
                .map(|name| format!("{name}:{}", go_map(&fields[name.as_str()])))
                .collect();
            format!("map[{}]", fields.join(" "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::conversion_message;

    /// Each message was recorded from a real server that got a strategic patch of a deployment.
    #[test]
    fn conversion_errors_have_go_error_messages() {
        let field = |found: &str, wanted: &str| {
            format!("json: cannot unmarshal {found} into Go struct field A.b of type {wanted}")
        };
        let table = [
            (field("string", "int32"), "unrecognized type: int32"),
            (field("number 1.5", "int32"), "cannot convert float64 to int32"),
            (field("object", "int32"), "unrecognized type: int32"),
            (field("array", "int32"), "unrecognized type: int32"),
            (field("string", "bool"), "unrecognized type: bool"),
            (field("number", "bool"), "unrecognized type: bool"),
            (field("string", "v1.PodTemplateSpec"), "cannot restore struct from: string"),
            (field("string", "[]v1.Container"), "cannot restore slice from string"),
            (field("object", "[]v1.Container"), "cannot restore slice from map"),
            (field("number", "string"), "cannot convert int64 to string"),
            (field("string", "map[string]string"), "cannot restore map from string"),
            (
                "json: cannot unmarshal bool into Go value of type int32".to_owned(),
                "json: cannot unmarshal bool into Go value of type int32",
            ),
        ];
        for (words, expected) in table {
            assert_eq!(conversion_message(&words), expected, "{words}");
        }
    }
}
