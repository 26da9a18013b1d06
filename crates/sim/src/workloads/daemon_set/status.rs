//! What a daemon set says about itself.

use gantry_reconcile::{Plan, Write};
use serde_json::json;

use super::nodes::{Fit, fit};
use super::{Seen, pods};
use crate::view::{DaemonSet, DaemonSetStatus};
use crate::workloads::writes::{self, count};

/// Writes what the pods of a set amount to, if that differs.
pub(super) fn write(seen: &Seen, hash: &str, plan: &mut Plan) -> Option<Write> {
    let status = counted(seen, hash, plan);
    if status == seen.set.status {
        return None;
    }
    let body = json!({"status": {
        "currentNumberScheduled": status.current_number_scheduled,
        "numberMisscheduled": status.number_misscheduled,
        "desiredNumberScheduled": status.desired_number_scheduled,
        "numberReady": status.number_ready,
        "observedGeneration": count(status.observed_generation),
        "updatedNumberScheduled": count(status.updated_number_scheduled),
        "numberAvailable": count(status.number_available),
        "numberUnavailable": count(status.number_unavailable),
    }});
    Some(writes::state::<DaemonSet>(&seen.set.metadata, body))
}

fn counted(seen: &Seen, hash: &str, plan: &mut Plan) -> DaemonSetStatus {
    let set = &seen.set;
    let mut status = DaemonSetStatus {
        observed_generation: set.metadata.generation,
        collision_count: set.status.collision_count,
        ..DaemonSetStatus::default()
    };
    let Some(spec) = &seen.spec else { return status };
    let by_node = pods::by_node(&seen.pods.mine);
    for node in &seen.nodes {
        let pod = by_node.get(node.metadata.name.as_str()).and_then(|it| it.first());
        let wanted = fit(spec, node) == Fit::Wanted;
        status.desired_number_scheduled += i64::from(wanted);
        let Some(pod) = pod else { continue };
        if !wanted {
            status.number_misscheduled += 1;
            continue;
        }
        status.current_number_scheduled += 1;
        status.updated_number_scheduled += i64::from(pods::is_updated(set, hash, pod));
        match pod.available_since(set.spec.min_ready_seconds, seen.now) {
            None => {}
            Some(Ok(_)) => {
                status.number_ready += 1;
                status.number_available += 1;
            }
            Some(Err(when)) => {
                status.number_ready += 1;
                plan.look_at(when, seen.now);
            }
        }
    }
    status.number_unavailable = status.desired_number_scheduled - status.number_available;
    status
}

/// Notes that the name of the next revision is taken by another.
pub(super) fn collided(set: &DaemonSet) -> Write {
    let count = set.status.collision_count.unwrap_or_default() + 1;
    writes::state::<DaemonSet>(&set.metadata, json!({"status": {"collisionCount": count}}))
}
