//! Notifies those that wait for nodes.

use gantry_reconcile::{Change, Kind, Observer, World};
use gantry_sim::view::Node;
use tokio::sync::Notify;

/// Follows nodes, for those that wait for them.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    /// Notified when anything about any node has changed.
    pub(super) news: Notify,
}

impl Observer for Arrivals {
    fn name(&self) -> &'static str {
        "arrivals"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Node>()]
    }

    fn observe(&self, _: &World, _: &Change) {
        self.news.notify_waiters();
    }
}
