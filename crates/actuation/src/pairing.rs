//! Pairs requesters with providers: binds, wakes, serves, puts to sleep, unbinds.
//!
//! A key is the UID of a requester. The binding of a provider, its counter, and the beginning of
//! its end are in the provider's annotations, each written in one update; what engines and
//! launchers do are facts. So a process that starts knows what was decided, and asks for the rest.

mod accelerators;
mod choice;
mod creation;
mod failing;
mod serving;
mod status;
mod unbinding;
mod waiting;

use std::collections::BTreeSet;
use std::sync::Arc;

use gantry_pods::view::Node;
use gantry_reconcile::{
    Call, CallState, Change, Controller, Event, FactChange, FactKind, Held, Key, Kind,
    ObjectReference, Observed, Plan, Propagation, Resource, Step, Subresource, Uid, View as _,
    World, Write,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::facts::{
    AcceleratorMemory, ClaimAllocation, EngineState, InstanceLog, LauncherState,
    RequesterAccelerators,
};
use crate::labels::{PAIRING_MANAGER, REQUESTER_FINALIZER};
use crate::settings::{LiveSettings, Settings};
use crate::view::{
    AcceleratorMap, ActuationPod, InferenceServerConfig, LauncherConfig, bound_to, on_node,
    requester_with_uid, with_server_config,
};

/// Pairs requesters with providers.
#[derive(Clone, Debug)]
pub struct PairingController {
    settings: LiveSettings,
}

impl PairingController {
    /// Pairs with these settings.
    #[must_use]
    pub fn new(settings: impl Into<LiveSettings>) -> Self {
        Self { settings: settings.into() }
    }
}

impl Controller for PairingController {
    fn name(&self) -> &'static str {
        PAIRING_MANAGER
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![
            Kind::of::<ActuationPod>(),
            Kind::of::<InferenceServerConfig>(),
            Kind::of::<LauncherConfig>(),
            Kind::of::<AcceleratorMap>(),
            Kind::of::<Node>(),
        ]
    }

    fn facts(&self) -> Vec<FactKind> {
        vec![
            FactKind::of::<LauncherState>(),
            FactKind::of::<EngineState>(),
            FactKind::of::<RequesterAccelerators>(),
            FactKind::of::<AcceleratorMemory>(),
            FactKind::of::<InstanceLog>(),
            FactKind::of::<ClaimAllocation>(),
        ]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        let pods = world.store::<ActuationPod>();
        let mut keys = BTreeSet::new();
        for pod in change.both::<ActuationPod>() {
            if pod.variant().is_some() {
                keys.insert(pod.pairing_key());
            } else if pod.is_provider() {
                let namespace = &pod.metadata.namespace;
                keys.extend(pod.binding().map(|it| Key::new(namespace, it.uid.as_str())));
                // Whatever happens to a provider may be what others on its node wait for.
                keys.extend(requesters_on(world, &pod.selected_node));
            }
        }
        if change.is::<Node>() {
            keys.extend(requesters_on(world, change.key.name()));
        }
        let named = |config: &Key| {
            let index = with_server_config(config.namespace(), config.name());
            pods.by_index(&index).iter().map(|it| it.pairing_key()).collect::<Vec<_>>()
        };
        if change.is::<InferenceServerConfig>() {
            keys.extend(named(&change.key));
        }
        if change.is::<LauncherConfig>() {
            let (namespace, name) = (change.key.namespace(), change.key.name());
            let index = InferenceServerConfig::of_launcher_config(namespace, name);
            let configs = world.store::<InferenceServerConfig>().by_index(&index);
            keys.extend(configs.iter().flat_map(|it| named(&it.metadata.key())));
        }
        if change.both::<AcceleratorMap>().any(|it| it.metadata.name == crate::labels::GPU_MAP) {
            let all = pods.in_namespace(change.key.namespace());
            let requesters = all.iter().filter(|it| it.variant().is_some());
            keys.extend(requesters.map(|it| it.pairing_key()));
        }
        keys.into_iter().collect()
    }

    fn enqueue_for_fact(&self, world: &World, change: &FactChange) -> Vec<Key> {
        let (pod, is_significant) = if let Some(change) = change.of::<LauncherState>() {
            (change.subject.pod.clone(), change.is_significant())
        } else if let Some(change) = change.of::<EngineState>() {
            (change.subject.endpoint.pod.clone(), change.is_significant())
        } else if let Some(change) = change.of::<RequesterAccelerators>() {
            (change.subject.pod.clone(), false)
        } else if let Some(change) = change.of::<ClaimAllocation>() {
            (change.subject.pod.clone(), false)
        } else if let Some(change) = change.of::<InstanceLog>() {
            (change.subject.launcher.pod.clone(), false)
        } else if let Some(change) = change.of::<AcceleratorMemory>() {
            (change.subject.pod.clone(), false)
        } else {
            return Vec::new();
        };
        let Some(pod) = world.store::<ActuationPod>().get(&pod) else { return Vec::new() };
        if pod.variant().is_some() {
            return vec![pod.pairing_key()];
        }
        // The time of an observation matters to the one who asked for it to be made.
        let binding = pod.binding();
        let own = binding.map(|it| Key::new(&pod.metadata.namespace, it.uid.as_str()));
        let mut keys: BTreeSet<Key> = own.into_iter().collect();
        if is_significant || pod.binding().is_none() {
            keys.extend(requesters_on(world, &pod.selected_node));
        }
        keys.into_iter().collect()
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let uid = Uid::new(key.name());
        let pods = world.store::<ActuationPod>();
        let requester = pods.by_index(&requester_with_uid(&uid)).into_iter().next();
        let mut providers = pods.by_index(&bound_to(&uid));
        providers.retain(|it| it.metadata.namespace == key.namespace());
        let settings = self.settings.get();
        let mut planner = Planner {
            world,
            settings: &settings,
            now,
            requester: requester.filter(|it| it.metadata.namespace == key.namespace()),
            plan: Plan::default(),
        };
        planner.reconcile(providers);
        planner.plan
    }
}

