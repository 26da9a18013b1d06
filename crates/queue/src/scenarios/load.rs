//! The load of Kueue's scheduler benchmark on a quota tree, with as few requests a second as that
//! benchmark allows: which AppWrappers are preempted, how often, and what all of it costs.
//!
//! The controllers run as the manager runs them: so many keys of one controller at once, so many of
//! its writes in flight, and all of them behind one rate limit, first come first served. Time is
//! virtual.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use gantry_harness::Server;
use gantry_pods::view::Node;
use gantry_reconcile::{Controller, Key, Outcome, Plan, Resource, Step, View as _, World, Write};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::cluster::{JOBS, ProgressWithKinds, SERVED, ready};
use crate::app_wrapper::AppWrapper;
use crate::quota::Subtree;
use crate::quota_status::QuotaStatus;
use crate::{Dispatch, LiveSettings, Progress, Settings, charge, kind_discovery};

mod forest;
mod results;

use results::LoadResults;

/// Microseconds since the beginning.
type Micros = u64;

const MILLISECOND: Micros = 1_000;
const SECOND: Micros = 1_000_000;
/// The round trip time of a request.
const REQUEST_DURATION: Micros = 5 * MILLISECOND;
/// As writers do that are short of requests: one in this many is for deferrable writes, and a
/// deferred write waits for this long.
const DEFERRABLE_SHARE: u64 = 10;
const MAX_DEFERRAL: Micros = 5 * SECOND;
/// The maximum number of writes of one controller in flight.
const MAX_IN_FLIGHT_WRITES: usize = 16;
const START_SECONDS: i64 = 1_800_000_000;

/// Jobs of one size: their name, how many arrive in each queue, one every so many milliseconds, how
/// many they run for, their priority, and their cpus.
type JobClass = (&'static str, u64, Micros, Micros, i32, u32);

/// A fiftieth of the load.
const BASELINE: [JobClass; 3] = [
    ("small", 7, 100, 200, 50, 1),
    ("medium", 2, 500, 500, 100, 5),
    ("large", 1, 1200, 1000, 200, 20),
];
const COHORTS: usize = 5;
const QUEUES: usize = 6;
const CPUS: usize = 20;

enum Event {
    Arrive(Value),
    WriteDone(usize, Key, Box<Step>),
    RequeueDue(usize, Key),
    JobDone(Key, String),
}

/// One controller, and the state of its keys.
struct ControllerQueue<'a> {
    controller: &'a dyn Controller,
    workers: usize,
    ready: VecDeque<Key>,
    waiting: BTreeSet<Key>,
    busy: BTreeMap<Key, RunningPlan>,
    /// Until when keys are paced.
    paced_until: BTreeMap<Key, Micros>,
    in_flight: usize,
    writes: usize,
}

/// A plan that is being carried out.
#[derive(Default)]
struct RunningPlan {
    steps: VecDeque<Step>,
    in_flight: usize,
    dirty: bool,
    requeue_after: Option<Micros>,
    /// Whether something was sent, and whether something was deferred.
    sent: bool,
    deferred: bool,
}

struct LoadSimulation<'a> {
    server: Server,
    world: World,
    cursors: BTreeMap<Resource, usize>,
    controllers: Vec<ControllerQueue<'a>>,
    events: BTreeMap<(Micros, u64), Event>,
    counter: u64,
    now: Micros,
    /// The time one request takes up, and how far ahead of its time one may go.
    limit: Option<(Micros, Micros)>,
    booked: Micros,
    /// When the next deferrable write is sent in any case.
    next_deferrable: Micros,
    jobs: BTreeSet<String>,
    /// When the run ends: a job that is not done by then never will be.
    end: Micros,
}

