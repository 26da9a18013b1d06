//! Detects nodes without heartbeats.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::ObservedNode;
use crate::view::{ConditionStatus, Node, NodeCondition};

/// How long a node may be without a heartbeat.
const NODE_MONITOR_GRACE_PERIOD: SignedDuration = SignedDuration::from_secs(50);

/// How long a node may take until its first heartbeat.
const NODE_STARTUP_GRACE_PERIOD: SignedDuration = SignedDuration::from_mins(1);

/// The conditions that a kubelet reports. The one about its network comes from elsewhere.
const KUBELET_CONDITIONS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// Returns until when nothing need be done about a node without heartbeats.
pub(super) fn grace_period_end(observed: &ObservedNode) -> Timestamp {
    let made = observed.node.metadata.creation_timestamp;
    let said = observed.node.condition("Ready");
    let renewed = observed.lease.as_ref().and_then(|it| it.spec.renew_time);
    let heard = said.and_then(|it| it.last_heartbeat_time).max(renewed).max(made);
    let since = heard.map_or(observed.started, |it| it.max(observed.started));
    let patience =
        if said.is_some() { NODE_MONITOR_GRACE_PERIOD } else { NODE_STARTUP_GRACE_PERIOD };
    since.checked_add(patience).unwrap_or(since)
}

/// Returns whether the state of a node is unknown.
pub(super) fn is_unreachable(node: &Node) -> bool {
    node.condition("Ready").is_some_and(|it| it.status == ConditionStatus::Unknown)
}

/// Returns the conditions of a node without heartbeats; `None` when it has them already.
pub(super) fn unknown_conditions(node: &Node, now: Timestamp) -> Option<Vec<Value>> {
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let mut conditions = node.status.conditions.clone();
    let mut news = false;
    for kind in KUBELET_CONDITIONS {
        match conditions.iter_mut().find(|it| it.kind == kind) {
            Some(said) if said.status == ConditionStatus::Unknown => {}
            Some(said) => {
                said.status = ConditionStatus::Unknown;
                "NodeStatusUnknown".clone_into(&mut said.reason);
                "Kubelet stopped posting node status.".clone_into(&mut said.message);
                said.last_transition_time = Some(now);
                news = true;
            }
            None => {
                conditions.push(NodeCondition {
                    kind: kind.to_owned(),
                    status: ConditionStatus::Unknown,
                    reason: "NodeStatusNeverUpdated".to_owned(),
                    message: "Kubelet never posted node status.".to_owned(),
                    last_heartbeat_time: node.metadata.creation_timestamp,
                    last_transition_time: Some(now),
                });
                news = true;
            }
        }
    }
    news.then(|| conditions.iter().map(condition_body).collect())
}

fn condition_body(condition: &NodeCondition) -> Value {
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
