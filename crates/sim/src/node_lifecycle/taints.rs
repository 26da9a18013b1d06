//! What keeps pods away from nodes that cannot serve them.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::view::{Node, Taint, TaintEffect, Truth};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Which condition has which taint.
const BY_CONDITION: [(&str, Truth, &str); 6] = [
    ("Ready", Truth::False, NOT_READY),
    ("Ready", Truth::Unknown, UNREACHABLE),
    ("MemoryPressure", Truth::True, "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", Truth::True, "node.kubernetes.io/disk-pressure"),
    ("NetworkUnavailable", Truth::True, "node.kubernetes.io/network-unavailable"),
    ("PIDPressure", Truth::True, "node.kubernetes.io/pid-pressure"),
];

/// How it stands with the nodes around one, and so whether pods should leave a node that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disruption {
    /// Most are well: pods leave a node that is not.
    Normal,
    /// So many are lost that something else must be wrong: no more pods are sent away.
    Partial,
    /// All are lost: whoever looks is cut off, and no pod is sent away.
    Full,
}

impl Disruption {
    /// How it stands around a node.
    pub(super) fn around<'a>(node: &Node, nodes: impl Iterator<Item = &'a Node>) -> Self {
        /// With so many nodes, evictions go on, if slowly.
        const LARGE: usize = 50;
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
        // More than two, and at least 55 of a hundred.
        let many = lost > 2 && lost * 100 >= all * 55 && lost < all;
        if many && all <= LARGE { Self::Partial } else { Self::Normal }
    }
}

fn zone(node: &Node) -> [Option<&String>; 2] {
    ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"]
        .map(|name| node.metadata.labels.get(name))
}

/// The taints a node should have: those that follow from its conditions, and whatever else it has.
pub(super) fn wanted(node: &Node, disruption: Disruption, now: Timestamp) -> Vec<Taint> {
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let mut due: Vec<(&str, TaintEffect)> = Vec::new();
    for condition in &node.status.conditions {
        let taints = BY_CONDITION
            .iter()
            .filter(|(kind, status, _)| *kind == condition.kind && *status == condition.status);
        due.extend(taints.map(|(_, _, key)| (*key, TaintEffect::NoSchedule)));
    }
    if node.spec.unschedulable {
        due.push((UNSCHEDULABLE, TaintEffect::NoSchedule));
    }
    let reason = node.condition("Ready").and_then(|it| match it.status {
        Truth::False => Some(NOT_READY),
        Truth::Unknown => Some(UNREACHABLE),
        Truth::True => None,
    });
    let leaves = |it: &Taint| {
        it.effect == TaintEffect::NoExecute && (it.key == NOT_READY || it.key == UNREACHABLE)
    };
    let sent_away = node.spec.taints.iter().any(leaves);
    let sends = match disruption {
        Disruption::Normal => true,
        Disruption::Partial => sent_away,
        Disruption::Full => false,
    };
    if let Some(key) = reason.filter(|_| sends) {
        due.push((key, TaintEffect::NoExecute));
    }
    let is_due =
        |it: &Taint| due.iter().any(|(key, effect)| *key == it.key && *effect == it.effect);
    // A node that never said anything keeps what it was made with.
    let silent = node.condition("Ready").is_none();
    let mut taints: Vec<Taint> = node
        .spec
        .taints
        .iter()
        .filter(|it| {
            let ours = match it.effect {
                TaintEffect::NoSchedule => {
                    it.key == UNSCHEDULABLE || BY_CONDITION.iter().any(|(_, _, key)| *key == it.key)
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

/// Whether a node was never looked at: it still has the taint it was made with.
pub(super) fn is_new(node: &Node) -> bool {
    node.spec.taints.iter().any(is_of_a_new_node)
}

/// Only the server itself adds this one without a time.
pub(super) fn is_of_a_new_node(taint: &Taint) -> bool {
    taint.key == NOT_READY && taint.effect == TaintEffect::NoSchedule && taint.time_added.is_none()
}

pub(super) fn spell(taint: &Taint) -> Value {
    let mut text = json!({"key": taint.key, "effect": taint.effect.as_str()});
    if !taint.value.is_empty() {
        text["value"] = json!(taint.value);
    }
    if let Some(at) = taint.time_added {
        text["timeAdded"] = json!(at.to_string());
    }
    text
}
