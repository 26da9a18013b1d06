//! Finds out which nodes would make a job fit that names no types, and writes that down on the job.
//!
//! The queue is asked ([`Chooser`]) with each shape of nodes that more could be had of; what it answers
//! becomes an annotation of the job, which counts from then on as its label would: everything else is
//! done by [`Scaling`](crate::Scaling).
//!
//! One job at a time is helped, the first of those that wait. What one behind it needs depends on what
//! that one gets, and is found out when it is known. Who cannot be helped is passed over, so that it keeps
//! nobody waiting. A job whose nodes came and were taken by others gets more, but only if they are what it
//! needs: if it would not fit on them alone, something is not as it was declared, and no more are bought.

mod source;

use std::sync::Arc;
use std::time::Duration;

use gantry_queue::shape::{Answer, Chooser, Useless};
use gantry_queue::{Live, order};
use gantry_reconcile::fact::Changed;
use gantry_reconcile::{
    Change, Controller, FactChange, FactKind, Held, Key, Kind, Note, Part, Plan, Reference, Step,
    View as _, World, Write,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::Scaling;
use crate::demand::{Demand, is_over};
use crate::ledger::{Grant, Ledger};
use crate::marks::{GAVE_UP, Marks};
use crate::pool::PoolListing;
use crate::settings::{Backend, Settings};
use crate::view::{AppWrapper, ConfigMap, MachineSet, NODES, ORDERED_INSTANCE, SHAPES};
use crate::view::{is_ready, marked_nodes};

/// How often it is looked whether something else helps. Nodes take minutes to come.
const AGAIN: Duration = Duration::from_secs(10);

/// How many of those that wait are asked about in one plan, until one can be helped.
const LOOKED_AT: usize = 8;

/// Chooses nodes for jobs that name none.
#[derive(Debug)]
pub struct Shapes {
    scaling: Arc<Scaling>,
    queue: Live,
    chooser: Chooser,
}

impl Shapes {
    /// Chooses what this may buy, by what the queue would say.
    #[must_use]
    pub fn new(scaling: Arc<Scaling>, queue: Live) -> Self {
        Self { scaling, queue, chooser: Chooser::default() }
    }

    /// The one key there is: jobs compete.
    fn all() -> Key {
        Key::cluster("shapes")
    }
}

impl Controller for Shapes {
    fn name(&self) -> &'static str {
        "scaling-shapes"
    }

    fn kinds(&self) -> Vec<Kind> {
        let mut kinds = self.scaling.kinds();
        for kind in Chooser::kinds(&self.queue.get()) {
            if kinds.iter().all(|it| it.place() != kind.place()) {
                kinds.push(kind);
            }
        }
        kinds
    }

    fn facts(&self) -> Vec<FactKind> {
        self.scaling.facts()
    }

    fn enqueue_for_fact(&self, _: &World, change: &FactChange) -> Vec<Key> {
        let news = change.of::<PoolListing>().filter(Changed::is_news);
        news.map(|_| Self::all()).into_iter().collect()
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        let (before, after) = (change.before::<AppWrapper>(), change.after::<AppWrapper>());
        let wakes = match (before, after) {
            (None, None) => is_offer(change),
            // Pods and nodes change all the time; what that means is seen when it is looked again.
            (before, after) => {
                let says = |job: Option<&AppWrapper>| {
                    let job = job.filter(|it| is_asked_about(it))?;
                    Some((waits_for_nodes(job), job.metadata.annotations.get(NODES).cloned()))
                };
                says(before) != says(after)
            }
        };
        if wakes { vec![Self::all()] } else { Vec::new() }
    }

    fn plan(&self, world: &World, _: &Key, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let settings = self.scaling.settings();
        // Scaling itself says what is wrong with it.
        let Ok(ledger) = Ledger::read(world, &settings.ledger) else { return plan };
        match settings.backend {
            Backend::Pools(_) if !crate::pool::are_known(world) => return plan,
            Backend::Pools(_) | Backend::Reuse | Backend::Duplicate | Backend::Groups => {}
        }
        for job in world.shelf::<AppWrapper>().tagged(&AppWrapper::labelled()) {
            let idle = !waits_for_nodes(&job) && ledger.get(&job.metadata.key()).is_none();
            if is_asked_about(&job) && idle && !is_over(&job) {
                // It passed without them. When it waits again, that is another matter.
                plan.write(annotate(&job, &json!({NODES: null, SHAPES: null})));
            }
        }
        let waiting = self.waiting(world, now);
        if !waiting.is_empty() {
            plan.look_within(AGAIN);
        }
        if are_coming(world, &settings, &ledger, now) {
            return plan;
        }
        for job in waiting.iter().take(LOOKED_AT) {
            match self.help(world, &settings, &ledger, job, &mut plan) {
                Turn::Helped => break,
                Turn::PassedOver => {}
            }
        }
        plan
    }
}

