//! Decides about one job at a time.

use std::collections::BTreeSet;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use gantry_reconcile::{
    Change, Controller, FactChange, FactKind, Key, Kind, Note, Part, Plan, Reference, Step,
    View as _, World, Write,
};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::demand::{Demand, is_over, is_pending};
use crate::ledger::{Former, Grant, Ledger};
use crate::limits::{has_given_up, next, successor};
use crate::marks::{self, GAVE_UP, MESSAGE, OWNER};
use crate::pool::{self, PoolListing};
use crate::reason::Reason;
use crate::settings::{Backend, Limits, Settings};
use crate::view::{AppWrapper, ConfigMap, Machine, MachineSet, Node, only_lives};

mod backend;
mod edit;

use edit::{Edit, is_held};

/// Buys nodes for jobs that wait for want of resources, and gives them back when they are over.
#[derive(Debug)]
pub struct Scaling {
    backend: Backend,
    ledger: Key,
    limits: RwLock<Limits>,
}

impl Scaling {
    /// A controller that is told this.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let Settings { limits, backend, ledger } = settings;
        Self { backend, ledger, limits: RwLock::new(limits) }
    }

    /// Lets other limits apply from the next plan on. What was bought stays.
    pub fn set_limits(&self, limits: Limits) {
        // No code of others runs under the lock, so a poisoned one is still good.
        *self.limits.write().unwrap_or_else(PoisonError::into_inner) = limits;
    }

    pub(crate) fn settings(&self) -> Settings {
        let limits = *self.limits.read().unwrap_or_else(PoisonError::into_inner);
        Settings { limits, backend: self.backend, ledger: self.ledger.clone() }
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
        let Some(change) = change.of::<PoolListing>().filter(|it| it.is_news()) else {
            return Vec::new();
        };
        let [before, after] = [change.before, change.after].map(|it| it.and_then(|it| it.value()));
        let Ok(ledger) = Ledger::read(world, &self.ledger) else { return Vec::new() };
        let mut keys = pool::owners_of_changed(before, after);
        if before != after {
            // A name may have become free.
            keys.extend(next(world, &ledger, &self.settings()));
        }
        if before.is_none() {
            // No job was served before the pools were known.
            keys.extend(ledger.iter().map(|(job, _)| job.clone()));
            let jobs = world.shelf::<AppWrapper>().tagged(&AppWrapper::labelled());
            keys.extend(jobs.iter().map(|job| job.metadata.key()));
        }
        keys.into_iter().collect()
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        if change.is::<AppWrapper>() {
            return self.of_job(world, change);
        }
        if only_lives(change) {
            return Vec::new();
        }
        let Ok(ledger) = Ledger::read(world, &self.ledger) else { return Vec::new() };
        let mut keys: BTreeSet<Key> = self.owners(&ledger, change).into_iter().collect();
        // Room, a place or a name may have become free.
        keys.extend(next(world, &ledger, &self.settings()));
        if change.is::<ConfigMap>() {
            keys.extend(ledger.iter().map(|(job, _)| job.clone()));
            // One whose entry is gone may go.
            keys.extend(change.both::<ConfigMap>().flat_map(|it| ledger.jobs_in(it)));
            keys.extend(idle(world));
        }
        keys.into_iter().collect()
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let mut turn = Turn {
            settings: self.settings(),
            world,
            key,
            now,
            plan: Plan::default(),
            edit: Edit::default(),
        };
        let job = world.shelf::<AppWrapper>().get(key);
        if job.is_none() && world.shelf::<AppWrapper>().is_unreadable(key) {
            // It is there. What it wants is not known, and what it has is not taken away.
            return self.keep_calls(world, key, turn.plan);
        }
        let reason = turn.take(job.as_deref());
        let plan = turn.end(job.as_deref(), reason.err());
        self.keep_calls(world, key, plan)
    }
}

/// Jobs that wait for something that is not theirs.
fn idle(world: &World) -> Vec<Key> {
    let jobs = world.shelf::<AppWrapper>().tagged(&AppWrapper::labelled());
    let idle = jobs
        .iter()
        .filter(|job| job.metadata.is_going() || job.metadata.annotations.contains_key(MESSAGE));
    idle.map(|job| job.metadata.key()).collect()
}

