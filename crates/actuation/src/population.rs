//! Keeps the stock of launchers that policies ask for.
//!
//! A key is a node and a LauncherConfig. Launchers that are bound count towards the wish and are
//! never deleted; idle ones of an older template are replaced, and idle ones beyond the wish are
//! deleted.

mod desired;
mod phase;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gantry_pods::view::{Node, Phase};
use gantry_reconcile::{
    Change, Controller, Event, FactChange, FactKind, Fence, Held, Key, Kind, ObjectReference, Plan,
    Propagation, Step, Subresource, View as _, World, Write,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

pub use self::desired::{Desired, desired_launchers};
pub use self::phase::{LauncherPhase, Thresholds, launcher_phase};
use crate::bookkeeping::InstanceUse;
use crate::engine_failures::EngineFailures;
use crate::facts::{Endpoint, LauncherState};
use crate::labels::{
    POPULATION_MANAGER, REQUESTER_ANNOTATION, STUCK_LABEL, TEMPLATE_HASH_ANNOTATION,
};
use crate::launcher_template::{LauncherTemplate, launcher_template};
use crate::object_names::{LauncherPlace, length_problem, stocked_launcher};
use crate::object_status::{REFUSED_TEMPLATE, refused_template, report};
use crate::settings::{LiveSettings, Settings};
use crate::view::{ActuationPod, LauncherConfig, LauncherPopulationPolicy, launchers_of, on_node};

/// Keeps the stock of launchers.
#[derive(Clone, Debug)]
pub struct PopulationController {
    settings: LiveSettings,
}

impl PopulationController {
    /// Keeps the stock with these settings.
    #[must_use]
    pub fn new(settings: impl Into<LiveSettings>) -> Self {
        Self { settings: settings.into() }
    }

    /// The key of the launchers of a LauncherConfig on a node.
    #[must_use]
    pub fn key(namespace: &str, node: &str, config: &str) -> Key {
        Key::new(namespace, &format!("{node}/{config}"))
    }
}

impl Controller for PopulationController {
    fn name(&self) -> &'static str {
        POPULATION_MANAGER
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![
            Kind::of::<LauncherPopulationPolicy>(),
            Kind::of::<LauncherConfig>(),
            Kind::of::<ActuationPod>(),
            Kind::of::<Node>(),
        ]
    }

    fn facts(&self) -> Vec<FactKind> {
        vec![FactKind::of::<LauncherState>()]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        let mut keys = BTreeSet::new();
        for pod in change.both::<ActuationPod>().filter(|it| it.variant().is_none()) {
            keys.extend(key_of(pod));
        }
        let nodes = || -> Vec<String> {
            let all = world.store::<Node>().list();
            all.iter().map(|it| it.metadata.name.clone()).collect()
        };
        for policy in change.both::<LauncherPopulationPolicy>() {
            let counts = policy.spec.iter().flat_map(|it| &it.count_for_launcher);
            for count in counts {
                let config = &count.launcher_config_name;
                let namespace = &policy.metadata.namespace;
                keys.extend(nodes().iter().map(|node| Self::key(namespace, node, config)));
            }
        }
        if change.is::<LauncherConfig>() {
            let (namespace, config) = (change.key.namespace(), change.key.name());
            keys.extend(nodes().iter().map(|node| Self::key(namespace, node, config)));
        }
        if change.is::<Node>() {
            let node = change.key.name();
            let configs = world.store::<LauncherConfig>().list();
            let named = configs.iter().map(|it| &it.metadata);
            keys.extend(named.map(|it| Self::key(&it.namespace, node, &it.name)));
            let pods = world.store::<ActuationPod>().by_index(&on_node(node));
            keys.extend(pods.iter().filter_map(|it| key_of(it)));
        }
        keys.into_iter().collect()
    }

    fn enqueue_for_fact(&self, world: &World, change: &FactChange) -> Vec<Key> {
        let Some(change) = change.of::<LauncherState>().filter(|it| it.is_significant()) else {
            return Vec::new();
        };
        let pod = world.store::<ActuationPod>().get(&change.subject.pod);
        pod.and_then(|it| key_of(&it)).into_iter().collect()
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let Some((node, config)) = key.name().split_once('/') else { return Plan::default() };
        let index = launchers_of(key.namespace(), config, node);
        let mut launchers = world.store::<ActuationPod>().by_index(&index);
        launchers.sort_by_key(|it| it.metadata.key());
        let config_key = key.in_same_namespace(config);
        let config = world.store::<LauncherConfig>().get(&config_key);
        let settings = self.settings.get();
        let mut stock = Stock {
            world,
            settings: &settings,
            now,
            node,
            key: config_key,
            launchers,
            plan: Plan::default(),
        };
        stock.reconcile(config.as_deref());
        stock.plan
    }
}

