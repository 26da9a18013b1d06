//! The rules that make a schema structural.

use serde_json::Value;

use super::invalid_value;
use crate::field_error::FieldError;
use crate::pattern::PatternCache;
use crate::props::{Additional, Props};

/// The faults in the structure of a schema, in the order of their texts.
pub(super) fn field_errors(props: Props<'_>, field: &str) -> Vec<FieldError> {
    let mut faults = Vec::new();
    node(props, Level::Root, field, &mut PatternCache::default(), &mut faults);
    clauses_complete(props, Some(props), field, field, &mut faults);
    faults.sort_by_cached_key(ToString::to_string);
    faults
}

/// Where a node stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

fn node(
    props: Props<'_>,
    level: Level,
    field: &str,
    patterns: &mut PatternCache,
    faults: &mut Vec<FieldError>,
) {
    let kind = props.text("type");
    match props.item() {
        Some(item) => node(item, Level::Item, &format!("{field}.items"), patterns, faults),
        None if kind == "array" => {
            faults.push(FieldError::required(format!("{field}.items"), "must be specified"));
        }
        None => {}
    }
    let properties = props.properties();
    for (name, schema) in &properties {
        node(*schema, Level::Field, &format!("{field}.properties[{name}]"), patterns, faults);
    }
    let additional = format!("{field}.additionalProperties");
    if !matches!(props.additional(), Additional::Absent) {
        if level == Level::Root {
            faults.push(FieldError::forbidden(additional.clone(), "must not be used at the root"));
        }
        if props.is_embedded() {
            let detail = "must not be used if x-kubernetes-embedded-resource is set";
            faults.push(FieldError::forbidden(additional.clone(), detail));
        }
    }
    if let Additional::Schema(schema) = props.additional() {
        node(schema, Level::Field, &additional, patterns, faults);
    }
    extensions(props, field, faults);
    let skip = is_int_or_string(&props.schemas("anyOf"));
    let skip_in_first = props
        .schemas("allOf")
        .first()
        .copied()
        .is_some_and(|first| is_int_or_string(&first.schemas("anyOf")));
    value(props, skip, skip_in_first, field, patterns, faults);
    require_type(props, level, field, faults);
    if level == Level::Root || props.is_embedded() {
        for name in ["kind", "apiVersion"] {
            let Some(schema) = properties.get(name) else { continue };
            let kind = schema.text("type");
            if kind != "string" {
                let field = format!("{field}.properties[{name}].type");
                faults.push(invalid_value(field, &Value::from(kind), "must be string"));
            }
        }
    }
    if let Some(schema) = properties.get("metadata") {
        let field = format!("{field}.properties[metadata]");
        metadata(*schema, props.is_embedded(), level, &field, faults);
    }
    if props.is_embedded() && !props.preserves_unknown_fields() && properties.is_empty() {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without \
                      x-kubernetes-preserve-unknown-fields";
        faults.push(FieldError::required(format!("{field}.properties"), detail));
    }
}

fn require_type(props: Props<'_>, level: Level, field: &str, faults: &mut Vec<FieldError>) {
    let kind = props.text("type");
    let field = format!("{field}.type");
    if props.is_embedded() && kind != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        faults.push(match kind {
            "" => FieldError::required(field.clone(), detail),
            _ => invalid_value(field.clone(), &Value::from(kind), detail),
        });
    } else if kind.is_empty() && !props.is_int_or_string() && !props.preserves_unknown_fields() {
        let detail = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        faults.push(FieldError::required(field.clone(), detail));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        faults.push(invalid_value(field, &Value::from(kind), "must be object at the root"));
    }
}

fn extensions(props: Props<'_>, field: &str, faults: &mut Vec<FieldError>) {
    if !props.is_int_or_string() {
        return;
    }
    for name in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
        if props.flag(name) {
            let detail = "must be false if x-kubernetes-int-or-string is true";
            faults.push(invalid_value(format!("{field}.{name}"), &Value::Bool(true), detail));
        }
    }
}

/// Metadata of the object may only be restricted in its name; all else is known already.
fn metadata(
    props: Props<'_>,
    is_embedded: bool,
    level: Level,
    field: &str,
    faults: &mut Vec<FieldError>,
) {
    let kind = props.text("type");
    if (level == Level::Root || is_embedded) && kind != "object" {
        faults.push(invalid_value(format!("{field}.type"), &Value::from(kind), "must be object"));
    }
    if level != Level::Root {
        return;
    }
    let only_names = props.properties().keys().all(|name| matches!(*name, "name" | "generateName"));
    let is_ignored =
        |name: &str| matches!(name, "type" | "default" | "properties" | "externalDocs" | "example");
    let is_plain = props.members().all(|name| is_ignored(name) || !props.is_set(name));
    if !only_names || !is_plain {
        let detail = "must not specify anything other than name and generateName, but metadata is \
                      implicitly specified";
        faults.push(FieldError::forbidden(field, detail));
    }
}

