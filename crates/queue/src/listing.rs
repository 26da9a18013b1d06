//! Lists the pending AppWrappers: the position of each, what it waits for, and since when.

use std::sync::Arc;

use gantry_reconcile::{Key, World};
use jiff::Timestamp;

use crate::app_wrapper::AppWrapper;
use crate::backoff;
use crate::order::{self, PendingQueue};
use crate::settings::Settings;

/// A pending AppWrapper.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingAppWrapper {
    /// Its position, counted from 1.
    pub position: usize,
    /// Its key.
    pub key: Key,
    /// The priority that determines its position.
    pub priority: f64,
    /// Since when it is pending.
    pub since: Timestamp,
    /// What it waits for; absent while it is not evaluated yet.
    pub waits_for: Option<String>,
    /// When its backoff ends, while it is not evaluated before.
    pub backoff_until: Option<Timestamp>,
}

/// Lists all pending AppWrappers in queue order.
#[must_use]
pub fn list_pending(world: &World, settings: &Settings, now: Timestamp) -> Vec<PendingAppWrapper> {
    let store = world.store::<AppWrapper>();
    let waiting: Vec<Arc<AppWrapper>> =
        store.list().into_iter().filter(|it| it.awaits_dispatch()).collect();
    let mut lines = PendingQueue::default();
    for wrapper in &waiting {
        lines.insert(wrapper, settings);
    }
    let mut walk = lines.cursor(now);
    let mut entries = Vec::with_capacity(waiting.len());
    while let Some(stop) = walk.next_item() {
        if let Some(wrapper) = store.get(stop.key()) {
            let rest = backoff::skipped_until(&wrapper, settings);
            entries.push(PendingAppWrapper {
                position: entries.len() + 1,
                key: stop.key().clone(),
                priority: order::priority(&wrapper, settings, now),
                since: wrapper.first_seen(),
                waits_for: wrapper.status.message.clone(),
                backoff_until: rest.filter(|until| *until > now),
            });
        }
        walk.continue_class(stop);
    }
    entries
}

#[cfg(test)]
mod tests {
    use gantry_reconcile::{Kind, View as _};
    use serde_json::json;

    use super::*;

    #[test]
    fn pending_app_wrappers_are_listed_in_queue_order() {
        let world = World::new([Kind::of::<AppWrapper>()]);
        let statuses = [
            (
                "late",
                1,
                json!({"state": "Pending", "controllerfirsttimestamp": "2026-01-01T00:00:09.000000Z"}),
            ),
            (
                "early",
                1,
                json!({"state": "Pending", "controllerfirsttimestamp": "2026-01-01T00:00:01.000000Z",
                "message": "cpu: needs 2, 1 available, 1 missing"}),
            ),
            (
                "first",
                7,
                json!({"state": "Pending", "queuejobstate": "Backoff", "conditions": [
                {"type": "Backoff", "status": "True", "reason": "PreemptionTriggered",
                 "lastTransitionMicroTime": "2026-01-01T00:00:55.000000Z"}]}),
            ),
            ("runs", 9, json!({"state": "Running", "canrun": true})),
            ("new", 9, json!({})),
        ];
        for (revision, (name, priority, status)) in (1_u64..).zip(statuses) {
            let object = json!({"metadata": {"name": name, "namespace": "n", "uid": name,
                "resourceVersion": revision.to_string()}, "spec": {"priority": priority}, "status": status});
            world
                .single_store_for(&AppWrapper::RESOURCE)
                .unwrap()
                .observe(&object.to_string())
                .unwrap();
        }
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        let list = list_pending(&world, &Settings::default(), now);
        let names: Vec<(usize, &str)> =
            list.iter().map(|it| (it.position, it.key.name())).collect();
        assert_eq!(names, [(1, "first"), (2, "early"), (3, "late")]);
        assert_eq!(list[0].backoff_until, Some("2026-01-01T00:01:15Z".parse().unwrap()));
        assert_eq!(list[1].waits_for.as_deref(), Some("cpu: needs 2, 1 available, 1 missing"));
        assert_eq!(list[1].since, "2026-01-01T00:00:01Z".parse().unwrap());
    }
}
