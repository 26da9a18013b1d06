//! What a deployment says about itself.

use gantry_reconcile::{Plan, Refusal};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::Seen;
use super::sets::{REVISION, REVISIONS, Sets};
use crate::view::{Condition, Deployment, DeploymentStatus, ReplicaSet, Truth};
use crate::workloads::conditions;
use crate::workloads::writes::{self, count};

const AVAILABLE: &str = "Available";
const PROGRESSING: &str = "Progressing";
const FAILURE: &str = "ReplicaFailure";

const PAUSED: &str = "DeploymentPaused";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const NEW_AVAILABLE: &str = "NewReplicaSetAvailable";

/// A deadline that stands for none.
const UNLIMITED: i64 = i32::MAX as i64;

/// The status as it is to be.
#[derive(Debug)]
pub(super) struct Report<'a> {
    now: Timestamp,
    deployment: &'a Deployment,
    /// The name of the present set.
    new: Option<String>,
    /// Failures the sets report, the present one's first.
    failure: Option<Condition>,
    status: DeploymentStatus,
    /// The number of the present template, if the deployment does not have it yet.
    revision: Option<String>,
    /// Whether the present set is only being made. Until it is there nothing is said, except that the
    /// server said no.
    awaits_set: bool,
}

impl<'a> Report<'a> {
    /// What the sets amount to.
    pub(super) fn of(seen: &'a Seen, sets: &Sets<'_>) -> Self {
        let deployment = seen.deployment.as_ref();
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
            now: seen.now,
            deployment,
            new: new.map(|it| it.metadata.name.clone()),
            failure: new.and_then(failed).or_else(|| views().find_map(failed)),
            status,
            revision: None,
            awaits_set: false,
        };
        report.note_pause();
        // While the set's number changes, the deployment keeps the one it has.
        let settled = sets.new.as_ref().filter(|it| !it.annotations.contains_key(REVISION));
        if let Some(new) = settled {
            report.note_revision(new.view);
        }
        let least = deployment.spec.replicas - sets.limits.unavailable;
        let (truth, reason, message) = if available >= least {
            (Truth::True, "MinimumReplicasAvailable", "Deployment has minimum availability.")
        } else {
            let message = "Deployment does not have minimum availability.";
            (Truth::False, "MinimumReplicasUnavailable", message)
        };
        report.set(AVAILABLE, truth, reason, message.to_owned());
        report
    }

    /// Whether the deployment said before that everything is as wanted.
    pub(super) fn was_complete(&self) -> bool {
        is_complete(self.deployment, &self.deployment.status)
    }

    /// Notes that the name of the next set is taken.
    pub(super) fn count_collision(&mut self) {
        let count = self.status.collision_count.unwrap_or_default();
        self.status.collision_count = Some(count + 1);
    }

    /// Notes that the present set is being made, and why that did not succeed before.
    pub(super) fn await_set(&mut self, name: &str, refusal: Option<&Refusal>) {
        self.awaits_set = true;
        self.status = self.deployment.status.clone();
        if let Some(refusal) = refusal.filter(|_| self.has_deadline()) {
            let message = format!("Failed to create new replica set {name:?}: {refusal}");
            self.set(PROGRESSING, Truth::False, "ReplicaSetCreateError", message);
        }
    }

    /// Pausing and going on are no lack of progress.
    fn note_pause(&mut self) {
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
        self.set(PROGRESSING, Truth::Unknown, reason, message.to_owned());
    }

    /// Takes over the number of the present set, and tells whether that was made or found.
    fn note_revision(&mut self, new: &ReplicaSet) {
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
        let first_use = !new.metadata.annotations.contains_key(REVISIONS);
        if differs && first_use && younger {
            let message = format!("Created new replica set {name:?}");
            self.set(PROGRESSING, Truth::True, "NewReplicaSetCreated", message);
        } else if self.progress().is_none() {
            let message = format!("Found new replica set {name:?}");
            self.set(PROGRESSING, Truth::True, "FoundNewReplicaSet", message);
        }
    }

    /// Tells how the rollout goes.
    pub(super) fn judge(&mut self, plan: &mut Plan) {
        if self.awaits_set {
            return;
        }
        match self.deadline() {
            None => conditions::remove(&mut self.status.conditions, PROGRESSING),
            Some(deadline) => self.judge_progress(deadline, plan),
        }
        match self.failure.take() {
            Some(mut failure) => {
                failure.last_update_time = failure.last_transition_time;
                conditions::set(&mut self.status.conditions, failure);
            }
            None => conditions::remove(&mut self.status.conditions, FAILURE),
        }
    }

    fn judge_progress(&mut self, deadline: SignedDuration, plan: &mut Plan) {
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
            self.set(PROGRESSING, Truth::True, NEW_AVAILABLE, message);
            return;
        }
        if self.has_progressed() {
            let message = format!("{about} is progressing.");
            let mut condition =
                conditions::found(PROGRESSING, Truth::True, "ReplicaSetUpdated", message, self.now);
            // Progress counts from now even if that was the reason before.
            if let Some(current) = current.filter(|it| it.status == Truth::True) {
                condition.last_transition_time = current.last_transition_time;
            }
            conditions::remove(&mut self.status.conditions, PROGRESSING);
            self.status.conditions.push(condition);
        } else if self.has_timed_out(deadline) {
            let message = format!("{about} has timed out progressing.");
            self.set(PROGRESSING, Truth::False, TIMED_OUT, message);
        }
        let waits = self.progress().filter(|it| it.reason != TIMED_OUT);
        let last = waits.filter(|it| it.reason != NEW_AVAILABLE).and_then(|it| it.last_update_time);
        if let Some(end) = last.and_then(|it| it.checked_add(deadline).ok()) {
            // Times in objects have no fractions.
            let after = end.checked_add(SignedDuration::from_secs(1)).unwrap_or(end);
            plan.look_at(after, self.now);
        }
    }

    /// Whether there are more new pods or less old ones than before.
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

    fn set(&mut self, kind: &str, status: Truth, reason: &str, message: String) {
        let condition = conditions::found(kind, status, reason, message, self.now);
        conditions::set(&mut self.status.conditions, condition);
    }

    /// Writes the status, and with it the number of the present template: written apart, it would
    /// count as a change of what is wanted.
    pub(super) fn write(self, plan: &mut Plan) {
        let status = &self.status;
        if self.revision.is_none() && *status == self.deployment.status {
            return;
        }
        let mut body = json!({"status": {
            "observedGeneration": count(status.observed_generation),
            "replicas": count(status.replicas),
            "updatedReplicas": count(status.updated_replicas),
            "readyReplicas": count(status.ready_replicas),
            "availableReplicas": count(status.available_replicas),
            "unavailableReplicas": count(status.unavailable_replicas),
            "collisionCount": status.collision_count,
            "conditions": conditions::json(&status.conditions),
        }});
        if let Some(revision) = &self.revision {
            body["metadata"]["annotations"][REVISION] = json!(revision);
        }
        plan.write(writes::state::<Deployment>(&self.deployment.metadata, body));
    }
}

/// Whether all pods are new and available, and nothing else was wanted since.
fn is_complete(deployment: &Deployment, status: &DeploymentStatus) -> bool {
    let wanted = deployment.spec.replicas;
    status.updated_replicas == wanted
        && status.replicas == wanted
        && status.available_replicas == wanted
        && status.observed_generation >= deployment.metadata.generation
}
