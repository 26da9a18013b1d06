//! Determines which nodes would make a job fit that names no types, and records them on the job.
//!
//! The queue's [`ShapeChooser`] is asked with each shape of nodes that could be added; its choice
//! becomes an annotation of the job, which from then on has the effect of its label: everything
//! else is done by [`crate::Scaling`].
//!
//! One job at a time is helped, the first of the pending ones. What a job behind it needs depends
//! on what that one gets, and is determined when it is known. A job that cannot be helped is
//! skipped, so that it blocks no other. A job whose nodes were provisioned and are used by others
//! gets more, but only if they are what it needs: if it would not fit on them alone, its declared
//! demand is wrong, and no more are bought.

mod source;

use std::sync::Arc;
use std::time::Duration;

use gantry_queue::node_shape::{RejectedShape, ShapeChoice, ShapeChooser};
use gantry_queue::{LiveSettings, order};
use gantry_reconcile::fact::TypedFactChange;
use gantry_reconcile::{
    Change, Controller, Event, FactChange, FactKind, Held, Key, Kind, ObjectReference, Plan, Step,
    Subresource, View as _, World, Write,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::Scaling;
use crate::demand::{Demand, is_finished};
use crate::grant_record::{Grant, GrantRecord};
use crate::owner_labels::{GAVE_UP_ANNOTATION, OwnerLabels};
use crate::pool::PoolListing;
use crate::settings::{Backend, Settings};
use crate::view::{
    AppWrapper, ConfigMap, MachineSet, NODES_ANNOTATION, ORDERED_INSTANCE_LABEL, SHAPES_ANNOTATION,
};
use crate::view::{is_ready, labelled_nodes};

/// How often it is checked whether another choice helps. Nodes take minutes to come.
const SHAPE_CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// How many pending jobs are evaluated in one plan, until one can be helped.
const MAX_EVALUATED_JOBS: usize = 8;

/// Chooses nodes for jobs that name none.
#[derive(Debug)]
pub struct ShapeInference {
    scaling: Arc<Scaling>,
    queue: LiveSettings,
    chooser: ShapeChooser,
}

impl ShapeInference {
    /// Creates the controller; it chooses what `scaling` may buy, by evaluations of the queue.
    #[must_use]
    pub fn new(scaling: Arc<Scaling>, queue: LiveSettings) -> Self {
        Self { scaling, queue, chooser: ShapeChooser::default() }
    }

    /// Returns the only key: jobs compete.
    fn queue_key() -> Key {
        Key::cluster("shapes")
    }
}

impl Controller for ShapeInference {
    fn name(&self) -> &'static str {
        "scaling-shapes"
    }

    fn kinds(&self) -> Vec<Kind> {
        let mut kinds = self.scaling.kinds();
        for kind in ShapeChooser::kinds(&self.queue.get()) {
            if kinds.iter().all(|it| it.store_id() != kind.store_id()) {
                kinds.push(kind);
            }
        }
        kinds
    }

    fn facts(&self) -> Vec<FactKind> {
        self.scaling.facts()
    }

    fn enqueue_for_fact(&self, _: &World, change: &FactChange) -> Vec<Key> {
        let news = change.of::<PoolListing>().filter(TypedFactChange::is_significant);
        news.map(|_| Self::queue_key()).into_iter().collect()
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        let (before, after) = (change.before::<AppWrapper>(), change.after::<AppWrapper>());
        let wakes = match (before, after) {
            (None, None) => changes_supply(change),
            // Pods and nodes change all the time; the effect is observed at the next check.
            (before, after) => {
                let says = |job: Option<&AppWrapper>| {
                    let job = job.filter(|it| needs_inference(it))?;
                    Some((
                        needs_more_nodes(job),
                        job.metadata.annotations.get(NODES_ANNOTATION).cloned(),
                    ))
                };
                says(before) != says(after)
            }
        };
        if wakes { vec![Self::queue_key()] } else { Vec::new() }
    }

    fn plan(&self, world: &World, _: &Key, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let settings = self.scaling.settings();
        // Scaling reports what is wrong with it.
        let Ok(ledger) = GrantRecord::read(world, &settings.grant_record) else { return plan };
        match settings.backend {
            Backend::Pools(_) if !crate::pool::are_listed(world) => return plan,
            Backend::Pools(_) | Backend::Reuse | Backend::Duplicate | Backend::Groups => {}
        }
        for job in world.store::<AppWrapper>().by_index(&AppWrapper::requests_nodes_tag()) {
            let idle = !needs_more_nodes(&job) && ledger.get(&job.metadata.key()).is_none();
            if needs_inference(&job) && idle && !is_finished(&job) {
                // It was admitted without them. When it is pending again, it is evaluated again.
                plan.write(annotate(
                    &job,
                    &json!({NODES_ANNOTATION: null, SHAPES_ANNOTATION: null}),
                ));
            }
        }
        let waiting = self.pending_jobs(world, now);
        if !waiting.is_empty() {
            plan.requeue_after(SHAPE_CHECK_INTERVAL);
        }
        if are_nodes_provisioning(world, &settings, &ledger, now) {
            return plan;
        }
        for job in waiting.iter().take(MAX_EVALUATED_JOBS) {
            match self.infer_for_job(world, &settings, &ledger, job, &mut plan) {
                InferenceOutcome::Helped => break,
                InferenceOutcome::Skipped => {}
            }
        }
        plan
    }
}

