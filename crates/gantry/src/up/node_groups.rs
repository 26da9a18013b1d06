//! Groups of pretended nodes: what a cluster on one machine may have more of when jobs need it.

use std::sync::Arc;
use std::time::Duration;

use gantry_controller::{Actor, Filter, Seat};
use gantry_process::metrics::{Metrics, RegisterError};
use gantry_queue::Live;
use gantry_reconcile::{Key, Place};
use gantry_scaling::group::GROUP;
use gantry_scaling::view::ConfigMap;
use gantry_scaling::{Backend, Limits, Scaling, Settings, Shapes};
use gantry_sim::shape::Shape;
use serde_json::{Value, json};

use super::Door;
use crate::operator::stock::StockMetrics;

/// Where groups are, and the ledger.
pub(super) const NAMESPACE: &str = "kube-system";

/// How long a pretended node may take to be ready.
const PROVISION: Duration = Duration::from_secs(20 * 60);

/// The group that a shape declares, and its name; nothing if it may not grow.
pub(super) fn group(shape: &Shape) -> Option<(&str, Value)> {
    let most = shape.max?;
    let mut node = shape.node(0);
    if let Some(metadata) = node["metadata"].as_object_mut() {
        metadata.shift_remove("name");
    }
    let name = &shape.name;
    let object = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {GROUP: "true"}},
        "data": {"max": most.to_string(), "node": node.to_string()},
    });
    Some((name, object))
}

/// What adds nodes to groups.
pub(super) struct NodeGroups {
    /// The controllers.
    pub(super) seats: Vec<Seat>,
    /// Which ConfigMaps they look at.
    pub(super) filter: (Place, Filter),
    /// What counts the nodes.
    pub(super) stock: Arc<StockMetrics>,
}

/// What adds nodes to groups. With settings of the queue, nodes are chosen for jobs that name none.
pub(super) fn seats(
    door: &Door,
    queue: Option<Live>,
    metrics: &Metrics,
) -> Result<NodeGroups, RegisterError> {
    let limits = Limits { nodes: u32::MAX, provision: PROVISION, cooldown: Duration::ZERO };
    let ledger = Key::new(NAMESPACE, gantry_scaling::subsystem::LEDGER);
    let stock = Arc::new(StockMetrics::register(metrics, ledger.clone())?);
    let scaling = Scaling::new(Settings { limits, backend: Backend::Groups, ledger });
    let scaling = Arc::new(scaling);
    let actor = Arc::new(Actor::new(door.client(), "gantry-scaling", "gantry-scaling"));
    let filter = Filter { namespace: NAMESPACE.to_owned(), ..Filter::default() };
    let mut seats = vec![Seat::new(scaling.clone(), Arc::clone(&actor))];
    if let Some(queue) = queue {
        seats.push(Seat::new(Arc::new(Shapes::new(scaling, queue)), actor).alone());
    }
    Ok(NodeGroups { seats, filter: (Place::of::<ConfigMap>(), filter), stock })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_that_may_grow_is_a_group() {
        assert_eq!(group(&Shape::new("gpu")), None);
        let shape = Shape { max: Some(4), ..Shape::new("gpu") };
        let (name, object) = group(&shape).unwrap();
        assert_eq!(name, "gpu");
        let read: ConfigMap = serde_json::from_value(object).unwrap();
        let group = gantry_scaling::group::Group::read(&read).unwrap();
        assert_eq!((group.instance.as_str(), group.most), ("gpu", 4));
    }
}
