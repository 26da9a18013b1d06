//! Builds the published schema of a definition.
//!
//! A definition's schema is published in the form of a structural schema, not as it was written:
//! fields that structural schemas do not have (`example`, `externalDocs`, …) and fields at their
//! zero value are left out, what an extension implies is spelled out, and metadata is that of
//! Kubernetes.

use serde_json::{Map, Number, Value, json};

use crate::custom::OpenApiVersion;
use crate::shared_definitions::{COMMON, OBJECT_META, SCHEMAS};

/// Builds the schema of an object of a custom kind, without the marks of that kind.
///
/// A definition without a schema gets one without properties: a list of properties would tell
/// clients that there are no others. In version 2 the same goes for one that keeps unknown fields,
/// for it cannot express that.
pub(crate) fn object(edition: OpenApiVersion, schema: &Value) -> Map<String, Value> {
    let open = || Map::from_iter([("type".to_owned(), json!("object"))]);
    let Value::Object(schema) = schema else { return open() };
    if edition == OpenApiVersion::V2 && is_set(schema, KEEPS_UNKNOWN) {
        return open();
    }
    let mut out = publish(schema, SchemaContext::Structure(edition));
    let properties = properties_of(&mut out);
    properties.insert("apiVersion".to_owned(), COMMON.api_version.clone());
    properties.insert("kind".to_owned(), COMMON.kind.clone());
    properties.insert("metadata".to_owned(), metadata());
    out
}

/// Builds a property that is the schema `name`; a reference can have no description beside it.
pub(crate) fn described_reference(name: &str, description: &str) -> Value {
    json!({ "description": description, "allOf": [{ "$ref": format!("{SCHEMAS}{name}") }] })
}

/// The part of a structural schema that a node belongs to.
#[derive(Clone, Copy)]
enum SchemaContext {
    /// The tree that defines the fields.
    Structure(OpenApiVersion),
    /// Below `allOf`, `anyOf`, `oneOf` or `not`: conditions on fields of the tree.
    Condition,
}

fn publish(schema: &Map<String, Value>, part: SchemaContext) -> Map<String, Value> {
    let mut out = Map::new();
    for (name, value) in schema {
        if let Some(value) = field(name, value, part) {
            out.insert(name.clone(), value);
        }
    }
    match part {
        SchemaContext::Structure(edition) => {
            match edition {
                OpenApiVersion::V2 => reduce_to_v2(&mut out, schema),
                OpenApiVersion::V3 if is_set(&out, "x-kubernetes-int-or-string") => {
                    spell_out_int_or_string(&mut out);
                }
                OpenApiVersion::V3 => {}
            }
            let open = edition == OpenApiVersion::V2 && is_set(&out, KEEPS_UNKNOWN);
            if is_set(&out, "x-kubernetes-embedded-resource") && !open {
                add_resource_fields(&mut out);
            }
        }
        SchemaContext::Condition => {}
    }
    out
}

/// Builds one field of a node, or nothing where the published form has none.
fn field(name: &str, value: &Value, part: SchemaContext) -> Option<Value> {
    match name {
        "type" | "format" | "title" | "description" | "pattern" => {
            value.as_str().filter(|text| !text.is_empty()).map(Value::from)
        }
        "nullable"
        | "exclusiveMaximum"
        | "exclusiveMinimum"
        | "uniqueItems"
        | KEEPS_UNKNOWN
        | "x-kubernetes-embedded-resource"
        | "x-kubernetes-int-or-string" => (*value == true).then_some(Value::Bool(true)),
        "maxLength"
        | "minLength"
        | "maxItems"
        | "minItems"
        | "maxProperties"
        | "minProperties"
        | "x-kubernetes-list-type"
        | "x-kubernetes-map-type" => (!value.is_null()).then(|| value.clone()),
        "maximum" | "minimum" | "multipleOf" => value.as_f64().map(float),
        "default" => (!value.is_null()).then(|| plain(value)),
        "required" | "x-kubernetes-list-map-keys" => items(value).map(|all| all.to_vec().into()),
        "enum" => items(value).map(|all| all.iter().map(plain).collect()),
        "x-kubernetes-validations" => items(value).map(|all| all.iter().map(rule).collect()),
        "allOf" | "anyOf" | "oneOf" => items(value)
            .map(|all| all.iter().map(|it| node(it, SchemaContext::Condition)).collect()),
        "not" => value.is_object().then(|| node(value, SchemaContext::Condition)),
        "items" => value.is_object().then(|| node(value, part)),
        "properties" => {
            let fields = value.as_object().filter(|fields| !fields.is_empty())?;
            let published = fields.iter().map(|(name, field)| (name.clone(), node(field, part)));
            Some(Value::Object(published.collect()))
        }
        "additionalProperties" => match (part, value) {
            (SchemaContext::Structure(_), Value::Bool(_)) => Some(value.clone()),
            (SchemaContext::Structure(_), Value::Object(_)) => Some(node(value, part)),
            (SchemaContext::Structure(_) | SchemaContext::Condition, _) => None,
        },
        _ => None,
    }
}

fn node(schema: &Value, part: SchemaContext) -> Value {
    Value::Object(schema.as_object().map(|schema| publish(schema, part)).unwrap_or_default())
}

/// The items of a list that has some.
fn items(value: &Value) -> Option<&[Value]> {
    value.as_array().map(Vec::as_slice).filter(|items| !items.is_empty())
}

