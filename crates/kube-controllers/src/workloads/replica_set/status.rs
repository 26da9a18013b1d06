//! The status of a replica set.

use gantry_reconcile::Write;
use jiff::Timestamp;
use serde_json::json;

use super::{ObservedPodSet, PodSet};
use crate::view::{Condition, ConditionStatus, ReplicaSetStatus};
use crate::workloads::conditions;
use crate::workloads::writes::{self, nonzero_count as left_out};

/// The condition that pods could not be created or deleted.
const FAILURE: &str = "ReplicaFailure";

/// The status computed from the pods of a set.
pub(super) struct ComputedStatus {
    pub(super) status: ReplicaSetStatus,
    /// When the next pod becomes available.
    pub(super) next_available: Option<Timestamp>,
}

/// Counts the pods of a set.
pub(super) fn compute_status<S: PodSet>(observed: &ObservedPodSet<S>) -> ComputedStatus {
    let set = &observed.set;
    let mut status = ReplicaSetStatus {
        observed_generation: set.meta().generation,
        conditions: set.status().conditions.clone(),
        ..ReplicaSetStatus::default()
    };
    // It stays until the count is right: a restarted process does not know which writes were
    // rejected before.
    if observed.missing_pods() == 0 {
        conditions::remove(&mut status.conditions, FAILURE);
    } else if let Some(refused) = observed.refusal()
        && conditions::find(&status.conditions, FAILURE).is_none()
    {
        let reason = if observed.missing_pods() > 0 { "FailedCreate" } else { "FailedDelete" };
        let message = refused.refusal.message.clone();
        let found = conditions::new_condition(
            FAILURE,
            ConditionStatus::True,
            reason,
            message,
            observed.now,
        );
        // Conditions of replica sets have no update time.
        let found = Condition { last_update_time: None, ..found };
        conditions::set(&mut status.conditions, found);
    }
    let mut next_available: Option<Timestamp> = None;
    let labels = set.spec().template["metadata"]["labels"].as_object();
    for pod in &observed.claim.owned {
        let has = |(key, value): (&String, &serde_json::Value)| {
            pod.metadata.labels.get(key).map(String::as_str) == value.as_str()
        };
        status.replicas += 1;
        status.fully_labeled_replicas += i64::from(labels.into_iter().flatten().all(has));
        match pod.available_since(set.spec().min_ready_seconds, observed.now) {
            None => {}
            Some(Ok(_)) => {
                status.ready_replicas += 1;
                status.available_replicas += 1;
            }
            Some(Err(when)) => {
                status.ready_replicas += 1;
                next_available = Some(next_available.map_or(when, |it| it.min(when)));
            }
        }
    }
    ComputedStatus { status, next_available }
}

/// Writes the computed status.
pub(super) fn write<S: PodSet>(set: &S, status: &ReplicaSetStatus) -> Write {
    let body = json!({"status": {
        "replicas": status.replicas,
        "fullyLabeledReplicas": left_out(status.fully_labeled_replicas),
        "readyReplicas": left_out(status.ready_replicas),
        "availableReplicas": left_out(status.available_replicas),
        "observedGeneration": left_out(status.observed_generation),
        "conditions": conditions::conditions_body(&status.conditions),
    }});
    writes::patch_status::<S>(set.meta(), body)
}
