//! Whether an engine may be awake: no other one that shares an accelerator with it may be, or may
//! be about to.

use gantry_reconcile::fact::FactState;
use gantry_reconcile::{Fact, Key, World};

use crate::bookkeeping::Bookkeeping;
use crate::facts::{Endpoint, EngineState, InstanceState, LauncherState};
use crate::inquiries::engine_question;
use crate::instance::overlaps;
use crate::labels::{ACCELERATORS_ANNOTATION, REQUESTER_ANNOTATION};
use crate::view::{ActuationPod, on_node};

/// The engine that is to be awake.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    /// Its node.
    pub node: &'a str,
    /// Its accelerators, in any order.
    pub accelerators: &'a [String],
    /// Its provider; `None` before there is one.
    pub provider: Option<&'a Key>,
    /// Its instance, in a launcher.
    pub instance: Option<&'a str>,
}

/// Why an engine may not be awake yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocker {
    /// Another provider is bound with one of the accelerators.
    Bound {
        /// The provider.
        provider: String,
        /// The UID and name of its requester.
        requester: String,
    },
    /// An engine that is not bound is awake, or does not answer.
    NotAsleep {
        /// The provider.
        provider: String,
        /// The instance, in a launcher.
        instance: Option<String>,
    },
    /// A provider that is not bound does not answer whether its engines sleep.
    Unanswered {
        /// The provider.
        provider: Key,
        /// How often it was asked in a row.
        attempts: u32,
    },
    /// It was not asked yet whether the engines of a provider sleep.
    NotAsked {
        /// The provider.
        provider: String,
    },
}

impl Blocker {
    /// The reason in CamelCase.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Bound { .. } => "AwaitingUnbinding",
            Self::NotAsleep { .. } => "AwaitingSleep",
            Self::NotAsked { .. } | Self::Unanswered { .. } => "AwaitingState",
        }
    }

    /// What the engine waits for.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Self::Bound { provider, requester } => format!(
                "an accelerator is in use: provider {provider} serves requester {requester}; \
                 waits until its engine sleeps"
            ),
            Self::NotAsleep { provider, instance: Some(instance) } => format!(
                "an accelerator is in use: instance {instance} of launcher {provider} is not \
                 known to sleep"
            ),
            Self::NotAsleep { provider, instance: None } => {
                format!("an accelerator is in use: the engine of provider {provider} is awake")
            }
            Self::Unanswered { provider, attempts } => format!(
                "provider {} does not answer whether its engines sleep; asked {attempts} times",
                provider.name()
            ),
            Self::NotAsked { provider } => {
                format!("asks the engines of provider {provider} whether they sleep")
            }
        }
    }
}

/// The first engine on the node that keeps this one from being awake.
///
/// A binding is written before the engine is woken, and removed after the engine is known to sleep.
/// So a provider without one sleeps, unless it says otherwise.
#[must_use]
pub fn blocker(world: &World, claim: Claim<'_>) -> Option<Blocker> {
    let mut providers = world.store::<ActuationPod>().by_index(&on_node(claim.node));
    providers.sort_by_key(|it| it.metadata.key());
    let providers = providers.iter().filter(|it| it.is_provider() && !it.is_terminal());
    providers.into_iter().find_map(|provider| {
        let is_own = claim.provider == Some(&provider.metadata.key());
        match &provider.engine {
            Some(_) if is_own => None,
            Some(_) => direct_blocker(world, claim, provider),
            None => launcher_blocker(world, claim, provider, is_own),
        }
    })
}

fn direct_blocker(world: &World, claim: Claim<'_>, provider: &ActuationPod) -> Option<Blocker> {
    let uuids = provider.annotation(ACCELERATORS_ANNOTATION).unwrap_or_default();
    let uuids: Vec<String> = uuids.split(',').map(str::to_owned).collect();
    if !overlaps(claim.accelerators, &uuids) {
        return None;
    }
    if let Some(requester) = provider.annotation(REQUESTER_ANNOTATION) {
        return Some(bound(provider, requester));
    }
    let question = engine_question(provider)?;
    let known = world.facts::<EngineState>().get(&question);
    let name = provider.metadata.name.clone();
    match known.as_ref().and_then(|it| it.value()) {
        Some(EngineState { is_sleeping: false }) => {
            Some(Blocker::NotAsleep { provider: name, instance: None })
        }
        None if provider.is_reachable() => Some(unknown(provider, known.as_deref())),
        Some(EngineState { is_sleeping: true }) | None => None,
    }
}

fn launcher_blocker(
    world: &World,
    claim: Claim<'_>,
    launcher: &ActuationPod,
    is_own: bool,
) -> Option<Blocker> {
    let name = || launcher.metadata.name.clone();
    let requester = launcher.annotation(REQUESTER_ANNOTATION);
    if let Some(requester) = requester.filter(|_| !is_own) {
        // What cannot be read may be anything.
        let shares = Bookkeeping::read(launcher)
            .map_or(true, |it| overlaps(claim.accelerators, &it.config.gpu_uuids));
        if shares {
            return Some(bound(launcher, requester));
        }
    }
    // Instances are created in bound launchers only.
    if launcher.binding_counter() == 0 || !launcher.is_reachable() {
        return None;
    }
    let known = world.facts::<LauncherState>().get(&Endpoint::launcher(launcher));
    let observed = known.as_ref().and_then(|it| it.observed.clone());
    let Some(observed) = observed else { return Some(unknown(launcher, known.as_deref())) };
    let state = &observed.value;
    let is_awake = |it: &&InstanceState| {
        let own = is_own && claim.instance == Some(it.id.as_str());
        !own && !it.is_stopped
            && it.is_sleeping != Some(true)
            && overlaps(claim.accelerators, &it.gpu_uuids)
    };
    let awake = state.instances.iter().find(is_awake)?;
    Some(Blocker::NotAsleep { provider: name(), instance: Some(awake.id.clone()) })
}

/// A provider about which nothing is known: it may have an engine that is awake.
fn unknown<F: Fact>(provider: &ActuationPod, known: Option<&FactState<F>>) -> Blocker {
    match known.and_then(|it| it.failure.as_ref()) {
        Some(failure) => {
            Blocker::Unanswered { provider: provider.metadata.key(), attempts: failure.count }
        }
        None => Blocker::NotAsked { provider: provider.metadata.name.clone() },
    }
}

fn bound(provider: &ActuationPod, requester: &str) -> Blocker {
    Blocker::Bound { provider: provider.metadata.name.clone(), requester: requester.to_owned() }
}