fn is_set(schema: &Map<String, Value>, name: &str) -> bool {
    schema.get(name) == Some(&Value::Bool(true))
}

/// A validation rule without its empty fields.
fn rule(rule: &Value) -> Value {
    let Value::Object(rule) = rule else { return rule.clone() };
    let says_something = |(name, value): &(&String, &Value)| {
        name.as_str() == "rule" || !(value.is_null() || *value == "")
    };
    let kept = rule.iter().filter(says_something);
    Value::Object(kept.map(|(name, value)| (name.clone(), value.clone())).collect())
}

/// Normalises the numbers of a value to the form in which they are published.
fn plain(value: &Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => number.as_f64().map_or(Value::Null, float),
        Value::Array(items) => items.iter().map(plain).collect(),
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(name, it)| (name.clone(), plain(it))).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// Formats a floating-point number as JSON: a whole one has no decimal point.
///
/// Bounds are floating-point numbers whatever the type of the field is, so a whole bound above 2^53
/// is published as the nearest one that exists.
fn float(number: f64) -> Value {
    // Two to the power of 63, from which on whole numbers no longer fit.
    const END: f64 = 9_223_372_036_854_775_808.0;
    if number.fract() == 0.0 && (-END..END).contains(&number) {
        #[expect(clippy::cast_possible_truncation, reason = "a whole number in range")]
        return Value::from(number as i64);
    }
    Number::from_f64(number).map_or(Value::Null, Value::Number)
}

/// Adds the types of an int-or-string, unless the schema has them itself.
fn spell_out_int_or_string(schema: &mut Map<String, Value>) {
    let either = json!([{ "type": "integer" }, { "type": "string" }]);
    let first = schema.get("allOf").and_then(|all| all.pointer("/0/anyOf"));
    if schema.get("anyOf") == Some(&either) || first == Some(&either) {
        return;
    }
    if !schema.contains_key("anyOf") {
        schema.insert("anyOf".to_owned(), either);
        return;
    }
    let either = json!({ "anyOf": either });
    match schema.get_mut("allOf") {
        Some(Value::Array(all)) => all.insert(0, either),
        _ => {
            schema.insert("allOf".to_owned(), json!([either]));
        }
    }
}

/// Removes what version 2 cannot express or kubectl, its reader, cannot read.
///
/// A schema with fewer constraints does no harm: the server validates what is sent. One with more
/// than kubectl understands does, for kubectl then rejects what the server would accept.
fn reduce_to_v2(out: &mut Map<String, Value>, schema: &Map<String, Value>) {
    for name in ["allOf", "anyOf", "oneOf", "not"] {
        out.remove(name);
    }
    // There is no null, so a nullable value has no type, and a value without a type has no fields.
    let nullable = out.remove("nullable").is_some();
    if nullable {
        out.remove("type");
    }
    let open = is_set(out, KEEPS_UNKNOWN);
    if nullable || open {
        out.remove("items");
        out.remove("properties");
    }
    let typed = |out: &Map<String, Value>, name: &str| out.get("type").is_some_and(|it| it == name);
    let bare = typed(out, "array") && !out.contains_key("items");
    if bare || (open && typed(out, "object")) {
        out.remove("type");
    }
    let may_be_null = |it: Option<&Value>| it.is_some_and(|it| it["nullable"] == true);
    let field = |name: &Value| schema.get("properties")?.get(name.as_str()?);
    let fields = out.contains_key("properties");
    if let Some(Value::Array(required)) = out.get_mut("required") {
        required.retain(|name| !(fields && may_be_null(field(name))));
        if required.is_empty() || may_be_null(schema.get("additionalProperties")) {
            out.remove("required");
        }
    }
}

/// Adds the fields of every object to an embedded resource.
fn add_resource_fields(schema: &mut Map<String, Value>) {
    let properties = properties_of(schema);
    properties
        .insert("apiVersion".to_owned(), described(&COMMON.api_version, EMBEDDED_API_VERSION));
    properties.insert("kind".to_owned(), described(&COMMON.kind, EMBEDDED_KIND));
    properties.insert("metadata".to_owned(), metadata());
    let required = schema.entry("required").or_insert_with(|| json!([]));
    if let Value::Array(required) = required {
        for name in ["kind", "apiVersion"] {
            if !required.iter().any(|it| it == name) {
                required.push(name.into());
            }
        }
    }
}

fn properties_of(schema: &mut Map<String, Value>) -> &mut Map<String, Value> {
    schema
        .entry("properties")
        .or_insert_with(|| json!({}))
        .as_object_mut()
        .expect("published properties are an object")
}

fn metadata() -> Value {
    described_reference(OBJECT_META, METADATA)
}

fn described(schema: &Value, description: &str) -> Value {
    let mut schema = schema.clone();
    schema["description"] = description.into();
    schema
}

const KEEPS_UNKNOWN: &str = "x-kubernetes-preserve-unknown-fields";
const METADATA: &str = "Standard object's metadata. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";
const EMBEDDED_API_VERSION: &str = "apiVersion defines the versioned schema of this \
    representation of an object. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const EMBEDDED_KIND: &str = "kind is a string value representing the type of this object. In \
                             CamelCase. More info: \
                             https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";

#[cfg(test)]
mod tests;
