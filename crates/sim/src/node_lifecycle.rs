//! Nodes that are lost: what is said of them, what keeps pods away, and which pods go.

mod eviction;
mod health;
mod taints;

use std::sync::Arc;

use gantry_reconcile::{
    Change, Controller, Key, Kind, Note, Part, Plan, Reference, Step, View, World, Write,
};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::view::{Lease, Node, Pod, Truth};
use gantry_pods::said::{Said, say};

pub use eviction::{TaintEviction, plan as plan_eviction};
use taints::Disruption;

/// The namespace of the leases of nodes.
const LEASES: &str = "kube-node-lease";

/// The most pods one plan writes to.
const MOST: usize = 500;

/// Notices nodes that are lost, and keeps pods away from those that cannot serve them.
#[derive(Clone, Copy, Debug)]
pub struct NodeLifecycle {
    started: Timestamp,
}

impl NodeLifecycle {
    /// The account it acts as.
    pub const ACCOUNT: &str = "node-controller";

    /// `started` is when this process began to look. Nodes had no chance to be heard before.
    #[must_use]
    pub fn new(started: Timestamp) -> Self {
        Self { started }
    }
}

impl Controller for NodeLifecycle {
    fn name(&self) -> &'static str {
        "node-lifecycle"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Node>(), Kind::of::<Lease>(), Kind::of::<Pod>()]
    }

    /// A renewed lease wakes nobody: it only puts off what a timer will look at anyway.
    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        if change.is::<Node>() {
            let mut keys = vec![change.key.clone()];
            let ready = |node: Option<&Node>| node.map(Node::is_ready);
            if ready(change.before()) != ready(change.after()) {
                // Whether pods must leave a lost node depends on how many others are lost.
                let nodes = world.shelf::<Node>().all();
                let lost = nodes
                    .iter()
                    .filter(|it| !it.is_ready() && it.metadata.name != change.key.name());
                keys.extend(lost.map(|it| it.metadata.key()));
            }
            return keys;
        }
        let Some(pod) = change.after::<Pod>().filter(|pod| pod.is_ready()) else {
            return Vec::new();
        };
        let key = Key::cluster(&pod.spec.node_name);
        let lost = world.shelf::<Node>().get(&key).is_some_and(|node| health::is_lost(&node));
        lost.then_some(key).into_iter().collect()
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let Some(node) = world.shelf::<Node>().get(key) else {
            let hidden = world.shelf::<Node>().is_unreadable(key);
            return if hidden { Plan::default() } else { removed(key) };
        };
        let nodes = world.shelf::<Node>().all();
        plan(&Seen {
            lease: world.shelf::<Lease>().get(&Key::new(LEASES, key.name())),
            pods: world.shelf::<Pod>().tagged(&Pod::on_node(key.name())),
            disruption: Disruption::around(&node, nodes.iter().map(|it| &**it)),
            node,
            started: self.started,
            now,
        })
    }
}

/// What decides about one node.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The node.
    pub node: Arc<Node>,
    /// Its lease, which it renews while it is there.
    pub lease: Option<Arc<Lease>>,
    /// The pods on it.
    pub pods: Vec<Arc<Pod>>,
    /// How it stands with the nodes around it.
    pub disruption: Disruption,
    /// When this process began to look.
    pub started: Timestamp,
    /// The time.
    pub now: Timestamp,
}

/// Says that a node is lost, keeps pods away from it, and tells its pods.
#[must_use]
pub fn plan(seen: &Seen) -> Plan {
    let mut plan = Plan::default();
    let node = &seen.node;
    let until = health::heard_until(seen);
    if until > seen.now {
        plan.look_at(until, seen.now);
    } else if let Some(conditions) = health::silent(node, seen.now) {
        let was_ready = node.is_ready();
        let write = Write::Merge {
            resource: Node::RESOURCE,
            key: node.metadata.key(),
            part: Part::Status,
            fence: node.metadata.fence(),
            body: json!({"status": {"conditions": conditions}}),
        };
        let words = format!("Node {} status is now: NodeNotReady", node.metadata.name);
        let note = Note::normal(about(node), "NodeNotReady", words);
        let mut step = Step::new(write);
        step.done.extend(was_ready.then_some(note));
        plan.steps.push(step);
    }
    if let Some(step) = keep(seen) {
        plan.steps.push(step);
    }
    if health::is_lost(node) {
        tell_pods(seen, &mut plan);
    }
    plan
}

/// Corrects taints and labels.
fn keep(seen: &Seen) -> Option<Step> {
    let node = &seen.node;
    let wanted = taints::wanted(node, seen.disruption, seen.now);
    let labels = labels(node);
    if wanted == node.spec.taints && labels.is_empty() {
        return None;
    }
    let mut body = json!({});
    if wanted != node.spec.taints {
        let list: Vec<Value> = wanted.iter().map(taints::spell).collect();
        body["spec"] = json!({"taints": if list.is_empty() { Value::Null } else { json!(list) }});
    }
    if !labels.is_empty() {
        body["metadata"] = json!({"labels": labels});
    }
    let write = Write::Merge {
        resource: Node::RESOURCE,
        key: node.metadata.key(),
        part: Part::Main,
        fence: node.metadata.fence(),
        body,
    };
    let mut step = Step::new(write);
    if taints::is_new(node) && !wanted.iter().any(taints::is_of_a_new_node) {
        let words = format!("Registered Node {} in Controller", node.metadata.name);
        step = step.done(Note::normal(about(node), "RegisteredNode", words));
    }
    Some(step)
}

/// The older names of labels, where they are missing or wrong.
fn labels(node: &Node) -> Map<String, Value> {
    let names = [
        ("kubernetes.io/os", "beta.kubernetes.io/os"),
        ("kubernetes.io/arch", "beta.kubernetes.io/arch"),
    ];
    let labels = &node.metadata.labels;
    let wrong = names.iter().filter_map(|(name, older)| {
        let value = labels.get(*name)?;
        (labels.get(*older) != Some(value)).then(|| ((*older).to_owned(), json!(value)))
    });
    wrong.collect()
}

/// Pods on a node that is lost are not ready, whatever they said last.
fn tell_pods(seen: &Seen, plan: &mut Plan) {
    let ready: Vec<&Arc<Pod>> = seen.pods.iter().filter(|pod| pod.is_ready()).collect();
    for pod in ready.iter().take(MOST) {
        let last = pod.condition("Ready");
        let said = Said {
            kind: "Ready",
            status: Truth::False,
            reason: last.map(|it| it.reason.clone()).unwrap_or_default(),
            message: last.map(|it| it.message.clone()).unwrap_or_default(),
        };
        let about = Reference::to(&Pod::RESOURCE, &pod.metadata);
        let note = Note::warning(about, "NodeNotReady", "Node is not ready".to_owned());
        plan.steps.push(Step::new(say(pod, Some(&said), None, seen.now)).done(note));
    }
    if ready.len() > MOST {
        plan.look_within(std::time::Duration::ZERO);
    }
}

/// Events about nodes name them by their name, as what kubelets tell does.
fn about(node: &Node) -> Reference {
    Reference::to(&Node::RESOURCE, &node.metadata)
}

fn removed(key: &Key) -> Plan {
    let about = Reference {
        resource: Node::RESOURCE,
        key: key.clone(),
        uid: gantry_reconcile::Uid::default(),
        field: String::new(),
    };
    let words = format!("Removing Node {} from Controller", key.name());
    let note = Note::normal(about, "RemovingNode", words);
    Plan { notes: vec![note], ..Plan::default() }
}

#[cfg(test)]
mod tests;
