//! What a replica set says about itself.

use gantry_reconcile::Write;
use jiff::Timestamp;
use serde_json::json;

use super::{PodSet, Seen};
use crate::view::{Condition, ReplicaSetStatus, Truth};
use crate::workloads::conditions;
use crate::workloads::writes::{self, count as left_out};

/// The condition that pods could not be made.
const FAILURE: &str = "ReplicaFailure";

/// What the pods of a set amount to.
pub(super) struct Counted {
    pub(super) status: ReplicaSetStatus,
    /// When the next pod will have been ready for long enough.
    pub(super) next_available: Option<Timestamp>,
}

/// Counts the pods of a set.
pub(super) fn count<S: PodSet>(seen: &Seen<S>) -> Counted {
    let set = &seen.set;
    let mut status = ReplicaSetStatus {
        observed_generation: set.meta().generation,
        conditions: set.status().conditions.clone(),
        ..ReplicaSetStatus::default()
    };
    // It stays until all is well: after a restart nobody knows what was refused before it.
    if seen.missing() == 0 {
        conditions::remove(&mut status.conditions, FAILURE);
    } else if let Some(refused) = seen.refusal()
        && conditions::find(&status.conditions, FAILURE).is_none()
    {
        let reason = if seen.missing() > 0 { "FailedCreate" } else { "FailedDelete" };
        let message = refused.refusal.message.clone();
        let found = conditions::found(FAILURE, Truth::True, reason, message, seen.now);
        // Replica sets do not say when a condition was last looked at.
        let found = Condition { last_update_time: None, ..found };
        conditions::set(&mut status.conditions, found);
    }
    let mut next_available: Option<Timestamp> = None;
    let labels = set.spec().template["metadata"]["labels"].as_object();
    for pod in &seen.claim.mine {
        let has = |(key, value): (&String, &serde_json::Value)| {
            pod.metadata.labels.get(key).map(String::as_str) == value.as_str()
        };
        status.replicas += 1;
        status.fully_labeled_replicas += i64::from(labels.into_iter().flatten().all(has));
        match pod.available_since(set.spec().min_ready_seconds, seen.now) {
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
    Counted { status, next_available }
}

/// Writes what was counted.
pub(super) fn write<S: PodSet>(set: &S, status: &ReplicaSetStatus) -> Write {
    let body = json!({"status": {
        "replicas": status.replicas,
        "fullyLabeledReplicas": left_out(status.fully_labeled_replicas),
        "readyReplicas": left_out(status.ready_replicas),
        "availableReplicas": left_out(status.available_replicas),
        "observedGeneration": left_out(status.observed_generation),
        "conditions": conditions::json(&status.conditions),
    }});
    writes::state::<S>(set.meta(), body)
}