/// `anyOf` of an integer and a text, which is how int-or-string may be spelled out.
fn is_int_or_string(clauses: &[Props<'_>]) -> bool {
    let is_only = |clause: &Props<'_>, kind: &str| {
        clause.text("type") == kind
            && clause.members().all(|name| name == "type" || !clause.is_set(name))
    };
    matches!(clauses, [first, second] if is_only(first, "integer") && is_only(second, "string"))
}

/// The clauses and the pattern of a node or of a clause.
fn value(
    props: Props<'_>,
    skip_any_of: bool,
    skip_in_first: bool,
    field: &str,
    patterns: &mut PatternCache,
    faults: &mut Vec<FieldError>,
) {
    if !skip_any_of {
        for (index, clause) in props.schemas("anyOf").into_iter().enumerate() {
            nested(clause, false, &format!("{field}.anyOf[{index}]"), patterns, faults);
        }
    }
    for (index, clause) in props.schemas("allOf").into_iter().enumerate() {
        let skip = skip_in_first && index == 0;
        nested(clause, skip, &format!("{field}.allOf[{index}]"), patterns, faults);
    }
    for (index, clause) in props.schemas("oneOf").into_iter().enumerate() {
        nested(clause, false, &format!("{field}.oneOf[{index}]"), patterns, faults);
    }
    if let Some(clause) = props.schema("not") {
        nested(clause, false, &format!("{field}.not"), patterns, faults);
    }
    let pattern = props.text("pattern");
    if !pattern.is_empty()
        && let Err(error) = patterns.compile(pattern)
    {
        let detail = format!("must be a valid regular expression, but isn't: {error}");
        faults.push(invalid_value(format!("{field}.pattern"), &Value::from(pattern), &detail));
    }
}

/// What a clause must not say, and how that is worded.
const FORBIDDEN_IN_CLAUSES: [(&str, &str); 12] = [
    ("type", "must be empty to be structural"),
    ("additionalProperties", "must be undefined to be structural"),
    ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
    ("x-kubernetes-embedded-resource", "must be false to be structural"),
    ("x-kubernetes-int-or-string", "must be false to be structural"),
    ("x-kubernetes-list-map-keys", "must be empty to be structural"),
    ("x-kubernetes-list-type", "must be undefined to be structural"),
    ("x-kubernetes-map-type", "must be undefined to be structural"),
];

fn nested(
    props: Props<'_>,
    skip_any_of: bool,
    field: &str,
    patterns: &mut PatternCache,
    faults: &mut Vec<FieldError>,
) {
    value(props, skip_any_of, false, field, patterns, faults);
    if let Some(item) = props.item() {
        nested(item, false, &format!("{field}.items"), patterns, faults);
    }
    let properties = props.properties();
    for (name, schema) in &properties {
        nested(*schema, false, &format!("{field}.properties[{name}]"), patterns, faults);
    }
    for (name, detail) in FORBIDDEN_IN_CLAUSES {
        let is_said = match name {
            "additionalProperties" => match props.additional() {
                Additional::Absent => false,
                Additional::Allowed(allowed) => allowed,
                Additional::Schema(_) => true,
            },
            "default" => props.default_value().is_some(),
            "x-kubernetes-list-type" | "x-kubernetes-map-type" => props.get(name).is_some(),
            _ => props.is_set(name),
        };
        if is_said {
            faults.push(FieldError::forbidden(format!("{field}.{name}"), detail));
        }
    }
    if props.is_set("x-kubernetes-validations") {
        let field = format!("{field}.x-kubernetes-validations");
        faults.push(FieldError::forbidden(field, "must be empty to be structural"));
    }
    if properties.contains_key("metadata") {
        let field = format!("{field}.properties[metadata]");
        faults.push(FieldError::forbidden(field, "must not be specified in a nested context"));
    }
}

/// Checks that what clauses at the root speak of is declared outside them. Upstream does not look
/// at clauses further in.
fn clauses_complete(
    clause: Props<'_>,
    declared: Option<Props<'_>>,
    declared_field: &str,
    field: &str,
    faults: &mut Vec<FieldError>,
) {
    if let Some(clause) = clause.schema("not") {
        complete(clause, declared, declared_field, &format!("{field}.not"), faults);
    }
    for name in ["allOf", "anyOf", "oneOf"] {
        for (index, clause) in clause.schemas(name).into_iter().enumerate() {
            let field = format!("{field}.{name}[{index}]");
            complete(clause, declared, declared_field, &field, faults);
        }
    }
}

fn complete(
    clause: Props<'_>,
    declared: Option<Props<'_>>,
    declared_field: &str,
    field: &str,
    faults: &mut Vec<FieldError>,
) {
    let Some(schema) = declared else {
        let detail = format!("because it is defined in {field}");
        faults.push(FieldError::required(declared_field, &detail));
        return;
    };
    clauses_complete(clause, declared, declared_field, field, faults);
    if let Some(item) = clause.item() {
        let declared_field = format!("{declared_field}.items");
        complete(item, schema.item(), &declared_field, &format!("{field}.items"), faults);
    }
    let properties = schema.properties();
    for (name, part) in clause.properties() {
        let declared_field = format!("{declared_field}.properties[{name}]");
        let field = format!("{field}.properties[{name}]");
        complete(part, properties.get(name).copied(), &declared_field, &field, faults);
    }
}
