//! A kubelet for the tests of controllers: it runs pods, ends them, removes those that are deleted,
//! and reports nodes as ready.

use std::fmt;

use gantry_reconcile::world::IndexValue;
use gantry_reconcile::{
    Change, Controller, Key, Kind, Meta, Plan, Resource, Subresource, View, World, Write,
};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

/// The view of a pod that a kubelet reads.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct KubeletPod {
    /// Metadata.
    pub metadata: Meta,
    /// The spec.
    pub spec: KubeletPodSpec,
    /// The status.
    pub status: KubeletPodStatus,
}

/// The spec of a pod, as far as a kubelet reads it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KubeletPodSpec {
    /// The node it is bound to; empty where it is not bound.
    pub node_name: String,
}

/// The status of a pod, as far as a kubelet reads it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct KubeletPodStatus {
    /// The phase; empty or `Pending` before it runs.
    pub phase: String,
}

impl View for KubeletPod {
    const RESOURCE: Resource = Resource::namespaced("", "v1", "pods", "Pod");

    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn index_values(&self) -> Vec<IndexValue> {
        vec![on_node(&self.spec.node_name)]
    }
}

impl KubeletPod {
    fn is_over(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }
}

fn on_node(name: &str) -> IndexValue {
    IndexValue { index: "node", value: name.to_owned() }
}

/// The view of its node that a kubelet reads.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct KubeletNode {
    /// Metadata.
    pub metadata: Meta,
    /// The status.
    pub status: KubeletNodeStatus,
}

/// The status of a node, as far as a kubelet reads it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct KubeletNodeStatus {
    /// The conditions.
    pub conditions: Vec<Value>,
}

impl View for KubeletNode {
    const RESOURCE: Resource = Resource::namespaced("", "v1", "nodes", "Node").cluster_scoped();

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl KubeletNode {
    fn is_ready(&self) -> bool {
        self.status.conditions.iter().any(|it| it["type"] == "Ready" && it["status"] == "True")
    }
}

/// How a kubelet treats nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KubeletNodes {
    /// It ignores nodes and runs every pod.
    #[default]
    Ignored,
    /// It runs pods that are bound to a ready node.
    Required,
    /// It reports every node as ready, and runs no pods.
    Reported,
}

/// When a pod starts and ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodLifecycle {
    /// When its containers start; at once if absent.
    pub starts_at: Option<Timestamp>,
    /// The code its container exits with; absent where it runs until it is deleted.
    pub exit_code: Option<i64>,
    /// When it exits; as soon as it runs if absent.
    pub ends_at: Option<Timestamp>,
    /// Whether its node is unreachable: it is not removed when it is deleted.
    pub node_is_lost: bool,
}

/// The kubelets of all nodes. `L` determines when a pod starts and ends.
#[derive(Clone, Copy)]
pub struct Kubelet<L = fn(&KubeletPod) -> PodLifecycle> {
    /// How they treat nodes.
    pub nodes: KubeletNodes,
    /// Determines when a pod starts and ends.
    pub lifecycle: L,
    /// Whether a pod that is deleted is reported as failed before it is removed.
    pub reports_termination: bool,
}

impl Kubelet {
    /// Kubelets that run every pod until it is deleted, on any node or none.
    pub const RUNS_ALL: Self = Self {
        nodes: KubeletNodes::Ignored,
        lifecycle: |_| PodLifecycle {
            starts_at: None,
            exit_code: None,
            ends_at: None,
            node_is_lost: false,
        },
        reports_termination: false,
    };
    /// Kubelets that report every node as ready, and run no pods.
    pub const REPORTS_NODES: Self = Self { nodes: KubeletNodes::Reported, ..Self::RUNS_ALL };
}

impl<L> fmt::Debug for Kubelet<L> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Kubelet({:?})", self.nodes)
    }
}

