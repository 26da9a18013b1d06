//! How many nodes jobs were granted, and how many of those are ready.

use std::collections::HashSet;

use gantry_reconcile::{Key, World};

use crate::ledger::{Ledger, LedgerError};
use crate::marks::Marks;
use crate::view::{Node, is_ready};

/// Nodes of jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stock {
    /// How many were granted.
    pub wanted: u32,
    /// How many of them are ready.
    pub ready: u32,
}

impl Stock {
    /// Counts what a ledger says, and the nodes that bear the marks of those in it.
    ///
    /// # Errors
    /// The ledger cannot be read: then nothing is known.
    pub fn of(world: &World, ledger: &Key) -> Result<Self, LedgerError> {
        let ledger = Ledger::read(world, ledger)?;
        let mut stock = Self::default();
        let mut marks: HashSet<String> = HashSet::new();
        for (job, grant) in ledger.iter() {
            stock.wanted = stock.wanted.saturating_add(grant.total());
            // What was handed over bears the old marks for a while.
            let owners = [Some(job.clone()), grant.former()].into_iter().flatten();
            marks.extend(owners.map(|it| Marks::of(&it).mine));
        }
        let nodes = world.shelf::<Node>().all();
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
    use crate::view::{ConfigMap, only_lives};

    fn node(name: &str, revision: &str, label: &str, ready: &str) -> Value {
        json!({"metadata": {"name": name, "uid": name, "resourceVersion": revision, "labels": {label: label}},
               "status": {"conditions": [{"type": "Ready", "status": ready}]}})
    }

    #[test]
    fn nodes_count_that_bear_marks_of_the_ledger_and_are_ready() {
        let world = World::new([Kind::of::<ConfigMap>(), Kind::of::<Node>()]);
        let see = |object: &Value| {
            let resource =
                if object["data"].is_null() { Node::RESOURCE } else { ConfigMap::RESOURCE };
            world.find(&resource).unwrap().saw(&object.to_string()).unwrap().unwrap()
        };
        let place = Key::new("system", "ledger");
        assert_eq!(Stock::of(&world, &place), Ok(Stock::default()), "nobody was granted anything");
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
        assert_eq!(Stock::of(&world, &place), Ok(Stock { wanted: 5, ready: 3 }));
        assert!(only_lives(&see(&node("b", "2", "one-n", "False"))));
        assert!(!only_lives(&see(&node("b", "3", "one-n", "True"))), "it is ready now");
        assert_eq!(Stock::of(&world, &place), Ok(Stock { wanted: 5, ready: 4 }));
    }
}