/// Whether a pending job blocks those behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InferenceOutcome {
    /// It does: its demand is known, or it needs nothing.
    Helped,
    /// It does not: nothing can be done for it, or everything was.
    Skipped,
}

impl ShapeInference {
    /// Returns the jobs that wait for capacity and name no types, in queue order.
    fn pending_jobs(&self, world: &World, now: Timestamp) -> Vec<Arc<AppWrapper>> {
        let settings = self.queue.get();
        let mut jobs =
            world.store::<AppWrapper>().by_index(&AppWrapper::insufficient_resources_tag());
        jobs.sort_by_cached_key(|job| (job.first_seen(), job.metadata.key()));
        // Sorting is stable: jobs of the same priority stay in this order.
        let priority = |job: &AppWrapper| order::priority(job, &settings, now);
        jobs.sort_by(|one, two| priority(two).total_cmp(&priority(one)));
        jobs
    }

    /// Determines what a job needs, and records it.
    fn infer_for_job(
        &self,
        world: &World,
        settings: &Settings,
        ledger: &GrantRecord,
        job: &AppWrapper,
        plan: &mut Plan,
    ) -> InferenceOutcome {
        let key = job.metadata.key();
        if job.metadata.annotations.contains_key(GAVE_UP_ANNOTATION)
            || ledger.conflicting_job(&key).is_some()
        {
            // Scaling reports it.
            return InferenceOutcome::Skipped;
        }
        let grant = ledger.get(&key);
        if let Some(grant) = grant {
            let changes = Demand::of(job).is_none_or(|it| !grant.satisfies(&it));
            if changes || !are_nodes_ready(world, &key, grant) {
                return InferenceOutcome::Helped;
            }
            if let Some(why) = self.chooser.missing_alone(world, &self.queue.get(), job) {
                // More nodes of a kind that did not help would not help either.
                let message = format!("its nodes are ready, and it would not fit on them: {why}");
                plan.held.push(held(job, message));
                return InferenceOutcome::Skipped;
            }
        }
        let (shapes, mut unknown) = source::shapes(world, settings, &key, grant);
        match self.chooser.choose(world, &self.queue.get(), job, &shapes) {
            ShapeChoice::Fits => InferenceOutcome::Helped,
            ShapeChoice::Needs { shape, count, mut others } => {
                others.append(&mut unknown);
                let plural = if count == 1 { "node" } else { "nodes" };
                let said = format!("needs {count} more {plural} of {shape}");
                let mut nodes = grant.map(Grant::nodes).unwrap_or_default();
                let sum = nodes.entry(shape).or_default();
                *sum = sum.saturating_add(count);
                let note = Event::normal(about(job), "NodesChosen", said.clone());
                annotate_demand(
                    job,
                    Demand::new(nodes).as_ref(),
                    &format_message(&said, &others),
                    note,
                    plan,
                );
                InferenceOutcome::Helped
            }
            ShapeChoice::NoShapeHelps(mut useless) => {
                useless.append(&mut unknown);
                let said = match useless.is_empty() {
                    true => "no MachineSet, pool or node group can add nodes".to_owned(),
                    false => {
                        let names: Vec<&str> = useless.iter().map(|it| it.shape.as_str()).collect();
                        format!("more nodes of {} would not make it fit", names.join(" or "))
                    }
                };
                let message = format_message(&said, &useless);
                let note = Event::warning(about(job), NO_NODES_HELP, message.clone());
                // It keeps what it has.
                let has = grant.and_then(|it| Demand::new(it.nodes()));
                annotate_demand(job, has.as_ref(), &message, note, plan);
                plan.held.push(held(job, message));
                InferenceOutcome::Skipped
            }
        }
    }
}

