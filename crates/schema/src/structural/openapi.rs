//! Validates what a schema may contain, and how its extensions can be combined.

use serde_json::Value;

use super::{invalid_value, unsupported_reason, valid_field_path};
use crate::field_error::FieldError;
use crate::props::{Additional, Items, Props};

/// The types there are.
const SCHEMA_TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// The reasons a rule may give.
const RULE_REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// The faults in a schema, node by node, and by name among the fields of one.
pub(super) fn field_errors(props: Props<'_>, field: &str) -> Vec<FieldError> {
    let mut faults = Vec::new();
    node(props, field, &NodeContext { is_root: true, ..NodeContext::default() }, &mut faults);
    faults
}

/// Where a node stands.
#[derive(Clone, Default)]
struct NodeContext {
    is_root: bool,
    in_metadata: bool,
    /// Why there may be no defaults.
    no_defaults: Option<String>,
}

fn node(props: Props<'_>, field: &str, place: &NodeContext, faults: &mut Vec<FieldError>) {
    keywords(props, field, place, faults);
    let inside = NodeContext { is_root: false, ..place.clone() };
    additional(props, field, &inside, faults);
    for (name, schema) in props.properties() {
        let mut inside = inside.clone();
        let is_resource = place.is_root || props.is_embedded();
        if is_resource && matches!(name, "metadata" | "kind" | "apiVersion") {
            inside.in_metadata = true;
            if place.is_root {
                inside.no_defaults = Some(format!("in top-level {name}"));
            }
        }
        node(schema, &format!("{field}.properties[{name}]"), &inside, faults);
    }
    if let Some(schema) = props.schema("not") {
        node(schema, &format!("{field}.not"), &inside, faults);
    }
    for name in ["allOf", "oneOf", "anyOf"] {
        for (index, schema) in props.schemas(name).into_iter().enumerate() {
            node(schema, &format!("{field}.{name}[{index}]"), &inside, faults);
        }
    }
    for (name, schema) in props.table("definitions") {
        node(schema, &format!("{field}.definitions[{name}]"), &inside, faults);
    }
    match props.items() {
        Items::Absent => {}
        Items::Schema(schema) => node(schema, &format!("{field}.items"), &inside, faults),
        Items::Each(schemas) => {
            for (index, schema) in schemas.into_iter().enumerate() {
                node(schema, &format!("{field}.items[{index}]"), &inside, faults);
            }
        }
    }
    for (name, schema) in props.table("dependencies") {
        node(schema, &format!("{field}.dependencies[{name}]"), &inside, faults);
    }
    let preserve = "x-kubernetes-preserve-unknown-fields";
    if props.optional_flag(preserve) == Some(false) {
        let field = format!("{field}.{preserve}");
        faults.push(invalid_value(field, &Value::Bool(false), "must be true or undefined"));
    }
    map_type(props, field, faults);
    list_type(props, field, faults);
    list_keys(props, field, faults);
    keyed_items(props, field, faults);
    for (index, rule) in props.schemas("x-kubernetes-validations").into_iter().enumerate() {
        rule_texts(props, rule, &format!("{field}.x-kubernetes-validations[{index}]"), faults);
    }
}

/// Members that no schema may have, or not here.
fn keywords(props: Props<'_>, field: &str, place: &NodeContext, faults: &mut Vec<FieldError>) {
    let mut forbid = |name: &str, detail: &str| {
        faults.push(FieldError::forbidden(format!("{field}.{name}"), detail));
    };
    let kind = props.text("type");
    let unknown_type = !kind.is_empty() && !SCHEMA_TYPES.contains(&kind);
    if let (Some(reason), Some(_)) = (&place.no_defaults, props.default_value()) {
        forbid("default", &format!("must not be set {reason}"));
    }
    if props.is_set("id") {
        forbid("id", "id is not supported");
    }
    if props.get("additionalItems").is_some() {
        forbid("additionalItems", "additionalItems is not supported");
    }
    for name in ["patternProperties", "definitions"] {
        if props.is_set(name) {
            forbid(name, &format!("{name} is not supported"));
        }
    }
    for name in ["dependencies", "$ref"] {
        if props.get(name).is_some() {
            forbid(name, &format!("{name} is not supported"));
        }
    }
    if kind == "null" {
        forbid("type", "type cannot be set to null, use nullable as an alternative");
    }
    if matches!(props.items(), Items::Each(_)) {
        forbid("items", "items must be a schema object and not an array");
    }
    if place.in_metadata && props.is_embedded() {
        forbid("x-kubernetes-embedded-resource", "must not be used inside of resource meta");
    }
    if props.flag("uniqueItems") {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes \
                      quadratic";
        forbid("uniqueItems", detail);
    }
    if unknown_type {
        let field = format!("{field}.type");
        faults.push(FieldError::not_supported(field, &Value::from(kind), &SCHEMA_TYPES));
    }
}

