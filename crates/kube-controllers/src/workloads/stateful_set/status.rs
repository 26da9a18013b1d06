//! The status of a stateful set.

use gantry_reconcile::{Plan, Write};
use jiff::Timestamp;
use serde_json::json;

use super::{ObservedStatefulSet, Templates, pods};
use crate::view::{Phase, StatefulSet, StatefulSetStatus, UpdateStrategyKind};
use crate::workloads::writes::{self, nonzero_count};

/// Writes the status from the pods of a set, if it has changed.
pub(super) fn write_status(
    observed: &ObservedStatefulSet,
    templates: &Templates<'_>,
    plan: &mut Plan,
) {
    let status = computed_status(observed, templates, plan);
    let set = &observed.set;
    if status == set.status {
        return;
    }
    let body = json!({"status": {
        "observedGeneration": nonzero_count(status.observed_generation),
        "replicas": status.replicas,
        "readyReplicas": nonzero_count(status.ready_replicas),
        "currentReplicas": nonzero_count(status.current_replicas),
        "updatedReplicas": nonzero_count(status.updated_replicas),
        "currentRevision": status.current_revision,
        "updateRevision": status.update_revision,
        "collisionCount": status.collision_count,
        "availableReplicas": status.available_replicas,
    }});
    plan.write(writes::patch_status::<StatefulSet>(&set.metadata, body));
}

fn computed_status(
    observed: &ObservedStatefulSet,
    templates: &Templates<'_>,
    plan: &mut Plan,
) -> StatefulSetStatus {
    let set = &observed.set;
    let mut status = StatefulSetStatus {
        observed_generation: set.metadata.generation,
        current_revision: templates.current.0.to_owned(),
        update_revision: templates.update.0.to_owned(),
        collision_count: Some(set.status.collision_count.unwrap_or_default()),
        conditions: set.status.conditions.clone(),
        ..StatefulSetStatus::default()
    };
    let mut next: Option<Timestamp> = None;
    for pod in &observed.pods.owned {
        status.replicas += 1;
        if pod.status.phase == Phase::Running {
            match observed.availability(pod) {
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
        if !pod.metadata.is_terminating() {
            let revision = pods::revision(pod);
            status.current_replicas += i64::from(revision == status.current_revision);
            status.updated_replicas += i64::from(revision == status.update_revision);
        }
    }
    if let Some(when) = next {
        plan.requeue_at(when, observed.now);
    }
    let all = set.spec.replicas;
    let done = set.spec.update_strategy.kind == UpdateStrategyKind::RollingUpdate
        && status.updated_replicas == all
        && status.ready_replicas == all
        && status.replicas == all;
    if done {
        status.current_replicas = status.updated_replicas;
        status.current_revision.clone_from(&status.update_revision);
    }
    status
}

/// Increments the collision count because another revision has the name.
pub(super) fn collision_patch(set: &StatefulSet) -> Write {
    let count = set.status.collision_count.unwrap_or_default() + 1;
    writes::patch_status::<StatefulSet>(&set.metadata, json!({"status": {"collisionCount": count}}))
}
