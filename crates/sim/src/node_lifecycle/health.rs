//! Whether a node is heard of.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::Seen;
use crate::view::{Node, NodeCondition, Truth};

/// How long a node may be silent.
const SILENCE: SignedDuration = SignedDuration::from_secs(50);

/// How long a node may take to be heard of for the first time.
const FIRST_WORD: SignedDuration = SignedDuration::from_mins(1);

/// What a node says of itself. What is said of its network comes from elsewhere.
const SAID_BY_NODE: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// Until when nothing need be done about the silence of a node.
pub(super) fn heard_until(seen: &Seen) -> Timestamp {
    let made = seen.node.metadata.creation_timestamp;
    let said = seen.node.condition("Ready");
    let renewed = seen.lease.as_ref().and_then(|it| it.spec.renew_time);
    let heard = said.and_then(|it| it.last_heartbeat_time).max(renewed).max(made);
    let since = heard.map_or(seen.started, |it| it.max(seen.started));
    let patience = if said.is_some() { SILENCE } else { FIRST_WORD };
    since.checked_add(patience).unwrap_or(since)
}

/// Whether nothing is known of a node any more.
pub(super) fn is_lost(node: &Node) -> bool {
    node.condition("Ready").is_some_and(|it| it.status == Truth::Unknown)
}

/// The conditions of a node that is silent; `None` when they say so already.
pub(super) fn silent(node: &Node, now: Timestamp) -> Option<Vec<Value>> {
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let mut conditions = node.status.conditions.clone();
    let mut news = false;
    for kind in SAID_BY_NODE {
        match conditions.iter_mut().find(|it| it.kind == kind) {
            Some(said) if said.status == Truth::Unknown => {}
            Some(said) => {
                said.status = Truth::Unknown;
                "NodeStatusUnknown".clone_into(&mut said.reason);
                "Kubelet stopped posting node status.".clone_into(&mut said.message);
                said.last_transition_time = Some(now);
                news = true;
            }
            None => {
                conditions.push(NodeCondition {
                    kind: kind.to_owned(),
                    status: Truth::Unknown,
                    reason: "NodeStatusNeverUpdated".to_owned(),
                    message: "Kubelet never posted node status.".to_owned(),
                    last_heartbeat_time: node.metadata.creation_timestamp,
                    last_transition_time: Some(now),
                });
                news = true;
            }
        }
    }
    news.then(|| conditions.iter().map(spell).collect())
}

fn spell(condition: &NodeCondition) -> Value {
    let mut text = json!({
        "type": condition.kind, "status": condition.status.as_str(),
        "reason": condition.reason, "message": condition.message,
    });
    let times = [
        ("lastHeartbeatTime", condition.last_heartbeat_time),
        ("lastTransitionTime", condition.last_transition_time),
    ];
    for (name, time) in times {
        if let Some(time) = time {
            text[name] = json!(time.to_string());
        }
    }
    text
}
