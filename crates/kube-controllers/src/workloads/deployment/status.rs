//! The status of a deployment.

use gantry_reconcile::{Plan, Refusal};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::ObservedDeployment;
use super::sets::{DeploymentSets, REVISION, REVISION_HISTORY};
use crate::view::{Condition, ConditionStatus, Deployment, DeploymentStatus, ReplicaSet};
use crate::workloads::conditions;
use crate::workloads::writes::{self, nonzero_count};

const AVAILABLE: &str = "Available";
const PROGRESSING: &str = "Progressing";
const FAILURE: &str = "ReplicaFailure";

const PAUSED: &str = "DeploymentPaused";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const NEW_AVAILABLE: &str = "NewReplicaSetAvailable";

/// The deadline that means none.
const UNLIMITED: i64 = i32::MAX as i64;

/// The desired status.
#[derive(Debug)]
pub(super) struct StatusReport<'a> {
    now: Timestamp,
    deployment: &'a Deployment,
    /// The name of the current set.
    new: Option<String>,
    /// A failure that the sets report, that of the current one first.
    failure: Option<Condition>,
    status: DeploymentStatus,
    /// The revision of the current template, if the deployment does not have it yet.
    revision: Option<String>,
    /// Whether the current set is still being created. Until it exists nothing is reported, except
    /// a rejection by the server.
    awaits_set: bool,
}

impl<'a> StatusReport<'a> {
    /// Computes the status from the sets.
    pub(super) fn of(observed: &'a ObservedDeployment, sets: &DeploymentSets<'_>) -> Self {
        let deployment = observed.deployment.as_ref();
        let views = || sets.all().map(|it| it.view);
        let new = sets.new.as_ref().map(|it| it.view);
        let sum = |field: fn(&ReplicaSet) -> i64| views().map(field).sum::<i64>();
        let available = sum(|it| it.status.available_replicas);
        let size = sum(|it| it.spec.replicas);
        let failed = |it: &ReplicaSet| conditions::find(&it.status.conditions, FAILURE).cloned();
        let status = DeploymentStatus {
            observed_generation: deployment.metadata.generation,
            replicas: sum(|it| it.status.replicas),
            updated_replicas: new.map_or(0, |it| it.status.replicas),
            ready_replicas: sum(|it| it.status.ready_replicas),
            available_replicas: available,
            unavailable_replicas: (size - available).max(0),
            collision_count: deployment.status.collision_count,
            conditions: deployment.status.conditions.clone(),
        };
        let mut report = Self {
            now: observed.now,
            deployment,
            new: new.map(|it| it.metadata.name.clone()),
            failure: new.and_then(failed).or_else(|| views().find_map(failed)),
            status,
            revision: None,
            awaits_set: false,
        };
        report.update_paused();
        // While the set's revision changes, the deployment keeps its own.
        let settled = sets.new.as_ref().filter(|it| !it.annotations.contains_key(REVISION));
        if let Some(new) = settled {
            report.update_revision(new.view);
        }
        let least = deployment.spec.replicas - sets.limits.unavailable;
        let (truth, reason, message) = if available >= least {
            (
                ConditionStatus::True,
                "MinimumReplicasAvailable",
                "Deployment has minimum availability.",
            )
        } else {
            let message = "Deployment does not have minimum availability.";
            (ConditionStatus::False, "MinimumReplicasUnavailable", message)
        };
        report.set(AVAILABLE, truth, reason, message.to_owned());
        report
    }

    /// Returns whether the deployment reported completion before.
    pub(super) fn was_complete(&self) -> bool {
        is_complete(self.deployment, &self.deployment.status)
    }

    /// Increments the collision count because another set has the name.
    pub(super) fn count_collision(&mut self) {
        let count = self.status.collision_count.unwrap_or_default();
        self.status.collision_count = Some(count + 1);
    }

    /// Records that the current set is being created, and why that was rejected before.
    pub(super) fn record_pending_set(&mut self, name: &str, refusal: Option<&Refusal>) {
        self.awaits_set = true;
        self.status = self.deployment.status.clone();
        if let Some(refusal) = refusal.filter(|_| self.has_deadline()) {
            let message = format!("Failed to create new replica set {name:?}: {refusal}");
            self.set(PROGRESSING, ConditionStatus::False, "ReplicaSetCreateError", message);
        }
    }

    /// Updates the condition on pause and resume, which are no lack of progress.
    fn update_paused(&mut self) {
        if !self.has_deadline() {
            return;
        }
        let reason = self.progress().map(|it| it.reason.as_str());
        let paused = reason == Some(PAUSED);
        if reason == Some(TIMED_OUT) || paused == self.deployment.spec.paused {
            return;
        }
        let (reason, message) = if paused {
            ("DeploymentResumed", "Deployment is resumed")
        } else {
            (PAUSED, "Deployment is paused")
        };
        self.set(PROGRESSING, ConditionStatus::Unknown, reason, message.to_owned());
    }

    /// Takes over the revision of the current set, and reports whether that was created or found.
    fn update_revision(&mut self, new: &ReplicaSet) {
        let has = &self.deployment.metadata.annotations;
        let number = new.metadata.annotations.get(REVISION).cloned().unwrap_or_default();
        let differs = has.get(REVISION) != Some(&number);
        if differs {
            self.revision = Some(number);
        }
        if !self.has_deadline() {
            return;
        }
        let name = &new.metadata.name;
        let younger =
            new.metadata.creation_timestamp >= self.deployment.metadata.creation_timestamp;
        let first_use = !new.metadata.annotations.contains_key(REVISION_HISTORY);
        if differs && first_use && younger {
            let message = format!("Created new replica set {name:?}");
            self.set(PROGRESSING, ConditionStatus::True, "NewReplicaSetCreated", message);
        } else if self.progress().is_none() {
            let message = format!("Found new replica set {name:?}");
            self.set(PROGRESSING, ConditionStatus::True, "FoundNewReplicaSet", message);
        }
    }