/// The key of a launcher.
fn key_of(pod: &ActuationPod) -> Option<Key> {
    let config = pod.launcher_config()?;
    Some(PopulationController::key(&pod.metadata.namespace, &pod.selected_node, config))
}

/// The launchers of one LauncherConfig on one node.
struct Stock<'a> {
    world: &'a World,
    settings: &'a Settings,
    now: Timestamp,
    node: &'a str,
    key: Key,
    launchers: Vec<Arc<ActuationPod>>,
    plan: Plan,
}

impl Stock<'_> {
    fn reconcile(&mut self, config: Option<&LauncherConfig>) {
        let policies = self.world.store::<LauncherPopulationPolicy>();
        let policies = policies.in_namespace(self.key.namespace());
        let node = self.world.store::<Node>().get(&Key::cluster(self.node));
        let node = node.filter(|it| !it.metadata.is_terminating());
        let Some(node) = node else {
            // Nobody else removes a pod that was never bound to the node. Bound launchers follow
            // their requesters.
            return self.delete_idle(|_| true);
        };
        let template = config.map(|it| launcher_template(it, &self.settings.notifier_command));
        let desired = desired_launchers(&policies, &node, self.key.name());
        let (count, template) = match (desired, template) {
            (Desired::HandsOff, _) => {
                let message = "a policy that selects the node cannot be read".to_owned();
                return self.hold("InvalidPolicy", message);
            }
            (Desired::Count(_), Some(Ok(template))) => (desired.count(), Some(template)),
            (Desired::Count(_), Some(Err(problem))) => return self.hold("Malformed", problem),
            (Desired::Count(_), None) => {
                let message = format!("LauncherConfig {} does not exist", self.key.name());
                return self.hold("NoLauncherConfig", message);
            }
            // No policy asks for launchers: without a LauncherConfig all idle ones are stale.
            (Desired::None, template) => (0, template.and_then(Result::ok)),
        };
        if let Some(problem) = length_problem("node", self.node).filter(|_| count > 0) {
            return self.hold("NameTooLong", problem);
        }
        self.keep(count, template.as_ref(), config);
    }

    fn keep(
        &mut self,
        count: usize,
        template: Option<&LauncherTemplate>,
        config: Option<&LauncherConfig>,
    ) {
        let all = self.launchers.clone();
        let (leaving, present): (Vec<_>, Vec<_>) =
            all.iter().partition(|it| it.metadata.is_terminating());
        let is_bound = |it: &Arc<ActuationPod>| it.annotation(REQUESTER_ANNOTATION).is_some();
        let (bound, idle): (Vec<_>, Vec<_>) = present.into_iter().partition(|it| is_bound(it));
        let hash = template.map(|it| it.hash.as_str());
        let is_current = |it: &&Arc<ActuationPod>| {
            hash.is_some() && it.annotation(TEMPLATE_HASH_ANNOTATION) == hash
        };
        let (current, stale): (Vec<_>, Vec<_>) = idle.into_iter().partition(is_current);
        let (failed, current): (Vec<_>, Vec<_>) =
            current.into_iter().partition(|it| it.phase == Phase::Failed);
        let mut deleted = self.delete_failed(&failed);
        let kept = bound.len() + current.len();
        // Nothing is on its way: what was deleted before has its replacement.
        let is_whole = leaving.is_empty() && failed.is_empty() && kept + stale.len() >= count;
        deleted += self.delete_stale(&stale, is_whole && current.iter().all(|it| it.is_ready()));
        if kept > count {
            self.delete_excess(&current, kept - count);
            return;
        }
        self.report_stuck(&current, hash);
        let gone = leaving.len() + deleted + failed.len();
        let missing = count.saturating_sub(kept + stale.len().saturating_sub(deleted));
        if missing == 0 {
            return;
        }
        if gone > 0 {
            let message = format!("waits until {gone} launchers are deleted");
            return self.hold("AwaitingDeletion", message);
        }
        let (Some(template), Some(config)) = (template, config) else { return };
        self.create(missing, template, config);
    }

    /// Deletes idle launchers that have failed, after a grace period.
    fn delete_failed(&mut self, failed: &[&Arc<ActuationPod>]) -> usize {
        let mut deleted = 0;
        for launcher in failed {
            let since = launcher.unready_since().unwrap_or(self.now);
            let due = after(since, self.settings.failed_grace);
            if self.now < due {
                self.plan.requeue_at(due, self.now);
                continue;
            }
            self.delete(launcher, "LauncherFailed");
            deleted += 1;
        }
        deleted
    }

    /// Deletes idle launchers of another template: empty ones at once, of those with sleepers the
    /// one used least recently, once its replacement is ready. Returns how many.
    fn delete_stale(&mut self, stale: &[&Arc<ActuationPod>], is_replaced: bool) -> usize {
        let (empty, mut used): (Vec<_>, Vec<_>) =
            stale.iter().copied().partition(|it| self.sleepers(it) == 0 || self.is_at_once());
        for launcher in &empty {
            self.delete(launcher, "LauncherStale");
        }
        used.sort_by_key(|it| (it.last_use(), it.metadata.name.clone()));
        let next = used.first().filter(|_| empty.is_empty() && is_replaced);
        if let Some(launcher) = next {
            self.delete(launcher, "LauncherStale");
        }
        empty.len() + usize::from(next.is_some())
    }

    /// Deletes this many idle launchers, the least useful first.
    fn delete_excess(&mut self, idle: &[&Arc<ActuationPod>], excess: usize) {
        let mut ranked: Vec<&Arc<ActuationPod>> = idle.to_vec();
        ranked.sort_by_key(|it| {
            let is_stuck = it.label(STUCK_LABEL).is_some();
            let sleepers = self.sleepers(it);
            (!is_stuck, sleepers > 0, it.last_use(), it.metadata.name.clone())
        });
        for launcher in ranked.into_iter().take(excess) {
            let due = after(launcher.last_use(), self.settings.retention);
            let kept_until = EngineFailures::read(launcher).kept_until();
            let due = match self.sleepers(launcher) > 0 {
                true => kept_until.map_or(due, |it| it.max(due)),
                false => kept_until.unwrap_or(Timestamp::MIN),
            };
            if self.now < due {
                self.plan.requeue_at(due, self.now);
                continue;
            }
            self.delete(launcher, "LauncherExcess");
        }
    }

    /// Whether sleepers keep no launcher, as in the original.
    fn is_at_once(&self) -> bool {
        self.settings.retention.is_zero()
    }

    /// How many instances a launcher has, as far as is known.
    fn sleepers(&self, launcher: &ActuationPod) -> usize {
        let facts = self.world.facts::<LauncherState>();
        let state = facts.observed(&Endpoint::launcher(launcher));
        // Before it was asked, its own record says which instances it had.
        state.map_or_else(
            || {
                usize::from(
                    launcher.is_reachable()
                        && InstanceUse::read(launcher) != InstanceUse::default(),
                )
            },
            |it| it.value.instances.iter().filter(|it| !it.is_stopped).count(),
        )
    }

    fn delete_idle(&mut self, which: impl Fn(&ActuationPod) -> bool) {
        for launcher in self.launchers.clone() {
            let is_idle = launcher.annotation(REQUESTER_ANNOTATION).is_none();
            if is_idle && !launcher.metadata.is_terminating() && which(&launcher) {
                self.delete(&launcher, "NodeGone");
            }
        }
    }

    fn create(&mut self, missing: usize, template: &LauncherTemplate, config: &LauncherConfig) {
        let taken: BTreeSet<String> =
            self.launchers.iter().map(|it| it.metadata.name.clone()).collect();
        let name = |place: usize| {
            let place = LauncherPlace {
                node: self.node,
                config: &config.metadata.uid,
                template_hash: &template.hash,
                place,
            };
            stocked_launcher(&config.metadata.name, place)
        };
        let names: Vec<String> =
            (0..).map(name).filter(|it| !taken.contains(it)).take(missing).collect();
        let owner = ObjectReference::to(&LauncherConfig::RESOURCE, &config.metadata);
        if let Some(problem) = self.refusal(config) {
            let held = "LauncherRefused";
            if !config.status.errors.contains(&problem) {
                let event = Event::warning(owner, held, problem.clone());
                let errors = vec![problem.clone()];
                let step =
                    report(LauncherConfig::RESOURCE, &config.metadata, &config.status, errors);
                self.plan.steps.extend(step.map(|it| it.on_success(event)));
            }
            return self.hold(held, problem);
        }
        for name in names {
            let body = template.pod(&name, self.node);
            let create = Write::Create { resource: ActuationPod::RESOURCE, body };
            self.plan.steps.push(Step::new(create).require_present(owner.clone()));
        }
    }

    /// Why the server refuses the launchers of this generation of the LauncherConfig.
    fn refusal(&self, config: &LauncherConfig) -> Option<String> {
        if let Some(known) = refused_template(config) {
            return Some(known.to_owned());
        }
        let (namespace, name) = (self.key.namespace(), self.key.name());
        let key = PopulationController::key(namespace, self.node, name);
        let refused = self.world.refused_writes(POPULATION_MANAGER, &key);
        let refused = refused.iter().find(|it| it.verb == "create" && it.refusal.code == 422);
        refused.map(|it| format!("{REFUSED_TEMPLATE}: {}", it.refusal))
    }

    /// Labels launchers that have not become ready for long, and removes the label when they do.
    fn report_stuck(&mut self, idle: &[&Arc<ActuationPod>], hash: Option<&str>) {
        let thresholds = Thresholds::of(self.settings);
        for launcher in idle {
            let (phase, next) = launcher_phase(launcher, hash, thresholds, self.now);
            if let Some(next) = next {
                self.plan.requeue_at(next, self.now);
            }
            let is_labelled = launcher.label(STUCK_LABEL).is_some();
            if phase.is_stuck() == is_labelled {
                continue;
            }
            let value = if phase.is_stuck() { json!("true") } else { Value::Null };
            let write = Write::Merge {
                resource: ActuationPod::RESOURCE,
                key: launcher.metadata.key(),
                subresource: Subresource::Main,
                fence: Fence { uid: launcher.metadata.uid.clone(), revision: None },
                body: json!({"metadata": {"labels": {STUCK_LABEL: value}}}),
            };
            let mut step = Step::new(write);
            if phase.is_stuck() {
                let about = ObjectReference::to(&ActuationPod::RESOURCE, &launcher.metadata);
                let message = format!("the launcher does not become ready: {}", phase.as_str());
                step = step.on_success(Event::warning(about, "LauncherStuck", message));
            }
            self.plan.steps.push(step);
        }
    }

    fn delete(&mut self, launcher: &ActuationPod, reason: &'static str) {
        let about = ObjectReference::to(&ActuationPod::RESOURCE, &launcher.metadata);
        let message = format!("launcher of {} on node {} is deleted", self.key.name(), self.node);
        let write = Write::Delete {
            resource: ActuationPod::RESOURCE,
            key: launcher.metadata.key(),
            fence: launcher.metadata.fence(),
            grace: None,
            propagation: Some(Propagation::Background),
        };
        self.plan.steps.push(Step::new(write).on_success(Event::normal(about, reason, message)));
    }

    fn hold(&mut self, reason: &'static str, message: String) {
        let about = ObjectReference {
            resource: LauncherConfig::RESOURCE,
            key: self.key.clone(),
            uid: gantry_reconcile::Uid::default(),
            field: String::new(),
        };
        self.plan.hold(Held { about, reason: reason.into(), message, until: None }, self.now);
    }
}

fn after(start: Timestamp, wait: std::time::Duration) -> Timestamp {
    let wait = SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX);
    start.checked_add(wait).unwrap_or(Timestamp::MAX)
}

/// How many launchers of each phase a LauncherConfig has on a node, for metrics.
#[must_use]
pub fn phase_counts(
    launchers: &[Arc<ActuationPod>],
    hash: Option<&str>,
    thresholds: Thresholds,
    now: Timestamp,
) -> BTreeMap<LauncherPhase, usize> {
    let mut counts: BTreeMap<LauncherPhase, usize> =
        LauncherPhase::ALL.into_iter().map(|it| (it, 0)).collect();
    for launcher in launchers {
        let (phase, _) = launcher_phase(launcher, hash, thresholds, now);
        *counts.entry(phase).or_default() += 1;
    }
    counts
}
