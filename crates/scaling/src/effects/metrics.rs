//! Metrics of scaling: nodes that jobs were granted, and those of them that are ready.

use std::sync::Arc;
use std::time::Duration;

use gantry_controller::ManagerHandle;
use gantry_process::metrics::{Metrics, RegisterError};
use gantry_process::tasks::{OnLoss, Tasks};
use gantry_reconcile::{Change, Key, Kind, Observer, World};
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::Notify;

use crate::GrantedNodes;
use crate::view::{ConfigMap, Node, is_heartbeat};

/// How often nodes are counted at most: every count looks at all of them.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);

/// Counts nodes after they have changed.
#[derive(Debug)]
pub struct GrantedNodeMetrics {
    grant_record: Key,
    wanted: Gauge,
    ready: Gauge,
    changed: Notify,
}

impl GrantedNodeMetrics {
    /// Registers the metrics of this grant record.
    ///
    /// # Errors
    /// The metrics are registered already.
    pub fn register(metrics: &Metrics, ledger: Key) -> Result<Self, RegisterError> {
        let gauge = |name, help| metrics.register(name, help, Gauge::default());
        Ok(Self {
            grant_record: ledger,
            wanted: gauge("scaling_nodes_wanted", "Nodes that jobs were granted")?,
            ready: gauge("scaling_nodes_ready", "Nodes that jobs were granted and that are ready")?,
            changed: Notify::new(),
        })
    }

    /// Counts for as long as the tasks run.
    pub fn spawn(self: Arc<Self>, tasks: &mut Tasks, handle: &ManagerHandle) {
        let (world, clock) = (Arc::clone(handle.world()), tasks.clock().clone());
        tasks.spawn("counts of scaling", OnLoss::EndOwner, move |stop| async move {
            let count = async {
                loop {
                    self.changed.notified().await;
                    self.count(&world);
                    clock.sleep(COUNT_INTERVAL).await;
                }
            };
            tokio::select! {
                // Either may be dropped: counting can restart at any time.
                () = stop.cancelled() => {}
                () = count => {}
            }
            Ok(())
        });
    }

    fn count(&self, world: &World) {
        // Scaling reports a grant record that cannot be read; the last counts stay.
        if let Ok(GrantedNodes { wanted, ready }) = GrantedNodes::of(world, &self.grant_record) {
            self.wanted.set(i64::from(wanted));
            self.ready.set(i64::from(ready));
        }
    }
}

impl Observer for GrantedNodeMetrics {
    fn name(&self) -> &'static str {
        "scaling-counts"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<ConfigMap>(), Kind::of::<Node>()]
    }

    fn observe(&self, _: &World, change: &Change) {
        if !is_heartbeat(change) {
            self.changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use gantry_process::metrics::BuildInfo;
    use gantry_reconcile::View as _;
    use serde_json::json;

    use super::*;

    #[test]
    fn p_7_nodes_that_are_wanted_and_ready_are_counted() {
        let metrics = Metrics::new(&BuildInfo { version: "0", revision: "0" });
        let counts = GrantedNodeMetrics::register(&metrics, Key::new("system", "ledger")).unwrap();
        let world = World::new(counts.kinds());
        let grant = json!({"id": "1", "uid": "1", "since": "2026-01-01T00:00:00Z",
            "lots": [{"instance": "large", "count": 2, "place": "p"}]});
        let ledger = json!({
            "metadata": {"name": "ledger", "namespace": "system", "uid": "l", "resourceVersion": "1"},
            "data": {"n.job": grant.to_string()},
        });
        let node = json!({
            "metadata": {"name": "a", "uid": "a", "resourceVersion": "1", "labels": {"job-n": "job-n"}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        for (resource, object) in [(ConfigMap::RESOURCE, ledger), (Node::RESOURCE, node)] {
            world
                .single_store_for(&resource)
                .unwrap()
                .observe(&object.to_string())
                .unwrap()
                .unwrap();
        }
        counts.count(&world);
        let text = metrics.encode().unwrap();
        for line in ["gantry_scaling_nodes_wanted 2", "gantry_scaling_nodes_ready 1"] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
