//! Observes pods, and appends to logs what their containers print.

use gantry_process::clock::Clock;
use gantry_reconcile::{Change, Kind, Observer, World};

use super::Logs;
use crate::view::Pod;

/// Appends to the logs of simulated containers as their pods change.
#[derive(Debug)]
pub struct LogObserver {
    logs: Logs,
    clock: Clock,
}

impl LogObserver {
    /// Creates an observer that appends to `logs`.
    #[must_use]
    pub fn new(logs: Logs, clock: Clock) -> Self {
        Self { logs, clock }
    }
}

impl Observer for LogObserver {
    fn name(&self) -> &'static str {
        "logs"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Pod>()]
    }

    fn observe(&self, _: &World, change: &Change) {
        let (before, after) = (change.before::<Pod>(), change.after::<Pod>());
        // A pod of the same name may have replaced it.
        let gone = before.filter(|pod| after.is_none_or(|it| it.metadata.uid != pod.metadata.uid));
        if let Some(pod) = gone {
            self.logs.remove_pod(pod.metadata.uid.as_str());
        }
        if let Some(pod) = after {
            self.logs.observe(pod, self.clock.now());
        }
    }
}
