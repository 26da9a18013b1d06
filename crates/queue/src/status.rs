//! Writes the status of an AppWrapper: the fields that changed, and no others.

use gantry_api::queue::AppWrapperStatus;
use gantry_reconcile::{Event, Step, Subresource, View as _, Write};
use serde_json::{Map, Value, json};

use crate::app_wrapper::AppWrapper;
use crate::state::Transition;

/// Returns the step that writes the status after a transition, fenced by the observed version, with
/// its event; `None` where nothing changes.
#[must_use]
pub fn write_status(
    wrapper: &AppWrapper,
    change: &Transition,
    next: &AppWrapperStatus,
    note: Option<Event>,
) -> Option<Step> {
    let body = status_patch(&wrapper.status, next)?;
    let step = Step::new(Write::Merge {
        resource: AppWrapper::RESOURCE,
        key: wrapper.metadata.key(),
        subresource: Subresource::Status,
        fence: wrapper.metadata.fence(),
        body: json!({"status": body}),
    });
    let step = if change.is_deferrable() { step.deferrable() } else { step };
    Some(match note {
        Some(note) => step.on_success(note),
        None => step,
    })
}

/// Returns the fields that turn `old` into `next`, as a merge patch; `None` where there are none.
fn status_patch(old: &AppWrapperStatus, next: &AppWrapperStatus) -> Option<Value> {
    let fields = |status: &AppWrapperStatus| match serde_json::to_value(status) {
        Ok(Value::Object(fields)) => fields,
        // A status is a structure of plain fields.
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
            status_patch(&old, &next),
            Some(json!({"running": 3, "failed": 1, "canrun": null}))
        );
        assert_eq!(status_patch(&next, &next), None);
    }
}
