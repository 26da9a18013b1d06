//! The node lifecycle: marks unreachable nodes, taints them, and evicts pods.

mod eviction;
mod health;
mod taints;

use std::sync::Arc;

use gantry_reconcile::{
    Change, Controller, Event, Key, Kind, ObjectReference, Plan, Step, Subresource, View, World,
    Write,
};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::view::{ConditionStatus, Lease, Node, Pod};
use gantry_pods::pod_condition::{PodConditionUpdate, update_pod_status};

pub use eviction::{TaintEvictionController, plan as plan_eviction};
use taints::ZoneDisruption;

/// The namespace of the leases of nodes.
const LEASE_NAMESPACE: &str = "kube-node-lease";

/// The most pod writes of one plan.
const MAX_POD_WRITES_PER_PLAN: usize = 500;

/// Detects unreachable nodes, and taints those that cannot run pods.
#[derive(Clone, Copy, Debug)]
pub struct NodeLifecycleController {
    started: Timestamp,
}

impl NodeLifecycleController {
    /// The service account the controller acts as.
    pub const ACCOUNT: &str = "node-controller";

    /// Creates a controller; `started` is when this process started. No heartbeats were observed
    /// before.
    #[must_use]
    pub fn new(started: Timestamp) -> Self {
        Self { started }
    }
}

impl Controller for NodeLifecycleController {
    fn name(&self) -> &'static str {
        "node-lifecycle"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Node>(), Kind::of::<Lease>(), Kind::of::<Pod>()]
    }

    /// Enqueues nodes. A renewed lease enqueues nothing: it only defers what a timer checks anyway.
    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        if change.is::<Node>() {
            let mut keys = vec![change.key.clone()];
            let ready = |node: Option<&Node>| node.map(Node::is_ready);
            if ready(change.before()) != ready(change.after()) {
                // Whether pods are evicted from an unreachable node depends on how many others are
                // unreachable.
                let nodes = world.store::<Node>().list();
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
        let lost =
            world.store::<Node>().get(&key).is_some_and(|node| health::is_unreachable(&node));
        lost.then_some(key).into_iter().collect()
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let Some(node) = world.store::<Node>().get(key) else {
            let hidden = world.store::<Node>().is_unreadable(key);
            return if hidden { Plan::default() } else { plan_removed_node(key) };
        };
        let nodes = world.store::<Node>().list();
        plan(&ObservedNode {
            lease: world.store::<Lease>().get(&Key::new(LEASE_NAMESPACE, key.name())),
            pods: world.store::<Pod>().by_index(&Pod::node_tag(key.name())),
            disruption: ZoneDisruption::of_zone(&node, nodes.iter().map(|it| &**it)),
            node,
            started: self.started,
            now,
        })
    }
}

/// The inputs of the decision about one node.
#[derive(Clone, Debug)]
pub struct ObservedNode {
    /// The node.
    pub node: Arc<Node>,
    /// Its lease, which its kubelet renews.
    pub lease: Option<Arc<Lease>>,
    /// The pods on it.
    pub pods: Vec<Arc<Pod>>,
    /// The state of the nodes in its zone.
    pub disruption: ZoneDisruption,
    /// When this process started.
    pub started: Timestamp,
    /// The current time.
    pub now: Timestamp,
}

/// Marks an unreachable node, taints it, and marks its pods not ready.
#[must_use]
pub fn plan(observed: &ObservedNode) -> Plan {
    let mut plan = Plan::default();
    let node = &observed.node;
    let until = health::grace_period_end(observed);
    if until > observed.now {
        plan.requeue_at(until, observed.now);
    } else if let Some(conditions) = health::unknown_conditions(node, observed.now) {
        let was_ready = node.is_ready();
        let write = Write::Merge {
            resource: Node::RESOURCE,
            key: node.metadata.key(),
            subresource: Subresource::Status,
            fence: node.metadata.fence(),
            body: json!({"status": {"conditions": conditions}}),
        };
        let words = format!("Node {} status is now: NodeNotReady", node.metadata.name);
        let note = Event::normal(about(node), "NodeNotReady", words);
        let mut step = Step::new(write);
        step.success_events.extend(was_ready.then_some(note));
        plan.steps.push(step);
    }
    if let Some(step) = correct_taints_and_labels(observed) {
        plan.steps.push(step);
    }
    if health::is_unreachable(node) {
        mark_pods_not_ready(observed, &mut plan);
    }
    plan
}

/// Corrects taints and labels.
fn correct_taints_and_labels(observed: &ObservedNode) -> Option<Step> {
    let node = &observed.node;
    let wanted = taints::desired_taints(node, observed.disruption, observed.now);
    let labels = legacy_labels(node);
    if wanted == node.spec.taints && labels.is_empty() {
        return None;
    }
    let mut body = json!({});
    if wanted != node.spec.taints {
        let list: Vec<Value> = wanted.iter().map(taints::taint_body).collect();
        body["spec"] = json!({"taints": if list.is_empty() { Value::Null } else { json!(list) }});
    }
    if !labels.is_empty() {
        body["metadata"] = json!({"labels": labels});
    }
    let write = Write::Merge {
        resource: Node::RESOURCE,
        key: node.metadata.key(),
        subresource: Subresource::Main,
        fence: node.metadata.fence(),
        body,
    };
    let mut step = Step::new(write);
    if taints::is_new_node(node) && !wanted.iter().any(taints::is_startup_taint) {
        let words = format!("Registered Node {} in Controller", node.metadata.name);
        step = step.on_success(Event::normal(about(node), "RegisteredNode", words));
    }
    Some(step)
}

/// Returns the deprecated labels that are missing or wrong.
fn legacy_labels(node: &Node) -> Map<String, Value> {
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

/// Marks the pods on an unreachable node not ready, whatever they reported last.
fn mark_pods_not_ready(observed: &ObservedNode, plan: &mut Plan) {
    let ready: Vec<&Arc<Pod>> = observed.pods.iter().filter(|pod| pod.is_ready()).collect();
    for pod in ready.iter().take(MAX_POD_WRITES_PER_PLAN) {
        let last = pod.condition("Ready");
        let said = PodConditionUpdate {
            kind: "Ready",
            status: ConditionStatus::False,
            reason: last.map(|it| it.reason.clone()).unwrap_or_default(),
            message: last.map(|it| it.message.clone()).unwrap_or_default(),
        };
        let about = ObjectReference::to(&Pod::RESOURCE, &pod.metadata);
        let note = Event::warning(about, "NodeNotReady", "Node is not ready".to_owned());
        plan.steps.push(
            Step::new(update_pod_status(pod, Some(&said), None, observed.now)).on_success(note),
        );
    }
    if ready.len() > MAX_POD_WRITES_PER_PLAN {
        plan.requeue_after(std::time::Duration::ZERO);
    }
}

/// Returns the reference for events about a node. Its UID is the node's name, as in events of
/// kubelets.
fn about(node: &Node) -> ObjectReference {
    ObjectReference::to(&Node::RESOURCE, &node.metadata)
}

fn plan_removed_node(key: &Key) -> Plan {
    let about = ObjectReference {
        resource: Node::RESOURCE,
        key: key.clone(),
        uid: gantry_reconcile::Uid::default(),
        field: String::new(),
    };
    let words = format!("Removing Node {} from Controller", key.name());
    let note = Event::normal(about, "RemovingNode", words);
    Plan { events: vec![note], ..Plan::default() }
}

#[cfg(test)]
mod tests;
