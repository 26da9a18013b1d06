//! What is counted of scaling: nodes that jobs were granted, and those of them that are ready.

use gantry_process::metrics::{Metrics, RegisterError};
use gantry_reconcile::{Change, Controller, Key, Kind, Plan, World};
use gantry_scaling::Stock;
use gantry_scaling::view::{ConfigMap, Node, only_lives};
use jiff::Timestamp;
use prometheus_client::metrics::gauge::Gauge;

/// Counts whenever something has changed. It plans nothing.
#[derive(Debug)]
pub(crate) struct Counts {
    ledger: Key,
    wanted: Gauge,
    ready: Gauge,
}

impl Counts {
    /// Counts what is in this ledger.
    pub(crate) fn register(metrics: &Metrics, ledger: Key) -> Result<Self, RegisterError> {
        let gauge = |name, help| metrics.register(name, help, Gauge::default());
        Ok(Self {
            ledger,
            wanted: gauge("scaling_nodes_wanted", "Nodes that jobs were granted")?,
            ready: gauge("scaling_nodes_ready", "Nodes that jobs were granted and that are ready")?,
        })
    }
}

impl Controller for Counts {
    fn name(&self) -> &'static str {
        "scaling-counts"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<ConfigMap>(), Kind::of::<Node>()]
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        if only_lives(change) { Vec::new() } else { vec![Key::cluster("nodes")] }
    }

    fn plan(&self, world: &World, _: &Key, _: Timestamp) -> Plan {
        // Of a ledger that cannot be read scaling tells; what was counted last is as good as anything.
        if let Ok(Stock { wanted, ready }) = Stock::of(world, &self.ledger) {
            self.wanted.set(i64::from(wanted));
            self.ready.set(i64::from(ready));
        }
        Plan::default()
    }
}

#[cfg(test)]
mod tests {
    use gantry_process::metrics::Build;
    use gantry_reconcile::View as _;
    use serde_json::json;

    use super::*;

    #[test]
    fn p_7_nodes_that_are_wanted_and_ready_are_counted() {
        let metrics = Metrics::new(&Build { version: "0", revision: "0" });
        let counts = Counts::register(&metrics, Key::new("system", "ledger")).unwrap();
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
            let change = world.find(&resource).unwrap().saw(&object.to_string()).unwrap().unwrap();
            for key in counts.enqueue(&world, &change) {
                counts.plan(&world, &key, Timestamp::UNIX_EPOCH);
            }
        }
        let text = metrics.encode().unwrap();
        for line in ["gantry_scaling_nodes_wanted 2", "gantry_scaling_nodes_ready 1"] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
