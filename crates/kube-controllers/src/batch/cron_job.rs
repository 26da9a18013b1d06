//! The cron job controller: creates jobs at scheduled times.

use std::collections::BTreeSet;
use std::sync::Arc;

use gantry_reconcile::object::controller_reference;
use gantry_reconcile::{
    Change, Controller, Event, Key, Kind, ObjectReference, Plan, Propagation, Step, Subresource,
    View, World, Write,
};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::schedule::Schedule;
use super::{MAX_WRITES_PER_PLAN, create_with_events, delete_with_events};
use crate::view::{ConcurrencyPolicy, CronJob, CronJobStatus, Job, JobReference};

/// The annotation of a job with its scheduled time.
const SCHEDULED_TIMESTAMP: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

/// How much later than the next scheduled time the cron job is requeued: clocks differ a little.
const NEXT_SCHEDULE_DELTA: SignedDuration = SignedDuration::from_millis(100);

/// Creates jobs at scheduled times.
#[derive(Clone, Debug)]
pub struct CronJobController {
    zones: TimeZoneDatabase,
}

impl CronJobController {
    /// The service account the controller acts as.
    pub const ACCOUNT: &str = "cronjob-controller";

    /// Creates a controller that knows these time zones.
    #[must_use]
    pub fn new(zones: TimeZoneDatabase) -> Self {
        Self { zones }
    }

    /// Returns the time zone of a cron job's schedule.
    fn zone(&self, cron: &CronJob) -> Result<TimeZone, String> {
        let prefixed = cron.spec.schedule.strip_prefix("CRON_TZ=");
        let prefixed = prefixed.or_else(|| cron.spec.schedule.strip_prefix("TZ="));
        let prefixed = prefixed.and_then(|text| text.split_whitespace().next());
        match prefixed.or(cron.spec.time_zone.as_deref()) {
            None | Some("" | "UTC" | "Etc/UTC") => Ok(TimeZone::UTC),
            Some(name) => self.zones.get(name).map_err(|_| name.to_owned()),
        }
    }
}

impl Controller for CronJobController {
    fn name(&self) -> &'static str {
        "cron-job"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<CronJob>(), Kind::of::<Job>()]
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        if change.is::<CronJob>() {
            return vec![change.key.clone()];
        }
        let owners = change.both::<Job>().filter_map(|job| job.metadata.controller());
        let crons = owners.filter(|it| it.kind == "CronJob").map(|it| it.name.as_str());
        let crons: BTreeSet<&str> = crons.collect();
        crons.into_iter().map(|name| change.key.in_same_namespace(name)).collect()
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let Some(cron) = world.store::<CronJob>().get(key) else { return Plan::default() };
        let jobs = world.store::<Job>().owned_by(&cron.metadata.uid);
        let zone = self.zone(&cron);
        plan(&ObservedCronJob { cron, jobs, zone, now })
    }
}

/// The inputs of the decision about one cron job.
#[derive(Clone, Debug)]
pub struct ObservedCronJob {
    /// The cron job.
    pub cron: Arc<CronJob>,
    /// The jobs it controls.
    pub jobs: Vec<Arc<Job>>,
    /// The time zone of its schedule, or the name of an unknown zone.
    pub zone: Result<TimeZone, String>,
    /// The current time.
    pub now: Timestamp,
}

/// Creates the job that is due, and deletes the oldest finished jobs.
#[must_use]
pub fn plan(observed: &ObservedCronJob) -> Plan {
    let mut plan = Plan::default();
    let (status, notes) = status(observed);
    let written = write(&observed.cron, &status);
    match written {
        Some(write) => {
            // Events follow from the status that is written.
            let mut step = Step::new(write);
            step.success_events = notes;
            plan.steps.push(step);
        }
        None => {
            plan.events = notes;
            // A job must be recorded in the status before it is deleted.
            clean_up_finished_jobs(observed, &mut plan);
        }
    }
    if !observed.cron.metadata.is_terminating() {
        start_due_job(observed, &status, &mut plan);
    }
    plan
}

