//! Who waits for nodes: it hears of every change as controllers do, and writes nothing.

use gantry_reconcile::{Change, Controller, Key, Kind, Plan, World};
use gantry_sim::view::Node;
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

    fn enqueue(&self, _: &World, _: &Change) -> Vec<Key> {
        self.news.notify_waiters();
        Vec::new()
    }

    fn plan(&self, _: &World, _: &Key, _: Timestamp) -> Plan {
        Plan::default()
    }
}
