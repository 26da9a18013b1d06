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

use crate::set::Set;

/// What is wrong with an object, in the words of the original API server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TypedError {
    faults: Vec<Fault>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Fault {
    path: String,
    message: String,
}

impl TypedError {
    fn add(&mut self, path: &Trail<'_>, message: String) {
        self.faults.push(Fault { path: path.to_string(), message });
    }

    fn into_result<T>(self, value: T) -> Result<T, Self> {
        if self.faults.is_empty() { Ok(value) } else { Err(self) }
    }
}

impl fmt::Display for TypedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [fault] = self.faults.as_slice() {
            return fault.fmt(f);
        }
        f.write_str("errors:")?;
        self.faults.iter().try_for_each(|fault| write!(f, "\n  {fault}"))
    }
}

impl std::error::Error for TypedError {}

impl fmt::Display for Fault {
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
pub fn field_set(schema: &Schema, object: &Value) -> Set {
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
pub fn remove(schema: &Schema, object: &Value, fields: &Set) -> Value {
    remove::remove(Type::root(schema), object, fields)
}

/// The part of the object that these fields make up. What has no field left becomes `null`.
#[must_use]
pub fn extract(schema: &Schema, object: &Value, fields: &Set) -> Value {
    remove::extract(Type::root(schema), object, fields)
}

/// The set in which every declared field with members below it is a member too.
#[must_use]
pub fn with_named_fields(schema: &Schema, fields: &Set) -> Set {
    fields.with_inner(Some(Type::root(schema)), &|of, element| {
        let Some(of) = of else { return (false, None) };
        of.step(element)
    })
}

/// The set as it is now that the schema has become atomic in places, if that changes it.
#[must_use]
pub fn reconcile(schema: &Schema, fields: &Set) -> Option<Set> {
    reconcile::reconcile(Type::root(schema), fields)
}

/// The way to the value at hand, kept on the stack and written out only for a fault.
#[derive(Clone, Copy)]
struct Trail<'a> {
    above: Option<&'a Trail<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Top,
    Field(&'a str),
    Element(&'a crate::path::PathElement),
}

impl<'a> Trail<'a> {
    const TOP: Self = Trail { above: None, step: Step::Top };

    fn field(&'a self, name: &'a str) -> Self {
        Trail { above: Some(self), step: Step::Field(name) }
    }

    fn element(&'a self, element: &'a crate::path::PathElement) -> Self {
        Trail { above: Some(self), step: Step::Element(element) }
    }

    fn elements(&self) -> Vec<crate::path::PathElement> {
        let mut elements = self.above.map(Trail::elements).unwrap_or_default();
        match self.step {
            Step::Top => {}
            Step::Field(name) => elements.push(crate::path::PathElement::field(name)),
            Step::Element(element) => elements.push(element.clone()),
        }
        elements
    }
}

impl fmt::Display for Trail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(above) = self.above {
            above.fmt(f)?;
        }
        match self.step {
            Step::Top => Ok(()),
            Step::Field(name) => write!(f, ".{name}"),
            Step::Element(element) => element.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests;
