//! Plans the nodes of one job at a time.

use std::collections::BTreeSet;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use gantry_reconcile::{
    Change, Controller, Event, FactChange, FactKind, Key, Kind, ObjectReference, Plan, Step,
    Subresource, View as _, World, Write,
};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::demand::{Demand, is_finished, is_pending};
use crate::grant_record::{FormerOwner, Grant, GrantRecord};
use crate::limits::{grantable_jobs, has_given_up, successor};
use crate::owner_labels::{self, GAVE_UP_ANNOTATION, MESSAGE_ANNOTATION, OWNER_ANNOTATION};
use crate::pool::{self, PoolListing};
use crate::reason::Reason;
use crate::settings::{Backend, Limits, Settings};
use crate::view::{AppWrapper, ConfigMap, Machine, MachineSet, Node, is_heartbeat};

mod backend;
mod edit;

use edit::{JobEdit, has_finalizer};

/// Buys nodes for jobs that lack resources, and releases them when the jobs are over.
#[derive(Debug)]
pub struct Scaling {
    backend: Backend,
    grant_record: Key,
    limits: RwLock<Limits>,
}

impl Scaling {
    /// Creates the controller with these settings.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let Settings { limits, backend, grant_record: ledger } = settings;
        Self { backend, grant_record: ledger, limits: RwLock::new(limits) }
    }

    /// Replaces the limits from the next plan on. What was bought stays.
    pub fn set_limits(&self, limits: Limits) {
        // No foreign code runs under the lock, so a poisoned one is still valid.
        *self.limits.write().unwrap_or_else(PoisonError::into_inner) = limits;
    }

    pub(crate) fn settings(&self) -> Settings {
        let limits = *self.limits.read().unwrap_or_else(PoisonError::into_inner);
        Settings { limits, backend: self.backend, grant_record: self.grant_record.clone() }
    }
}

impl Controller for Scaling {
    fn name(&self) -> &'static str {
        "scaling"
    }

    fn kinds(&self) -> Vec<Kind> {
        let all = [Kind::of::<AppWrapper>(), Kind::of::<ConfigMap>(), Kind::of::<Node>()];
        let more = match self.backend {
            Backend::Reuse | Backend::Duplicate => {
                vec![Kind::of::<MachineSet>(), Kind::of::<Machine>()]
            }
            Backend::Pools(_) | Backend::Groups => Vec::new(),
        };
        all.into_iter().chain(more).collect()
    }

    fn facts(&self) -> Vec<FactKind> {
        match self.backend {
            Backend::Pools(_) => vec![FactKind::of::<PoolListing>()],
            Backend::Reuse | Backend::Duplicate | Backend::Groups => Vec::new(),
        }
    }

    fn enqueue_for_fact(&self, world: &World, change: &FactChange) -> Vec<Key> {
        let Some(change) = change.of::<PoolListing>().filter(|it| it.is_significant()) else {
            return Vec::new();
        };
        let [before, after] = [change.before, change.after].map(|it| it.and_then(|it| it.value()));
        let Ok(ledger) = GrantRecord::read(world, &self.grant_record) else { return Vec::new() };
        let mut keys = pool::owners_of_changed(before, after);
        if before != after {
            // A name may have become free.
            keys.extend(grantable_jobs(world, &ledger, &self.settings()));
        }
        if before.is_none() {
            // No job was served before the pools were known.
            keys.extend(ledger.iter().map(|(job, _)| job.clone()));
            let jobs = world.store::<AppWrapper>().by_index(&AppWrapper::requests_nodes_tag());
            keys.extend(jobs.iter().map(|job| job.metadata.key()));
        }
        keys.into_iter().collect()
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        if change.is::<AppWrapper>() {
            return self.affected_jobs(world, change);
        }
        if is_heartbeat(change) {
            return Vec::new();
        }
        let Ok(ledger) = GrantRecord::read(world, &self.grant_record) else { return Vec::new() };
        let mut keys: BTreeSet<Key> = self.owners(&ledger, change).into_iter().collect();
        // Quota, a group or a name may have become free.
        keys.extend(grantable_jobs(world, &ledger, &self.settings()));
        if change.is::<ConfigMap>() {
            keys.extend(ledger.iter().map(|(job, _)| job.clone()));
            // A job whose entry is gone may be deleted.
            keys.extend(change.both::<ConfigMap>().flat_map(|it| ledger.jobs_in(it)));
            keys.extend(pending_jobs(world));
        }
        keys.into_iter().collect()
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let mut cycle = ScalingCycle {
            settings: self.settings(),
            world,
            key,
            now,
            plan: Plan::default(),
            edit: JobEdit::default(),
        };
        let job = world.store::<AppWrapper>().get(key);
        if job.is_none() && world.store::<AppWrapper>().is_unreadable(key) {
            // The job exists. Its demand is unknown, and what it has is kept.
            return self.keep_calls(world, key, cycle.plan);
        }
        let reason = cycle.run(job.as_deref());
        let plan = cycle.finish(job.as_deref(), reason.err());
        self.keep_calls(world, key, plan)
    }
}

