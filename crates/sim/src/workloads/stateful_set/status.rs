//! What a stateful set says about itself.

use gantry_reconcile::{Plan, Write};
use jiff::Timestamp;
use serde_json::json;

use super::{Seen, Templates, pods};
use crate::view::{Phase, StatefulSet, StatefulSetStatus, UpdateKind};
use crate::workloads::writes::{self, count};

/// Writes what the pods of a set amount to, if it differs.
pub(super) fn report(seen: &Seen, templates: &Templates<'_>, plan: &mut Plan) {
    let status = counted(seen, templates, plan);
    let set = &seen.set;
    if status == set.status {
        return;
    }
    let body = json!({"status": {
        "observedGeneration": count(status.observed_generation),
        "replicas": status.replicas,
        "readyReplicas": count(status.ready_replicas),
        "currentReplicas": count(status.current_replicas),
        "updatedReplicas": count(status.updated_replicas),
        "currentRevision": status.current_revision,
        "updateRevision": status.update_revision,
        "collisionCount": status.collision_count,
        "availableReplicas": status.available_replicas,
    }});
    plan.write(writes::state::<StatefulSet>(&set.metadata, body));
}

fn counted(seen: &Seen, templates: &Templates<'_>, plan: &mut Plan) -> StatefulSetStatus {
    let set = &seen.set;
    let mut status = StatefulSetStatus {
        observed_generation: set.metadata.generation,
        current_revision: templates.current.0.to_owned(),
        update_revision: templates.update.0.to_owned(),
        collision_count: Some(set.status.collision_count.unwrap_or_default()),
        conditions: set.status.conditions.clone(),
        ..StatefulSetStatus::default()
    };
    let mut next: Option<Timestamp> = None;
    for pod in &seen.pods.mine {
        status.replicas += 1;
        if pod.status.phase == Phase::Running {
            match seen.availability(pod) {
                None => {}
                Some(Ok(_)) => {
                    status.ready_replicas += 1;
                    status.available_replicas += 1;
                }
                Some(Err(when)) => {
                    status.ready_replicas += 1;
                    next = Some(next.map_or(when, |it| it.min(when)));
                }
            }
        }
        if !pod.metadata.is_going() {
            let revision = pods::revision(pod);
            status.current_replicas += i64::from(revision == status.current_revision);
            status.updated_replicas += i64::from(revision == status.update_revision);
        }
    }
    if let Some(when) = next {
        plan.look_at(when, seen.now);
    }
    let all = set.spec.replicas;
    let done = set.spec.update_strategy.kind == UpdateKind::RollingUpdate
        && status.updated_replicas == all
        && status.ready_replicas == all
        && status.replicas == all;
    if done {
        status.current_replicas = status.updated_replicas;
        status.current_revision.clone_from(&status.update_revision);
    }
    status
}

/// Notes that the name of the next revision is taken by another.
pub(super) fn collided(set: &StatefulSet) -> Write {
    let count = set.status.collision_count.unwrap_or_default() + 1;
    writes::state::<StatefulSet>(&set.metadata, json!({"status": {"collisionCount": count}}))
}
