//! The job controller: runs pods until enough of them have succeeded.

mod counting;
mod finalizers;
mod index_set;
mod job_pods;
mod pod_changes;
mod pods;
mod policy;
mod result;
mod status;
mod template;

use std::sync::Arc;

use gantry_reconcile::object::controller_reference;
use gantry_reconcile::{
    Change, Controller, Event, Held, Key, Kind, ObjectReference, OwnerReference, Plan, Subresource,
    View, World, Write,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{MAX_WRITES_PER_PLAN, create_with_events, delete, delete_with_events};
use crate::view::{Job, Pod};
use counting::CountedPods;
use job_pods::{JobPods, count};
use pod_changes::{JobPodChanges, pod_changes};
use pods::{is_active, is_tracked};
use result::{JobResult, completed, deadline, job_result};
use status::RemainingPods;
use template::JobPodNames;

pub use finalizers::JobFinalizerController;

/// Creates, counts and deletes the pods of jobs.
#[derive(Clone, Copy, Debug, Default)]
pub struct JobController;

impl JobController {
    /// The service account the controller acts as.
    pub const ACCOUNT: &str = "job-controller";
}

impl Controller for JobController {
    fn name(&self) -> &'static str {
        "job"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Job>(), Kind::of::<Pod>()]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        if change.is::<Job>() {
            return vec![change.key.clone()];
        }
        let mut keys: Vec<Key> = Vec::new();
        for pod in change.both::<Pod>() {
            if let Some(owner) = owner(pod) {
                keys.push(change.key.in_same_namespace(&owner.name));
            } else if pod.metadata.controller().is_none() {
                let jobs = world.store::<Job>().in_namespace(change.key.namespace());
                let takers = jobs.iter().filter(|job| selects(job, pod));
                keys.extend(takers.map(|job| job.metadata.key()));
            }
        }
        keys.sort();
        keys.dedup();
        keys
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        observe(world, key, now).map(|observed| plan(&observed)).unwrap_or_default()
    }
}

/// The inputs of the decision about one job.
#[derive(Clone, Debug)]
pub struct ObservedJob {
    /// The job.
    pub job: Arc<Job>,
    /// The pods it controls.
    pub pods: Vec<Arc<Pod>>,
    /// The pods its selector matches and that have no controller.
    pub orphans: Vec<Arc<Pod>>,
    /// The current time.
    pub now: Timestamp,
}

fn observe(world: &World, key: &Key, now: Timestamp) -> Option<ObservedJob> {
    let job = world.store::<Job>().get(key)?;
    let pods = world.store::<Pod>().owned_by(&job.metadata.uid);
    let mut orphans = world.store::<Pod>().by_index(&Pod::unowned_tag(key.namespace()));
    orphans.retain(|pod| selects(&job, pod));
    Some(ObservedJob { job, pods, orphans, now })
}

/// Returns the job that controls a pod.
fn owner(pod: &Pod) -> Option<&OwnerReference> {
    pod.metadata.controller().filter(|it| it.kind == "Job" && it.api_version == "batch/v1")
}

fn selects(job: &Job, pod: &Pod) -> bool {
    job.spec.selector.as_ref().is_some_and(|it| it.matches(&pod.metadata.labels))
}

/// Plans the next step of a job.
#[must_use]
pub fn plan(observed: &ObservedJob) -> Plan {
    let job = &*observed.job;
    let mut plan = Plan::default();
    let about = ObjectReference::to(&Job::RESOURCE, &job.metadata);
    if job.is_managed_elsewhere() {
        return plan;
    }
    if job.finished().is_some() {
        // A pod that was created at the last moment and was observed too late to be counted.
        let late = observed.pods.iter().filter(|pod| is_active(pod)).map(|pod| &**pod);
        delete_pods(&mut plan, &about, &late.collect::<Vec<_>>());
        return plan;
    }
    if !matches!(job.spec.completion_mode.as_str(), "" | "NonIndexed" | "Indexed") {
        let words = "Skipped Job sync because completion mode is unknown";
        plan.events.push(Event::warning(about, "UnknownCompletionMode", words.to_owned()));
        return plan;
    }
    let own = adopt_and_release_pods(observed, &mut plan);
    let job_pods = JobPods::of(job, own.iter().copied());
    sync_job(observed, &job_pods, &about, &mut plan);
    plan
}

