//! Typed reads of JSON objects whose other keys are kept.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// A JSON object in the order it was written.
pub(crate) type Object = Map<String, Value>;

/// A field that does not have the form it must have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path} {problem}")]
pub(crate) struct FieldError {
    pub(crate) path: String,
    pub(crate) problem: String,
}

impl FieldError {
    pub(crate) fn new(path: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { path: path.into(), problem: problem.into() }
    }

    /// Puts the path of the object before the path within it.
    pub(crate) fn within(mut self, parent: &str) -> Self {
        self.path = if self.path.is_empty() {
            parent.to_owned()
        } else {
            format!("{parent}.{}", self.path)
        };
        self
    }
}

/// An absent key and `null` are the same: writers in Go print either.
pub(crate) fn present<'a>(object: &'a Object, key: &str) -> Option<&'a Value> {
    object.get(key).filter(|value| !value.is_null())
}

pub(crate) fn string<'a>(object: &'a Object, key: &str) -> Result<Option<&'a str>, FieldError> {
    present(object, key)
        .map(|value| value.as_str().ok_or_else(|| FieldError::new(key, "must be a string")))
        .transpose()
}

pub(crate) fn object<'a>(object: &'a Object, key: &str) -> Result<Option<&'a Object>, FieldError> {
    present(object, key)
        .map(|value| value.as_object().ok_or_else(|| FieldError::new(key, "must be an object")))
        .transpose()
}

pub(crate) fn array<'a>(object: &'a Object, key: &str) -> Result<Option<&'a [Value]>, FieldError> {
    present(object, key)
        .map(|value| {
            let array = value.as_array().map(Vec::as_slice);
            array.ok_or_else(|| FieldError::new(key, "must be a list"))
        })
        .transpose()
}

pub(crate) fn strings(object: &Object, key: &str) -> Result<Vec<String>, FieldError> {
    let items = array(object, key)?.unwrap_or_default();
    items
        .iter()
        .enumerate()
        .map(|(index, item)| {
            let text = item.as_str().map(str::to_owned);
            text.ok_or_else(|| FieldError::new(format!("{key}[{index}]"), "must be a string"))
        })
        .collect()
}

pub(crate) fn string_map(
    parent: &Object,
    key: &str,
) -> Result<BTreeMap<String, String>, FieldError> {
    let Some(entries) = object(parent, key)? else { return Ok(BTreeMap::new()) };
    entries
        .iter()
        .map(|(name, value)| match value.as_str() {
            Some(text) => Ok((name.clone(), text.to_owned())),
            None => Err(FieldError::new(format!("{key}[{name:?}]"), "must be a string")),
        })
        .collect()
}

/// Reads each item of a list of objects.
pub(crate) fn objects<T>(
    parent: &Object,
    key: &str,
    read: impl Fn(&Object) -> Result<T, FieldError>,
) -> Result<Vec<T>, FieldError> {
    let items = array(parent, key)?.unwrap_or_default();
    items
        .iter()
        .enumerate()
        .map(|(index, item)| {
            let path = format!("{key}[{index}]");
            match item.as_object() {
                Some(item) => read(item).map_err(|error| error.within(&path)),
                None => Err(FieldError::new(path, "must be an object")),
            }
        })
        .collect()
}
