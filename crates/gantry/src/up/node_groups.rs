//! Groups of simulated nodes: the nodes that a cluster on one machine may add when jobs need them.

use gantry_scaling::node_group::NODE_GROUP_LABEL;
use gantry_scaling::subsystem::EMBEDDED_NAMESPACE;
use gantry_sim::node_shape::NodeShape;
use serde_json::{Value, json};

/// Returns the name and the group that a shape declares; `None` if it may not grow.
pub(super) fn group(shape: &NodeShape) -> Option<(&str, Value)> {
    let most = shape.max?;
    let mut node = shape.node(0);
    if let Some(metadata) = node["metadata"].as_object_mut() {
        metadata.shift_remove("name");
    }
    let name = &shape.name;
    let object = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name, "namespace": EMBEDDED_NAMESPACE, "labels": {NODE_GROUP_LABEL: "true"},
        },
        "data": {"max": most.to_string(), "node": node.to_string()},
    });
    Some((name, object))
}

#[cfg(test)]
mod tests {
    use gantry_scaling::view::ConfigMap;

    use super::*;

    #[test]
    fn a_shape_that_may_grow_is_a_group() {
        assert_eq!(group(&NodeShape::new("gpu")), None);
        let shape = NodeShape { max: Some(4), ..NodeShape::new("gpu") };
        let (name, object) = group(&shape).unwrap();
        assert_eq!(name, "gpu");
        let read: ConfigMap = serde_json::from_value(object).unwrap();
        let group = gantry_scaling::node_group::NodeGroup::read(&read).unwrap();
        assert_eq!((group.instance_type.as_str(), group.max_nodes), ("gpu", 4));
    }
}
