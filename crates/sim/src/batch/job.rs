//! Jobs: pods that run until enough of them have ended well.

mod account;
mod crew;
mod ending;
mod indexes;
mod pods;
mod policy;
mod status;
mod tally;
mod template;
mod tracked;

use std::sync::Arc;

use gantry_reconcile::object::controlled_by;
use gantry_reconcile::{
    Change, Controller, Held, Key, Kind, Note, Owner, Part, Plan, Reference, View, World, Write,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{MOST, delete, told_create, told_delete};
use crate::view::{Job, Pod};
use account::Account;
use crew::{Crew, crew};
use ending::{Ending, complete, deadline, ending};
use pods::{is_active, is_tracked};
use status::Standing;
use tally::{Tally, count};
use template::Names;

pub use tracked::TrackedPods;

/// Runs jobs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Jobs;

impl Jobs {
    /// The account it acts as.
    pub const ACCOUNT: &str = "job-controller";
}

impl Controller for Jobs {
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
                keys.push(change.key.beside(&owner.name));
            } else if pod.metadata.controller().is_none() {
                let jobs = world.shelf::<Job>().within(change.key.namespace());
                let takers = jobs.iter().filter(|job| selects(job, pod));
                keys.extend(takers.map(|job| job.metadata.key()));
            }
        }
        keys.sort();
        keys.dedup();
        keys
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        observe(world, key, now).map(|seen| plan(&seen)).unwrap_or_default()
    }
}

/// What decides about one job.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The job.
    pub job: Arc<Job>,
    /// The pods it controls.
    pub pods: Vec<Arc<Pod>>,
    /// The pods it selects and nobody controls.
    pub orphans: Vec<Arc<Pod>>,
    /// The time.
    pub now: Timestamp,
}

fn observe(world: &World, key: &Key, now: Timestamp) -> Option<Seen> {
    let job = world.shelf::<Job>().get(key)?;
    let pods = world.shelf::<Pod>().owned_by(&job.metadata.uid);
    let mut orphans = world.shelf::<Pod>().tagged(&Pod::without_owner(key.namespace()));
    orphans.retain(|pod| selects(&job, pod));
    Some(Seen { job, pods, orphans, now })
}

/// The job that controls a pod.
fn owner(pod: &Pod) -> Option<&Owner> {
    pod.metadata.controller().filter(|it| it.kind == "Job" && it.api_version == "batch/v1")
}

fn selects(job: &Job, pod: &Pod) -> bool {
    job.spec.selector.as_ref().is_some_and(|it| it.matches(&pod.metadata.labels))
}

/// Decides what is next for a job.
#[must_use]
pub fn plan(seen: &Seen) -> Plan {
    let job = &*seen.job;
    let mut plan = Plan::default();
    let about = Reference::to(&Job::RESOURCE, &job.metadata);
    if job.is_managed_elsewhere() {
        return plan;
    }
    if job.finished().is_some() {
        // A pod that was made in the last moment, and seen too late to be part of it.
        let late = seen.pods.iter().filter(|pod| is_active(pod)).map(|pod| &**pod);
        remove(&mut plan, &about, &late.collect::<Vec<_>>());
        return plan;
    }
    if !matches!(job.spec.completion_mode.as_str(), "" | "NonIndexed" | "Indexed") {
        let words = "Skipped Job sync because completion mode is unknown";
        plan.notes.push(Note::warning(about, "UnknownCompletionMode", words.to_owned()));
        return plan;
    }
    let own = claim(seen, &mut plan);
    let tally = Tally::of(job, own.iter().copied());
    pursue(seen, &tally, &about, &mut plan);
    plan
}

/// Takes on pods that nobody controls, and gives up those that are not meant any more. What is left
/// are the job's own.
fn claim<'a>(seen: &'a Seen, plan: &mut Plan) -> Vec<&'a Arc<Pod>> {
    let job = &seen.job;
    let (own, strange): (Vec<_>, Vec<_>) = seen.pods.iter().partition(|pod| selects(job, pod));
    let patch = |pod: &Pod, owners: Vec<Value>, finalizers: Vec<&String>| Write::Merge {
        resource: Pod::RESOURCE,
        key: pod.metadata.key(),
        part: Part::Main,
        fence: pod.metadata.fence(),
        body: json!({"metadata": {"ownerReferences": owners, "finalizers": finalizers}}),
    };
    let others = |pod: &Pod| -> Vec<Value> {
        let kept = pod.metadata.owner_references.iter();
        kept.filter(|it| it.uid != job.metadata.uid).map(spell_owner).collect()
    };
    if job.metadata.is_going() {
        return own;
    }
    for pod in strange {
        let kept = pod.metadata.finalizers.iter().filter(|it| *it != Job::TRACKING);
        plan.write(patch(pod, others(pod), kept.collect()));
    }
    let tracking = Job::TRACKING.to_owned();
    for pod in seen.orphans.iter().filter(|pod| !pod.metadata.is_going()) {
        let mut owners = others(pod);
        owners.push(controlled_by(&Job::RESOURCE, &job.metadata));
        let mut finalizers: Vec<&String> = pod.metadata.finalizers.iter().collect();
        if !is_tracked(pod) {
            finalizers.push(&tracking);
        }
        plan.write(patch(pod, owners, finalizers));
    }
    own
}