/// Returns the scheduled time of a job; `None` for one that this cron job did not create.
fn scheduled_time(cron: &CronJob, job: &Job) -> Option<Timestamp> {
    let minutes = job.metadata.name.strip_prefix(&cron.metadata.name)?.strip_prefix('-')?;
    let minutes: i64 = minutes.parse().ok()?;
    // The annotation is exact; the name is exact to the minute.
    let noted =
        job.metadata.annotations.get(SCHEDULED_TIMESTAMP).and_then(|text| text.parse().ok());
    noted.filter(|it: &Timestamp| it.as_second().div_euclid(60) == minutes)
}

/// Computes the status, and the events about its changes.
fn status(observed: &ObservedCronJob) -> (CronJobStatus, Vec<Event>) {
    let cron = &observed.cron;
    let about = ObjectReference::to(&CronJob::RESOURCE, &cron.metadata);
    let mut status = cron.status.clone();
    let mut notes = Vec::new();
    for job in &observed.jobs {
        let meta = &job.metadata;
        let for_time = scheduled_time(cron, job);
        let noted = status.active.iter().any(|it| it.uid == meta.uid.as_str());
        status.last_schedule_time = status.last_schedule_time.max(for_time);
        let Some(condition) = job.finished() else {
            if !noted && for_time.is_some() {
                status.active.push(JobReference {
                    api_version: Job::RESOURCE.api_version(),
                    kind: "Job".to_owned(),
                    name: meta.name.clone(),
                    namespace: meta.namespace.clone(),
                    uid: meta.uid.as_str().to_owned(),
                    resource_version: meta.resource_version.to_string(),
                });
            } else if !noted {
                let words = format!(
                    "Saw a job that the controller did not create or forgot: {}",
                    meta.name
                );
                notes.push(Event::warning(about.clone(), "UnexpectedJob", words));
            }
            continue;
        };
        if noted {
            let words = format!("Saw completed job: {}, condition: {}", meta.name, condition.kind);
            notes.push(Event::normal(about.clone(), "SawCompletedJob", words));
            status.active.retain(|it| it.uid != meta.uid.as_str());
        }
        if condition.kind == "Complete" {
            status.last_successful_time =
                status.last_successful_time.max(job.status.completion_time);
        }
    }
    let there: BTreeSet<&str> = observed.jobs.iter().map(|job| job.metadata.uid.as_str()).collect();
    status.active.retain(|it| {
        let is_there = there.contains(it.uid.as_str());
        if !is_there {
            let words = format!("Active job went missing: {}", it.name);
            notes.push(Event::normal(about.clone(), "MissingJob", words));
        }
        is_there
    });
    (status, notes)
}

fn write(cron: &CronJob, status: &CronJobStatus) -> Option<Write> {
    if *status == cron.status {
        return None;
    }
    let active = if status.active.is_empty() { Value::Null } else { json!(status.active) };
    Some(Write::Merge {
        resource: CronJob::RESOURCE,
        key: cron.metadata.key(),
        subresource: Subresource::Status,
        fence: cron.metadata.fence(),
        body: json!({"status": {
            "active": active,
            "lastScheduleTime": status.last_schedule_time,
            "lastSuccessfulTime": status.last_successful_time,
        }}),
    })
}

/// Deletes the oldest finished jobs beyond the history limits.
fn clean_up_finished_jobs(observed: &ObservedCronJob, plan: &mut Plan) {
    let spec = &observed.cron.spec;
    let limits = [
        ("Complete", spec.successful_jobs_history_limit),
        ("Failed", spec.failed_jobs_history_limit),
    ];
    for (kind, limit) in limits {
        let Some(limit) = limit else { continue };
        let ended = |job: &&Arc<Job>| job.finished().is_some_and(|it| it.kind == kind);
        let mut jobs: Vec<&Arc<Job>> = observed.jobs.iter().filter(ended).collect();
        let start = |job: &Job| job.status.start_time.unwrap_or(Timestamp::MAX);
        jobs.sort_by_key(|job| (start(job), job.metadata.name.clone()));
        let surplus = jobs.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        let going = |job: &&&Arc<Job>| !job.metadata.is_terminating();
        for job in jobs[..surplus].iter().filter(going).take(MAX_WRITES_PER_PLAN) {
            plan.steps.push(remove(observed, job));
        }
    }
}

