//! Counts how many nodes jobs were granted, and how many of those are ready.

use std::collections::HashSet;

use gantry_reconcile::{Key, World};

use crate::grant_record::{GrantRecord, GrantRecordError};
use crate::owner_labels::OwnerLabels;
use crate::view::{Node, is_ready};

/// The nodes of jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GrantedNodes {
    /// How many were granted.
    pub wanted: u32,
    /// How many of them are ready.
    pub ready: u32,
}

impl GrantedNodes {
    /// Counts the nodes of a grant record, and the ready nodes with the labels of its jobs.
    ///
    /// # Errors
    /// Fails if the grant record cannot be read: then nothing is known.
    pub fn of(world: &World, ledger: &Key) -> Result<Self, GrantRecordError> {
        let ledger = GrantRecord::read(world, ledger)?;
        let mut stock = Self::default();
        let mut marks: HashSet<String> = HashSet::new();
        for (job, grant) in ledger.iter() {
            stock.wanted = stock.wanted.saturating_add(grant.total());
            // Nodes that were handed over have the old labels for a while.
            let owners = [Some(job.clone()), grant.former()].into_iter().flatten();
            marks.extend(owners.map(|it| OwnerLabels::of(&it).owner_label));
        }
        let nodes = world.store::<Node>().list();
        let own = |node: &Node| node.metadata.labels.keys().any(|it| marks.contains(it));
        let ready = nodes.iter().filter(|it| is_ready(it) && own(it)).count();
        stock.ready = u32::try_from(ready).unwrap_or(u32::MAX);
        Ok(stock)
    }
}

#[cfg(test)]
mod tests {
    use gantry_reconcile::{Kind, View as _};
    use serde_json::{Value, json};

    use super::*;
    use crate::view::{ConfigMap, is_heartbeat};

    fn node(name: &str, revision: &str, label: &str, ready: &str) -> Value {
        json!({"metadata": {"name": name, "uid": name, "resourceVersion": revision, "labels": {label: label}},
               "status": {"conditions": [{"type": "Ready", "status": ready}]}})
    }

    #[test]
    fn ready_nodes_of_recorded_grants_are_counted() {
        let world = World::new([Kind::of::<ConfigMap>(), Kind::of::<Node>()]);
        let see = |object: &Value| {
            let resource =
                if object["data"].is_null() { Node::RESOURCE } else { ConfigMap::RESOURCE };
            world
                .single_store_for(&resource)
                .unwrap()
                .observe(&object.to_string())
                .unwrap()
                .unwrap()
        };
        let place = Key::new("system", "ledger");
        assert_eq!(
            GrantedNodes::of(&world, &place),
            Ok(GrantedNodes::default()),
            "nothing was granted"
        );
        let lots = |count: u32| json!([{"instance": "large", "count": count, "place": "p"}]);
        let since = "2026-01-01T00:00:00Z";
        let one = json!({"id": "1", "uid": "1", "since": since, "lots": lots(2)});
        let two = json!({"id": "2", "uid": "2", "since": since, "lots": lots(3),
                         "from": {"job": "n/before", "id": "0"}});
        see(&json!({
            "metadata": {"name": "ledger", "namespace": "system", "uid": "l", "resourceVersion": "1"},
            "data": {"n.one": one.to_string(), "n.two": two.to_string()},
        }));
        for (name, label, ready) in [
            ("a", "one-n", "True"),
            ("b", "one-n", "False"),
            ("c", "before-n", "True"),
            ("d", "three-n", "True"),
            ("e", "two-n", "True"),
        ] {
            see(&node(name, "1", label, ready));
        }
        assert_eq!(GrantedNodes::of(&world, &place), Ok(GrantedNodes { wanted: 5, ready: 3 }));
        assert!(is_heartbeat(&see(&node("b", "2", "one-n", "False"))));
        assert!(!is_heartbeat(&see(&node("b", "3", "one-n", "True"))), "it is ready now");
        assert_eq!(GrantedNodes::of(&world, &place), Ok(GrantedNodes { wanted: 5, ready: 4 }));
    }
}
