//! Groups of pretended nodes: what a cluster on one machine may have more of when jobs need it.

use gantry_scaling::group::GROUP;
use gantry_scaling::subsystem::EMBEDDED_NAMESPACE;
use gantry_sim::shape::Shape;
use serde_json::{Value, json};

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
        "metadata": {"name": name, "namespace": EMBEDDED_NAMESPACE, "labels": {GROUP: "true"}},
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
        assert_eq!(group(&Shape::new("gpu")), None);
        let shape = Shape { max: Some(4), ..Shape::new("gpu") };
        let (name, object) = group(&shape).unwrap();
        assert_eq!(name, "gpu");
        let read: ConfigMap = serde_json::from_value(object).unwrap();
        let group = gantry_scaling::group::Group::read(&read).unwrap();
        assert_eq!((group.instance.as_str(), group.most), ("gpu", 4));
    }
}
