//! Cron jobs: jobs at certain times.

use std::collections::BTreeSet;
use std::sync::Arc;

use gantry_reconcile::object::controlled_by;
use gantry_reconcile::{
    Change, Controller, Key, Kind, Note, Part, Plan, Propagation, Reference, Step, View, World,
    Write,
};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::schedule::Schedule;
use super::{MOST, told_create, told_delete};
use crate::view::{ConcurrencyPolicy, CronJob, CronJobStatus, Job, JobReference};

/// The time a job is for, on the job.
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

/// How much later than the next time it is looked again: clocks differ a little.
const LATER: SignedDuration = SignedDuration::from_millis(100);

/// Starts jobs at certain times.
#[derive(Clone, Debug)]
pub struct CronJobs {
    zones: TimeZoneDatabase,
}

impl CronJobs {
    /// The account it acts as.
    pub const ACCOUNT: &str = "cronjob-controller";

    /// Reads times in these zones.
    #[must_use]
    pub fn new(zones: TimeZoneDatabase) -> Self {
        Self { zones }
    }

    /// The zone a cron job's times are meant in.
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

impl Controller for CronJobs {
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
        crons.into_iter().map(|name| change.key.beside(name)).collect()
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let Some(cron) = world.shelf::<CronJob>().get(key) else { return Plan::default() };
        let jobs = world.shelf::<Job>().owned_by(&cron.metadata.uid);
        let zone = self.zone(&cron);
        plan(&Seen { cron, jobs, zone, now })
    }
}

/// What decides about one cron job.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The cron job.
    pub cron: Arc<CronJob>,
    /// The jobs it controls.
    pub jobs: Vec<Arc<Job>>,
    /// Where its times are meant, or the name of a zone that is not known.
    pub zone: Result<TimeZone, String>,
    /// The time.
    pub now: Timestamp,
}

/// Starts the job whose time has come, and removes what is too old.
#[must_use]
pub fn plan(seen: &Seen) -> Plan {
    let mut plan = Plan::default();
    let (status, notes) = status(seen);
    let written = write(&seen.cron, &status);
    match written {
        Some(write) => {
            // What is told follows from what is written.
            let mut step = Step::new(write);
            step.done = notes;
            plan.steps.push(step);
        }
        None => {
            plan.notes = notes;
            // What is removed must have been noted before.
            clean_up(seen, &mut plan);
        }
    }
    if !seen.cron.metadata.is_going() {
        start(seen, &status, &mut plan);
    }
    plan
}

/// The time a job of this cron job is for; none for one that somebody else made.
fn scheduled(cron: &CronJob, job: &Job) -> Option<Timestamp> {
    let minutes = job.metadata.name.strip_prefix(&cron.metadata.name)?.strip_prefix('-')?;
    let minutes: i64 = minutes.parse().ok()?;
    // The annotation is exact; the name is so to the minute.
    let noted = job.metadata.annotations.get(SCHEDULED).and_then(|text| text.parse().ok());
    noted.filter(|it: &Timestamp| it.as_second().div_euclid(60) == minutes)
}

/// The status, and what is told about what changed in it.
fn status(seen: &Seen) -> (CronJobStatus, Vec<Note>) {
    let cron = &seen.cron;
    let about = Reference::to(&CronJob::RESOURCE, &cron.metadata);
    let mut status = cron.status.clone();
    let mut notes = Vec::new();
    for job in &seen.jobs {
        let meta = &job.metadata;
        let for_time = scheduled(cron, job);
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
                notes.push(Note::warning(about.clone(), "UnexpectedJob", words));
            }
            continue;
        };
        if noted {
            let words = format!("Saw completed job: {}, condition: {}", meta.name, condition.kind);
            notes.push(Note::normal(about.clone(), "SawCompletedJob", words));
            status.active.retain(|it| it.uid != meta.uid.as_str());
        }
        if condition.kind == "Complete" {
            status.last_successful_time =
                status.last_successful_time.max(job.status.completion_time);
        }
    }
    let there: BTreeSet<&str> = seen.jobs.iter().map(|job| job.metadata.uid.as_str()).collect();
    status.active.retain(|it| {
        let is_there = there.contains(it.uid.as_str());
        if !is_there {
            let words = format!("Active job went missing: {}", it.name);
            notes.push(Note::normal(about.clone(), "MissingJob", words));
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
        part: Part::Status,
        fence: cron.metadata.fence(),
        body: json!({"status": {
            "active": active,
            "lastScheduleTime": status.last_schedule_time,
            "lastSuccessfulTime": status.last_successful_time,
        }}),
    })
}

