//! Those who only look: they hear of every change as controllers do, and write nothing.

use gantry_process::clock::Clock;
use gantry_reconcile::{Change, Controller, Key, Kind, Plan, World};
use gantry_sim::logs::Logs;
use gantry_sim::view::{Node, Pod};
use jiff::Timestamp;
use tokio::sync::Notify;

/// Hears of nodes, for those who wait for them.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    /// Rings when anything about any node has changed.
    pub(super) news: Notify,
}

impl Controller for Arrivals {
    fn name(&self) -> &'static str {
        "arrivals"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Node>()]
    }

    fn wakes(&self, _: &World, _: &Change) -> Vec<Key> {
        self.news.notify_waiters();
        Vec::new()
    }

    fn plan(&self, _: &World, _: &Key, _: Timestamp) -> Plan {
        Plan::default()
    }
}

/// Keeps what containers say, by what becomes of their pods.
#[derive(Debug)]
pub(super) struct LogKeeper {
    pub(super) logs: Logs,
    pub(super) clock: Clock,
}

impl Controller for LogKeeper {
    fn name(&self) -> &'static str {
        "logs"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Pod>()]
    }

    /// At once and not in its turn: a program that runs because of this change finds its log begun.
    fn wakes(&self, _: &World, change: &Change) -> Vec<Key> {
        match (change.before::<Pod>(), change.after::<Pod>()) {
            (_, Some(pod)) => self.logs.observe(pod, self.clock.now()),
            (Some(pod), None) => self.logs.forget(pod.metadata.uid.as_str()),
            (None, None) => {}
        }
        Vec::new()
    }

    fn plan(&self, _: &World, _: &Key, _: Timestamp) -> Plan {
        Plan::default()
    }
}
