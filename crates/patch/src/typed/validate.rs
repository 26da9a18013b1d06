//! Validates a value against its type.

use std::collections::BTreeSet;

use gantry_schema::Scalar;
use serde_json::{Map, Value};

use super::key::element_of;
use super::types::{List, MapForm, Type, TypeForm};
use super::{Duplicates, TypedError, ValuePath};
use crate::golang;
use crate::path::PathElement;

pub(super) fn validate(
    of: Type<'_>,
    object: &Value,
    duplicates: Duplicates,
) -> Result<(), TypedError> {
    let mut checker = Checker { duplicates, error: TypedError::default() };
    checker.check(of, object, &ValuePath::TOP);
    checker.error.into_result(())
}

struct Checker {
    duplicates: Duplicates,
    error: TypedError,
}

impl Checker {
    fn check(&mut self, of: Type<'_>, value: &Value, trail: &ValuePath<'_>) {
        match of.form(Some(value)) {
            TypeForm::Scalar(scalar) => {
                if let Err(message) = check_scalar(scalar, value) {
                    self.error.add(trail, message);
                }
            }
            TypeForm::List(list) => match value {
                Value::Array(elements) => self.check_list(list, elements, trail),
                Value::Null => {}
                Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
                    let message = format!("expected list, got &{{{}}}", golang::plain(value));
                    self.error.add(trail, message);
                }
            },
            TypeForm::Map(map) => match value {
                Value::Object(entries) => self.check_map(map, entries, trail),
                Value::Null => {}
                Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                    let message = format!("expected map, got &{{{}}}", golang::plain(value));
                    self.error.add(trail, message);
                }
            },
        }
    }

    fn check_map(&mut self, map: MapForm<'_>, entries: &Map<String, Value>, trail: &ValuePath<'_>) {
        for (name, value) in entries {
            let trail = trail.field(name);
            let Some(of) = map.entry(name) else {
                self.error.add(&trail, "field not declared in schema".to_owned());
                return;
            };
            self.check(of, value, &trail);
        }
    }

    fn check_list(&mut self, list: List<'_>, elements: &[Value], trail: &ValuePath<'_>) {
        let mut seen = BTreeSet::new();
        for (place, child) in elements.iter().enumerate() {
            let element = if list.is_atomic() {
                PathElement::Index(i64::try_from(place).unwrap_or(i64::MAX))
            } else {
                match element_of(list, child) {
                    Ok(element) => element,
                    Err(message) => {
                        self.error.add(trail, format!("element {place}: {message}"));
                        return;
                    }
                }
            };
            if self.duplicates == Duplicates::Refused
                && !list.is_atomic()
                && seen.contains(&element)
            {
                self.error.add(trail, format!("duplicate entries for key {element}"));
            }
            self.check(list.items, child, &trail.element(&element));
            seen.insert(element);
        }
    }
}

/// Checks a value against a type without parts; `null` is of every type.
pub(super) fn check_scalar(scalar: Scalar, value: &Value) -> Result<(), String> {
    match (scalar, value) {
        (_, Value::Null)
        | (Scalar::String, Value::String(_))
        | (Scalar::Integer | Scalar::Number, Value::Number(_))
        | (Scalar::Boolean, Value::Bool(_))
        | (
            Scalar::IntOrString | Scalar::Untyped,
            Value::Bool(_) | Value::Number(_) | Value::String(_),
        ) => Ok(()),
        (Scalar::String, _) => Err(format!(
            "expected string, got &value.valueUnstructured{{Value:{}}}",
            golang::go_syntax(value)
        )),
        (Scalar::Integer | Scalar::Number, _) => {
            Err(format!("expected numeric (int or float), got {}", gantry_schema::go_type(value)))
        }
        (Scalar::Boolean, _) => Err(format!("expected boolean, got &{{{}}}", golang::plain(value))),
        (Scalar::IntOrString | Scalar::Untyped, _) => {
            Err(format!("expected any scalar, got &{{{}}}", golang::plain(value)))
        }
    }
}
