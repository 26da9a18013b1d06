//! The groups of nodes equal what the stores say, whatever order changes come in.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gantry_harness::test_world::start_time;
use gantry_reconcile::{Change, Controller as _, Key, Meta, Observer as _, Plan, World};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{KernelNodes, NodeGrouper, NodeKernel, SelectedNodes, affected_modules};
use crate::labels::NFD_KERNEL_LABEL;
use crate::module_kernels::module_kernels;
use crate::settings::{LiveSettings, Settings};
use crate::view::{Module, Node};
use crate::{ModuleController, NodeLabelController};

fn world() -> World {
    let settings = LiveSettings::default();
    let modules = ModuleController::new(settings.clone()).kinds();
    World::new(modules.into_iter().chain(NodeLabelController::new(settings).kinds()))
}

fn module_key(at: u8) -> Key {
    Key::new("drivers", &format!("m{at}"))
}

fn module(at: u8, selector: &Value) -> Module {
    serde_json::from_value(json!({
        "metadata": {"name": format!("m{at}"), "namespace": "drivers", "uid": format!("uid-{at}")},
        "spec": {
            "selector": selector,
            "driverContainer": {"container": {
                "kernelMappings": [{"literal": "5.1.0"}, {"literal": "5.2.0"}],
                "containerImage": "quay.io/a/b:${KERNEL_XYZ}",
            }},
        },
    }))
    .unwrap()
}

fn node(at: u8, labels: &BTreeMap<String, String>, kernel: &str, architecture: &str) -> Node {
    let mut node = Node {
        metadata: Meta { name: format!("n{at}"), labels: labels.clone(), ..Meta::default() },
        ..Node::default()
    };
    node.status.node_info.kernel_version = kernel.to_owned();
    node.status.node_info.architecture = architecture.to_owned();
    node
}

/// A change of a user or a kubelet.
#[derive(Clone, Debug)]
enum Action {
    PutNode {
        at: u8,
        gpu: u8,
        kernel: u8,
        architecture: u8,
        nfd: Option<u8>,
        ready: bool,
    },
    RemoveNode(u8),
    PutModule {
        at: u8,
        selector: u8,
    },
    BreakModule(u8),
    RemoveModule(u8),
    /// Deliver some of the changes that were not delivered yet.
    Deliver(u8),
    /// Deliver a change once more.
    Repeat,
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let put_node =
        (0..4_u8, 0..3_u8, 0..3_u8, 0..2_u8, proptest::option::of(0..2_u8), any::<bool>());
    let put_node = put_node.prop_map(|(at, gpu, kernel, architecture, nfd, ready)| {
        Action::PutNode { at, gpu, kernel, architecture, nfd, ready }
    });
    let action = prop_oneof![
        4 => put_node,
        1 => (0..4_u8).prop_map(Action::RemoveNode),
        3 => (0..3_u8, 0..3_u8).prop_map(|(at, selector)| Action::PutModule { at, selector }),
        1 => (0..3_u8).prop_map(Action::BreakModule),
        1 => (0..3_u8).prop_map(Action::RemoveModule),
        2 => any::<u8>().prop_map(Action::Deliver),
        1 => Just(Action::Repeat),
    ];
    proptest::collection::vec(action, 0..60)
}

fn selector(which: u8) -> Value {
    match which {
        0 => json!({}),
        1 => json!({"gpu": "1"}),
        _ => json!({"gpu": "2", "zone": "a"}),
    }
}

/// What the stores say of a Module: the nodes with its labels, by kernel.
fn from_stores(world: &World, module: &Module) -> BTreeMap<String, KernelNodes> {
    let mut kernels: BTreeMap<String, KernelNodes> = BTreeMap::new();
    for node in world.store::<Node>().list() {
        let Node { metadata, status, .. } = &*node;
        if module.selects(&metadata.labels) {
            let group = kernels.entry(status.node_info.kernel_version.clone()).or_default();
            group.count += 1;
            group.architectures.insert(status.node_info.architecture.clone());
            group.nfd_labels.extend(metadata.labels.get(NFD_KERNEL_LABEL).cloned());
        }
    }
    kernels
}

