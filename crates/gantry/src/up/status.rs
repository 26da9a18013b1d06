//! What the controllers do and hold back, as one document.

use std::collections::BTreeMap;

use gantry_controller::Handle;
use gantry_process::clock::Clock;
use jiff::Timestamp;
use serde_json::{Value, json};

/// The state of the controllers, as `gantry status` reads it.
pub(super) fn status(
    handle: &Handle,
    controllers: usize,
    started: Timestamp,
    clock: &Clock,
) -> Value {
    let held = handle.ledger().snapshot().into_iter().flat_map(|entry| {
        let controller = entry.controller;
        entry.held.into_iter().map(move |held| {
            json!({
                "controller": controller,
                "kind": held.about.resource.kind,
                "namespace": held.about.key.namespace(),
                "name": held.about.key.name(),
                "reason": held.reason,
                "message": held.message,
                "until": held.until.map(|until| until.to_string()),
            })
        })
    });
    let waiting = handle.waiting();
    let waiting: BTreeMap<_, _> = waiting.into_iter().filter(|(_, keys)| *keys > 0).collect();
    let missing = handle.missing();
    let missing = missing.iter().map(|it| json!({"kind": it.resource.to_string(), "why": it.why}));
    json!({
        "version": crate::version::VERSION.version,
        "started": started.to_string(),
        "now": clock.now().to_string(),
        "controllers": controllers,
        "waiting": waiting,
        "unfilled": missing.collect::<Vec<_>>(),
        "held": held.collect::<Vec<_>>(),
    })
}
