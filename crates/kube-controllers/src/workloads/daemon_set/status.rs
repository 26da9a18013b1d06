//! The status of a daemon set.

use gantry_reconcile::{Plan, Write};
use serde_json::json;

use super::nodes::{NodeFit, node_fit};
use super::{ObservedDaemonSet, pods};
use crate::view::{DaemonSet, DaemonSetStatus};
use crate::workloads::writes::{self, nonzero_count};

/// Writes the status from the pods of a set, if it has changed.
pub(super) fn write(observed: &ObservedDaemonSet, hash: &str, plan: &mut Plan) -> Option<Write> {
    let status = computed_status(observed, hash, plan);
    if status == observed.set.status {
        return None;
    }
    let body = json!({"status": {
        "currentNumberScheduled": status.current_number_scheduled,
        "numberMisscheduled": status.number_misscheduled,
        "desiredNumberScheduled": status.desired_number_scheduled,
        "numberReady": status.number_ready,
        "observedGeneration": nonzero_count(status.observed_generation),
        "updatedNumberScheduled": nonzero_count(status.updated_number_scheduled),
        "numberAvailable": nonzero_count(status.number_available),
        "numberUnavailable": nonzero_count(status.number_unavailable),
    }});
    Some(writes::patch_status::<DaemonSet>(&observed.set.metadata, body))
}

fn computed_status(observed: &ObservedDaemonSet, hash: &str, plan: &mut Plan) -> DaemonSetStatus {
    let set = &observed.set;
    let mut status = DaemonSetStatus {
        observed_generation: set.metadata.generation,
        collision_count: set.status.collision_count,
        ..DaemonSetStatus::default()
    };
    let Some(spec) = &observed.spec else { return status };
    let by_node = pods::by_node(&observed.pods.owned);
    for node in &observed.nodes {
        let pod = by_node.get(node.metadata.name.as_str()).and_then(|it| it.first());
        let wanted = node_fit(spec, node) == NodeFit::ShouldRun;
        status.desired_number_scheduled += i64::from(wanted);
        let Some(pod) = pod else { continue };
        if !wanted {
            status.number_misscheduled += 1;
            continue;
        }
        status.current_number_scheduled += 1;
        status.updated_number_scheduled += i64::from(pods::is_updated(set, hash, pod));
        match pod.available_since(set.spec.min_ready_seconds, observed.now) {
            None => {}
            Some(Ok(_)) => {
                status.number_ready += 1;
                status.number_available += 1;
            }
            Some(Err(when)) => {
                status.number_ready += 1;
                plan.requeue_at(when, observed.now);
            }
        }
    }
    status.number_unavailable = status.desired_number_scheduled - status.number_available;
    status
}

/// Increments the collision count because another revision has the name.
pub(super) fn collision_patch(set: &DaemonSet) -> Write {
    let count = set.status.collision_count.unwrap_or_default() + 1;
    writes::patch_status::<DaemonSet>(&set.metadata, json!({"status": {"collisionCount": count}}))
}