/// Removes the oldest of the jobs that have ended, where there are too many.
fn clean_up(seen: &Seen, plan: &mut Plan) {
    let spec = &seen.cron.spec;
    let limits = [
        ("Complete", spec.successful_jobs_history_limit),
        ("Failed", spec.failed_jobs_history_limit),
    ];
    for (kind, limit) in limits {
        let Some(limit) = limit else { continue };
        let ended = |job: &&Arc<Job>| job.finished().is_some_and(|it| it.kind == kind);
        let mut jobs: Vec<&Arc<Job>> = seen.jobs.iter().filter(ended).collect();
        let start = |job: &Job| job.status.start_time.unwrap_or(Timestamp::MAX);
        jobs.sort_by_key(|job| (start(job), job.metadata.name.clone()));
        let surplus = jobs.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        let going = |job: &&&Arc<Job>| !job.metadata.is_going();
        for job in jobs[..surplus].iter().filter(going).take(MOST) {
            plan.steps.push(remove(seen, job));
        }
    }
}

fn remove(seen: &Seen, job: &Job) -> Step {
    let about = Reference::to(&CronJob::RESOURCE, &seen.cron.metadata);
    let write = Write::Delete {
        resource: Job::RESOURCE,
        key: job.metadata.key(),
        fence: job.metadata.fence(),
        grace: None,
        propagation: Some(Propagation::Background),
    };
    told_delete(write, &about, format!("Deleted job {}", job.metadata.name), "Deleted job: ")
}

/// Starts the job whose time has come.
fn start(seen: &Seen, status: &CronJobStatus, plan: &mut Plan) {
    let (cron, now) = (&seen.cron, seen.now);
    let about = || Reference::to(&CronJob::RESOURCE, &cron.metadata);
    let mut warn = |reason: &'static str, words: String| {
        plan.notes.push(Note::warning(about(), reason, words));
    };
    let zone = match &seen.zone {
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
            "CRON_TZ or TZ used in schedule {:?} is not officially supported, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details",
            cron.spec.schedule
        );
        warn("UnsupportedSchedule", words);
    }
    let made = cron.metadata.creation_timestamp.unwrap_or(now);
    let since = status.last_schedule_time.unwrap_or(made);
    let due = match due(&schedule, zone, since, cron.spec.starting_deadline_seconds, now) {
        Ok(due) => due,
        Err(why) => {
            let words = format!("invalid schedule: {} : {why}", cron.spec.schedule);
            return warn("InvalidSchedule", words);
        }
    };
    if due.many_missed {
        let words = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
        warn("TooManyMissedTimes", words.to_owned());
    }
    if let Some(next) = schedule.next(now, zone) {
        plan.look_at(next.checked_add(LATER).unwrap_or(next), now);
    }
    if let Some(at) = due.at.filter(|at| status.last_schedule_time != Some(*at)) {
        run(seen, status, zone, at, plan);
    }
}

/// The five fields of a schedule, without a zone before them.
fn fields(schedule: &str) -> &str {
    let prefixed = schedule.starts_with("TZ=") || schedule.starts_with("CRON_TZ=");
    match schedule.split_once(char::is_whitespace) {
        Some((_, fields)) if prefixed => fields.trim_start(),
        Some(_) | None => schedule,
    }
}

