use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::*;
use gantry_reconcile::names;
use gantry_reconcile::object::{Key, Meta, Resource, controller_reference};
use gantry_reconcile::world::{Change, Kind, View, World};
use gantry_reconcile::write::{Subresource, Write};
use gantry_reconcile::{Call, Controller, Held, ObjectReference, Plan, Propagation, Step, Uid};

mod engines;
mod kubelet;

/// Wants a number of leaves.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Tree {
    metadata: Meta,
    leaves: u32,
    status: TreeStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TreeStatus {
    leaves: u32,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Leaf {
    metadata: Meta,
}

impl View for Tree {
    const RESOURCE: Resource = Resource::namespaced("test", "v1", "trees", "Tree");
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl View for Leaf {
    const RESOURCE: Resource = Resource::namespaced("test", "v1", "leaves", "Leaf");
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// A defect of the controller under test.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Flaw {
    None,
    /// Creates leaves with new names each time, so a lost response creates one too many, and never
    /// deletes.
    FreshNames,
    /// Counts its own writes instead of reading the leaves.
    CountsOwnWrites,
    /// Writes its status even when nothing differs.
    AlwaysWritesStatus,
}

struct TreeController {
    flaw: Flaw,
    memory: AtomicU32,
}

impl TreeController {
    fn new(flaw: Flaw) -> Self {
        Self { flaw, memory: AtomicU32::new(0) }
    }

    /// A value that differs each time although nothing has changed.
    fn status_noise(&self) -> u32 {
        match self.flaw {
            Flaw::AlwaysWritesStatus => self.memory.fetch_add(1, Ordering::Relaxed),
            Flaw::None | Flaw::FreshNames | Flaw::CountsOwnWrites => 0,
        }
    }
}

impl Controller for TreeController {
    fn name(&self) -> &'static str {
        "gardener"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Tree>(), Kind::of::<Leaf>()]
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        let trees = change.both::<Tree>().map(|tree| tree.metadata.key());
        let owner = |leaf: &Leaf| {
            let owner = leaf.metadata.controller()?;
            Some(leaf.metadata.key().in_same_namespace(&owner.name))
        };
        trees.chain(change.both::<Leaf>().filter_map(owner)).collect()
    }

    fn plan(&self, world: &World, key: &Key, _: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let Some(tree) = world.store::<Tree>().get(key).filter(|it| !it.metadata.is_terminating())
        else {
            return plan;
        };
        let leaves = world.store::<Leaf>().owned_by(&tree.metadata.uid);
        let have = u32::try_from(leaves.len()).unwrap();
        let have = match self.flaw {
            Flaw::CountsOwnWrites => self.memory.load(Ordering::Relaxed),
            _ => have,
        };
        for number in have..tree.leaves {
            let count = self.memory.fetch_add(1, Ordering::Relaxed);
            let seed = match self.flaw {
                Flaw::FreshNames => count,
                _ => number,
            };
            let revision = tree.metadata.resource_version.to_string();
            let suffix = names::suffix(&[tree.metadata.uid.as_str(), &revision, &seed.to_string()]);
            plan.write(Write::Create {
                resource: Leaf::RESOURCE,
                body: json!({"metadata": {
                    "name": names::join(&tree.metadata.name, &suffix),
                    "namespace": tree.metadata.namespace,
                    "ownerReferences": [controller_reference(&Tree::RESOURCE, &tree.metadata)],
                }}),
            });
        }
        if self.flaw != Flaw::FreshNames {
            for leaf in leaves.iter().skip(tree.leaves as usize) {
                let fence = leaf.metadata.fence();
                plan.write(Write::Delete {
                    resource: Leaf::RESOURCE,
                    key: leaf.metadata.key(),
                    fence,
                    grace: None,
                    propagation: None,
                });
            }
        }
        if tree.status.leaves != have || self.flaw == Flaw::AlwaysWritesStatus {
            plan.write(Write::Merge {
                resource: Tree::RESOURCE,
                key: key.clone(),
                subresource: Subresource::Status,
                fence: tree.metadata.fence(),
                body: json!({"status": {"leaves": have, "said": self.status_noise()}}),
            });
        }
        plan
    }
}

fn tree(name: &str, leaves: u32) -> (Resource, Value) {
    let object = json!({"metadata": {"name": name, "namespace": "n"}, "leaves": leaves});
    (Tree::RESOURCE, object)
}

/// How many leaves each tree has, and how many its status says.
fn shape(server: &Server) -> Value {
    let leaves = server.list(&Leaf::RESOURCE);
    let count = |tree: &Value| {
        let mine = |leaf: &&&Value| {
            leaf["metadata"]["ownerReferences"][0]["uid"] == tree["metadata"]["uid"]
        };
        leaves.iter().filter(mine).count()
    };
    let trees = server.list(&Tree::RESOURCE);
    let trees = trees.iter().map(|tree| {
        json!([
            tree["metadata"]["name"],
            count(tree),
            tree["status"]["leaves"].as_u64().unwrap_or(0)
        ])
    });
    json!({"trees": trees.collect::<Vec<_>>(), "leaves": leaves.len()})
}

