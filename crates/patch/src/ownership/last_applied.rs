//! The annotation of client-side apply, for users that move to server-side apply.

use serde_json::Value;

use super::Context;
use crate::golang;
use crate::set::FieldSet;
use crate::typed::{Duplicates, compare, field_set, validate};

/// The manager for which the annotation is read.
pub(super) const MANAGER: &str = "kubectl";

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Bytes that all annotations of an object may have.
const MAX_ANNOTATIONS_BYTES: usize = 256 * 1024;

/// The fields that were applied by the client and are still as they were applied. None if there is
/// no annotation, or it cannot be read.
pub(super) fn client_applied_fields(context: &Context<'_>, live: &Value) -> Option<FieldSet> {
    let text = live["metadata"]["annotations"][ANNOTATION].as_str()?;
    let applied: Value = serde_json::from_str(text).ok()?;
    if applied["apiVersion"] != context.api_version {
        return None;
    }
    validate(context.schema, live, Duplicates::Refused).ok()?;
    validate(context.schema, &applied, Duplicates::Refused).ok()?;
    let change = compare(context.schema, &applied, live).ok()?;
    let fields = field_set(context.schema, &applied);
    Some(fields.difference(&change.modified).difference(&change.added).difference(&change.removed))
}

/// Updates the annotation, where there is one, to what was applied by the server: a client that
/// returns to client-side apply must not undo it.
pub(super) fn update_annotation(object: &mut Value, config: &Value) {
    let has_one =
        object["metadata"]["annotations"][ANNOTATION].as_str().is_some_and(|text| !text.is_empty());
    if !has_one {
        return;
    }
    let mut applied = config.clone();
    if let Some(metadata) = applied.get_mut("metadata").and_then(Value::as_object_mut)
        && let Some(Value::Object(annotations)) = metadata.get_mut("annotations")
    {
        annotations.shift_remove(ANNOTATION);
        if annotations.is_empty() {
            metadata.shift_remove("annotations");
        }
    }
    let mut text = String::new();
    golang::write_json(&mut text, &applied);
    text.push('\n');
    let Some(Value::Object(annotations)) = object.pointer_mut("/metadata/annotations") else {
        return;
    };
    annotations.insert(ANNOTATION.to_owned(), text.into());
    let size: usize = annotations
        .iter()
        .map(|(name, value)| name.len() + value.as_str().map_or(0, str::len))
        .sum();
    if size > MAX_ANNOTATIONS_BYTES {
        annotations.shift_remove(ANNOTATION);
    }
}