fn additional(props: Props<'_>, field: &str, inside: &NodeContext, faults: &mut Vec<FieldError>) {
    let field = format!("{field}.additionalProperties");
    let restricts = match props.additional() {
        Additional::Absent | Additional::Allowed(true) => false,
        Additional::Allowed(false) | Additional::Schema(_) => true,
    };
    if restricts && !props.properties().is_empty() {
        let detail = "additionalProperties and properties are mutual exclusive";
        faults.push(FieldError::forbidden(field.clone(), detail));
    }
    if let Additional::Schema(schema) = props.additional() {
        let mut inside = inside.clone();
        if inside.in_metadata {
            let reason = "inside additionalProperties applying to object metadata";
            inside.no_defaults = Some(reason.to_owned());
        }
        node(schema, &field, &inside, faults);
    }
}

/// That a node with an extension has the type the extension is for.
fn needs_type(
    props: Props<'_>,
    kind: &str,
    detail: &str,
    field: &str,
    faults: &mut Vec<FieldError>,
) {
    let is = props.text("type");
    let field = format!("{field}.type");
    if is.is_empty() {
        faults.push(FieldError::required(field, detail));
    } else if is != kind {
        faults.push(invalid_value(field, &Value::from(is), detail));
    }
}

fn map_type(props: Props<'_>, field: &str, faults: &mut Vec<FieldError>) {
    let Some(map_type) = props.map_type() else { return };
    let detail = "must be object if x-kubernetes-map-type is specified";
    needs_type(props, "object", detail, field, faults);
    let known = ["atomic", "granular"];
    if !known.contains(&map_type) {
        let field = format!("{field}.x-kubernetes-map-type");
        faults.push(FieldError::not_supported(field, &Value::from(map_type), &known));
    }
}

fn list_type(props: Props<'_>, field: &str, faults: &mut Vec<FieldError>) {
    let Some(list_type) = props.list_type() else { return };
    if props.text("type") != "array" {
        let detail = "must be array if x-kubernetes-list-type is specified";
        needs_type(props, "array", detail, field, faults);
    } else if let ("set", Some(item)) = (list_type, props.item()) {
        // What is shown is the list type in both cases, which is how upstream has it.
        let shown = item.list_type().map_or(Value::Null, Value::from);
        let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let wrong = match item.text("type") {
            "array" if item.list_type().is_some_and(|it| it != "atomic") => "list",
            "object" if item.map_type() != Some("atomic") => "map",
            _ => "",
        };
        if !wrong.is_empty() {
            let field = format!("{field}.items.x-kubernetes-{wrong}-type");
            faults.push(invalid_value(field, &shown, detail));
        }
    }
    let known = ["atomic", "set", "map"];
    if !known.contains(&list_type) {
        let field = format!("{field}.x-kubernetes-list-type");
        faults.push(FieldError::not_supported(field, &Value::from(list_type), &known));
    }
}

