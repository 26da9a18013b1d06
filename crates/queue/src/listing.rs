//! The queue as people want to see it: who is where, what each waits for, and since when.

use std::sync::Arc;

use gantry_reconcile::{Key, World};
use jiff::Timestamp;

use crate::app_wrapper::AppWrapper;
use crate::backoff;
use crate::order::{self, Lines};
use crate::settings::Settings;

/// One who waits.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Its place, counted from 1.
    pub position: usize,
    /// Which AppWrapper.
    pub key: Key,
    /// The priority that gives it its place.
    pub priority: f64,
    /// Since when it waits.
    pub since: Timestamp,
    /// What it waits for; nothing while nobody has looked at it yet.
    pub waits_for: Option<String>,
    /// When its pause ends, while it is not looked at before.
    pub rests_until: Option<Timestamp>,
}

/// Everybody who waits, the first one first.
#[must_use]
pub fn list(world: &World, settings: &Settings, now: Timestamp) -> Vec<Entry> {
    let shelf = world.shelf::<AppWrapper>();
    let waiting: Vec<Arc<AppWrapper>> = shelf.all().into_iter().filter(|it| it.waits()).collect();
    let mut lines = Lines::default();
    for wrapper in &waiting {
        lines.put(wrapper, settings);
    }
    let mut walk = lines.walk(now);
    let mut entries = Vec::with_capacity(waiting.len());
    while let Some(stop) = walk.stop() {
        if let Some(wrapper) = shelf.get(stop.key()) {
            let rest = backoff::rests(&wrapper, settings);
            entries.push(Entry {
                position: entries.len() + 1,
                key: stop.key().clone(),
                priority: order::priority(&wrapper, settings, now),
                since: wrapper.first_seen(),
                waits_for: wrapper.status.message.clone(),
                rests_until: rest.filter(|until| *until > now),
            });
        }
        walk.go_on(stop);
    }
    entries
}

#[cfg(test)]
mod tests {
    use gantry_reconcile::{Kind, View as _};
    use serde_json::json;

    use super::*;

    #[test]
    fn those_who_wait_are_listed_in_their_order() {
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
            world.find(&AppWrapper::RESOURCE).unwrap().saw(&object.to_string()).unwrap();
        }
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        let list = list(&world, &Settings::default(), now);
        let names: Vec<(usize, &str)> =
            list.iter().map(|it| (it.position, it.key.name())).collect();
        assert_eq!(names, [(1, "first"), (2, "early"), (3, "late")]);
        assert_eq!(list[0].rests_until, Some("2026-01-01T00:01:15Z".parse().unwrap()));
        assert_eq!(list[1].waits_for.as_deref(), Some("cpu: needs 2, 1 available, 1 missing"));
        assert_eq!(list[1].since, "2026-01-01T00:00:01Z".parse().unwrap());
    }
}