impl<L: Fn(&KubeletPod) -> PodLifecycle> Kubelet<L> {
    fn run(&self, world: &World, pod: &KubeletPod, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let meta = &pod.metadata;
        let node = &pod.spec.node_name;
        if self.nodes == KubeletNodes::Required && !node.is_empty() {
            let node = world.store::<KubeletNode>().get(&Key::cluster(node));
            if node.is_none_or(|it| !it.is_ready()) {
                return plan;
            }
        }
        let lifecycle = (self.lifecycle)(pod);
        if meta.is_terminating() {
            if lifecycle.node_is_lost {
                return plan;
            }
            if self.reports_termination && !pod.is_over() {
                plan.write(ended(pod, SIGKILL_EXIT_CODE, now));
            } else if !self.reports_termination || meta.deletion_grace_period_seconds != Some(0) {
                plan.write(Write::Delete {
                    resource: KubeletPod::RESOURCE,
                    key: meta.key(),
                    fence: meta.fence(),
                    grace: Some(0),
                    propagation: None,
                });
            }
            return plan;
        }
        if pod.is_over() || (self.nodes == KubeletNodes::Required && node.is_empty()) {
            return plan;
        }
        let (due, write) = match (pod.status.phase.as_str(), lifecycle.exit_code) {
            ("" | "Pending", _) => (lifecycle.starts_at, running(pod, now)),
            (_, Some(code)) => (lifecycle.ends_at, ended(pod, code, now)),
            (_, None) => return plan,
        };
        match due {
            Some(due) if now < due => plan.requeue_at(due, now),
            Some(_) | None => plan.write(write),
        }
        plan
    }
}

impl<L: Fn(&KubeletPod) -> PodLifecycle + Send + Sync> Controller for Kubelet<L> {
    fn name(&self) -> &'static str {
        "kubelet"
    }

    fn kinds(&self) -> Vec<Kind> {
        match self.nodes {
            KubeletNodes::Ignored => vec![Kind::of::<KubeletPod>()],
            KubeletNodes::Required => vec![Kind::of::<KubeletPod>(), Kind::of::<KubeletNode>()],
            KubeletNodes::Reported => vec![Kind::of::<KubeletNode>()],
        }
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        if self.nodes == KubeletNodes::Required && change.is::<KubeletNode>() {
            let pods = world.store::<KubeletPod>().by_index(&on_node(change.key.name()));
            return pods.iter().map(|it| it.metadata.key()).collect();
        }
        vec![change.key.clone()]
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        if self.nodes != KubeletNodes::Reported {
            let pod = world.store::<KubeletPod>().get(key);
            return pod.map_or_else(Plan::default, |pod| self.run(world, &pod, now));
        }
        let mut plan = Plan::default();
        let node = world.store::<KubeletNode>().get(key);
        if let Some(node) = node.filter(|it| !it.is_ready() && !it.metadata.is_terminating()) {
            let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
            plan.write(status(KubeletNode::RESOURCE, &node.metadata, &ready));
        }
        plan
    }
}

/// The exit code of a container that was killed.
const SIGKILL_EXIT_CODE: i64 = 137;

fn running(pod: &KubeletPod, now: Timestamp) -> Write {
    let ready = condition("True", now);
    status(KubeletPod::RESOURCE, &pod.metadata, &json!({"phase": "Running", "conditions": [ready]}))
}

fn ended(pod: &KubeletPod, code: i64, now: Timestamp) -> Write {
    let terminated = json!({"exitCode": code, "finishedAt": second(now)});
    let body = json!({
        "phase": if code == 0 { "Succeeded" } else { "Failed" },
        "conditions": [condition("False", now)],
        "containerStatuses": [{"name": "main", "state": {"terminated": terminated}}],
    });
    status(KubeletPod::RESOURCE, &pod.metadata, &body)
}

fn condition(ready: &str, now: Timestamp) -> Value {
    json!({"type": "Ready", "status": ready, "lastTransitionTime": second(now)})
}

/// Times in a status have whole seconds.
fn second(now: Timestamp) -> String {
    Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
}

fn status(resource: Resource, meta: &Meta, status: &Value) -> Write {
    Write::Merge {
        resource,
        key: meta.key(),
        subresource: Subresource::Status,
        fence: meta.fence(),
        body: json!({ "status": status }),
    }
}