/// The keys of the requesters on a node.
fn requesters_on(world: &World, node: &str) -> Vec<Key> {
    if node.is_empty() {
        return Vec::new();
    }
    let pods = world.store::<ActuationPod>().by_index(&on_node(node));
    pods.iter().filter(|it| it.variant().is_some()).map(|it| it.pairing_key()).collect()
}

/// Plans for one requester.
struct Planner<'a> {
    world: &'a World,
    settings: &'a Settings,
    now: Timestamp,
    requester: Option<Arc<ActuationPod>>,
    plan: Plan,
}

impl Planner<'_> {
    fn reconcile(&mut self, mut providers: Vec<Arc<ActuationPod>>) {
        let requester = self.requester.clone();
        let alive = requester.clone().filter(|it| is_alive(it));
        providers.sort_by_key(|it| (it.metadata.creation_timestamp, it.metadata.key()));
        let kept = alive.as_ref().and_then(|it| kept_provider(it, &providers)).cloned();
        for provider in &providers {
            let is_kept = kept.as_ref().is_some_and(|it| it.metadata.uid == provider.metadata.uid);
            if provider.metadata.is_terminating() {
                self.release_lost(provider, is_kept);
            } else if is_kept && provider.unbinding_since().is_none() {
                if let Some(requester) = &alive {
                    self.serve(requester, provider);
                }
            } else {
                if let Some(requester) = alive.as_ref().filter(|_| !is_kept) {
                    let name = &provider.metadata.name;
                    let message =
                        format!("provider {name} claims the requester, too; it is unbound");
                    self.hold(requester, "TwoProviders", message);
                }
                let others = providers.len() > 1;
                self.unbind(provider, others);
                if is_kept {
                    self.delete_requester();
                }
            }
        }
        if !providers.is_empty() {
            return;
        }
        match (&requester, &alive) {
            (_, Some(requester)) if requester.dual().is_some() => {
                let message = "its provider is gone";
                self.hold(requester, "ProviderLost", message.to_owned());
                self.delete_requester();
            }
            (_, Some(requester)) => self.find_provider(requester),
            (Some(requester), None) => self.plan.steps.extend(release_requester(requester)),
            (None, None) => {}
        }
    }

    /// The provider is being deleted: its requester goes first, so that its set creates another.
    fn release_lost(&mut self, provider: &ActuationPod, is_kept: bool) {
        let release = release_provider(provider);
        let requester = self.requester.clone().filter(|it| is_kept && is_alive(it));
        match (requester, release) {
            (Some(requester), release) => {
                let mut step = Step::new(delete(&requester));
                step.then.extend(release.map(Step::new));
                self.plan.steps.push(step);
            }
            (None, Some(release)) => self.plan.write(release),
            (None, None) => {}
        }
    }

    /// Deletes the requester, unless that was requested before.
    fn delete_requester(&mut self) {
        let alive = self.requester.as_ref().filter(|it| is_alive(it));
        self.plan.steps.extend(alive.map(|it| Step::new(delete(it))));
    }

    fn hold(&mut self, pod: &ActuationPod, reason: &'static str, message: String) {
        let about = reference(pod);
        self.plan.hold(Held { about, reason: reason.into(), message, until: None }, self.now);
    }

    /// The state of a call as far as this process knows it.
    fn call_state(&self, call: &Call) -> Option<Arc<Observed<CallState>>> {
        self.world.facts::<CallState>().observed(&call.id)
    }

    /// When the target did what a call requests, as far as this process knows.
    fn done_at(&self, call: &Call) -> Option<Timestamp> {
        self.call_state(call).filter(|it| it.value.done().is_some()).map(|it| it.at)
    }
}

