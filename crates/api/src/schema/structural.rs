//! Converts Rust types to structural schemas.
//!
//! The derive macro describes Rust; an API server requires OpenAPI v3 without references, without
//! `null` among the types, with one `type` per node, and no constraint hidden in a `oneOf`.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// The structural schema of a type, its doc comments as descriptions.
#[must_use]
pub fn of<T: JsonSchema>() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    rewrite(&mut schema);
    if let Some(fields) = schema.as_object_mut() {
        fields.shift_remove("title");
    }
    schema
}

/// `schema` with another description.
#[must_use]
pub fn described(mut schema: Value, text: &str) -> Value {
    schema["description"] = json!(text);
    schema
}

fn rewrite(schema: &mut Value) {
    // `true` accepts any value.
    if schema.as_bool() == Some(true) {
        *schema = json!({"x-kubernetes-preserve-unknown-fields": true});
    }
    let Some(fields) = schema.as_object_mut() else { return };
    fields.shift_remove("title");
    fields.shift_remove("$schema");
    drop_null(fields);
    if fields.get("x-kubernetes-int-or-string").is_none() {
        merge_single(fields);
        flatten_enum(fields);
    }
    fix_numbers(fields);
    if let Some(text) = fields.get("description").and_then(Value::as_str) {
        let text = unwrap_lines(text);
        // First, where a reader of the file looks for it.
        fields.shift_insert(0, "description".to_owned(), json!(text));
    }
    if let Some(properties) = fields.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(rewrite);
    }
    for name in ["items", "additionalProperties"] {
        if let Some(part) = fields.get_mut(name).filter(|part| !part.is_boolean()) {
            rewrite(part);
        }
    }
    // The derive writes `additionalProperties: false` for closed types; servers prune instead.
    if fields.get("additionalProperties") == Some(&Value::Bool(false)) {
        fields.shift_remove("additionalProperties");
    }
}

/// An optional field may be left out; it may not be null.
fn drop_null(fields: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = fields.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            fields.insert("type".to_owned(), only);
        }
    }
    for name in ["anyOf", "oneOf"] {
        if let Some(Value::Array(options)) = fields.get_mut(name) {
            options.retain(|option| option.get("type") != Some(&json!("null")));
        }
    }
    if let Some(Value::Array(allowed)) = fields.get_mut("enum") {
        allowed.retain(|value| !value.is_null());
    }
    if fields.get("default") == Some(&Value::Null) {
        fields.shift_remove("default");
    }
}

/// `anyOf: [X]` and `allOf: [X]` are X; the outer description wins.
fn merge_single(fields: &mut Map<String, Value>) {
    for name in ["anyOf", "oneOf", "allOf"] {
        let single = match fields.get(name) {
            Some(Value::Array(options)) if options.len() == 1 => options.first().cloned(),
            _ => None,
        };
        if let Some(Value::Object(inner)) = single {
            fields.shift_remove(name);
            for (key, value) in inner {
                fields.entry(key).or_insert(value);
            }
            drop_null(fields);
            merge_single(fields);
        }
    }
}

/// Variants with doc comments arrive as `oneOf` constants; their docs join the description.
fn flatten_enum(fields: &mut Map<String, Value>) {
    let Some(Value::Array(options)) = fields.get("oneOf") else { return };
    let mut names = Vec::new();
    let mut lines = Vec::new();
    for option in options {
        let text = option.get("description").and_then(Value::as_str).map(unwrap_lines);
        match (option.get("const"), option.get("enum").and_then(Value::as_array)) {
            (Some(name), None) => {
                if let (Some(name), Some(text)) = (name.as_str(), text) {
                    lines.push(format!("`{name}`: {text}"));
                }
                names.push(name.clone());
            }
            (None, Some(several)) => names.extend(several.iter().cloned()),
            _ => return,
        }
    }
    fields.shift_remove("oneOf");
    fields.insert("type".to_owned(), json!("string"));
    fields.insert("enum".to_owned(), Value::Array(names));
    if !lines.is_empty() {
        let outer = fields.get("description").and_then(Value::as_str).unwrap_or_default();
        let text = format!("{outer}\n\n{}", lines.join("\n\n"));
        fields.insert("description".to_owned(), json!(text.trim()));
    }
}

/// Kubernetes has int32 and int64; limits that are whole numbers are written as such.
fn fix_numbers(fields: &mut Map<String, Value>) {
    match fields.get("format").and_then(Value::as_str) {
        Some("uint8" | "uint16" | "int8" | "int16") => {
            fields.insert("format".to_owned(), json!("int32"));
        }
        Some("uint32" | "uint64" | "uint" | "int") => {
            fields.insert("format".to_owned(), json!("int64"));
        }
        _ => {}
    }
    for name in ["minimum", "maximum"] {
        if let Some(number) = fields.get(name).and_then(Value::as_f64)
            && number.fract() == 0.0
            && number.abs() < 9.0e15
        {
            #[expect(clippy::cast_possible_truncation, reason = "checked to be whole and small")]
            fields.insert(name.to_owned(), json!(number as i64));
        }
    }
}

/// Doc comments are wrapped for the source file; paragraphs and lists keep their breaks.
fn unwrap_lines(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut fresh = true;
    for line in text.lines() {
        let line = line.trim_end();
        let starts_item = line.trim_start().starts_with("- ");
        if line.is_empty() {
            out.push_str("\n\n");
            fresh = true;
        } else {
            if !fresh {
                out.push(if starts_item { '\n' } else { ' ' });
            }
            out.push_str(line.trim_start());
            fresh = false;
        }
    }
    out.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thing.
    ///
    /// With a second
    /// paragraph.
    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct Sample {
        /// How many.
        #[schemars(range(min = 1, max = 5))]
        count: Option<u32>,
        mode: Option<Mode>,
        list: Vec<Inner>,
        any: Value,
        #[serde(default)]
        plain: Plain,
    }

    /// How.
    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    enum Mode {
        /// Goes fast.
        Fast,
        /// Goes slow.
        Slow,
    }

    #[derive(JsonSchema, Default, serde::Serialize)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    enum Plain {
        #[default]
        A,
        B,
    }

    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct Inner {
        name: String,
    }

    #[test]
    fn a_type_becomes_a_structural_schema() {
        let expected = json!({
            "description": "A thing.\n\nWith a second paragraph.",
            "type": "object",
            "properties": {
                "count": {"description": "How many.", "type": "integer", "format": "int64", "minimum": 1, "maximum": 5},
                "mode": {"description": "How.\n\n`Fast`: Goes fast.\n\n`Slow`: Goes slow.", "type": "string", "enum": ["Fast", "Slow"]},
                "list": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}},
                "any": {"x-kubernetes-preserve-unknown-fields": true},
                "plain": {"type": "string", "enum": ["A", "B"], "default": "A"},
            },
            "required": ["list", "any"],
        });
        assert_eq!(of::<Sample>(), expected);
    }
}
