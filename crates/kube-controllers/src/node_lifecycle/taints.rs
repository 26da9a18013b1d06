//! The taints of nodes that cannot run pods.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::view::{ConditionStatus, Node, Taint, TaintEffect};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// The taint of each condition.
const TAINTS_BY_CONDITION: [(&str, ConditionStatus, &str); 6] = [
    ("Ready", ConditionStatus::False, NOT_READY),
    ("Ready", ConditionStatus::Unknown, UNREACHABLE),
    ("MemoryPressure", ConditionStatus::True, "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", ConditionStatus::True, "node.kubernetes.io/disk-pressure"),
    ("NetworkUnavailable", ConditionStatus::True, "node.kubernetes.io/network-unavailable"),
    ("PIDPressure", ConditionStatus::True, "node.kubernetes.io/pid-pressure"),
];

/// The state of the nodes in a zone, which decides whether pods are evicted from an unreachable
/// node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneDisruption {
    /// Most nodes are healthy: pods are evicted from those that are not.
    Normal,
    /// So many nodes are unreachable that something else must be wrong: no more pods are evicted.
    Partial,
    /// All nodes are unreachable: the control plane itself is cut off, and no pod is evicted.
    Full,
}

impl ZoneDisruption {
    /// Computes the state of the zone of a node.
    pub(super) fn of_zone<'a>(node: &Node, nodes: impl Iterator<Item = &'a Node>) -> Self {
        /// With this many nodes, evictions continue, if slowly.
        const LARGE_CLUSTER_NODES: usize = 50;
        let zone = zone(node);
        let (mut ready, mut all, mut lost) = (0, 0, 0);
        for other in nodes
            .filter(|it| !it.metadata.labels.contains_key("node.kubernetes.io/exclude-disruption"))
        {
            ready += usize::from(other.is_ready());
            if self::zone(other) == zone {
                all += 1;
                lost += usize::from(!other.is_ready());
            }
        }
        if ready == 0 {
            return Self::Full;
        }
        // More than two, and at least 55 percent.
        let many = lost > 2 && lost * 100 >= all * 55 && lost < all;
        if many && all <= LARGE_CLUSTER_NODES { Self::Partial } else { Self::Normal }
    }
}

fn zone(node: &Node) -> [Option<&String>; 2] {
    ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"]
        .map(|name| node.metadata.labels.get(name))
}

/// Returns the taints a node should have: those that follow from its conditions, and its other
/// taints.
pub(super) fn desired_taints(
    node: &Node,
    disruption: ZoneDisruption,
    now: Timestamp,
) -> Vec<Taint> {
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let mut due: Vec<(&str, TaintEffect)> = Vec::new();
    for condition in &node.status.conditions {
        let taints = TAINTS_BY_CONDITION
            .iter()
            .filter(|(kind, status, _)| *kind == condition.kind && *status == condition.status);
        due.extend(taints.map(|(_, _, key)| (*key, TaintEffect::NoSchedule)));
    }
    if node.spec.unschedulable {
        due.push((UNSCHEDULABLE, TaintEffect::NoSchedule));
    }
    let reason = node.condition("Ready").and_then(|it| match it.status {
        ConditionStatus::False => Some(NOT_READY),
        ConditionStatus::Unknown => Some(UNREACHABLE),
        ConditionStatus::True => None,
    });
    let leaves = |it: &Taint| {
        it.effect == TaintEffect::NoExecute && (it.key == NOT_READY || it.key == UNREACHABLE)
    };
    let sent_away = node.spec.taints.iter().any(leaves);
    let sends = match disruption {
        ZoneDisruption::Normal => true,
        ZoneDisruption::Partial => sent_away,
        ZoneDisruption::Full => false,
    };
    if let Some(key) = reason.filter(|_| sends) {
        due.push((key, TaintEffect::NoExecute));
    }
    let is_due =
        |it: &Taint| due.iter().any(|(key, effect)| *key == it.key && *effect == it.effect);
    // A node that never reported its status keeps its initial taints.
    let silent = node.condition("Ready").is_none();
    let mut taints: Vec<Taint> = node
        .spec
        .taints
        .iter()
        .filter(|it| {
            let ours = match it.effect {
                TaintEffect::NoSchedule => {
                    it.key == UNSCHEDULABLE
                        || TAINTS_BY_CONDITION.iter().any(|(_, _, key)| *key == it.key)
                }
                TaintEffect::NoExecute => leaves(it),
                TaintEffect::PreferNoSchedule => false,
            };
            !ours || is_due(it) || (silent && it.key == NOT_READY)
        })
        .cloned()
        .collect();
    for (key, effect) in due {
        if !taints.iter().any(|it| it.key == key && it.effect == effect) {
            taints.push(Taint {
                key: key.to_owned(),
                value: String::new(),
                effect,
                time_added: Some(now),
            });
        }
    }
    taints
}

/// Returns whether a node was never processed: it still has its initial taint.
pub(super) fn is_new_node(node: &Node) -> bool {
    node.spec.taints.iter().any(is_startup_taint)
}

/// Returns whether a taint is the one that the API server adds at creation, which alone has no
/// time.
pub(super) fn is_startup_taint(taint: &Taint) -> bool {
    taint.key == NOT_READY && taint.effect == TaintEffect::NoSchedule && taint.time_added.is_none()
}

pub(super) fn taint_body(taint: &Taint) -> Value {
    let mut text = json!({"key": taint.key, "effect": taint.effect.as_str()});
    if !taint.value.is_empty() {
        text["value"] = json!(taint.value);
    }
    if let Some(at) = taint.time_added {
        text["timeAdded"] = json!(at.to_string());
    }
    text
}