    /// Updates the conditions of the rollout.
    pub(super) fn update_conditions(&mut self, plan: &mut Plan) {
        if self.awaits_set {
            return;
        }
        match self.deadline() {
            None => conditions::remove(&mut self.status.conditions, PROGRESSING),
            Some(deadline) => self.update_progress(deadline, plan),
        }
        match self.failure.take() {
            Some(mut failure) => {
                failure.last_update_time = failure.last_transition_time;
                conditions::set(&mut self.status.conditions, failure);
            }
            None => conditions::remove(&mut self.status.conditions, FAILURE),
        }
    }

    fn update_progress(&mut self, deadline: SignedDuration, plan: &mut Plan) {
        let current = self.progress().cloned();
        let done = current.as_ref().is_some_and(|it| it.reason == NEW_AVAILABLE);
        if done && self.status.replicas == self.status.updated_replicas {
            return;
        }
        let about = match &self.new {
            Some(name) => format!("ReplicaSet {name:?}"),
            None => format!("Deployment {:?}", self.deployment.metadata.name),
        };
        if is_complete(self.deployment, &self.status) {
            let message = format!("{about} has successfully progressed.");
            self.set(PROGRESSING, ConditionStatus::True, NEW_AVAILABLE, message);
            return;
        }
        if self.has_progressed() {
            let message = format!("{about} is progressing.");
            let mut condition = conditions::new_condition(
                PROGRESSING,
                ConditionStatus::True,
                "ReplicaSetUpdated",
                message,
                self.now,
            );
            // Progress counts from now even if that was the reason before.
            if let Some(current) = current.filter(|it| it.status == ConditionStatus::True) {
                condition.last_transition_time = current.last_transition_time;
            }
            conditions::remove(&mut self.status.conditions, PROGRESSING);
            self.status.conditions.push(condition);
        } else if self.has_timed_out(deadline) {
            let message = format!("{about} has timed out progressing.");
            self.set(PROGRESSING, ConditionStatus::False, TIMED_OUT, message);
        }
        let waits = self.progress().filter(|it| it.reason != TIMED_OUT);
        let last = waits.filter(|it| it.reason != NEW_AVAILABLE).and_then(|it| it.last_update_time);
        if let Some(end) = last.and_then(|it| it.checked_add(deadline).ok()) {
            // Times in objects have no fractions.
            let after = end.checked_add(SignedDuration::from_secs(1)).unwrap_or(end);
            plan.requeue_at(after, self.now);
        }
    }

    /// Returns whether there are more new pods or fewer old ones than before.
    fn has_progressed(&self) -> bool {
        let (old, new) = (&self.deployment.status, &self.status);
        new.updated_replicas > old.updated_replicas
            || new.replicas - new.updated_replicas < old.replicas - old.updated_replicas
            || new.ready_replicas > old.ready_replicas
            || new.available_replicas > old.available_replicas
    }

    fn has_timed_out(&self, deadline: SignedDuration) -> bool {
        let Some(progress) = self.progress() else { return false };
        match progress.reason.as_str() {
            NEW_AVAILABLE => false,
            TIMED_OUT => true,
            _ => {
                let end = progress.last_update_time.and_then(|it| it.checked_add(deadline).ok());
                end.is_some_and(|end| end < self.now)
            }
        }
    }

    fn has_deadline(&self) -> bool {
        self.deadline().is_some()
    }

    fn deadline(&self) -> Option<SignedDuration> {
        let seconds = self.deployment.spec.progress_deadline_seconds;
        seconds.filter(|it| *it != UNLIMITED).map(SignedDuration::from_secs)
    }

    fn progress(&self) -> Option<&Condition> {
        conditions::find(&self.status.conditions, PROGRESSING)
    }

    fn set(&mut self, kind: &str, status: ConditionStatus, reason: &str, message: String) {
        let condition = conditions::new_condition(kind, status, reason, message, self.now);
        conditions::set(&mut self.status.conditions, condition);
    }

    /// Writes the status, and with it the revision of the current template: written separately, it
    /// would count as a change of the spec.
    pub(super) fn write(self, plan: &mut Plan) {
        let status = &self.status;
        if self.revision.is_none() && *status == self.deployment.status {
            return;
        }
        let mut body = json!({"status": {
            "observedGeneration": nonzero_count(status.observed_generation),
            "replicas": nonzero_count(status.replicas),
            "updatedReplicas": nonzero_count(status.updated_replicas),
            "readyReplicas": nonzero_count(status.ready_replicas),
            "availableReplicas": nonzero_count(status.available_replicas),
            "unavailableReplicas": nonzero_count(status.unavailable_replicas),
            "collisionCount": status.collision_count,
            "conditions": conditions::conditions_body(&status.conditions),
        }});
        if let Some(revision) = &self.revision {
            body["metadata"]["annotations"][REVISION] = json!(revision);
        }
        plan.write(writes::patch_status::<Deployment>(&self.deployment.metadata, body));
    }
}

/// Returns whether all pods are new and available, and the spec has not changed since.
fn is_complete(deployment: &Deployment, status: &DeploymentStatus) -> bool {
    let wanted = deployment.spec.replicas;
    status.updated_replicas == wanted
        && status.replicas == wanted
        && status.available_replicas == wanted
        && status.observed_generation >= deployment.metadata.generation
}
