//! Notifies waiting tasks about changes of nodes.

use gantry_reconcile::{Change, Kind, Observer, World};
use gantry_sim::view::Node;
use tokio::sync::Notify;

/// Observes nodes, and notifies tasks that wait for them.
#[derive(Debug, Default)]
pub(super) struct NodeNotifier {
    /// Notified when anything about any node has changed.
    pub(super) changed: Notify,
}

impl Observer for NodeNotifier {
    fn name(&self) -> &'static str {
        "arrivals"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Node>()]
    }

    fn observe(&self, _: &World, _: &Change) {
        self.changed.notify_waiters();
    }
}