/// Whether a job that waits keeps those behind it waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// It does: it is known what it needs, or it needs nothing.
    Helped,
    /// It does not: nothing can be done for it, or everything was.
    PassedOver,
}

impl Shapes {
    /// The jobs that wait for room and name no types, in the order of the queue.
    fn waiting(&self, world: &World, now: Timestamp) -> Vec<Arc<AppWrapper>> {
        let settings = self.queue.get();
        let mut jobs = world.shelf::<AppWrapper>().tagged(&AppWrapper::short_of_room());
        jobs.sort_by_cached_key(|job| (job.first_seen(), job.metadata.key()));
        // Sorting is stable: those of the same priority stay in this order.
        let priority = |job: &AppWrapper| order::priority(job, &settings, now);
        jobs.sort_by(|one, two| priority(two).total_cmp(&priority(one)));
        jobs
    }

    /// Finds out what a job needs, and writes it down.
    fn help(
        &self,
        world: &World,
        settings: &Settings,
        ledger: &Ledger,
        job: &AppWrapper,
        plan: &mut Plan,
    ) -> Turn {
        let key = job.metadata.key();
        if job.metadata.annotations.contains_key(GAVE_UP) || ledger.rival(&key).is_some() {
            // Scaling says so.
            return Turn::PassedOver;
        }
        let grant = ledger.get(&key);
        if let Some(grant) = grant {
            let changes = Demand::of(job).is_none_or(|it| !grant.meets(&it));
            if changes || !is_there(world, &key, grant) {
                return Turn::Helped;
            }
            if let Some(why) = self.chooser.missing_alone(world, &self.queue.get(), job) {
                // More of what was no use would be none either.
                let message = format!("its nodes are there, and it would not fit on them: {why}");
                plan.held.push(held(job, message));
                return Turn::PassedOver;
            }
        }
        let (shapes, mut unknown) = source::shapes(world, settings, &key, grant);
        match self.chooser.choose(world, &self.queue.get(), job, &shapes) {
            Answer::Fits => Turn::Helped,
            Answer::Needs { shape, count, mut others } => {
                others.append(&mut unknown);
                let plural = if count == 1 { "node" } else { "nodes" };
                let said = format!("needs {count} more {plural} of {shape}");
                let mut nodes = grant.map(Grant::nodes).unwrap_or_default();
                let sum = nodes.entry(shape).or_default();
                *sum = sum.saturating_add(count);
                let note = Note::normal(about(job), "NodesChosen", said.clone());
                tell(job, Demand::new(nodes).as_ref(), &told(&said, &others), note, plan);
                Turn::Helped
            }
            Answer::Hopeless(mut useless) => {
                useless.append(&mut unknown);
                let said = match useless.is_empty() {
                    true => "nothing is there that more nodes could be had of".to_owned(),
                    false => {
                        let names: Vec<&str> = useless.iter().map(|it| it.shape.as_str()).collect();
                        format!("more nodes of {} would not make it fit", names.join(" or "))
                    }
                };
                let message = told(&said, &useless);
                let note = Note::warning(about(job), NO_NODES_HELP, message.clone());
                // What it has it keeps.
                let has = grant.and_then(|it| Demand::new(it.nodes()));
                tell(job, has.as_ref(), &message, note, plan);
                plan.held.push(held(job, message));
                Turn::PassedOver
            }
        }
    }
}