fn spell_owner(owner: &Owner) -> Value {
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

/// Brings a job nearer to its end.
fn pursue(seen: &Seen, tally: &Tally<'_>, about: &Reference, plan: &mut Plan) {
    let (job, now) = (tally.job, seen.now);
    let mut ending = ending(tally, now);
    let goes_on = ending.is_none() && !job.metadata.is_going();
    let work = if goes_on { crew(tally, now) } else { Crew::default() };
    let account = Account::of(tally, ending.as_ref());
    let mut leaving: Vec<&Pod> = tally.untracked.clone();
    // A pod that is let go must not be counted: the finalizer goes first, and then the pod.
    let mut released = account.released.clone();
    released.extend(&work.surplus);
    let mut active = tally.active.clone();
    if ending.as_ref().is_some_and(|it| it.is_recorded) {
        leaving.append(&mut active);
    }
    active.retain(|pod| !work.surplus.iter().any(|it| it.metadata.uid == pod.metadata.uid));
    if goes_on {
        make(seen, tally, &work, about, plan);
        let busy = count(active.len() + work.births.len());
        if is_done(tally, busy) {
            ending = Some(complete());
        }
    }
    remove(plan, about, &leaving);
    for pod in released.iter().take(MOST) {
        plan.write(release(pod));
    }
    if released.len() > MOST {
        plan.look_within(std::time::Duration::ZERO);
    }
    let terminating = tally.terminating + tally.active.len() - active.len() + tally.untracked.len();
    let standing = Standing { active, terminating, goes_on };
    let (status, note) = status::next(tally, &account, ending.as_ref(), &standing, now);
    plan.steps.extend(status::write(job, &status, note));
    if goes_on && let Some(deadline) = deadline(job).filter(|it| *it > now) {
        plan.look_at(deadline, now);
    }
    warn_of_excess(tally, ending.as_ref(), about, plan);
}

/// Whether enough pods have ended well and none is left.
fn is_done(tally: &Tally<'_>, busy: i64) -> bool {
    let enough = match tally.job.spec.completions {
        None => tally.succeeded > 0,
        Some(completions) => tally.succeeded >= completions,
    };
    enough && busy == 0
}

/// Makes the pods that are missing.
fn make(seen: &Seen, tally: &Tally<'_>, work: &Crew<'_>, about: &Reference, plan: &mut Plan) {
    let job = tally.job;
    let taken = seen.pods.iter().chain(&seen.orphans).map(|pod| &**pod);
    let names = Names::new(job, taken).of(&work.births);
    for (number, name) in work.births.iter().zip(names) {
        let awaited = tally.numbers.as_ref().map(|it| &it.awaited);
        let former = number.and_then(|number| awaited?.get(&number)).copied();
        let body = template::pod(job, &name, *number, former);
        let write = Write::Create { resource: Pod::RESOURCE, body };
        plan.steps.push(told_create(
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
            message: "a pod failed; the next one is made later".to_owned(),
            until: Some(until),
        };
        plan.hold(held, seen.now);
    }
}

/// Asks pods to go.
fn remove(plan: &mut Plan, about: &Reference, pods: &[&Pod]) {
    for pod in pods.iter().take(MOST) {
        let message = format!("Deleted pod: {}", pod.metadata.name);
        let write = delete::<Pod>(&pod.metadata);
        plan.steps.push(told_delete(write, about, message, "Error deleting: "));
    }
    if pods.len() > MOST {
        plan.look_within(std::time::Duration::ZERO);
    }
}

/// Takes the finalizer from a pod.
fn release(pod: &Pod) -> Write {
    let kept = pod.metadata.finalizers.iter().filter(|it| *it != Job::TRACKING);
    Write::Merge {
        resource: Pod::RESOURCE,
        key: pod.metadata.key(),
        part: Part::Main,
        fence: pod.metadata.fence(),
        body: json!({"metadata": {"finalizers": kept.collect::<Vec<_>>()}}),
    }
}

/// Tells of pods that ended well and were not asked for.
fn warn_of_excess(tally: &Tally<'_>, ending: Option<&Ending>, about: &Reference, plan: &mut Plan) {
    let announced =
        ending.is_some_and(|it| !it.is_recorded && it.outcome == ending::Outcome::Success);
    let excess = tally.job.spec.completions.is_some_and(|it| tally.succeeded > it);
    if announced && excess && !tally.job.is_indexed() {
        let words = "Too many succeeded pods running after completion count reached";
        plan.notes.push(Note::warning(about.clone(), "TooManySucceededPods", words.to_owned()));
    }
}

#[cfg(test)]
mod tests;
