//! Explains the state of a simulated node.

use gantry_reconcile::{Kind, View as _};
use gantry_subsystem::explain::{ExplainPage, ExplainRequest, Explanation};
use serde_json::json;

use crate::kubelet;
use crate::view::{Node, Pod};

/// The explain page about nodes.
pub(super) const NODE: ExplainPage = ExplainPage {
    resource: || Node::RESOURCE,
    kinds: || vec![Kind::of::<Node>(), Kind::of::<Pod>()],
    explain,
};

fn explain(request: &ExplainRequest<'_>) -> Option<Explanation> {
    let ExplainRequest { key, world, unread, .. } = request;
    let node = world.store::<Node>().get(key)?;
    let settings = kubelet::Settings::default();
    if !settings.simulates(&node) {
        return None;
    }
    let is_up = settings.is_up(&node);
    let name = key.name();
    let mut lines = vec![match is_up {
        true => format!("simulated, powered on; gantry node kill {name} powers it off"),
        false => format!("simulated, powered off; gantry node revive {name} powers it on"),
    }];
    let mut facts = json!({"simulated": true, "up": is_up});
    if !unread.contains(&Pod::RESOURCE) {
        let pods = world.store::<Pod>().by_index(&Pod::node_tag(name));
        let over = pods.iter().filter(|it| it.is_terminal()).count();
        lines.push(format!("{} pods, {over} of them finished", pods.len()));
        facts["pods"] = pods.len().into();
    }
    Some(Explanation { title: "simulation", lines, facts })
}

#[cfg(test)]
mod tests {
    use gantry_reconcile::{Key, World};
    use gantry_subsystem::settings::Values;
    use jiff::Timestamp;

    use super::*;
    use crate::kubelet::annotation;

    #[test]
    fn explain_shows_simulated_nodes_and_their_power() {
        let world = World::new((NODE.kinds)());
        let node = |name: &str, annotations: serde_json::Value| json!({"metadata": {"name": name, "uid": name, "resourceVersion": "1", "annotations": annotations}});
        let nodes = [
            node("up", json!({annotation::KWOK_NODE: "fake"})),
            node("down", json!({annotation::KWOK_NODE: "fake", annotation::NODE_POWER: "down"})),
            node("real", json!({})),
        ];
        for node in nodes {
            world
                .single_store_for(&Node::RESOURCE)
                .unwrap()
                .observe(&node.to_string())
                .unwrap()
                .unwrap();
        }
        let pod = json!({"metadata": {"name": "p", "namespace": "n", "uid": "p", "resourceVersion": "1"},
            "spec": {"nodeName": "up", "containers": []}});
        world.single_store_for(&Pod::RESOURCE).unwrap().observe(&pod.to_string()).unwrap().unwrap();
        let values = Values::from_layers(&[], []);
        let now = Timestamp::UNIX_EPOCH;
        let ask = |name: &str, unread: &[gantry_reconcile::Resource]| {
            let (key, world, values) = (&Key::cluster(name), &world, &values);
            explain(&ExplainRequest { key, world, unread, reports: &[], values, now })
        };
        let up = ask("up", &[]).unwrap();
        assert_eq!(up.facts, json!({"simulated": true, "up": true, "pods": 1}));
        assert!(up.lines[0].contains("gantry node kill up"), "{up:?}");
        let unread = ask("up", &[Pod::RESOURCE]).unwrap();
        assert!(unread.facts["pods"].is_null(), "unread is not none: {unread:?}");
        assert!(ask("down", &[]).unwrap().lines[0].contains("gantry node revive down"));
        assert_eq!(ask("real", &[]), None);
    }
}