impl<'a> LoadSimulation<'a> {
    fn new(controllers: &[(&'a dyn Controller, usize)], limit: Option<(u64, u64)>) -> Self {
        let begin = Timestamp::from_second(START_SECONDS).unwrap();
        let world = World::new(controllers.iter().flat_map(|(it, _)| it.kinds()));
        kind_discovery::record_served(&world, SERVED, begin);
        let desk = |(controller, workers): &(&'a dyn Controller, usize)| ControllerQueue {
            controller: *controller,
            workers: *workers,
            ready: VecDeque::new(),
            waiting: BTreeSet::new(),
            busy: BTreeMap::new(),
            paced_until: BTreeMap::new(),
            in_flight: 0,
            writes: 0,
        };
        Self {
            server: Server::new(ready, begin),
            cursors: world.stores().map(|it| (it.resource(), 0)).collect(),
            world,
            controllers: controllers.iter().map(desk).collect(),
            events: BTreeMap::new(),
            counter: 0,
            now: 0,
            limit: limit.map(|(rate, burst)| (SECOND / rate, SECOND / rate * (burst - 1))),
            booked: 0,
            next_deferrable: 0,
            jobs: BTreeSet::new(),
            end: 600 * SECOND,
        }
    }

    fn schedule_event(&mut self, when: Micros, event: Event) {
        self.counter += 1;
        self.events.insert((when, self.counter), event);
    }

    fn time(&self) -> Timestamp {
        let passed = SignedDuration::from_micros(i64::try_from(self.now).unwrap());
        Timestamp::from_second(START_SECONDS).unwrap() + passed
    }

    /// Runs until nothing is left to happen.
    fn run(mut self) -> LoadResults {
        self.deliver_changes();
        self.run_workers();
        while let Some(((when, _), event)) = self.events.pop_first() {
            if when > self.end {
                break;
            }
            self.now = when;
            self.server.set_time(self.time());
            match event {
                Event::Arrive(wrapper) => {
                    self.server.create(&AppWrapper::RESOURCE, wrapper);
                }
                Event::WriteDone(desk, key, step) => self.write_done(desk, &key, &step.write),
                Event::RequeueDue(desk, key) => self.enqueue(desk, key),
                Event::JobDone(key, uid) => self.server.edit(&JOBS, &key, |it| {
                    if it["metadata"]["uid"] == json!(uid) {
                        let complete = json!({"type": "Complete", "status": "True"});
                        it["status"] = json!({"conditions": [complete]});
                    }
                }),
            }
            self.deliver_changes();
            self.run_workers();
        }
        self.results()
    }

    /// Delivers changes to the controllers, and runs jobs that were created.
    fn deliver_changes(&mut self) {
        let resources: Vec<Resource> = self.cursors.keys().cloned().collect();
        for resource in resources {
            let cursor = self.cursors[&resource];
            let news = self.server.history(&resource).skip(cursor);
            let news: Vec<(String, bool)> = news.map(|(it, end)| (it.to_owned(), end)).collect();
            self.cursors.insert(resource.clone(), cursor + news.len());
            for (text, end) in news {
                for store in self.world.stores_for_resource(&resource) {
                    let change =
                        if end { store.observe_deletion(&text) } else { store.observe(&text) };
                    let Some(change) = change.unwrap() else { continue };
                    for observer in
                        self.controllers.iter().filter_map(|it| it.controller.observer())
                    {
                        observer.observe(&self.world, &change);
                    }
                    for desk in 0..self.controllers.len() {
                        for key in self.controllers[desk].controller.enqueue(&self.world, &change) {
                            self.enqueue(desk, key);
                        }
                    }
                }
                if resource == JOBS && !end {
                    self.start_job(&serde_json::from_str(&text).unwrap());
                }
            }
        }
    }

    fn start_job(&mut self, job: &Value) {
        let meta = &job["metadata"];
        let text = |name: &str| meta[name].as_str().unwrap().to_owned();
        if self.jobs.insert(text("uid")) {
            let runs: Micros = meta["annotations"]["ms"].as_str().unwrap().parse().unwrap();
            let key = Key::new(&text("namespace"), &text("name"));
            self.schedule_event(self.now + runs * MILLISECOND, Event::JobDone(key, text("uid")));
        }
    }

    fn enqueue(&mut self, desk: usize, key: Key) {
        let rests =
            self.controllers[desk].paced_until.get(&key).copied().filter(|it| *it > self.now);
        let at = &mut self.controllers[desk];
        match at.busy.get_mut(&key) {
            Some(busy) => busy.dirty = true,
            None if rests.is_some() => {
                self.schedule_event(rests.unwrap_or_default(), Event::RequeueDue(desk, key));
            }
            None => {
                if at.waiting.insert(key.clone()) {
                    at.ready.push_back(key);
                }
            }
        }
    }

    /// Lets all workers do what can be done at this moment.
    fn run_workers(&mut self) {
        for desk in 0..self.controllers.len() {
            while self.controllers[desk].busy.len() < self.controllers[desk].workers {
                let Some(key) = self.controllers[desk].ready.pop_front() else { break };
                self.controllers[desk].waiting.remove(&key);
                let now = self.time();
                let plan = self.controllers[desk].controller.plan(&self.world, &key, now);
                let Plan { mut steps, requeue_after: look_again, .. } = plan;
                steps.sort_by_key(|it| it.deferrable);
                let look_again =
                    look_again.map(|it| u64::try_from(it.as_micros()).unwrap().max(MILLISECOND));
                let busy = RunningPlan {
                    steps: steps.into(),
                    requeue_after: look_again,
                    ..RunningPlan::default()
                };
                self.controllers[desk].busy.insert(key.clone(), busy);
                self.send_steps(desk, &key);
            }
        }
    }

    /// Sends what may be sent of a plan, and ends it when all of it has been sent.
    fn send_steps(&mut self, desk: usize, key: &Key) {
        loop {
            let at = &mut self.controllers[desk];
            let Some(busy) = at.busy.get_mut(key) else { return };
            if at.in_flight >= MAX_IN_FLIGHT_WRITES {
                return;
            }
            let Some(step) = busy.steps.pop_front() else { break };
            if let Some((each, ahead)) = self.limit.filter(|_| step.deferrable) {
                let is_short = self.booked.saturating_sub(self.now) > ahead / 2;
                if is_short && self.next_deferrable > self.now {
                    busy.deferred = true;
                    continue;
                }
                self.next_deferrable = if is_short {
                    self.now + each * DEFERRABLE_SHARE
                } else {
                    self.next_deferrable
                };
            }
            busy.sent = true;
            busy.in_flight += 1;
            at.in_flight += 1;
            at.writes += 1;
            let wait = self.limit.map_or(0, |(each, ahead)| {
                let from = self.booked.max(self.now);
                self.booked = from + each;
                (from - self.now).saturating_sub(ahead)
            });
            let when = self.now + wait + REQUEST_DURATION;
            self.schedule_event(when, Event::WriteDone(desk, key.clone(), Box::new(step)));
        }
        let at = &mut self.controllers[desk];
        if at.busy.get(key).is_some_and(|it| it.in_flight == 0) {
            let RunningPlan {
                dirty: again,
                requeue_after: look_again,
                sent,
                deferred: put_off,
                ..
            } = at.busy.remove(key).unwrap_or_default();
            let look_again = match (put_off, sent) {
                (false, _) => look_again,
                (true, true) => Some(look_again.unwrap_or(MAX_DEFERRAL).min(MAX_DEFERRAL)),
                (true, false) => {
                    Some(look_again.unwrap_or(MAX_DEFERRAL).clamp(SECOND, MAX_DEFERRAL))
                }
            };
            let pace = u64::try_from(at.controller.min_plan_interval().as_micros()).unwrap();
            if pace > 0 {
                at.paced_until.insert(key.clone(), self.now + pace);
            }
            if let Some(wait) = look_again {
                self.schedule_event(self.now + wait, Event::RequeueDue(desk, key.clone()));
            }
            if again {
                self.enqueue(desk, key.clone());
            }
        }
    }

    fn write_done(&mut self, desk: usize, key: &Key, write: &Write) {
        let outcome = self.server.apply(write);
        let at = &mut self.controllers[desk];
        at.in_flight -= 1;
        if let Some(busy) = at.busy.get_mut(key) {
            busy.in_flight -= 1;
            match outcome {
                Outcome::Done(_) | Outcome::NotFound => {}
                Outcome::Conflict(_) => busy.dirty = true,
                Outcome::Refused(_) | Outcome::Unknown(_) => panic!("{write:?}: {outcome:?}"),
            }
        }
        // Changes are delivered before the next plan.
        self.deliver_changes();
        let busy: Vec<Key> = self.controllers[desk].busy.keys().cloned().collect();
        busy.iter().for_each(|key| self.send_steps(desk, key));
    }
}

fn leaf(cohort: usize, queue: usize) -> String {
    format!("queue-{cohort}-{queue}")
}

/// All cpus at the root, below it the cohorts, below them the queues, and none with a hard limit.
fn trees() -> Vec<Value> {
    let subtree = |name: &str, parent: Option<&str>, children: Vec<Value>| {
        json!({"metadata": {"name": name, "namespace": "test", "labels": {"tree": "bench"}},
               "spec": {"parent": parent, "children": children}})
    };
    let child = |name: &str, cpu: usize| {
        let requests = json!({"cpu": cpu.to_string()});
        json!({"name": name, "quotas": {"requests": requests}})
    };
    let cohort = |at: usize| format!("cohort-{at}");
    let each = CPUS * QUEUES;
    let cohorts = (0..COHORTS).map(|at| child(&cohort(at), each)).collect();
    let mut all = vec![
        subtree("top", None, vec![child("root", each * COHORTS)]),
        subtree("cohorts", Some("root"), cohorts),
    ];
    all.extend((0..COHORTS).map(|at| {
        let leaves = (0..QUEUES).map(|queue| child(&leaf(at, queue), CPUS)).collect();
        subtree(&cohort(at), Some(&cohort(at)), leaves)
    }));
    all
}

fn wrapper(queue: &str, name: &str, class: &JobClass) -> Value {
    let (kind, _, _, runs, priority, cpu) = class;
    json!({
        "metadata": {"name": name, "namespace": queue, "labels": {"bench": queue, "class": kind}},
        "spec": {"priority": priority, "resources": {"GenericItems": [{
            "completionstatus": "Complete",
            "custompodresources": [{"replicas": 1, "requests": {"cpu": cpu.to_string()}}],
            "generictemplate": {
                "apiVersion": "batch/v1", "kind": "Job",
                "metadata": {"name": name, "annotations": {"ms": runs.to_string()}},
            },
        }]}},
    })
}

/// Runs all jobs, on quota trees or on nodes alone, with this many requests a second and this many
/// at once.
fn baseline(quota: bool, limit: Option<(u64, u64)>) -> LoadResults {
    baseline_times(1, quota, limit)
}

/// Runs the same with this many times as many jobs, which take as many times as long to arrive.
fn baseline_times(times: u64, quota: bool, limit: Option<(u64, u64)>) -> LoadResults {
    let settings = Settings { quota, preemption: quota, ..Settings::default() };
    let live = LiveSettings::new(settings);
    let dispatch = Dispatch::new(live.clone());
    let progress = ProgressWithKinds(Progress::new(live));
    let told =
        QuotaStatus::new(move |world, it: &AppWrapper| charge::held_quota_in(world, it, &settings));
    let mut controllers: Vec<(&dyn Controller, usize)> =
        vec![(&dispatch, 1), (&progress, MAX_IN_FLIGHT_WRITES)];
    if quota {
        controllers.push((&told, 1));
    }
    let mut crowd = LoadSimulation::new(&controllers, limit);
    for at in 0..COHORTS * QUEUES {
        let node = json!({"metadata": {"name": format!("node-{at}")}, "spec": {},
                          "made": {"cpu": CPUS.to_string(), "gpu": 0}});
        crowd.server.create(&Node::RESOURCE, node);
    }
    if quota {
        for subtree in trees() {
            crowd.server.create(&Subtree::RESOURCE, subtree);
        }
    }
    for queue in (0..COHORTS).flat_map(|at| (0..QUEUES).map(move |it| leaf(at, it))) {
        for class in &BASELINE {
            let (kind, count, every, ..) = class;
            for nth in 0..*count * times {
                let wrapper = wrapper(&queue, &format!("{kind}-{nth}"), class);
                crowd.schedule_event((nth + 1) * every * MILLISECOND, Event::Arrive(wrapper));
            }
        }
    }
    crowd.run()
}

/// Under this load half of all jobs and more were preempted, when decisions ran ahead of the writes
/// that follow from them.
#[test]
fn few_are_preempted_when_requests_are_limited() {
    let figures = baseline(true, Some((50, 100)));
    assert_eq!(figures.completed, 300);
    assert!(figures.total_preemptions() <= 20, "{figures:?}");
    assert!(figures.preemptions.values().all(|times| *times == 1), "once at most: {figures:?}");
    assert!(figures.wall <= 22 * SECOND, "{figures:?}");
    // A job that is complete before its dispatch is written takes one write less: 3.2 each were 25
    // seconds.
    assert!(figures.statuses <= 3 * 300, "{figures:?}");
    let seconds = usize::try_from(figures.wall / SECOND).unwrap();
    assert!(figures.writes["quota-status"] <= 7 * (seconds / 5 + 3), "{figures:?}");
}

#[test]
fn without_a_limit_no_write_is_delayed() {
    let figures = baseline(true, None);
    assert_eq!(figures.completed, 300);
    assert!(figures.wall <= 8 * SECOND, "{figures:?}");
}

/// P3: at most four writes of a status, for jobs too that had to wait.
#[test]
fn p_3_no_job_takes_more_than_four_writes_of_its_status() {
    let figures = baseline(false, None);
    assert_eq!(figures.completed, 300);
    assert!(figures.preemptions.is_empty());
    assert!(figures.statuses <= 4 * 300, "{figures:?}");
}

/// Reporting to all pending jobs takes as many requests as there are jobs. Jobs that can run do not
/// wait for that.
#[test]
fn admissions_are_written_before_pending_reports() {
    let figures = baseline_times(5, false, Some((50, 100)));
    assert_eq!(figures.completed, 1500);
    // With statuses in the order of their creation it was 123 seconds, and 36 for one of 300.
    assert!(figures.wall <= 112 * SECOND, "{figures:?}");
    assert!(figures.waits["medium"] / 300 <= 28 * SECOND, "{figures:?}");
}