/// Executes an action on the stores. Returns the change, which is delivered later.
fn execute(world: &World, action: &Action) -> Option<Change> {
    let (nodes, modules) = (world.store::<Node>(), world.store::<Module>());
    match action {
        Action::PutNode { at, gpu, kernel, architecture, nfd, ready } => {
            let mut labels = BTreeMap::from([
                ("gpu".to_owned(), gpu.to_string()),
                ("zone".to_owned(), "a".to_owned()),
            ]);
            labels.extend(nfd.map(|it| (NFD_KERNEL_LABEL.to_owned(), it.to_string())));
            let architecture = ["amd64", "arm64"][usize::from(*architecture)];
            let mut node = node(*at, &labels, &format!("5.{kernel}.0"), architecture);
            node.spec.unschedulable = !ready;
            Some(nodes.set(node))
        }
        Action::RemoveNode(at) => nodes.unset(&Key::cluster(&format!("n{at}"))),
        Action::PutModule { at, selector: which } => {
            Some(modules.set(module(*at, &selector(*which))))
        }
        Action::BreakModule(at) => {
            let known = modules.get(&module_key(*at))?;
            let spec = Err(vec!["spec: invalid".to_owned()]);
            Some(modules.set(Module { spec, ..Module::clone(&known) }))
        }
        Action::RemoveModule(at) => modules.unset(&module_key(*at)),
        Action::Deliver(_) | Action::Repeat => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Changes are delivered late, several at a time, in any order and more than once. When all
    /// were delivered, the groups are those of the stores.
    #[test]
    fn groups_equal_what_the_stores_say(actions in actions(), order in any::<u64>()) {
        let world = world();
        let mut late: Vec<Change> = Vec::new();
        let mut delivered: Vec<Change> = Vec::new();
        let mut random = order;
        let mut pick = |length: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            usize::try_from(random >> 33).unwrap() % length
        };
        let observe = |change: Change, delivered: &mut Vec<Change>| {
            NodeGrouper.observe(&world, &change);
            delivered.push(change);
        };
        for action in &actions {
            late.extend(execute(&world, action));
            match action {
                Action::Deliver(count) => {
                    for _ in 0..usize::from(count % 5).min(late.len()) {
                        let change = late.swap_remove(pick(late.len()));
                        observe(change, &mut delivered);
                    }
                }
                Action::Repeat if !delivered.is_empty() => {
                    let change = delivered[pick(delivered.len())].clone();
                    observe(change, &mut delivered);
                }
                _ => {}
            }
        }
        while !late.is_empty() {
            let change = late.swap_remove(pick(late.len()));
            observe(change, &mut delivered);
        }
        let selected = world.derived::<SelectedNodes>();
        for at in 0..3 {
            let key = module_key(at);
            match world.store::<Module>().get(&key) {
                Some(module) if module.spec.is_ok() => {
                    let expected = from_stores(&world, &module);
                    prop_assert_eq!(selected.count(&key), expected.values().map(|it| it.count).sum::<usize>());
                    prop_assert_eq!(selected.kernels(&key), expected);
                }
                // Nothing of an invalid Module is deleted, so its nodes do not matter.
                Some(_) => {}
                None => prop_assert_eq!(selected.kernels(&key).len(), 0),
            }
        }
    }
}

/// A world with Modules that select by one label, and many nodes.
fn large_world(modules: u8, nodes: u8) -> World {
    let world = world();
    for at in 0..modules {
        let change = world.store::<Module>().set(module(at, &json!({"gpu": at.to_string()})));
        NodeGrouper.observe(&world, &change);
    }
    for at in 0..nodes {
        let labels = BTreeMap::from([("gpu".to_owned(), (at % modules).to_string())]);
        let change = world.store::<Node>().set(node(at, &labels, "5.1.0", "amd64"));
        NodeGrouper.observe(&world, &change);
    }
    world
}

/// The Modules that are planned after a node was set.
fn planned_after(world: &World, new: Node) -> BTreeSet<Key> {
    let change = world.store::<Node>().set(new);
    NodeGrouper.observe(world, &change);
    let controller = ModuleController::new(LiveSettings::default());
    let keys = controller.enqueue(world, &change);
    assert_eq!(keys, affected_modules(world, &change));
    let count = keys.len();
    let keys: BTreeSet<Key> = keys.into_iter().collect();
    assert_eq!(keys.len(), count, "each once");
    keys
}

#[test]
fn a_node_plans_the_modules_that_it_affects_and_no_others() {
    let world = large_world(20, 100);
    let gpu = |value: &str| BTreeMap::from([("gpu".to_owned(), value.to_owned())]);
    let none = BTreeSet::new();
    // A heartbeat, a cordon, a label that nothing selects.
    let mut cordoned = node(7, &gpu("7"), "5.1.0", "amd64");
    cordoned.spec.unschedulable = true;
    assert_eq!(planned_after(&world, cordoned), none);
    let mut labels = gpu("7");
    labels.insert("other".to_owned(), "x".to_owned());
    assert_eq!(planned_after(&world, node(7, &labels, "5.1.0", "amd64")), none);
    // Another kernel, another architecture.
    let one = BTreeSet::from([module_key(7)]);
    assert_eq!(planned_after(&world, node(7, &labels, "5.2.0", "amd64")), one);
    assert_eq!(planned_after(&world, node(7, &labels, "5.2.0", "arm64")), one);
    // It leaves one Module and joins another.
    let two = BTreeSet::from([module_key(7), module_key(8)]);
    assert_eq!(planned_after(&world, node(7, &gpu("8"), "5.2.0", "arm64")), two);
    let new = node(101, &gpu("3"), "5.1.0", "amd64");
    assert_eq!(planned_after(&world, new), BTreeSet::from([module_key(3)]));
}

/// A plan is the same when no node can be read any more: it depends on the groups alone.
#[test]
fn a_plan_reads_no_nodes() {
    let world = large_world(2, 50);
    let controller = ModuleController::new(LiveSettings::default());
    let key = module_key(0);
    let finalized = world.store::<Module>().get(&key).unwrap();
    let mut finalized = Module::clone(&finalized);
    finalized.metadata.finalizers = vec![crate::labels::FINALIZER.to_owned()];
    world.store::<Module>().set(finalized);
    let describe = |plan: Plan| -> Vec<String> {
        plan.steps.iter().map(|it| format!("{:?}", it.write)).collect()
    };
    let before = describe(controller.plan(&world, &key, start_time()));
    assert!(before.len() > 2, "{before:?}");
    let settings = Settings::default();
    assert_eq!(module_kernels(&world, &key, &settings).unwrap().nodes["5.1.0"].count, 25);
    for at in 0..50 {
        world.store::<Node>().unset(&Key::cluster(&format!("n{at}")));
    }
    assert_eq!(describe(controller.plan(&world, &key, start_time())), before);
}

#[test]
fn what_is_counted_of_a_node_is_what_plans_depend_on() {
    let labels = BTreeMap::from([(NFD_KERNEL_LABEL.to_owned(), "x".to_owned())]);
    let counted = NodeKernel::of(&node(1, &labels, "5.1.0", "amd64"));
    assert_eq!((&*counted.kernel, &*counted.architecture), ("5.1.0", "amd64"));
    assert_eq!(counted.nfd_label, Some(Arc::from("x")));
}