/// Returns whether nodes are chosen for a job here. A label takes precedence, whatever it says.
fn needs_inference(job: &AppWrapper) -> bool {
    !job.metadata.labels.contains_key(ORDERED_INSTANCE_LABEL)
}

/// Returns whether a job is pending, and more nodes may help.
fn needs_more_nodes(job: &AppWrapper) -> bool {
    job.awaits_dispatch() && job.awaits_resources()
}

/// Returns whether chosen nodes are still being provisioned, for any job: what others need besides
/// is not known before.
fn are_nodes_provisioning(
    world: &World,
    settings: &Settings,
    ledger: &GrantRecord,
    now: Timestamp,
) -> bool {
    let store = world.store::<AppWrapper>();
    ledger.iter().any(|(key, grant)| {
        let chosen = |it: &AppWrapper| needs_inference(it) && !is_finished(it);
        let until =
            grant.since.checked_add(settings.limits.provision_timeout).unwrap_or(Timestamp::MAX);
        // Nodes of a running job may fail later; no job waits for that.
        let may_come = now < until && store.get(key).is_some_and(|it| chosen(&it));
        may_come && !are_nodes_ready(world, key, grant)
    })
}

/// Returns whether all granted nodes are ready.
fn are_nodes_ready(world: &World, job: &Key, grant: &Grant) -> bool {
    let nodes = labelled_nodes(world, &OwnerLabels::of(job).owner_label);
    let ready = nodes.iter().filter(|it| is_ready(it)).count();
    ready >= usize::try_from(grant.total()).unwrap_or(usize::MAX)
}

/// Returns whether a change concerns what nodes could be added, or what was granted.
fn changes_supply(change: &Change) -> bool {
    change.is::<ConfigMap>() || change.is::<MachineSet>()
}

/// The reason when no nodes are chosen for a job.
const NO_NODES_HELP: &str = "NoNodesHelp";

fn held(job: &AppWrapper, message: String) -> Held {
    Held { about: about(job), reason: NO_NODES_HELP.into(), message, until: None }
}

fn about(job: &AppWrapper) -> ObjectReference {
    ObjectReference::to(&AppWrapper::RESOURCE, &job.metadata)
}

/// Returns the message: first the choice, then why other shapes do not help.
fn format_message(found: &str, useless: &[RejectedShape]) -> String {
    let reasons = useless.iter().map(RejectedShape::to_string);
    [found.to_owned()].into_iter().chain(reasons).collect::<Vec<_>>().join("; ")
}

/// Records on a job what it needs, if that has changed. Amounts in reasons change with every pod:
/// they are as they were when the choice was made.
fn annotate_demand(
    job: &AppWrapper,
    demand: Option<&Demand>,
    message: &str,
    note: Event,
    plan: &mut Plan,
) {
    let found = |text: &str| text.split(';').next().unwrap_or_default().to_owned();
    let annotations = &job.metadata.annotations;
    let nodes = demand.map(Demand::to_string);
    let is_told = annotations.get(SHAPES_ANNOTATION).is_some_and(|it| found(it) == found(message));
    if !is_told || annotations.get(NODES_ANNOTATION) != nodes.as_ref() {
        let write = annotate(job, &json!({NODES_ANNOTATION: nodes, SHAPES_ANNOTATION: message}));
        plan.steps.push(Step::new(write).on_success(note));
    }
}

fn annotate(job: &AppWrapper, annotations: &Value) -> Write {
    Write::Merge {
        resource: AppWrapper::RESOURCE,
        key: job.metadata.key(),
        subresource: Subresource::Main,
        fence: job.metadata.fence(),
        body: json!({"metadata": {"annotations": annotations}}),
    }
}