impl Scaling {
    /// The plan, with the calls about pools that must not be given up.
    fn keep_calls(&self, world: &World, key: &Key, mut plan: Plan) -> Plan {
        match self.backend {
            Backend::Pools(_) => pool::keep_calls(world, key, &mut plan),
            Backend::Reuse | Backend::Duplicate | Backend::Groups => {}
        }
        plan
    }

    /// Whose turn it is after a change of a job: its own, and of those that take its place.
    fn of_job(&self, world: &World, change: &Change) -> Vec<Key> {
        let asks = |job: &AppWrapper| Demand::of(job).is_some() || is_held(job);
        let Ok(ledger) = Ledger::read(world, &self.ledger) else {
            return vec![change.key.clone()];
        };
        let mut keys = Vec::new();
        if change.both::<AppWrapper>().any(asks) || ledger.get(&change.key).is_some() {
            keys.push(change.key.clone());
            keys.extend(next(world, &ledger, &self.settings()));
            // One that waits now may take over the nodes of one that is over.
            let over = ledger.iter().filter(|(_, grant)| grant.over.is_some());
            keys.extend(over.map(|(job, _)| job.clone()));
        }
        keys
    }

    /// The jobs that something is marked for, as it was and as it is.
    fn owners(&self, ledger: &Ledger, change: &Change) -> Vec<Key> {
        let metas = change
            .both::<MachineSet>()
            .map(|it| &it.metadata)
            .chain(change.both::<Machine>().map(|it| &it.metadata))
            .chain(change.both::<Node>().map(|it| &it.metadata));
        let mut owners = Vec::new();
        for meta in metas {
            let named = meta
                .annotations
                .iter()
                .filter(|(key, _)| *key == OWNER || key.starts_with("instascale.codeflare.dev-"));
            owners.extend(named.filter_map(|(_, text)| marks::owner(text)));
            owners.extend(
                ledger
                    .iter()
                    .map(|(job, _)| job)
                    .filter(|job| meta.labels.contains_key(&marks::Marks::of(job).mine))
                    .cloned(),
            );
        }
        let sets = change.both::<MachineSet>().map(|set| set.metadata.key());
        let machines = change.both::<Machine>().filter_map(|machine| {
            let set = machine.metadata.labels.get(crate::view::SET_LABEL)?;
            Some(Key::new(&machine.metadata.namespace, set))
        });
        for set in sets.chain(machines) {
            let place = crate::machine_set::place(&set);
            let granted = ledger.iter().filter(|(_, grant)| grant.at(&place) > 0);
            owners.extend(granted.map(|(job, _)| job.clone()));
        }
        // A node that comes up is known by its machine.
        let nodes: Vec<&str> = change.both::<Node>().map(|it| it.metadata.name.as_str()).collect();
        if !nodes.is_empty() && matches!(self.backend, Backend::Reuse | Backend::Duplicate) {
            owners.extend(ledger.iter().map(|(job, _)| job.clone()));
        }
        owners
    }
}

/// The making of one plan.
struct Turn<'a> {
    settings: Settings,
    world: &'a World,
    key: &'a Key,
    now: Timestamp,
    plan: Plan,
    edit: Edit,
}