/// The end of a wait.
fn end_of(start: Timestamp, wait: std::time::Duration) -> Timestamp {
    let wait = SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX);
    start.checked_add(wait).unwrap_or(Timestamp::MAX)
}

/// Whether a requester is to be served.
fn is_alive(requester: &ActuationPod) -> bool {
    !requester.metadata.is_terminating() && !requester.is_terminal()
}

/// The provider that a requester keeps if several claim it: the one that its own label names,
/// because only one process succeeds in writing that. Without, the oldest one.
fn kept_provider<'a>(
    requester: &ActuationPod,
    providers: &'a [Arc<ActuationPod>],
) -> Option<&'a Arc<ActuationPod>> {
    match requester.dual() {
        Some(name) => providers.iter().find(|it| it.metadata.name == name),
        None => providers.first(),
    }
}

fn reference(pod: &ActuationPod) -> ObjectReference {
    ObjectReference::to(&ActuationPod::RESOURCE, &pod.metadata)
}

/// Deletes a pod as it was observed.
fn delete(pod: &ActuationPod) -> Write {
    Write::Delete {
        resource: ActuationPod::RESOURCE,
        key: pod.metadata.key(),
        fence: pod.metadata.fence(),
        grace: None,
        propagation: Some(Propagation::Background),
    }
}

/// Changes metadata of a pod as it was observed.
fn patch(pod: &ActuationPod, metadata: &Value) -> Write {
    Write::Merge {
        resource: ActuationPod::RESOURCE,
        key: pod.metadata.key(),
        subresource: Subresource::Main,
        fence: pod.metadata.fence(),
        body: json!({ "metadata": metadata }),
    }
}

/// The finalizers of a pod without this one; `None` if it does not have it.
fn finalizers_without(pod: &ActuationPod, finalizer: &str) -> Option<Vec<String>> {
    let all = &pod.metadata.finalizers;
    let others = || all.iter().filter(|it| *it != finalizer).cloned().collect();
    all.iter().any(|it| it == finalizer).then(others)
}

/// The finalizers of a pod with this one; `None` if it has it.
fn finalizers_with(pod: &ActuationPod, finalizer: &str) -> Option<Vec<String>> {
    let all = &pod.metadata.finalizers;
    let more = || all.iter().cloned().chain([finalizer.to_owned()]).collect();
    (!all.iter().any(|it| it == finalizer)).then(more)
}

/// Removes the finalizer of a requester that no provider is bound to.
fn release_requester(requester: &ActuationPod) -> Option<Step> {
    let left = finalizers_without(requester, REQUESTER_FINALIZER)?;
    Some(Step::new(patch(requester, &json!({ "finalizers": left }))))
}

/// Removes the finalizer of a provider; the record of its binding stays until the pod is gone.
fn release_provider(provider: &ActuationPod) -> Option<Write> {
    let left = finalizers_without(provider, crate::labels::PROVIDER_FINALIZER)?;
    Some(patch(provider, &json!({ "finalizers": left })))
}

/// A Warning event about a pod.
fn warning(pod: &ActuationPod, reason: &'static str, message: String) -> Event {
    Event::warning(reference(pod), reason, message)
}

/// A Normal event about a pod.
fn notice(pod: &ActuationPod, reason: &'static str, message: String) -> Event {
    Event::normal(reference(pod), reason, message)
}

/// The resource of pods.
const PODS: Resource = ActuationPod::RESOURCE;