/// Starts the job for a time, unless something is in the way.
fn run(seen: &Seen, status: &CronJobStatus, zone: &TimeZone, at: Timestamp, plan: &mut Plan) {
    let cron = &seen.cron;
    let about = Reference::to(&CronJob::RESOURCE, &cron.metadata);
    let name = format!("{}-{}", cron.metadata.name, at.as_second().div_euclid(60));
    if status.active.iter().any(|it| it.name == name) {
        return;
    }
    let late = cron.spec.starting_deadline_seconds.is_some_and(|seconds| {
        at.checked_add(SignedDuration::from_secs(seconds)).is_ok_and(|until| until < seen.now)
    });
    if late {
        let when = at.strftime("%a, %d %b %Y %H:%M:%S +0000");
        let words = format!("Missed scheduled time to start a job: {when}");
        plan.notes.push(Note::warning(about, "MissSchedule", words));
        return;
    }
    let is_running = |job: &&Arc<Job>| {
        job.finished().is_none()
            && status.active.iter().any(|it| it.uid == job.metadata.uid.as_str())
    };
    match cron.spec.concurrency_policy {
        ConcurrencyPolicy::Forbid if !status.active.is_empty() => {
            let words = "Not starting job because prior execution is running and concurrency policy is Forbid";
            plan.notes.push(Note::normal(about, "JobAlreadyActive", words.to_owned()));
            return;
        }
        ConcurrencyPolicy::Replace => {
            // One after the other: if only the new one came through, both would run.
            let running = seen.jobs.iter().filter(is_running);
            let stay: Vec<_> = running.filter(|job| !job.metadata.is_going()).collect();
            if !stay.is_empty() {
                plan.steps.extend(stay.iter().map(|job| remove(seen, job)));
                return;
            }
        }
        ConcurrencyPolicy::Allow | ConcurrencyPolicy::Forbid => {}
    }
    let write = Write::Create { resource: Job::RESOURCE, body: job(cron, &name, zone, at) };
    let message = format!("Created job {name}");
    plan.steps.push(told_create(write, &about, message, "Error creating job: "));
}

fn job(cron: &CronJob, name: &str, zone: &TimeZone, at: Timestamp) -> Value {
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
    annotations.insert(SCHEDULED.to_owned(), json!(shown));
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": name, "namespace": cron.metadata.namespace,
            "labels": map("labels"), "annotations": annotations,
            "ownerReferences": [controlled_by(&CronJob::RESOURCE, &cron.metadata)],
        },
        "spec": template["spec"],
    })
}

/// The time that has come, if one has.
struct Due {
    at: Option<Timestamp>,
    /// Whether so many were missed that something is wrong.
    many_missed: bool,
}

/// The last time after `since` and not after `now` that is not too long ago.
fn due(
    schedule: &Schedule,
    zone: &TimeZone,
    since: Timestamp,
    deadline: Option<i64>,
    now: Timestamp,
) -> Result<Due, &'static str> {
    /// More than a long weekend of hourly jobs.
    const MANY: i64 = 100;
    const NEVER: &str = "time difference between two schedules is less than 1 second";
    let horizon = deadline.and_then(|it| now.checked_sub(SignedDuration::from_secs(it)).ok());
    let since = horizon.map_or(since, |horizon| horizon.max(since));
    let first = schedule.next(since, zone).ok_or(NEVER)?;
    let second = schedule.next(first, zone);
    if now < first {
        return Ok(Due { at: None, many_missed: false });
    }
    let Some(second) = second.filter(|second| *second <= now) else {
        return Ok(Due { at: Some(first), many_missed: false });
    };
    let between = second.as_second() - first.as_second();
    if between < 1 {
        return Err(NEVER);
    }
    let missed = (now.as_second() - first.as_second()) / between + 1;
    // Times are not evenly spaced, so this is only near the last one; the rest is searched.
    let near = SignedDuration::from_secs((missed - 2).max(-1).saturating_mul(between));
    let mut at = None;
    let mut next = schedule.next(first.checked_add(near).unwrap_or(first), zone);
    while let Some(time) = next.filter(|time| *time <= now) {
        at = Some(time);
        next = schedule.next(time, zone);
    }
    Ok(Due { at, many_missed: missed > MANY })
}

#[cfg(test)]
mod tests;