impl Turn<'_> {
    /// Decides. What is not done is the error.
    fn take(&mut self, job: Option<&AppWrapper>) -> Result<(), Reason> {
        let ledger = Ledger::read(self.world, &self.settings.ledger).map_err(Reason::Ledger)?;
        if matches!(self.settings.backend, Backend::Pools(_)) && !pool::are_known(self.world) {
            self.plan.look_within(pool::LIST_INTERVAL);
            return Err(Reason::PoolsUnknown);
        }
        let grant = ledger.get(self.key);
        let alive = job.filter(|job| !is_over(job));
        let wanted = alive.and_then(|job| Some((job, Demand::of(job)?)));
        let is_same =
            |job: &AppWrapper| grant.is_none_or(|grant| grant.uid == job.metadata.uid.as_str());
        match wanted {
            Some((job, demand)) if is_same(job) => {
                if !is_held(job) {
                    self.edit.hold(job);
                    return Ok(());
                }
                let given_up = has_given_up(job, &demand);
                match grant {
                    Some(grant) if given_up && is_pending(job) => {
                        // Why nodes are given back says more than that they are.
                        let _ = self.give_back(&ledger, Some(job), Some(grant));
                        Err(Reason::GaveUp { demand })
                    }
                    Some(grant) => self.keep(&ledger, job, grant, &demand),
                    None if given_up => Err(Reason::GaveUp { demand }),
                    None => self.begin(&ledger, job, &demand),
                }
            }
            Some((job, _)) => self.give_back(&ledger, Some(job), grant),
            None => {
                self.give_back(&ledger, job, grant)?;
                if let (Some(job), None) = (job, grant) {
                    self.edit.let_go(job);
                }
                Ok(())
            }
        }
    }

    /// A job that has nothing: it is granted what it needs, if it is its turn.
    fn begin(&mut self, ledger: &Ledger, job: &AppWrapper, demand: &Demand) -> Result<(), Reason> {
        if let Some(rival) = ledger.rival(self.key) {
            return Err(Reason::Rival(rival));
        }
        let backend = self.settings.backend;
        let found = backend.found(self.world, &self.settings.ledger, self.key);
        if !found.is_empty() {
            // Bought by somebody who kept no ledger, or whose ledger was lost.
            let id = backend.grant_of(self.world, self.key);
            let grant = Grant { lots: found, ..self.grant(job, id) };
            self.plan.write(ledger.write(&[(self.key, Some(&grant))]));
            return Ok(());
        }
        if !crate::demand::waits_for_room(job) {
            return Ok(());
        }
        let most = self.settings.limits.nodes;
        let mut grant = self.grant(job, None);
        grant.lots = backend.place(self.world, ledger, self.key, &grant.id, demand, &[])?;
        if !next(self.world, ledger, &self.settings).contains(self.key) {
            return Err(Reason::Limit { demand: demand.clone(), most });
        }
        let note = note(job, "ScaleOut", format!("nodes are bought for it: {demand}"));
        self.plan.steps.push(Step::new(ledger.write(&[(self.key, Some(&grant))])).done(note));
        Ok(())
    }

    fn grant(&self, job: &AppWrapper, id: Option<String>) -> Grant {
        let uid = job.metadata.uid.as_str();
        let since = self.now;
        let id = id.unwrap_or_else(|| marks::grant(self.key, uid, &since.to_string()));
        Grant { id, uid: uid.to_owned(), since, lots: Vec::new(), over: None, from: None }
    }

    /// A job that was granted nodes: they are bought, and made its own.
    fn keep(
        &mut self,
        ledger: &Ledger,
        job: &AppWrapper,
        grant: &Grant,
        demand: &Demand,
    ) -> Result<(), Reason> {
        let backend = self.settings.backend;
        let mut changed = Grant { over: None, ..grant.clone() };
        let mut short = None;
        if !grant.meets(demand) {
            match backend.place(self.world, ledger, self.key, &grant.id, demand, &grant.lots) {
                Ok(lots) => {
                    let more = Grant { lots, ..changed.clone() };
                    let most = self.settings.limits.nodes;
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
            && !backend.bears(self.world, &former)
        {
            changed.from = None;
        }
        if changed != *grant {
            // What is done next depends on it, and is done when it is seen.
            self.plan.write(ledger.write(&[(self.key, Some(&changed))]));
            return short.map_or(Ok(()), Err);
        }
        let ready =
            backend.provide(self.world, &self.settings.ledger, self.key, grant, &mut self.plan)?;
        let wanted = grant.total();
        if ready < wanted && is_pending(job) {
            let until = after(grant.since, self.settings.limits.provision);
            if self.now >= until {
                self.edit.annotate(GAVE_UP, json!(demand.to_string()));
                return Err(Reason::GaveUp { demand: demand.clone() });
            }
            return Err(short.unwrap_or(Reason::Provisioning { ready, wanted, until }));
        }
        short.map_or(Ok(()), Err)
    }

    /// What a job has that is over, or has no right to it, is given back, or handed over.
    fn give_back(
        &mut self,
        ledger: &Ledger,
        job: Option<&AppWrapper>,
        grant: Option<&Grant>,
    ) -> Result<(), Reason> {
        let backend = self.settings.backend;
        let Some(grant) = grant else {
            // What was handed over bears the old marks for a while, and is somebody's.
            if ledger.handed_over(self.key) || ledger.rival(self.key).is_some() {
                return Ok(());
            }
            let done = backend.give_back(self.world, self.key, None, &mut self.plan);
            return if done { Ok(()) } else { Err(Reason::Returning) };
        };
        if let Some(job) = job.filter(|job| is_over(job))
            && backend.hands_over()
            && grant.from.is_none()
            && let Some(heir) = successor(self.world, ledger, &self.settings, (job, grant))
        {
            let next = heir.metadata.key();
            let uid = heir.metadata.uid.as_str();
            let since = self.now;
            let from = Former { job: marks::Marks::of(self.key).owner, id: grant.id.clone() };
            let grant = Grant {
                id: marks::grant(&next, uid, &since.to_string()),
                uid: uid.to_owned(),
                since,
                lots: grant.lots.clone(),
                over: None,
                from: Some(from),
            };
            let note = note(&heir, "TakeOver", format!("takes over the nodes of {}", self.key));
            let write = ledger.write(&[(self.key, None), (&next, Some(&grant))]);
            self.plan.steps.push(Step::new(write).done(note));
            return Err(Reason::Returning);
        }
        let cooldown = self.settings.limits.cooldown;
        let gave_up = job.is_some_and(|job| !is_over(job));
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
        if backend.give_back(self.world, self.key, Some(grant), &mut self.plan) {
            let mut step = Step::new(ledger.write(&[(self.key, None)]));
            if let Some(job) = job {
                let count = grant.total();
                step = step.done(note(job, "ScaleIn", format!("{count} nodes are given back")));
            }
            self.plan.steps.push(step);
        }
        Err(Reason::Returning)
    }

    /// Puts down why something is not done: for everybody, and on the job where its author should know.
    fn end(mut self, job: Option<&AppWrapper>, reason: Option<Reason>) -> Plan {
        let about = job.map_or_else(
            || Reference {
                resource: AppWrapper::RESOURCE,
                key: self.key.clone(),
                uid: gantry_reconcile::Uid::default(),
                field: String::new(),
            },
            |job| Reference::to(&AppWrapper::RESOURCE, &job.metadata),
        );
        let told = reason.as_ref().filter(|it| it.is_told());
        let note = told.map(|it| Note::warning(about.clone(), it.word(), it.message()));
        if let Some(job) = job {
            let shown = job.metadata.annotations.get(MESSAGE);
            let message = told.map(Reason::message);
            if shown != message.as_ref() && !job.metadata.is_going() {
                self.edit.annotate(MESSAGE, message.map_or(Value::Null, Value::from));
            }
            if let Some(write) = self.edit.write(job) {
                // The annotation also keeps the event from being told again and again.
                let step = Step::new(write);
                let fresh = note.filter(|it| shown != Some(&it.message));
                self.plan.steps.push(match fresh {
                    Some(note) => step.done(note),
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

fn note(job: &AppWrapper, reason: &'static str, message: String) -> Note {
    Note::normal(Reference::to(&AppWrapper::RESOURCE, &job.metadata), reason, message)
}

/// A change of the job itself: the fields of one write.
fn fields(finalizers: Option<Vec<String>>, annotations: Map<String, Value>) -> Value {
    let mut metadata = Map::new();
    if let Some(finalizers) = finalizers {
        metadata.insert("finalizers".to_owned(), json!(finalizers));
    }
    if !annotations.is_empty() {
        metadata.insert("annotations".to_owned(), Value::Object(annotations));
    }
    json!({ "metadata": metadata })
}

/// The write that changes a job.
fn change(job: &AppWrapper, body: Value) -> Write {
    Write::Merge {
        resource: AppWrapper::RESOURCE,
        key: job.metadata.key(),
        part: Part::Main,
        fence: job.metadata.fence(),
        body,
    }
}