fn scenario<'a>(controllers: &'a [&'a dyn Controller], replicas: usize) -> Scenario<'a> {
    let grow = |name: &'static str, leaves: u32| -> UserAction {
        Box::new(move |server: &mut Server| {
            server.edit(&Tree::RESOURCE, &Key::new("n", name), |it| it["leaves"] = json!(leaves));
        })
    };
    let fell: UserAction = Box::new(|server: &mut Server| {
        server.delete(&Tree::RESOURCE, &Key::new("n", "c"), Propagation::Foreground);
    });
    Scenario {
        controllers,
        defaults: |_, _| {},
        objects: vec![tree("a", 3), tree("b", 1), tree("c", 4)],
        script: vec![grow("a", 5), grow("b", 0), fell, grow("a", 2)],
        replicas,
        horizon: Duration::from_secs(3600),
        ..Scenario::default()
    }
}

#[test]
fn a_correct_controller_converges() {
    for replicas in [1, 2] {
        let gardener = TreeController::new(Flaw::None);
        scenario(&[&gardener], replicas).prove(0..40, shape).unwrap();
        let ending = scenario(&[&gardener], replicas).run(7, Faults::random()).unwrap();
        let expected = json!({"trees": [["a", 2, 2], ["b", 0, 0]], "leaves": 2});
        assert_eq!(shape(&ending.server), expected);
    }
}

#[test]
fn flaws_are_found() {
    for flaw in [Flaw::FreshNames, Flaw::CountsOwnWrites, Flaw::AlwaysWritesStatus] {
        let gardener = TreeController::new(flaw);
        let found = scenario(&[&gardener], 1).prove(0..40, shape);
        assert!(found.is_err(), "{flaw:?} was not found");
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    let gardener = TreeController::new(Flaw::None);
    let controllers: [&dyn Controller; 1] = [&gardener];
    let scenario = scenario(&controllers, 2);
    let run = || {
        let faults = Faults::random();
        let conditions = simulation::Conditions { seed: 5, faults, replicas: 2, bad: &[] };
        simulation::run(&scenario, conditions).unwrap().trace
    };
    assert_eq!(run(), run());
}

#[test]
fn a_refused_object_does_not_affect_others() {
    let gardener = TreeController::new(Flaw::None);
    let controllers: [&dyn Controller; 1] = [&gardener];
    let mut scenario = scenario(&controllers, 1);
    let refuse: UserAction = Box::new(|server: &mut Server| {
        server.refuse(|write| write.key().name().starts_with("a-"));
    });
    scenario.script.insert(0, refuse);
    let ending = scenario.run(3, Faults::random()).unwrap();
    let found = shape(&ending.server);
    assert_eq!(found["trees"][1], json!(["b", 0, 0]), "{found}");
}

/// Writes the status of trees that want no leaves, on condition that a leaf is gone which always
/// exists.
struct WaitsForAbsence(ObjectReference);

impl Controller for WaitsForAbsence {
    fn name(&self) -> &'static str {
        "waits-for-absence"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Tree>()]
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        vec![change.key.clone()]
    }

    fn plan(&self, world: &World, key: &Key, _: Timestamp) -> Plan {
        let mut plan = Plan::default();
        if let Some(tree) = world.store::<Tree>().get(key).filter(|it| it.leaves == 0) {
            let write = Write::Merge {
                resource: Tree::RESOURCE,
                key: key.clone(),
                subresource: Subresource::Status,
                fence: tree.metadata.fence(),
                body: json!({"status": {"leaves": 100}}),
            };
            plan.steps.push(Step::new(write).require_absent(self.0.clone()));
        }
        plan
    }
}

#[test]
fn late_writes_honour_preconditions() {
    let mut server = Server::new(|_, _| {}, Timestamp::UNIX_EPOCH);
    let leaf = (Leaf::RESOURCE, json!({"metadata": {"name": "leaf", "namespace": "n"}}));
    server.create(&leaf.0, leaf.1.clone());
    let key = Key::new("n", "leaf");
    let made = server.get(&leaf.0, &key).unwrap();
    let uid = Uid::new(made["metadata"]["uid"].as_str().unwrap());
    let mourner = WaitsForAbsence(ObjectReference {
        resource: Leaf::RESOURCE,
        key,
        uid,
        field: String::new(),
    });
    let controllers: [&dyn Controller; 1] = [&mourner];
    let grow: UserAction = Box::new(|server: &mut Server| {
        server.edit(&Tree::RESOURCE, &Key::new("n", "a"), |it| it["leaves"] = json!(1));
    });
    let scenario = Scenario {
        controllers: &controllers,
        defaults: |_, _| {},
        // The leaf is the first object of either world, so it has the same UID.
        objects: vec![leaf, tree("a", 0)],
        script: vec![grow],
        replicas: 1,
        horizon: Duration::from_secs(3600),
        ..Scenario::default()
    };
    for seed in 0..20 {
        scenario
            .prove_crashes(seed, |server| {
                let leaf = server.get(&Leaf::RESOURCE, &Key::new("n", "leaf")).unwrap();
                assert_eq!(leaf["metadata"]["uid"], made["metadata"]["uid"]);
                let tree = server.get(&Tree::RESOURCE, &Key::new("n", "a")).unwrap();
                json!([tree["leaves"], tree["status"]["leaves"]])
            })
            .unwrap();
    }
}
