//! Objects seen through their schema: check, field set, compare, merge, remove.
//!
//! Types are those of field ownership: a struct or map is owned field by field unless it is atomic,
//! a list as a whole unless it is a set or keyed. What a schema leaves open is deduced from the
//! value: maps by field, lists as a whole.

mod compare;
mod field_set;
mod key;
mod merge;
mod metadata;
mod reconcile;
mod remove;
mod types;
mod validate;

use std::fmt;

use gantry_schema::Schema;
use serde_json::Value;

pub use compare::Comparison;
use types::Type;

use crate::set::FieldSet;

/// What is wrong with an object, in the words of the original API server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TypedError {
    errors: Vec<ValidationError>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct ValidationError {
    path: String,
    message: String,
}

impl TypedError {
    fn add(&mut self, path: &ValuePath<'_>, message: String) {
        self.errors.push(ValidationError { path: path.to_string(), message });
    }

    fn into_result<T>(self, value: T) -> Result<T, Self> {
        if self.errors.is_empty() { Ok(value) } else { Err(self) }
    }
}

impl fmt::Display for TypedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [fault] = self.errors.as_slice() {
            return fault.fmt(f);
        }
        f.write_str("errors:")?;
        self.errors.iter().try_for_each(|fault| write!(f, "\n  {fault}"))
    }
}

impl std::error::Error for TypedError {}

impl fmt::Display for ValidationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            return f.write_str(&self.message);
        }
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// Whether a list may hold the same key twice. Stored objects may, applied ones may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duplicates {
    /// They are kept, and owned together.
    Allowed,
    /// They are a fault.
    Refused,
}

/// Checks that an object is of its type.
///
/// # Errors
/// If it is not; with everything that is wrong.
pub fn validate(schema: &Schema, object: &Value, duplicates: Duplicates) -> Result<(), TypedError> {
    validate::validate(Type::root(schema), object, duplicates)
}

/// Every field that the object mentions: leaves, elements, entries of maps, and what is empty.
#[must_use]
pub fn field_set(schema: &Schema, object: &Value) -> FieldSet {
    field_set::field_set(Type::root(schema), object)
}

/// What differs between two objects of one type.
///
/// # Errors
/// If a part that differs is not of its type.
pub fn compare(schema: &Schema, old: &Value, new: &Value) -> Result<Comparison, TypedError> {
    compare::compare(Type::root(schema), old, new)
}

/// The object with everything the config says put over it; nothing is removed.
///
/// # Errors
/// If a part of either that is merged is not of its type.
pub fn merge(schema: &Schema, object: &Value, config: &Value) -> Result<Value, TypedError> {
    merge::merge(Type::root(schema), object, config)
}

/// The object without these fields. What is emptied becomes `null`.
#[must_use]
pub fn remove(schema: &Schema, object: &Value, fields: &FieldSet) -> Value {
    remove::remove(Type::root(schema), object, fields)
}

/// The part of the object that these fields make up. What has no field left becomes `null`.
#[must_use]
pub fn extract(schema: &Schema, object: &Value, fields: &FieldSet) -> Value {
    remove::extract(Type::root(schema), object, fields)
}

/// The set in which every declared field with members below it is a member too.
#[must_use]
pub fn with_named_fields(schema: &Schema, fields: &FieldSet) -> FieldSet {
    fields.with_inner(Some(Type::root(schema)), &|of, element| {
        let Some(of) = of else { return (false, None) };
        of.step(element)
    })
}

/// The set as it is now that the schema has become atomic in places, if that changes it.
#[must_use]
pub fn reconcile(schema: &Schema, fields: &FieldSet) -> Option<FieldSet> {
    reconcile::reconcile(Type::root(schema), fields)
}

/// The way to the value at hand, kept on the stack and written out only for a fault.
#[derive(Clone, Copy)]
struct ValuePath<'a> {
    parent: Option<&'a ValuePath<'a>>,
    step: PathStep<'a>,
}

#[derive(Clone, Copy)]
enum PathStep<'a> {
    Top,
    Field(&'a str),
    Element(&'a crate::path::PathElement),
}

impl<'a> ValuePath<'a> {
    const TOP: Self = ValuePath { parent: None, step: PathStep::Top };

    fn field(&'a self, name: &'a str) -> Self {
        ValuePath { parent: Some(self), step: PathStep::Field(name) }
    }

    fn element(&'a self, element: &'a crate::path::PathElement) -> Self {
        ValuePath { parent: Some(self), step: PathStep::Element(element) }
    }

    fn elements(&self) -> Vec<crate::path::PathElement> {
        let mut elements = self.parent.map(ValuePath::elements).unwrap_or_default();
        match self.step {
            PathStep::Top => {}
            PathStep::Field(name) => elements.push(crate::path::PathElement::field(name)),
            PathStep::Element(element) => elements.push(element.clone()),
        }
        elements
    }
}

impl fmt::Display for ValuePath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(above) = self.parent {
            above.fmt(f)?;
        }
        match self.step {
            PathStep::Top => Ok(()),
            PathStep::Field(name) => write!(f, ".{name}"),
            PathStep::Element(element) => element.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests;