fn list_keys(props: Props<'_>, field: &str, faults: &mut Vec<FieldError>) {
    let keys = props.map_keys();
    let type_field = format!("{field}.x-kubernetes-list-type");
    let keys_field = format!("{field}.x-kubernetes-list-map-keys");
    let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
    match props.list_type() {
        None if !keys.is_empty() => faults.push(FieldError::required(type_field, detail)),
        Some(other) if other != "map" && !keys.is_empty() => {
            faults.push(invalid_value(type_field, &Value::from(other), detail));
        }
        Some(_) | None => {}
    }
    if props.list_type() != Some("map") {
        return;
    }
    if keys.is_empty() {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        faults.push(FieldError::required(keys_field.clone(), detail));
    }
    let item = match props.items() {
        Items::Absent => {
            let detail = "must have a schema if x-kubernetes-list-type is map";
            faults.push(FieldError::required(format!("{field}.items"), detail));
            return;
        }
        Items::Each(_) => {
            let items = props.get("items").unwrap_or(&Value::Null);
            let detail = "must only have a single schema if x-kubernetes-list-type is map";
            faults.push(invalid_value(format!("{field}.items"), items, detail));
            return;
        }
        Items::Schema(item) => item,
    };
    let kind = Value::from(item.text("type"));
    if kind != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        faults.push(invalid_value(format!("{field}.items.type"), &kind, detail));
        return;
    }
    let properties = item.properties();
    for (index, key) in keys.iter().enumerate() {
        match properties.get(key).map(|property| property.text("type")) {
            Some("array" | "object") => {
                let field = format!("{field}.items.properties[{key}].type");
                let detail =
                    "must be a scalar type if parent array's x-kubernetes-list-type is map";
                faults.push(invalid_value(field, &kind, detail));
            }
            Some(_) => {}
            None => {
                let detail = "entries must all be names of item properties";
                faults.push(invalid_value(keys_field.clone(), &keys_as_value(&keys), detail));
            }
        }
        if keys[..index].contains(key) {
            let detail = "must not contain duplicate entries";
            faults.push(invalid_value(keys_field.clone(), &keys_as_value(&keys), detail));
        }
    }
}

fn keys_as_value(keys: &[&str]) -> Value {
    keys.iter().copied().collect()
}

/// Elements that are identified by keys must be declared, and so must their keys.
fn keyed_items(props: Props<'_>, field: &str, faults: &mut Vec<FieldError>) {
    let (Some(item), Some(list_type @ ("set" | "map"))) = (props.item(), props.list_type()) else {
        return;
    };
    if item.flag("nullable") {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        faults.push(FieldError::forbidden(format!("{field}.items.nullable"), &detail));
    }
    if list_type == "set" {
        return;
    }
    let (required, properties) = (item.texts("required"), item.properties());
    for key in props.map_keys() {
        let Some(property) = properties.get(key) else { continue };
        let field = format!("{field}.items.properties[{key}]");
        let why = "this property is in x-kubernetes-list-map-keys, so it";
        if !required.contains(&key) && property.default_value().is_none() {
            let detail = format!("{why} must have a default or be a required property");
            faults.push(FieldError::required(format!("{field}.default"), &detail));
        }
        if property.flag("nullable") {
            let detail = format!("{why} cannot be nullable");
            faults.push(FieldError::forbidden(format!("{field}.nullable"), &detail));
        }
    }
}

/// A rule as far as it is text.
fn rule_texts(props: Props<'_>, rule: Props<'_>, field: &str, faults: &mut Vec<FieldError>) {
    let breaks = |text: &str| text.contains(['\n', '\r']);
    let (expression, message) = (rule.text("rule").trim(), rule.text("message"));
    let message_field = format!("{field}.message");
    if expression.is_empty() {
        faults.push(FieldError::required(format!("{field}.rule"), "rule is not specified"));
    } else if !message.is_empty() && message.trim().is_empty() {
        let detail = "must be non-empty if specified";
        faults.push(invalid_value(message_field, &Value::from(message), detail));
    } else if breaks(message.trim()) {
        let detail = "must not contain line breaks";
        faults.push(invalid_value(message_field, &Value::from(message), detail));
    } else if breaks(expression) && message.is_empty() {
        let detail = "message must be specified if rule contains line breaks";
        faults.push(FieldError::required(message_field, detail));
    }
    let message_expression = rule.text("messageExpression");
    if !message_expression.is_empty() && message_expression.trim().is_empty() {
        let detail = "messageExpression must be non-empty if specified";
        faults.push(FieldError::required(format!("{field}.messageExpression"), detail));
    }
    if let Some(reason) = rule.optional_text("reason").filter(|it| !RULE_REASONS.contains(it)) {
        let field = format!("{field}.reason");
        faults.push(FieldError::not_supported(field, &Value::from(reason), &RULE_REASONS));
    }
    let path = rule.text("fieldPath");
    if path.is_empty() {
        return;
    }
    let field = format!("{field}.fieldPath");
    let shown = Value::from(path);
    if path.trim().is_empty() {
        faults.push(invalid_value(field.clone(), &shown, "must be non-empty if specified"));
    }
    if breaks(path) {
        faults.push(invalid_value(field.clone(), &shown, "must not contain line breaks"));
    }
    if unsupported_reason(props).is_none() && valid_field_path(path, props, true).is_err() {
        faults.push(invalid_value(field, &shown, "must be a valid path"));
    }
}
