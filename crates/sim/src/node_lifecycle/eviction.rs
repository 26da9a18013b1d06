//! Pods that must leave their node.

use std::sync::Arc;

use gantry_pods::fit::tolerates;
use gantry_reconcile::{
    Change, Controller, Key, Kind, Note, Part, Plan, Reference, Step, View, World, Write,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{MOST, taints};
use crate::view::{Node, Pod, Taint, TaintEffect};
use gantry_pods::said::{Said, say};

/// Takes pods away from nodes whose taints they do not put up with, or no longer.
#[derive(Clone, Copy, Debug, Default)]
pub struct TaintEviction;

impl TaintEviction {
    /// The account it acts as.
    pub const ACCOUNT: &str = "node-controller";
}

impl Controller for TaintEviction {
    fn name(&self) -> &'static str {
        "taint-eviction"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Node>(), Kind::of::<Pod>()]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        if change.is::<Node>() {
            let expels = |node: &Node| expelling(node).next().is_some();
            let concerned = change.after::<Node>().is_some_and(expels);
            return concerned.then(|| change.key.clone()).into_iter().collect();
        }
        let Some(pod) = change.after::<Pod>().filter(|pod| !pod.spec.node_name.is_empty()) else {
            return Vec::new();
        };
        let key = Key::cluster(&pod.spec.node_name);
        let node = world.shelf::<Node>().get(&key);
        let concerned = node.is_some_and(|node| expelling(&node).next().is_some());
        concerned.then_some(key).into_iter().collect()
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let Some(node) = world.shelf::<Node>().get(key) else { return Plan::default() };
        let pods = world.shelf::<Pod>().tagged(&Pod::on_node(key.name()));
        plan(&node, &pods, now)
    }
}

fn expelling(node: &Node) -> impl Iterator<Item = &Taint> {
    node.spec.taints.iter().filter(|it| it.effect == TaintEffect::NoExecute)
}

/// When a pod must go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leave {
    /// Never.
    Never,
    /// So many seconds after the taint came, or the pod.
    After(i64),
}

/// Decides about the pods of one node.
#[must_use]
pub fn plan(node: &Node, pods: &[Arc<Pod>], now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    let taints: Vec<&Taint> = expelling(node).collect();
    if taints.is_empty() {
        return plan;
    }
    let since = taints.iter().map(|it| it.time_added).max().flatten();
    let is_dated = taints.iter().all(|it| it.time_added.is_some());
    let mut undated = false;
    for pod in pods.iter().filter(|pod| !pod.metadata.is_going()) {
        let Leave::After(seconds) = leave(pod, &taints) else { continue };
        if seconds > 0 && !is_dated {
            undated = true;
            continue;
        }
        let arrived = pod.status.start_time.max(pod.metadata.creation_timestamp);
        let from = since.max(arrived).unwrap_or(now);
        let until = from.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(from);
        if seconds > 0 && until > now {
            plan.look_at(until, now);
        } else if plan.steps.len() < MOST {
            plan.steps.push(evict(pod, now));
        } else {
            plan.look_within(std::time::Duration::ZERO);
        }
    }
    if undated {
        plan.write(date(node, now));
    }
    plan
}

/// Notes since when there is a taint, where that was left out: the time pods have is counted from it.
fn date(node: &Node, now: Timestamp) -> Write {
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let dated = node.spec.taints.iter().map(|it| {
        let missing = it.effect == TaintEffect::NoExecute && it.time_added.is_none();
        let time_added = if missing { Some(now) } else { it.time_added };
        taints::spell(&Taint { time_added, ..it.clone() })
    });
    Write::Merge {
        resource: Node::RESOURCE,
        key: node.metadata.key(),
        part: Part::Main,
        fence: node.metadata.fence(),
        body: json!({"spec": {"taints": dated.collect::<Vec<Value>>()}}),
    }
}

fn leave(pod: &Pod, taints: &[&Taint]) -> Leave {
    let mut shortest: Option<i64> = None;
    for taint in taints {
        let mut tolerations = pod.spec.tolerations.iter();
        let Some(found) = tolerations.find(|it| tolerates(std::slice::from_ref(*it), taint)) else {
            return Leave::After(0);
        };
        if let Some(seconds) = found.toleration_seconds {
            let seconds = seconds.max(0);
            shortest = Some(shortest.map_or(seconds, |it| it.min(seconds)));
        }
    }
    shortest.map_or(Leave::Never, Leave::After)
}

/// Says why a pod goes, and then asks it to.
fn evict(pod: &Pod, now: Timestamp) -> Step {
    let said =
        Said::to_go("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint");
    if !said.is_true_of(pod) {
        return Step::new(say(pod, Some(&said), None, now));
    }
    let words = format!("Marking for deletion Pod {}", pod.metadata.key());
    let note =
        Note::normal(Reference::to(&Pod::RESOURCE, &pod.metadata), "TaintManagerEviction", words);
    Step::new(Write::Delete {
        resource: Pod::RESOURCE,
        key: pod.metadata.key(),
        fence: pod.metadata.fence(),
        grace: None,
        propagation: None,
    })
    .done(note)
}
