//! Evicts pods from tainted nodes.

use std::sync::Arc;

use gantry_pods::fit::tolerates;
use gantry_reconcile::{
    Change, Controller, Event, Key, Kind, ObjectReference, Plan, Step, Subresource, View, World,
    Write,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{MAX_POD_WRITES_PER_PLAN, taints};
use crate::view::{Node, Pod, Taint, TaintEffect};
use gantry_pods::pod_condition::{PodConditionUpdate, update_pod_status};

/// Evicts pods from nodes whose taints they do not tolerate, or no longer.
#[derive(Clone, Copy, Debug, Default)]
pub struct TaintEvictionController;

impl TaintEvictionController {
    /// The service account the controller acts as.
    pub const ACCOUNT: &str = "node-controller";
}

impl Controller for TaintEvictionController {
    fn name(&self) -> &'static str {
        "taint-eviction"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Node>(), Kind::of::<Pod>()]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        if change.is::<Node>() {
            let expels = |node: &Node| no_execute_taints(node).next().is_some();
            let concerned = change.after::<Node>().is_some_and(expels);
            return concerned.then(|| change.key.clone()).into_iter().collect();
        }
        let Some(pod) = change.after::<Pod>().filter(|pod| !pod.spec.node_name.is_empty()) else {
            return Vec::new();
        };
        let key = Key::cluster(&pod.spec.node_name);
        let node = world.store::<Node>().get(&key);
        let concerned = node.is_some_and(|node| no_execute_taints(&node).next().is_some());
        concerned.then_some(key).into_iter().collect()
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let Some(node) = world.store::<Node>().get(key) else { return Plan::default() };
        let pods = world.store::<Pod>().by_index(&Pod::node_tag(key.name()));
        plan(&node, &pods, now)
    }
}

fn no_execute_taints(node: &Node) -> impl Iterator<Item = &Taint> {
    node.spec.taints.iter().filter(|it| it.effect == TaintEffect::NoExecute)
}

/// When a pod is evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EvictionTime {
    /// Never.
    Never,
    /// This many seconds after the taint was added, or the pod was bound.
    After(i64),
}

/// Decides about the pods of one node.
#[must_use]
pub fn plan(node: &Node, pods: &[Arc<Pod>], now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    let taints: Vec<&Taint> = no_execute_taints(node).collect();
    if taints.is_empty() {
        return plan;
    }
    let since = taints.iter().map(|it| it.time_added).max().flatten();
    let is_dated = taints.iter().all(|it| it.time_added.is_some());
    let mut undated = false;
    for pod in pods.iter().filter(|pod| !pod.metadata.is_terminating()) {
        let EvictionTime::After(seconds) = eviction_time(pod, &taints) else { continue };
        if seconds > 0 && !is_dated {
            undated = true;
            continue;
        }
        let arrived = pod.status.start_time.max(pod.metadata.creation_timestamp);
        let from = since.max(arrived).unwrap_or(now);
        let until = from.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(from);
        if seconds > 0 && until > now {
            plan.requeue_at(until, now);
        } else if plan.steps.len() < MAX_POD_WRITES_PER_PLAN {
            plan.steps.push(evict(pod, now));
        } else {
            plan.requeue_after(std::time::Duration::ZERO);
        }
    }
    if undated {
        plan.write(set_taint_times(node, now));
    }
    plan
}

/// Sets the time of a taint that lacks it: the toleration period is counted from it.
fn set_taint_times(node: &Node, now: Timestamp) -> Write {
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let dated = node.spec.taints.iter().map(|it| {
        let missing = it.effect == TaintEffect::NoExecute && it.time_added.is_none();
        let time_added = if missing { Some(now) } else { it.time_added };
        taints::taint_body(&Taint { time_added, ..it.clone() })
    });
    Write::Merge {
        resource: Node::RESOURCE,
        key: node.metadata.key(),
        subresource: Subresource::Main,
        fence: node.metadata.fence(),
        body: json!({"spec": {"taints": dated.collect::<Vec<Value>>()}}),
    }
}

fn eviction_time(pod: &Pod, taints: &[&Taint]) -> EvictionTime {
    let mut shortest: Option<i64> = None;
    for taint in taints {
        let mut tolerations = pod.spec.tolerations.iter();
        let Some(found) = tolerations.find(|it| tolerates(std::slice::from_ref(*it), taint)) else {
            return EvictionTime::After(0);
        };
        if let Some(seconds) = found.toleration_seconds {
            let seconds = seconds.max(0);
            shortest = Some(shortest.map_or(seconds, |it| it.min(seconds)));
        }
    }
    shortest.map_or(EvictionTime::Never, EvictionTime::After)
}

/// Sets the reason of the eviction in the pod's status, and then deletes the pod.
fn evict(pod: &Pod, now: Timestamp) -> Step {
    let said = PodConditionUpdate::disruption_target(
        "DeletionByTaintManager",
        "Taint manager: deleting due to NoExecute taint",
    );
    if !said.is_set_on(pod) {
        return Step::new(update_pod_status(pod, Some(&said), None, now));
    }
    let message = format!("Marking for deletion Pod {}", pod.metadata.key());
    let note = Event::normal(
        ObjectReference::to(&Pod::RESOURCE, &pod.metadata),
        "TaintManagerEviction",
        message,
    );
    Step::new(Write::Delete {
        resource: Pod::RESOURCE,
        key: pod.metadata.key(),
        fence: pod.metadata.fence(),
        grace: None,
        propagation: None,
    })
    .on_success(note)
}
