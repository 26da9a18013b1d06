//! Collects instances of launchers that nothing asks for any more: those that have ended, those
//! whose InferenceServerConfig would now make another one, and those that are awake unbidden.
//!
//! A key is a launcher. Its calls carry the counter of the launcher's last binding, so that they
//! are refused once it is bound again.

use std::collections::BTreeSet;

use gantry_reconcile::CallState;
use gantry_reconcile::{
    Change, Controller, FactChange, FactKind, Held, Key, Kind, ObjectReference, Plan, View as _,
    World,
};
use jiff::Timestamp;

use crate::calls::{Engine, delete_instance};
use crate::facts::{Endpoint, InstanceState, LauncherState};
use crate::instance::instance_id;
use crate::labels::{INSTANCE_ID_ANNOTATION, REQUESTER_ANNOTATION};
use crate::view::{ActuationPod, InferenceServerConfig};

/// After how many failed attempts to put an unbidden engine to sleep it is deleted.
const MAX_SLEEP_FAILURES: u32 = 5;

/// Collects instances of launchers.
#[derive(Clone, Copy, Debug)]
pub struct CollectionController;

impl CollectionController {
    /// The controller's name.
    pub const NAME: &'static str = "instance-collector";
}

impl Controller for CollectionController {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<ActuationPod>(), Kind::of::<InferenceServerConfig>()]
    }

    fn facts(&self) -> Vec<FactKind> {
        vec![FactKind::of::<LauncherState>()]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        if change.is::<InferenceServerConfig>() {
            let pods = world.store::<ActuationPod>().in_namespace(change.key.namespace());
            let launchers = pods.iter().filter(|it| it.is_launcher());
            return launchers.map(|it| it.metadata.key()).collect();
        }
        let concerns = change.both::<ActuationPod>().any(ActuationPod::is_launcher);
        concerns.then(|| change.key.clone()).into_iter().collect()
    }

    fn enqueue_for_fact(&self, _: &World, change: &FactChange) -> Vec<Key> {
        change.of::<LauncherState>().map(|it| it.subject.pod.clone()).into_iter().collect()
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let launcher = world.store::<ActuationPod>().get(key);
        let Some(launcher) = launcher.filter(|it| it.is_launcher() && it.is_reachable()) else {
            return plan;
        };
        // While it is bound, only the controller of its requester calls it: each call of another
        // one could follow the end of that binding.
        if launcher.annotation(REQUESTER_ANNOTATION).is_some() || launcher.metadata.is_terminating()
        {
            return plan;
        }
        let facts = world.facts::<LauncherState>();
        let Some(observed) = facts.observed(&Endpoint::launcher(&launcher)) else { return plan };
        let boot = observed.value.boot.as_deref();
        let mut waits = BTreeSet::new();
        for instance in &observed.value.instances {
            let Some(action) = action(world, &launcher, instance) else { continue };
            let engine =
                |port| Engine { provider: &launcher, port, instance: Some(&instance.id), boot };
            let sleep = instance.port.map(|port| engine(port).sleep(false));
            let failures =
                sleep.as_ref().and_then(|it| world.facts::<CallState>().observed(&it.id));
            let failures = failures.map_or(0, |it| it.value.failures);
            let call = match (action, sleep) {
                (Action::Sleep, Some(sleep)) if failures < MAX_SLEEP_FAILURES => sleep,
                (Action::Sleep | Action::Delete, _) => {
                    delete_instance(&launcher, boot, &instance.id)
                }
            };
            let state = world.facts::<CallState>().observed(&call.id);
            let is_repeated =
                state.is_some_and(|it| it.value.done().is_some() && it.at < observed.at);
            waits.insert(instance.id.clone());
            match is_repeated {
                // It is still as it was after the call: the next plan wants it once more.
                true => plan.requeue_after(std::time::Duration::ZERO),
                false => plan.call(call),
            }
        }
        if !waits.is_empty() {
            let list: Vec<String> = waits.into_iter().collect();
            let message = format!("collects instances {}", list.join(", "));
            let about = ObjectReference::to(&ActuationPod::RESOURCE, &launcher.metadata);
            plan.hold(
                Held { about, reason: "CollectsInstances".into(), message, until: None },
                now,
            );
        }
        plan
    }
}

/// What is done to an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Sleep,
    Delete,
}

fn action(world: &World, launcher: &ActuationPod, instance: &InstanceState) -> Option<Action> {
    if launcher.annotation(INSTANCE_ID_ANNOTATION) == Some(&instance.id) {
        return None;
    }
    if instance.is_stopped {
        return Some(Action::Delete);
    }
    if instance.is_sleeping != Some(true) {
        return Some(Action::Sleep);
    }
    let config = instance.config.as_ref()?;
    let key = launcher.metadata.key().in_same_namespace(config);
    let config = world.store::<InferenceServerConfig>().get(&key);
    let is_obsolete = match config {
        // Nothing can ask for it any more.
        None => true,
        Some(it) => {
            !instance.gpu_uuids.is_empty()
                && instance_id(&it.spec.model_server_config, &instance.gpu_uuids) != instance.id
        }
    };
    is_obsolete.then_some(Action::Delete)
}