/// Returns the jobs that wait for something outside themselves.
fn pending_jobs(world: &World) -> Vec<Key> {
    let jobs = world.store::<AppWrapper>().by_index(&AppWrapper::requests_nodes_tag());
    let idle = jobs.iter().filter(|job| {
        job.metadata.is_terminating() || job.metadata.annotations.contains_key(MESSAGE_ANNOTATION)
    });
    idle.map(|job| job.metadata.key()).collect()
}

impl Scaling {
    /// Returns the plan with the calls about pools that must be kept.
    fn keep_calls(&self, world: &World, key: &Key, mut plan: Plan) -> Plan {
        match self.backend {
            Backend::Pools(_) => pool::keep_calls(world, key, &mut plan),
            Backend::Reuse | Backend::Duplicate | Backend::Groups => {}
        }
        plan
    }

    /// Returns the jobs to reconcile after a change of a job: it, and possible successors.
    fn affected_jobs(&self, world: &World, change: &Change) -> Vec<Key> {
        let asks = |job: &AppWrapper| Demand::of(job).is_some() || has_finalizer(job);
        let Ok(ledger) = GrantRecord::read(world, &self.grant_record) else {
            return vec![change.key.clone()];
        };
        let mut keys = Vec::new();
        if change.both::<AppWrapper>().any(asks) || ledger.get(&change.key).is_some() {
            keys.push(change.key.clone());
            keys.extend(grantable_jobs(world, &ledger, &self.settings()));
            // A job that is pending now may take over the nodes of one that is over.
            let over = ledger.iter().filter(|(_, grant)| grant.over.is_some());
            keys.extend(over.map(|(job, _)| job.clone()));
        }
        keys
    }

    /// Returns the jobs that an object is labelled for, before and after a change.
    fn owners(&self, ledger: &GrantRecord, change: &Change) -> Vec<Key> {
        let metas = change
            .both::<MachineSet>()
            .map(|it| &it.metadata)
            .chain(change.both::<Machine>().map(|it| &it.metadata))
            .chain(change.both::<Node>().map(|it| &it.metadata));
        let mut owners = Vec::new();
        for meta in metas {
            let named = meta.annotations.iter().filter(|(key, _)| {
                *key == OWNER_ANNOTATION || key.starts_with("instascale.codeflare.dev-")
            });
            owners.extend(named.filter_map(|(_, text)| owner_labels::parse_owner(text)));
            owners.extend(
                ledger
                    .iter()
                    .map(|(job, _)| job)
                    .filter(|job| {
                        meta.labels.contains_key(&owner_labels::OwnerLabels::of(job).owner_label)
                    })
                    .cloned(),
            );
        }
        let sets = change.both::<MachineSet>().map(|set| set.metadata.key());
        let machines = change.both::<Machine>().filter_map(|machine| {
            let set = machine.metadata.labels.get(crate::view::SET_LABEL)?;
            Some(Key::new(&machine.metadata.namespace, set))
        });
        for set in sets.chain(machines) {
            let place = crate::machine_set::source_name(&set);
            let granted = ledger.iter().filter(|(_, grant)| grant.count_from(&place) > 0);
            owners.extend(granted.map(|(job, _)| job.clone()));
        }
        // A new node is identified by its machine.
        let nodes: Vec<&str> = change.both::<Node>().map(|it| it.metadata.name.as_str()).collect();
        if !nodes.is_empty() && matches!(self.backend, Backend::Reuse | Backend::Duplicate) {
            owners.extend(ledger.iter().map(|(job, _)| job.clone()));
        }
        owners
    }
}