/// Adopts orphaned pods, and releases those the selector no longer matches. Returns the job's own
/// pods.
fn adopt_and_release_pods<'a>(observed: &'a ObservedJob, plan: &mut Plan) -> Vec<&'a Arc<Pod>> {
    let job = &observed.job;
    let (own, strange): (Vec<_>, Vec<_>) = observed.pods.iter().partition(|pod| selects(job, pod));
    let patch = |pod: &Pod, owners: Vec<Value>, finalizers: Vec<&String>| Write::Merge {
        resource: Pod::RESOURCE,
        key: pod.metadata.key(),
        subresource: Subresource::Main,
        fence: pod.metadata.fence(),
        body: json!({"metadata": {"ownerReferences": owners, "finalizers": finalizers}}),
    };
    let others = |pod: &Pod| -> Vec<Value> {
        let kept = pod.metadata.owner_references.iter();
        kept.filter(|it| it.uid != job.metadata.uid).map(owner_reference).collect()
    };
    if job.metadata.is_terminating() {
        return own;
    }
    for pod in strange {
        let kept = pod.metadata.finalizers.iter().filter(|it| *it != Job::TRACKING_FINALIZER);
        plan.write(patch(pod, others(pod), kept.collect()));
    }
    let tracking = Job::TRACKING_FINALIZER.to_owned();
    for pod in observed.orphans.iter().filter(|pod| !pod.metadata.is_terminating()) {
        let mut owners = others(pod);
        owners.push(controller_reference(&Job::RESOURCE, &job.metadata));
        let mut finalizers: Vec<&String> = pod.metadata.finalizers.iter().collect();
        if !is_tracked(pod) {
            finalizers.push(&tracking);
        }
        plan.write(patch(pod, owners, finalizers));
    }
    own
}

fn owner_reference(owner: &OwnerReference) -> Value {
    let mut text = json!({
        "apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name,
        "uid": owner.uid.as_str(),
    });
    if owner.controller {
        text["controller"] = json!(true);
    }
    if owner.block_owner_deletion {
        text["blockOwnerDeletion"] = json!(true);
    }
    text
}

/// Syncs a job that is not being deleted.
fn sync_job(
    observed: &ObservedJob,
    job_pods: &JobPods<'_>,
    about: &ObjectReference,
    plan: &mut Plan,
) {
    let (job, now) = (job_pods.job, observed.now);
    let mut ending = job_result(job_pods, now);
    let goes_on = ending.is_none() && !job.metadata.is_terminating();
    let work = if goes_on { pod_changes(job_pods, now) } else { JobPodChanges::default() };
    let account = CountedPods::of(job_pods, ending.as_ref());
    let mut leaving: Vec<&Pod> = job_pods.untracked.clone();
    // A surplus pod must not be counted: its finalizer is removed first, and then the pod is
    // deleted.
    let mut released = account.released.clone();
    released.extend(&work.surplus);
    let mut active = job_pods.active.clone();
    if ending.as_ref().is_some_and(|it| it.is_recorded) {
        leaving.append(&mut active);
    }
    active.retain(|pod| !work.surplus.iter().any(|it| it.metadata.uid == pod.metadata.uid));
    if goes_on {
        create_pods(observed, job_pods, &work, about, plan);
        let busy = count(active.len() + work.to_create.len());
        if is_complete(job_pods, busy) {
            ending = Some(completed());
        }
    }
    delete_pods(plan, about, &leaving);
    for pod in released.iter().take(MAX_WRITES_PER_PLAN) {
        plan.write(remove_finalizer(pod));
    }
    if released.len() > MAX_WRITES_PER_PLAN {
        plan.requeue_after(std::time::Duration::ZERO);
    }
    let terminating =
        job_pods.terminating + job_pods.active.len() - active.len() + job_pods.untracked.len();
    let standing = RemainingPods { active, terminating, goes_on };
    let (status, note) = status::next_status(job_pods, &account, ending.as_ref(), &standing, now);
    plan.steps.extend(status::write(job, &status, note));
    if goes_on && let Some(deadline) = deadline(job).filter(|it| *it > now) {
        plan.requeue_at(deadline, now);
    }
    warn_of_excess_pods(job_pods, ending.as_ref(), about, plan);
}

