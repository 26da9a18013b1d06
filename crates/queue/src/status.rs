//! Writing the status of an AppWrapper: what has changed of it, and nothing else.

use gantry_api::queue::AppWrapperStatus;
use gantry_reconcile::{Note, Part, Step, View as _, Write};
use serde_json::{Map, Value, json};

use crate::app_wrapper::AppWrapper;
use crate::state::Transition;

/// Writes what a change makes of a status, fenced by what was seen, and tells of it; nothing where nothing
/// changes.
#[must_use]
pub fn write(
    wrapper: &AppWrapper,
    change: &Transition,
    next: &AppWrapperStatus,
    note: Option<Note>,
) -> Option<Step> {
    let body = difference(&wrapper.status, next)?;
    let step = Step::new(Write::Merge {
        resource: AppWrapper::RESOURCE,
        key: wrapper.metadata.key(),
        part: Part::Status,
        fence: wrapper.metadata.fence(),
        body: json!({"status": body}),
    });
    let step = if change.can_wait() { step.can_wait() } else { step };
    Some(match note {
        Some(note) => step.done(note),
        None => step,
    })
}

/// The fields that make `old` into `next`, as a merge patch; nothing where there are none.
fn difference(old: &AppWrapperStatus, next: &AppWrapperStatus) -> Option<Value> {
    let fields = |status: &AppWrapperStatus| match serde_json::to_value(status) {
        Ok(Value::Object(fields)) => fields,
        // It is a structure of plain fields.
        Ok(_) | Err(_) => Map::new(),
    };
    let (old, next) = (fields(old), fields(next));
    let gone = old.keys().filter(|name| !next.contains_key(*name));
    let gone: Vec<(String, Value)> = gone.map(|name| (name.clone(), Value::Null)).collect();
    let changed = next.into_iter().filter(|(name, value)| old.get(name) != Some(value));
    let patch: Map<String, Value> = changed.chain(gone).collect();
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changes_is_written_and_what_is_nothing_is_removed() {
        let old = AppWrapperStatus { running: 2, can_run: true, ..AppWrapperStatus::default() };
        let next = AppWrapperStatus { running: 3, failed: 1, ..AppWrapperStatus::default() };
        assert_eq!(
            difference(&old, &next),
            Some(json!({"running": 3, "failed": 1, "canrun": null}))
        );
        assert_eq!(difference(&next, &next), None);
    }
}