/// Whether a job is one whose nodes are chosen here. A label is the last word, whatever it says.
fn is_asked_about(job: &AppWrapper) -> bool {
    !job.metadata.labels.contains_key(ORDERED_INSTANCE)
}

/// Whether a job waits, and more nodes may help.
fn waits_for_nodes(job: &AppWrapper) -> bool {
    job.waits() && job.waits_for_room()
}

/// Whether nodes that were chosen are still on their way, for whoever it be: what others need besides is not
/// known before.
fn are_coming(world: &World, settings: &Settings, ledger: &Ledger, now: Timestamp) -> bool {
    let shelf = world.shelf::<AppWrapper>();
    ledger.iter().any(|(key, grant)| {
        let chosen = |it: &AppWrapper| is_asked_about(it) && !is_over(it);
        let until = grant.since.checked_add(settings.limits.provision).unwrap_or(Timestamp::MAX);
        // Those of one that runs may fail later; that is for nobody to wait for.
        let may_come = now < until && shelf.get(key).is_some_and(|it| chosen(&it));
        may_come && !is_there(world, key, grant)
    })
}

/// Whether all nodes that were granted are ready.
fn is_there(world: &World, job: &Key, grant: &Grant) -> bool {
    let nodes = marked_nodes(world, &Marks::of(job).mine);
    let ready = nodes.iter().filter(|it| is_ready(it)).count();
    ready >= usize::try_from(grant.total()).unwrap_or(usize::MAX)
}

/// Whether a change is about what nodes could be had of, or what was granted.
fn is_offer(change: &Change) -> bool {
    change.is::<ConfigMap>() || change.is::<MachineSet>()
}

/// Why, in one word, nothing is chosen for a job.
const NO_NODES_HELP: &str = "NoNodesHelp";

fn held(job: &AppWrapper, message: String) -> Held {
    Held { about: about(job), reason: NO_NODES_HELP.into(), message, until: None }
}

fn about(job: &AppWrapper) -> Reference {
    Reference::to(&AppWrapper::RESOURCE, &job.metadata)
}

/// What is told: first what was found, then why not otherwise.
fn told(found: &str, useless: &[Useless]) -> String {
    let reasons = useless.iter().map(Useless::to_string);
    [found.to_owned()].into_iter().chain(reasons).collect::<Vec<_>>().join("; ")
}

/// Writes down on a job what it needs, if that is not known there. Amounts in reasons change with every
/// pod: they are as they were when what was found was found.
fn tell(job: &AppWrapper, demand: Option<&Demand>, message: &str, note: Note, plan: &mut Plan) {
    let found = |text: &str| text.split(';').next().unwrap_or_default().to_owned();
    let annotations = &job.metadata.annotations;
    let nodes = demand.map(Demand::to_string);
    let is_told = annotations.get(SHAPES).is_some_and(|it| found(it) == found(message));
    if !is_told || annotations.get(NODES) != nodes.as_ref() {
        let write = annotate(job, &json!({NODES: nodes, SHAPES: message}));
        plan.steps.push(Step::new(write).done(note));
    }
}

fn annotate(job: &AppWrapper, annotations: &Value) -> Write {
    Write::Merge {
        resource: AppWrapper::RESOURCE,
        key: job.metadata.key(),
        part: Part::Main,
        fence: job.metadata.fence(),
        body: json!({"metadata": {"annotations": annotations}}),
    }
}