/// Returns whether enough pods have succeeded and none is left.
fn is_complete(job_pods: &JobPods<'_>, busy: i64) -> bool {
    let enough = match job_pods.job.spec.completions {
        None => job_pods.succeeded > 0,
        Some(completions) => job_pods.succeeded >= completions,
    };
    enough && busy == 0
}

/// Creates the missing pods.
fn create_pods(
    observed: &ObservedJob,
    job_pods: &JobPods<'_>,
    work: &JobPodChanges<'_>,
    about: &ObjectReference,
    plan: &mut Plan,
) {
    let job = job_pods.job;
    let taken = observed.pods.iter().chain(&observed.orphans).map(|pod| &**pod);
    let names = JobPodNames::new(job, taken).of(&work.to_create);
    for (number, name) in work.to_create.iter().zip(names) {
        let awaited = job_pods.indexed.as_ref().map(|it| &it.failed_pods);
        let former = number.and_then(|number| awaited?.get(&number)).copied();
        let body = template::pod(job, &name, *number, former);
        let write = Write::Create { resource: Pod::RESOURCE, body };
        plan.steps.push(create_with_events(
            write,
            about,
            format!("Created pod: {name}"),
            "Error creating: ",
        ));
    }
    if let Some(until) = work.retry_at {
        let held = Held {
            about: about.clone(),
            reason: "BackOff".into(),
            message: "a pod failed; its replacement is created after the backoff".to_owned(),
            until: Some(until),
        };
        plan.hold(held, observed.now);
    }
}

/// Deletes pods.
fn delete_pods(plan: &mut Plan, about: &ObjectReference, pods: &[&Pod]) {
    for pod in pods.iter().take(MAX_WRITES_PER_PLAN) {
        let message = format!("Deleted pod: {}", pod.metadata.name);
        let write = delete::<Pod>(&pod.metadata);
        plan.steps.push(delete_with_events(write, about, message, "Error deleting: "));
    }
    if pods.len() > MAX_WRITES_PER_PLAN {
        plan.requeue_after(std::time::Duration::ZERO);
    }
}

/// Removes the job tracking finalizer from a pod.
fn remove_finalizer(pod: &Pod) -> Write {
    let kept = pod.metadata.finalizers.iter().filter(|it| *it != Job::TRACKING_FINALIZER);
    Write::Merge {
        resource: Pod::RESOURCE,
        key: pod.metadata.key(),
        subresource: Subresource::Main,
        fence: pod.metadata.fence(),
        body: json!({"metadata": {"finalizers": kept.collect::<Vec<_>>()}}),
    }
}

/// Records a warning about pods that succeeded in excess of the completions.
fn warn_of_excess_pods(
    job_pods: &JobPods<'_>,
    ending: Option<&JobResult>,
    about: &ObjectReference,
    plan: &mut Plan,
) {
    let announced =
        ending.is_some_and(|it| !it.is_recorded && it.outcome == result::JobOutcome::Success);
    let excess = job_pods.job.spec.completions.is_some_and(|it| job_pods.succeeded > it);
    if announced && excess && !job_pods.job.is_indexed() {
        let words = "Too many succeeded pods running after completion count reached";
        plan.events.push(Event::warning(about.clone(), "TooManySucceededPods", words.to_owned()));
    }
}

#[cfg(test)]
mod tests;
