//! Validates the schema of a definition.

mod defaults;
mod field_path;
mod invariants;
mod openapi;

use serde_json::Value;

use crate::compile::compile_node;
use crate::expression::{RuleCost, rule_errors};
use crate::field_error::{FieldError, FieldErrorReason};
use crate::go;
use crate::props::{Additional, Items, Props};

pub(crate) use field_path::valid_field_path;

/// Checks that a schema is structural: every value has a known type, clauses only restrict what is
/// declared, defaults fit, and lists are keyed by what their elements have.
///
/// `field` is where the schema stands: `spec.validation.openAPIV3Schema` if all versions of the
/// definition share it, else `spec.versions[0].schema.openAPIV3Schema`. Rules must compile and stay
/// below the limits of cost.
#[must_use]
pub fn structural(schema: &Value, field: &str) -> Vec<FieldError> {
    structural_schema(schema, field, RuleCost::Limited)
}

/// The same, with what a rule may cost.
pub(crate) fn structural_schema(schema: &Value, field: &str, cost: RuleCost) -> Vec<FieldError> {
    let Some(props) = Props::of(schema) else { return Vec::new() };
    let mut faults = Vec::new();
    if props.flag("nullable") {
        let field = format!("{field}.nullable");
        faults.push(FieldError::forbidden(field, "nullable cannot be true at the root"));
    }
    let unusable = unsupported_reason(props);
    let mut is_sound = false;
    if unusable.is_none() {
        let mut structure = invariants::field_errors(props, field);
        if structure.is_empty() {
            structure = defaults::field_errors(props, field);
        }
        is_sound = structure.is_empty();
        faults.append(&mut structure);
    }
    let texts = openapi::field_errors(props, field);
    // Types of expressions come from the structure: where that is wrong, there is nothing to check
    // an expression against.
    let mut rules = match is_sound.then(|| compile_node(props, true)) {
        Some(Ok(schema)) => rule_errors(&schema, field, &texts, cost),
        Some(Err(_)) | None => Vec::new(),
    };
    faults.extend(texts);
    faults.append(&mut rules);
    if !faults.is_empty() {
        return faults;
    }
    if let Some(reason) = unusable {
        let message = format!("Invalid value: \"\": {reason}");
        faults.push(FieldError::new(field, FieldErrorReason::Invalid, message));
    } else if let Err(error) = compile_node(props, true) {
        let above = field.rsplit_once('.').map_or(field, |(above, _)| above);
        let message = format!("Invalid value: \"\": error building validator: {error}");
        faults.push(FieldError::new(above, FieldErrorReason::Invalid, message));
    }
    faults
}

/// Why nothing can be said about the structure of a schema. These are also faults by themselves, so
/// this is told only if nothing else is.
pub(crate) fn unsupported_reason(props: Props<'_>) -> Option<String> {
    let unsupported = ["id", "$schema", "$ref", "patternProperties", "dependencies", "definitions"];
    let name = unsupported.into_iter().find(|name| props.is_set(name));
    let name = name.or_else(|| props.get("additionalItems").map(|_| "additionalItems"));
    if let Some(name) = name {
        let name = if name == "$schema" { "schema" } else { name };
        return Some(format!("OpenAPIV3Schema '{name}' is not supported"));
    }
    if props.optional_flag("x-kubernetes-preserve-unknown-fields") == Some(false) {
        let reason =
            "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined";
        return Some(reason.to_owned());
    }
    if let Items::Each(_) = props.items() {
        return Some("OpenAPIV3Schema 'items' must be a schema, but is an array".to_owned());
    }
    subschemas(props).into_iter().find_map(unsupported_reason)
}

/// All schemas directly inside a schema.
pub(crate) fn subschemas(props: Props<'_>) -> Vec<Props<'_>> {
    let mut parts = Vec::new();
    match props.items() {
        Items::Schema(item) => parts.push(item),
        Items::Each(mut items) => parts.append(&mut items),
        Items::Absent => {}
    }
    for name in ["allOf", "anyOf", "oneOf"] {
        parts.append(&mut props.schemas(name));
    }
    parts.extend(props.schema("not"));
    parts.extend(props.properties().into_values());
    if let Additional::Schema(schema) = props.additional() {
        parts.push(schema);
    }
    for name in ["patternProperties", "definitions", "dependencies"] {
        parts.extend(props.table(name).into_values());
    }
    parts.extend(props.schema("additionalItems"));
    parts
}

/// A fault with a value that is shown as Go shows it.
fn invalid_value(field: String, value: &Value, detail: &str) -> FieldError {
    let message = format!("Invalid value: {}: {detail}", go::print(value));
    FieldError::new(field, FieldErrorReason::Invalid, message)
}