fn remove(observed: &ObservedCronJob, job: &Job) -> Step {
    let about = ObjectReference::to(&CronJob::RESOURCE, &observed.cron.metadata);
    let write = Write::Delete {
        resource: Job::RESOURCE,
        key: job.metadata.key(),
        fence: job.metadata.fence(),
        grace: None,
        propagation: Some(Propagation::Background),
    };
    delete_with_events(write, &about, format!("Deleted job {}", job.metadata.name), "Deleted job: ")
}

/// Creates the job that is due.
fn start_due_job(observed: &ObservedCronJob, status: &CronJobStatus, plan: &mut Plan) {
    let (cron, now) = (&observed.cron, observed.now);
    let about = || ObjectReference::to(&CronJob::RESOURCE, &cron.metadata);
    let mut warn = |reason: &'static str, words: String| {
        plan.events.push(Event::warning(about(), reason, words));
    };
    let zone = match &observed.zone {
        Ok(zone) => zone,
        Err(name) => {
            let words = format!("invalid timeZone: {name:?}: unknown time zone {name}");
            return warn("UnknownTimeZone", words);
        }
    };
    if cron.spec.suspend {
        return;
    }
    let text = fields(&cron.spec.schedule);
    let schedule = match Schedule::parse(text) {
        Ok(schedule) => schedule,
        Err(why) => {
            let words = format!("unparseable schedule: {:?} : {why}", cron.spec.schedule);
            return warn("UnparseableSchedule", words);
        }
    };
    if text != cron.spec.schedule {
        let words = format!(
            "CRON_TZ or TZ used in schedule {:?} is not officially supported, see \
             https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details",
            cron.spec.schedule
        );
        warn("UnsupportedSchedule", words);
    }
    let made = cron.metadata.creation_timestamp.unwrap_or(now);
    let since = status.last_schedule_time.unwrap_or(made);
    let due = match most_recent_schedule_time(
        &schedule,
        zone,
        since,
        cron.spec.starting_deadline_seconds,
        now,
    ) {
        Ok(due) => due,
        Err(why) => {
            let words = format!("invalid schedule: {} : {why}", cron.spec.schedule);
            return warn("InvalidSchedule", words);
        }
    };
    if due.many_missed {
        let words = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or \
                     check clock skew";
        warn("TooManyMissedTimes", words.to_owned());
    }
    if let Some(next) = schedule.next(now, zone) {
        plan.requeue_at(next.checked_add(NEXT_SCHEDULE_DELTA).unwrap_or(next), now);
    }
    if let Some(at) = due.at.filter(|at| status.last_schedule_time != Some(*at)) {
        create_job(observed, status, zone, at, plan);
    }
}

/// Returns the five fields of a schedule, without a time zone before them.
fn fields(schedule: &str) -> &str {
    let prefixed = schedule.starts_with("TZ=") || schedule.starts_with("CRON_TZ=");
    match schedule.split_once(char::is_whitespace) {
        Some((_, fields)) if prefixed => fields.trim_start(),
        Some(_) | None => schedule,
    }
}

