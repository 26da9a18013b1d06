//! Explains what scaling knows about a node.

use gantry_reconcile::{Kind, View as _};
use gantry_subsystem::explain::{ExplainPage, ExplainRequest, Explanation};
use serde_json::json;

use crate::owner_labels;
use crate::view::Node;

/// The explanation page about nodes.
pub(super) const NODE_PAGE: ExplainPage =
    ExplainPage { resource: || Node::RESOURCE, kinds: || vec![Kind::of::<Node>()], explain };

fn explain(request: &ExplainRequest<'_>) -> Option<Explanation> {
    let node = request.world.store::<Node>().get(request.key)?;
    let owner = node.metadata.annotations.get(owner_labels::OWNER_ANNOTATION);
    let job = owner_labels::parse_owner(owner?)?;
    let grant = node.metadata.labels.get(owner_labels::GRANT_LABEL);
    let line = format!(
        "added for AppWrapper {job}, and removed when that is over; see gantry explain \
         appwrapper/{} -n {}",
        job.name(),
        job.namespace()
    );
    Some(Explanation {
        title: "scaling",
        lines: vec![line],
        facts: json!({"appWrapper": job.to_string(), "grant": grant}),
    })
}

#[cfg(test)]
mod tests {
    use gantry_reconcile::{Key, World};
    use gantry_subsystem::settings::Values;
    use jiff::Timestamp;

    use super::*;
    use crate::subsystem::configuration::KEYS;

    #[test]
    fn a_node_says_for_which_job_it_was_added() {
        let world = World::new((NODE_PAGE.kinds)());
        let owned = json!({"metadata": {"name": "a", "uid": "a", "resourceVersion": "1",
            "annotations": {owner_labels::OWNER_ANNOTATION: "team/train"}, "labels": {owner_labels::GRANT_LABEL: "g"}}});
        let plain = json!({"metadata": {"name": "b", "uid": "b", "resourceVersion": "1"}});
        for node in [owned, plain] {
            world
                .single_store_for(&Node::RESOURCE)
                .unwrap()
                .observe(&node.to_string())
                .unwrap()
                .unwrap();
        }
        let values = Values::from_layers(KEYS, []);
        let now = Timestamp::UNIX_EPOCH;
        let ask = |name: &str| {
            let key = Key::cluster(name);
            let (world, values) = (&world, &values);
            explain(&ExplainRequest { key: &key, world, unread: &[], reports: &[], values, now })
        };
        let said = ask("a").unwrap();
        assert!(said.lines[0].contains("gantry explain appwrapper/train -n team"), "{said:?}");
        assert_eq!(said.facts, json!({"appWrapper": "team/train", "grant": "g"}));
        assert_eq!((ask("b"), ask("c")), (None, None));
    }
}
