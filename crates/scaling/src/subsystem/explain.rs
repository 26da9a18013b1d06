//! What scaling knows about a node.

use gantry_reconcile::{Kind, View as _};
use gantry_subsystem::explain::{ExplainPage, ExplainRequest, Explanation};
use serde_json::json;

use crate::marks;
use crate::view::Node;

/// The page about nodes.
pub(super) const NODE: ExplainPage =
    ExplainPage { resource: || Node::RESOURCE, kinds: || vec![Kind::of::<Node>()], explain };

fn explain(request: &ExplainRequest<'_>) -> Option<Explanation> {
    let node = request.world.shelf::<Node>().get(request.key)?;
    let owner = node.metadata.annotations.get(marks::OWNER);
    let job = marks::owner(owner?)?;
    let grant = node.metadata.labels.get(marks::GRANT);
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
        let world = World::new((NODE.kinds)());
        let owned = json!({"metadata": {"name": "a", "uid": "a", "resourceVersion": "1",
            "annotations": {marks::OWNER: "team/train"}, "labels": {marks::GRANT: "g"}}});
        let plain = json!({"metadata": {"name": "b", "uid": "b", "resourceVersion": "1"}});
        for node in [owned, plain] {
            world.find(&Node::RESOURCE).unwrap().saw(&node.to_string()).unwrap().unwrap();
        }
        let values = Values::stack(KEYS, []);
        let now = Timestamp::UNIX_EPOCH;
        let ask = |name: &str| {
            let key = Key::cluster(name);
            let (world, values) = (&world, &values);
            explain(&ExplainRequest { key: &key, world, unread: &[], values, now })
        };
        let said = ask("a").unwrap();
        assert!(said.lines[0].contains("gantry explain appwrapper/train -n team"), "{said:?}");
        assert_eq!(said.facts, json!({"appWrapper": "team/train", "grant": "g"}));
        assert_eq!((ask("b"), ask("c")), (None, None));
    }
}
