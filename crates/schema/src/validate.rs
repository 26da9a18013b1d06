//! Validates an object against its schema.

mod embedded;
mod kinds;
mod lists;
mod number;
mod values;

use std::collections::HashSet;

use serde_json::Value;

use crate::field_error::{FieldError, FieldErrorReason};
use crate::path::Path;
use crate::tree::Schema;

pub use embedded::validate_embedded;
pub(crate) use embedded::{
    resource as validate_embedded_resource, validate_part as validate_embedded_part,
};
pub use lists::validate_lists;

/// Checks an object against its schema: values, embedded objects, uniqueness in lists, in this
/// order.
///
/// With the `old` object, what was wrong before and has not changed is not held against the new
/// one; uniqueness in lists is asked only if the old object had it. Rules in expressions are not
/// asked: see [`rule_sites`](crate::walk::rule_sites) and [`has_blocking_errors`].
#[must_use]
pub fn validate(schema: &Schema, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut faults = validate_values(schema, object, old);
    faults.append(&mut validate_embedded(schema, object));
    faults.append(&mut validate_lists(schema, object, old));
    faults
}

/// Checks only the values of an object against their types, bounds and clauses.
#[must_use]
pub fn validate_values(schema: &Schema, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    validate_part(schema, schema.root(), object, old, "")
}

/// Checks the `status` of an object on a write of only that: its values, and uniqueness in the
/// lists of the object.
#[must_use]
pub fn validate_status(schema: &Schema, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let status = schema.entry(schema.root(), "status").zip(object.get("status"));
    let mut faults = match status {
        Some((node, status)) => {
            let old = old.and_then(|old| old.get("status"));
            validate_part(schema, node, status, old, "status")
        }
        None => Vec::new(),
    };
    faults.append(&mut validate_lists(schema, object, old));
    faults
}

/// Checks one value; `above` is the field it stands in.
pub(crate) fn validate_part(
    schema: &Schema,
    id: crate::tree::NodeId,
    value: &Value,
    old: Option<&Value>,
    above: &str,
) -> Vec<FieldError> {
    let run = values::ValueCheck { schema, above };
    let found = run.value(values::Target::Node(id), value, old, &Path::ROOT);
    // The same words are said once, however many clauses lead to them.
    let mut said = HashSet::new();
    let mut faults = Vec::with_capacity(found.errors.len());
    for fault in found.errors {
        if said.insert(fault.message) {
            faults.push(fault.field_error);
        }
    }
    faults
}

/// Whether a fault keeps rules from being asked: what they would be asked about may not have the
/// type or the size they count on. If so, and there are rules, [`rules_blocked_error`] is one more
/// fault.
#[must_use]
pub fn has_blocking_errors(faults: &[FieldError]) -> bool {
    faults.iter().any(|fault| match fault.reason {
        FieldErrorReason::NotSupported
        | FieldErrorReason::Required
        | FieldErrorReason::TooLong
        | FieldErrorReason::TooMany
        | FieldErrorReason::TypeInvalid => true,
        FieldErrorReason::Invalid
        | FieldErrorReason::Duplicate
        | FieldErrorReason::Forbidden
        | FieldErrorReason::NotFound
        | FieldErrorReason::Internal => false,
    })
}

/// The error that reports that rules were not evaluated.
#[must_use]
pub fn rules_blocked_error() -> FieldError {
    FieldError::invalid(
        "<nil>",
        &Value::Null,
        "some validation rules were not checked because the object was invalid; correct the \
         existing errors to complete validation",
    )
}

#[cfg(test)]
mod tests;