/// Creates the job of a scheduled time, unless the concurrency policy forbids it.
fn create_job(
    observed: &ObservedCronJob,
    status: &CronJobStatus,
    zone: &TimeZone,
    at: Timestamp,
    plan: &mut Plan,
) {
    let cron = &observed.cron;
    let about = ObjectReference::to(&CronJob::RESOURCE, &cron.metadata);
    let name = format!("{}-{}", cron.metadata.name, at.as_second().div_euclid(60));
    if status.active.iter().any(|it| it.name == name) {
        return;
    }
    let late = cron.spec.starting_deadline_seconds.is_some_and(|seconds| {
        at.checked_add(SignedDuration::from_secs(seconds)).is_ok_and(|until| until < observed.now)
    });
    if late {
        let when = at.strftime("%a, %d %b %Y %H:%M:%S +0000");
        let words = format!("Missed scheduled time to start a job: {when}");
        plan.events.push(Event::warning(about, "MissSchedule", words));
        return;
    }
    let is_running = |job: &&Arc<Job>| {
        job.finished().is_none()
            && status.active.iter().any(|it| it.uid == job.metadata.uid.as_str())
    };
    match cron.spec.concurrency_policy {
        ConcurrencyPolicy::Forbid if !status.active.is_empty() => {
            let words = "Not starting job because prior execution is running and concurrency \
                         policy is Forbid";
            plan.events.push(Event::normal(about, "JobAlreadyActive", words.to_owned()));
            return;
        }
        ConcurrencyPolicy::Replace => {
            // One after the other: if only the create succeeded, both jobs would run.
            let running = observed.jobs.iter().filter(is_running);
            let stay: Vec<_> = running.filter(|job| !job.metadata.is_terminating()).collect();
            if !stay.is_empty() {
                plan.steps.extend(stay.iter().map(|job| remove(observed, job)));
                return;
            }
        }
        ConcurrencyPolicy::Allow | ConcurrencyPolicy::Forbid => {}
    }
    let write = Write::Create { resource: Job::RESOURCE, body: job_body(cron, &name, zone, at) };
    let message = format!("Created job {name}");
    plan.steps.push(create_with_events(write, &about, message, "Error creating job: "));
}

fn job_body(cron: &CronJob, name: &str, zone: &TimeZone, at: Timestamp) -> Value {
    let template = &cron.spec.job_template;
    let map = |field: &str| -> Map<String, Value> {
        template["metadata"][field].as_object().cloned().unwrap_or_default()
    };
    let mut annotations = map("annotations");
    let shown = at.to_zoned(zone.clone());
    let shown = match shown.offset().is_zero() {
        true => at.to_string(),
        false => shown.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
    };
    annotations.insert(SCHEDULED_TIMESTAMP.to_owned(), json!(shown));
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": name, "namespace": cron.metadata.namespace,
            "labels": map("labels"), "annotations": annotations,
            "ownerReferences": [controller_reference(&CronJob::RESOURCE, &cron.metadata)],
        },
        "spec": template["spec"],
    })
}

/// A scheduled time that is due.
struct DueTime {
    at: Option<Timestamp>,
    /// Whether so many schedules were missed that a warning is due.
    many_missed: bool,
}

/// Returns the last scheduled time after `since` and not after `now` that is within the starting
/// deadline.
fn most_recent_schedule_time(
    schedule: &Schedule,
    zone: &TimeZone,
    since: Timestamp,
    deadline: Option<i64>,
    now: Timestamp,
) -> Result<DueTime, &'static str> {
    /// The number of missed schedules that is reported: more than a long weekend of hourly jobs.
    const MANY_MISSED_SCHEDULES: i64 = 100;
    const TOO_FREQUENT: &str = "time difference between two schedules is less than 1 second";
    let horizon = deadline.and_then(|it| now.checked_sub(SignedDuration::from_secs(it)).ok());
    let since = horizon.map_or(since, |horizon| horizon.max(since));
    let first = schedule.next(since, zone).ok_or(TOO_FREQUENT)?;
    let second = schedule.next(first, zone);
    if now < first {
        return Ok(DueTime { at: None, many_missed: false });
    }
    let Some(second) = second.filter(|second| *second <= now) else {
        return Ok(DueTime { at: Some(first), many_missed: false });
    };
    let between = second.as_second() - first.as_second();
    if between < 1 {
        return Err(TOO_FREQUENT);
    }
    let missed = (now.as_second() - first.as_second()) / between + 1;
    // Scheduled times are not evenly spaced, so this is only near the last one; the rest is
    // searched.
    let near = SignedDuration::from_secs((missed - 2).max(-1).saturating_mul(between));
    let mut at = None;
    let mut next = schedule.next(first.checked_add(near).unwrap_or(first), zone);
    while let Some(time) = next.filter(|time| *time <= now) {
        at = Some(time);
        next = schedule.next(time, zone);
    }
    Ok(DueTime { at, many_missed: missed > MANY_MISSED_SCHEDULES })
}

#[cfg(test)]
mod tests;