/// The planning of one job.
struct ScalingCycle<'a> {
    settings: Settings,
    world: &'a World,
    key: &'a Key,
    now: Timestamp,
    plan: Plan,
    edit: JobEdit,
}

impl ScalingCycle<'_> {
    /// Plans the job. What is not done is the error.
    fn run(&mut self, job: Option<&AppWrapper>) -> Result<(), Reason> {
        let ledger = GrantRecord::read(self.world, &self.settings.grant_record)
            .map_err(Reason::GrantRecord)?;
        if matches!(self.settings.backend, Backend::Pools(_)) && !pool::are_listed(self.world) {
            self.plan.requeue_after(pool::LIST_INTERVAL);
            return Err(Reason::PoolsUnknown);
        }
        let grant = ledger.get(self.key);
        let alive = job.filter(|job| !is_finished(job));
        let wanted = alive.and_then(|job| Some((job, Demand::of(job)?)));
        let is_same =
            |job: &AppWrapper| grant.is_none_or(|grant| grant.uid == job.metadata.uid.as_str());
        match wanted {
            Some((job, demand)) if is_same(job) => {
                if !has_finalizer(job) {
                    self.edit.add_finalizer(job);
                    return Ok(());
                }
                let given_up = has_given_up(job, &demand);
                match grant {
                    Some(grant) if given_up && is_pending(job) => {
                        // The reason of a release says more than the release itself.
                        let _ = self.release(&ledger, Some(job), Some(grant));
                        Err(Reason::GaveUp { demand })
                    }
                    Some(grant) => self.provide(&ledger, job, grant, &demand),
                    None if given_up => Err(Reason::GaveUp { demand }),
                    None => self.request_grant(&ledger, job, &demand),
                }
            }
            Some((job, _)) => self.release(&ledger, Some(job), grant),
            None => {
                self.release(&ledger, job, grant)?;
                if let (Some(job), None) = (job, grant) {
                    self.edit.remove_finalizer(job);
                }
                Ok(())
            }
        }
    }

    /// Grants a job without nodes what it needs, if it is its turn.
    fn request_grant(
        &mut self,
        ledger: &GrantRecord,
        job: &AppWrapper,
        demand: &Demand,
    ) -> Result<(), Reason> {
        if let Some(rival) = ledger.conflicting_job(self.key) {
            return Err(Reason::ConflictingJob(rival));
        }
        let backend = self.settings.backend;
        let found = backend.existing(self.world, &self.settings.grant_record, self.key);
        if !found.is_empty() {
            // They were bought without a grant record, or the record was lost.
            let id = backend.grant_of(self.world, self.key);
            let grant = Grant { lots: found, ..self.new_grant(job, id) };
            self.plan.write(ledger.write(&[(self.key, Some(&grant))]));
            return Ok(());
        }
        if !crate::demand::waits_for_capacity(job) {
            return Ok(());
        }
        let most = self.settings.limits.max_nodes;
        let mut grant = self.new_grant(job, None);
        grant.lots = backend.allocate(self.world, ledger, self.key, &grant.id, demand, &[])?;
        if !grantable_jobs(self.world, ledger, &self.settings).contains(self.key) {
            return Err(Reason::Limit { demand: demand.clone(), most });
        }
        let note = job_event(job, "ScaleOut", format!("buying nodes: {demand}"));
        self.plan.steps.push(Step::new(ledger.write(&[(self.key, Some(&grant))])).on_success(note));
        Ok(())
    }

    fn new_grant(&self, job: &AppWrapper, id: Option<String>) -> Grant {
        let uid = job.metadata.uid.as_str();
        let since = self.now;
        let id = id.unwrap_or_else(|| owner_labels::grant_id(self.key, uid, &since.to_string()));
        Grant { id, uid: uid.to_owned(), since, lots: Vec::new(), over: None, from: None }
    }

    /// Buys the granted nodes of a job, and labels them.
    fn provide(
        &mut self,
        ledger: &GrantRecord,
        job: &AppWrapper,
        grant: &Grant,
        demand: &Demand,
    ) -> Result<(), Reason> {
        let backend = self.settings.backend;
        let mut changed = Grant { over: None, ..grant.clone() };
        let mut short = None;
        if !grant.satisfies(demand) {
            match backend.allocate(self.world, ledger, self.key, &grant.id, demand, &grant.lots) {
                Ok(lots) => {
                    let more = Grant { lots, ..changed.clone() };
                    let most = self.settings.limits.max_nodes;
                    let rest = ledger.total().saturating_sub(grant.total());
                    let grows = more.total() > grant.total();
                    if grows && rest.saturating_add(more.total()) > most {
                        short = Some(Reason::Limit { demand: demand.clone(), most });
                    } else {
                        changed = Grant { since: self.now, ..more };
                    }
                }
                Err(reason) => short = Some(reason),
            }
        }
        if let Some(former) = changed.former()
            && !backend.has_marked_objects(self.world, &former)
        {
            changed.from = None;
        }
        if changed != *grant {
            // The next step depends on this write, and is done when it is observed.
            self.plan.write(ledger.write(&[(self.key, Some(&changed))]));
            return short.map_or(Ok(()), Err);
        }
        let ready = backend.provide(
            self.world,
            &self.settings.grant_record,
            self.key,
            grant,
            &mut self.plan,
        )?;
        let wanted = grant.total();
        if ready < wanted && is_pending(job) {
            let until = after(grant.since, self.settings.limits.provision_timeout);
            if self.now >= until {
                self.edit.annotate(GAVE_UP_ANNOTATION, json!(demand.to_string()));
                return Err(Reason::GaveUp { demand: demand.clone() });
            }
            return Err(short.unwrap_or(Reason::Provisioning { ready, wanted, until }));
        }
        short.map_or(Ok(()), Err)
    }

    /// Releases or hands over the nodes of a job that is over, or not entitled to them.
    fn release(
        &mut self,
        ledger: &GrantRecord,
        job: Option<&AppWrapper>,
        grant: Option<&Grant>,
    ) -> Result<(), Reason> {
        let backend = self.settings.backend;
        let Some(grant) = grant else {
            // Nodes that were handed over have the old labels for a while.
            if ledger.was_handed_over(self.key) || ledger.conflicting_job(self.key).is_some() {
                return Ok(());
            }
            let done = backend.release(self.world, self.key, None, &mut self.plan);
            return if done { Ok(()) } else { Err(Reason::Releasing) };
        };
        if let Some(job) = job.filter(|job| is_finished(job))
            && backend.supports_handover()
            && grant.from.is_none()
            && let Some(heir) = successor(self.world, ledger, &self.settings, (job, grant))
        {
            let next = heir.metadata.key();
            let uid = heir.metadata.uid.as_str();
            let since = self.now;
            let from = FormerOwner {
                job: owner_labels::OwnerLabels::of(self.key).owner,
                id: grant.id.clone(),
            };
            let grant = Grant {
                id: owner_labels::grant_id(&next, uid, &since.to_string()),
                uid: uid.to_owned(),
                since,
                lots: grant.lots.clone(),
                over: None,
                from: Some(from),
            };
            let note =
                job_event(&heir, "TakeOver", format!("takes over the nodes of {}", self.key));
            let write = ledger.write(&[(self.key, None), (&next, Some(&grant))]);
            self.plan.steps.push(Step::new(write).on_success(note));
            return Err(Reason::Releasing);
        }
        let cooldown = self.settings.limits.cooldown;
        let gave_up = job.is_some_and(|job| !is_finished(job));
        if !cooldown.is_zero() && !gave_up {
            match grant.over {
                None => {
                    let over = Grant { over: Some(self.now), ..grant.clone() };
                    self.plan.write(ledger.write(&[(self.key, Some(&over))]));
                    return Err(Reason::Cooldown { until: after(self.now, cooldown) });
                }
                Some(over) if self.now < after(over, cooldown) => {
                    return Err(Reason::Cooldown { until: after(over, cooldown) });
                }
                Some(_) => {}
            }
        }
        if backend.release(self.world, self.key, Some(grant), &mut self.plan) {
            let mut step = Step::new(ledger.write(&[(self.key, None)]));
            if let Some(job) = job {
                let count = grant.total();
                step =
                    step.on_success(job_event(job, "ScaleIn", format!("releasing {count} nodes")));
            }
            self.plan.steps.push(step);
        }
        Err(Reason::Releasing)
    }

    /// Records why something is not done: as a held reason, and on the job for its author.
    fn finish(mut self, job: Option<&AppWrapper>, reason: Option<Reason>) -> Plan {
        let about = job.map_or_else(
            || ObjectReference {
                resource: AppWrapper::RESOURCE,
                key: self.key.clone(),
                uid: gantry_reconcile::Uid::default(),
                field: String::new(),
            },
            |job| ObjectReference::to(&AppWrapper::RESOURCE, &job.metadata),
        );
        let told = reason.as_ref().filter(|it| it.is_reported_on_job());
        let note = told.map(|it| Event::warning(about.clone(), it.as_str(), it.message()));
        if let Some(job) = job {
            let shown = job.metadata.annotations.get(MESSAGE_ANNOTATION);
            let message = told.map(Reason::message);
            if shown != message.as_ref() && !job.metadata.is_terminating() {
                self.edit.annotate(MESSAGE_ANNOTATION, message.map_or(Value::Null, Value::from));
            }
            if let Some(write) = self.edit.write(job) {
                // The annotation also keeps the event from being repeated.
                let step = Step::new(write);
                let fresh = note.filter(|it| shown != Some(&it.message));
                self.plan.steps.push(match fresh {
                    Some(note) => step.on_success(note),
                    None => step,
                });
            }
        }
        if let Some(reason) = reason {
            self.plan.hold(reason.held(about), self.now);
        }
        self.plan
    }
}

fn after(since: Timestamp, wait: Duration) -> Timestamp {
    since.checked_add(wait).unwrap_or(Timestamp::MAX)
}

fn job_event(job: &AppWrapper, reason: &'static str, message: String) -> Event {
    Event::normal(ObjectReference::to(&AppWrapper::RESOURCE, &job.metadata), reason, message)
}

/// Returns the patch of the job itself: the fields of one write.
fn job_patch(finalizers: Option<Vec<String>>, annotations: Map<String, Value>) -> Value {
    let mut metadata = Map::new();
    if let Some(finalizers) = finalizers {
        metadata.insert("finalizers".to_owned(), json!(finalizers));
    }
    if !annotations.is_empty() {
        metadata.insert("annotations".to_owned(), Value::Object(annotations));
    }
    json!({ "metadata": metadata })
}

/// Returns the write that changes a job.
fn job_write(job: &AppWrapper, body: Value) -> Write {
    Write::Merge {
        resource: AppWrapper::RESOURCE,
        key: job.metadata.key(),
        subresource: Subresource::Main,
        fence: job.metadata.fence(),
        body,
    }
}
