//! Serves a requester by the provider it is bound to: creates the instance, wakes it, routes to it,
//! and relays its readiness.

use std::time::Duration;

use gantry_pods::view::Node;
use gantry_reconcile::fact::FactState;
use gantry_reconcile::{Fact, Key, Step};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::failing::{end_of_instance, with_log};
use super::status::{Paired, paired, readiness_gate};
use super::{Planner, delete, end_of, patch, warning};
use crate::accelerator_use::{Claim, blocker};
use crate::actuation_record::ActuationRecord;
use crate::bookkeeping::{Bookkeeping, InstanceUse};
use crate::calls::{
    Engine, configure_proxy, create_instance, delete_instance, is_out_of_memory, relay,
};
use crate::facts::{AcceleratorMemory, Endpoint, EngineState, LauncherState};
use crate::inquiries::{engine_question, requester_endpoint};
use crate::labels::{
    ACCELERATORS_ANNOTATION, INSTANCE_USE_ANNOTATION, LAST_USE_ANNOTATION, RECORD_ANNOTATION,
    SLEEPING_LABEL,
};
use crate::routing::RoutingMetadata;
use crate::select::{Wanted, victims};
use crate::view::{ActuationPod, LauncherConfig};

/// After how many refused wakes an engine counts as wedged.
const MAX_WAKE_FAILURES: u32 = 3;
/// After how many unanswered questions in a row an engine counts as unhealthy.
const MAX_UNANSWERED: u32 = 3;

/// How long the end of a wedged engine's log is waited for.
const MAX_LOG_WAIT: Duration = Duration::from_secs(5);

/// How much memory of an accelerator a sleeping engine may keep.
const MEMORY_OF_SLEEPER_MIB: u64 = 4096;

/// What serves a requester.
pub(super) struct Server<'a> {
    pub(super) requester: &'a ActuationPod,
    pub(super) provider: &'a ActuationPod,
    /// The instance, in a launcher.
    pub(super) bookkeeping: Option<&'a Bookkeeping>,
    port: u16,
    pub(super) accelerators: &'a [String],
    boot: Option<&'a str>,
}

impl<'a> Server<'a> {
    fn engine(&self) -> Engine<'a> {
        let instance = self.bookkeeping.map(|it| it.id.as_str());
        Engine { provider: self.provider, port: self.port, instance, boot: self.boot }
    }

    fn routing(&self) -> RoutingMetadata {
        self.bookkeeping.map(|it| it.routing.clone()).unwrap_or_default()
    }
}

impl Planner<'_> {
    /// Makes the next step towards serving a requester, or keeps serving it.
    pub(super) fn serve(&mut self, requester: &ActuationPod, provider: &ActuationPod) {
        let node = self.world.store::<Node>().get(&Key::cluster(&provider.selected_node));
        if node.is_none_or(|it| it.metadata.is_terminating()) {
            let message = format!("node {} does not exist", provider.selected_node);
            return self.hold(requester, "NodeGone", message);
        }
        let recorded = provider.annotation(ACCELERATORS_ANNOTATION).unwrap_or_default();
        let (bookkeeping, port, accelerators) = match &provider.engine {
            Some(engine) => match &engine.port {
                Ok(port) => (None, *port, recorded.split(',').map(str::to_owned).collect()),
                Err(problem) => {
                    return self.doom(requester, provider, "EngineUnreachable", problem);
                }
            },
            None => match Bookkeeping::read(provider) {
                Ok(it) => {
                    let (port, uuids) = (it.port, it.config.gpu_uuids.clone());
                    (Some(it), port, uuids)
                }
                Err(problem) => {
                    // Nobody knows what is awake in it.
                    let message = format!("{problem}; the launcher is deleted");
                    let event = warning(requester, "BookkeepingLost", message);
                    let step = Step::new(delete(provider)).on_success(event);
                    return self.plan.steps.push(step);
                }
            },
        };
        let pair = Paired {
            provider: &provider.metadata.name,
            instance: bookkeeping.as_ref().map(|it| it.id.as_str()),
            accelerators: &accelerators,
        };
        let is_designated = requester.dual() == Some(&provider.metadata.name);
        let has_finalizer =
            requester.metadata.finalizers.iter().any(|it| it == crate::labels::REQUESTER_FINALIZER);
        if let Some(write) = paired(requester, pair) {
            self.plan.write(write);
        }
        if !is_designated || !has_finalizer {
            // Nothing is awake before its requester says so and is kept until it sleeps.
            return;
        }
        let mut server = Server {
            requester,
            provider,
            bookkeeping: bookkeeping.as_ref(),
            port,
            accelerators: &accelerators,
            boot: None,
        };
        if !provider.is_reachable() {
            let message = format!("provider {} does not run yet", provider.metadata.name);
            return self.not_serving(&server, "AwaitingProvider", message);
        }
        if bookkeeping.is_none() {
            return self.serve_engine(&server);
        }
        let launcher = self.world.facts::<LauncherState>().get(&Endpoint::launcher(provider));
        let Some(state) = launcher.as_ref().and_then(|it| it.observed.clone()) else {
            let message = "asks the launcher for its instances".to_owned();
            let is_silent = self.is_silent(provider, launcher.as_deref());
            return self.not_answering(&server, "AwaitingLauncher", message, is_silent);
        };
        server.boot = state.value.boot.as_deref();
        self.serve_instance(&server, launcher.as_deref(), &state.value, state.at);
    }

    /// Ensures that the instance exists before it is served.
    fn serve_instance(
        &mut self,
        server: &Server<'_>,
        launcher: Option<&FactState<LauncherState>>,
        state: &LauncherState,
        observed_at: Timestamp,
    ) {
        let Some(bookkeeping) = server.bookkeeping else { return };
        let provider = server.provider;
        if observed_at < provider.last_use() {
            // Another process may have created the instance since.
            let message = "asks the launcher for its instances".to_owned();
            self.keep_wake(server);
            return self.hold(server.requester, "AwaitingLauncher", message);
        }
        match state.instance(&bookkeeping.id) {
            Some(instance) if instance.is_stopped => {
                let (end, log) = (end_of_instance(instance), instance.log_tail.as_deref());
                self.give_up(server, "InstanceStopped", &end, log);
            }
            Some(_) => {
                if self.is_unready_for_long(provider) || self.is_silent(provider, launcher) {
                    let message = format!("launcher {} is not ready", provider.metadata.name);
                    if self.settings.relays_unready {
                        return self.not_serving(server, "LauncherUnready", message);
                    }
                }
                self.keep_creation(server);
                self.serve_engine(server);
            }
            None => self.create(server, bookkeeping, state, observed_at),
        }
    }

    fn create(
        &mut self,
        server: &Server<'_>,
        bookkeeping: &Bookkeeping,
        state: &LauncherState,
        observed_at: Timestamp,
    ) {
        let (requester, provider) = (server.requester, server.provider);
        let call = create_instance(provider, server.boot, &bookkeeping.id, &bookkeeping.config);
        let is_lost = self.done_at(&call).is_some_and(|done| observed_at > done);
        if provider.is_marked_awake() || is_lost {
            let message = format!("instance {} is gone from its launcher", bookkeeping.id);
            return self.give_up(server, "InstanceGone", &message, None);
        }
        let config = provider.launcher_config().unwrap_or_default();
        let key = provider.metadata.key().in_same_namespace(config);
        let config = self.world.store::<LauncherConfig>().get(&key);
        let most = config.and_then(|it| usize::try_from(it.spec.max_instances).ok());
        let wanted = Wanted {
            id: &bookkeeping.id,
            port: bookkeeping.port,
            max_instances: most.unwrap_or(usize::MAX),
            config: bookkeeping.config_name(),
            accelerators: server.accelerators,
        };
        let victims: Vec<String> =
            victims(provider, state, wanted).iter().map(|it| it.id.clone()).collect();
        if !victims.is_empty() {
            for id in &victims {
                self.plan.call(delete_instance(provider, server.boot, id));
            }
            let message = format!("deletes instances {} first", victims.join(", "));
            return self.hold(requester, "AwaitingDeletion", message);
        }
        if self.is_blocked(server) {
            return;
        }
        self.await_call(requester, call, "AwaitingInstance");
    }

    /// Keeps what is known about a wake until the engine was asked.
    fn keep_wake(&mut self, server: &Server<'_>) {
        let wake = server.engine().wake();
        if self.done_at(&wake).is_some() {
            self.plan.call(wake);
        }
    }

    /// Keeps what is known about the creation of the instance until it is recorded.
    fn keep_creation(&mut self, server: &Server<'_>) {
        let Some(bookkeeping) = server.bookkeeping.filter(|_| !server.provider.is_marked_awake())
        else {
            return;
        };
        let (id, config) = (&bookkeeping.id, &bookkeeping.config);
        let call = create_instance(server.provider, server.boot, id, config);
        if self.done_at(&call).is_some() {
            self.plan.call(call);
        }
    }

    /// Wakes the engine if it may be awake, and serves once it is.
    fn serve_engine(&mut self, server: &Server<'_>) {
        let (requester, provider) = (server.requester, server.provider);
        let Some(question) = engine_question(provider) else { return };
        let known = self.world.facts::<EngineState>().get(&question);
        let observed = known.as_ref().and_then(|it| it.observed.clone());
        let wake = server.engine().wake();
        let woken = self.done_at(&wake);
        let is_silent = self.is_silent(provider, known.as_deref());
        let Some(observed) = observed else {
            let limit = end_of(provider.last_use(), self.settings.start_limit);
            if self.now >= limit {
                let log = self.log_of(server).map(|it| it.value.tail.clone());
                let message = "the engine does not answer";
                return self.give_up(server, "EngineNotStarted", message, log.as_deref());
            }
            self.plan.requeue_at(limit, self.now);
            let why = known.and_then(|it| it.failure.as_ref().map(|it| it.message.clone()));
            let message = format!("waits for the engine: {}", why.unwrap_or_default());
            let log = self.log_of(server).map(|it| it.value.tail.clone());
            let message = with_log(&message, log.as_deref());
            return self.not_answering(server, "EngineStarting", message, is_silent);
        };
        if is_silent && self.settings.relays_unready {
            let message = "the engine does not answer".to_owned();
            return self.not_serving(server, "EngineUnreachable", message);
        }
        let is_awake =
            !observed.value.is_sleeping || woken.is_some_and(|woken| woken >= observed.at);
        if !is_awake && provider.is_marked_awake() && observed.at < provider.last_use() {
            let message = "asks the engine whether it sleeps".to_owned();
            return self.hold(requester, "AwaitingState", message);
        }
        if !is_awake {
            return self.wake(server, wake, woken.is_some());
        }
        if observed.value.is_sleeping {
            // Kept until the engine was asked: the reply is what is known so far.
            self.plan.call(wake);
        }
        self.route(server, observed.at, woken);
    }

    fn wake(&mut self, server: &Server<'_>, wake: gantry_reconcile::Call, was_woken: bool) {
        let (requester, provider) = (server.requester, server.provider);
        if provider.is_marked_awake() {
            // Somebody put it to sleep: nothing is routed to it until it is awake.
            self.not_serving(server, "EngineAsleep", "the engine sleeps".to_owned());
        }
        if self.is_blocked(server) {
            return;
        }
        if self.settings.checks_memory && !self.has_free_memory(server) {
            return;
        }
        if was_woken {
            // It slept again after it was woken: the call is wanted once more in the next plan.
            self.plan.requeue_after(Duration::ZERO);
            return self.hold(requester, "EngineAsleep", "the engine sleeps again".to_owned());
        }
        let state = self.call_state(&wake);
        let refusal = state.as_ref().and_then(|it| it.value.refused());
        let failures = state.as_ref().map_or(0, |it| it.value.failures);
        if let Some(refusal) = refusal.filter(|it| it.code >= 500)
            && (failures >= MAX_WAKE_FAILURES || is_out_of_memory(refusal))
        {
            let refused_at = state.as_ref().map_or(self.now, |it| it.at);
            let log = self.log_of(server).filter(|it| it.at >= refused_at);
            let limit = end_of(refused_at, MAX_LOG_WAIT);
            if log.is_some() || server.bookkeeping.is_none() || self.now >= limit {
                let message = format!("the engine cannot be woken: {refusal}");
                let log = log.map(|it| it.value.tail.clone());
                return self.give_up(server, "EngineWedged", &message, log.as_deref());
            }
            // It is tried meanwhile: it may be woken after all.
            self.plan.requeue_at(limit, self.now);
        }
        self.await_call(requester, wake, "AwaitingWake");
    }

    /// Holds what would not have the memory of its accelerators, as far as the requester reports.
    fn has_free_memory(&mut self, server: &Server<'_>) -> bool {
        let since = server.provider.last_use();
        let facts = self.world.facts::<AcceleratorMemory>();
        let known = requester_endpoint(server.requester).and_then(|it| facts.get(&it));
        let observed = known.as_ref().and_then(|it| it.observed.as_ref());
        let most = u64::try_from(self.settings.sleeper_limit).unwrap_or(u64::MAX);
        let most = most.saturating_mul(MEMORY_OF_SLEEPER_MIB);
        let problem = match observed.filter(|it| it.at >= since) {
            Some(it) => it.value.problem(server.accelerators, most),
            None => Some(match known.as_ref().and_then(|it| it.failure.as_ref()) {
                Some(it) => format!("cannot read the memory in use: {}", it.message),
                None => "asks the requester for the memory in use".to_owned(),
            }),
        };
        match problem {
            None => true,
            Some(problem) => {
                self.hold(server.requester, "AcceleratorMemoryInUse", problem);
                false
            }
        }
    }

    /// Holds what may not be awake yet. Returns whether that is so.
    fn is_blocked(&mut self, server: &Server<'_>) -> bool {
        let key = server.provider.metadata.key();
        let claim = Claim {
            node: &server.provider.selected_node,
            accelerators: server.accelerators,
            provider: Some(&key),
            instance: server.bookkeeping.map(|it| it.id.as_str()),
        };
        let Some(blocker) = blocker(self.world, claim) else { return false };
        self.hold_blocked(server.requester, &blocker);
        true
    }

    /// Routes to an engine that is awake, then relays that it is ready.
    fn route(&mut self, server: &Server<'_>, answered: Timestamp, woken: Option<Timestamp>) {
        let (requester, provider) = (server.requester, server.provider);
        let routing = server.routing();
        if !provider.is_marked_awake() || !routing.is_applied_to(provider) {
            let meta = &provider.metadata;
            let problems = routing.problems(&meta.labels, &meta.annotations);
            if !problems.is_empty() {
                let message = problems.join("; ");
                return self.doom(requester, provider, "OutdatedRoutingMetadata", &message);
            }
            let (mut labels, mut annotations) = (Map::new(), Map::new());
            routing.add_to(&mut labels, &mut annotations);
            labels.insert(SLEEPING_LABEL.to_owned(), json!("false"));
            annotations.insert(LAST_USE_ANNOTATION.to_owned(), json!(self.now.to_string()));
            if let Some(text) = self.completed_record(server, answered, woken) {
                annotations.insert(RECORD_ANNOTATION.to_owned(), text);
            }
            if let Some(it) = server.bookkeeping {
                let uses = InstanceUse::read(provider).after(&it.id, self.now);
                annotations.insert(INSTANCE_USE_ANNOTATION.to_owned(), json!(uses));
            }
            let metadata = json!({"labels": labels, "annotations": annotations});
            return self.plan.write(patch(provider, &metadata));
        }
        let is_ready = server.bookkeeping.is_some() || provider.is_ready();
        match is_ready {
            true => self.relay_ready(server),
            false => {
                self.not_serving(server, "EngineUnready", "the engine is not ready".to_owned());
            }
        }
    }

    /// The record of the binding when its engine is first routed to.
    fn completed_record(
        &self,
        server: &Server<'_>,
        answered: Timestamp,
        woken: Option<Timestamp>,
    ) -> Option<Value> {
        let provider = server.provider;
        let record = ActuationRecord::read(provider, &server.requester.metadata.uid)?;
        if record.routed.is_some() {
            return None;
        }
        let creation =
            server.bookkeeping.map(|it| create_instance(provider, server.boot, &it.id, &it.config));
        let created = creation.and_then(|it| self.done_at(&it));
        let routed = Some(self.now);
        let answered = Some(answered);
        Some(ActuationRecord { created, answered, woken, routed, ..record }.text())
    }

    fn relay_ready(&mut self, server: &Server<'_>) {
        let (requester, provider) = (server.requester, server.provider);
        self.plan.steps.extend(readiness_gate(requester, true, self.now).map(Step::new));
        if requester.server.is_ready {
            return;
        }
        let (Ok(port), Ok(proxy)) = (requester.admin_port(), requester.proxy_port()) else {
            return;
        };
        if proxy.is_some() {
            let call = configure_proxy(requester, port, provider, server.port);
            if self.done_at(&call).is_none() {
                return self.await_call(requester, call, "AwaitingProxy");
            }
            self.plan.call(call);
        }
        self.plan.call(relay(requester, port, provider, true));
    }

    /// Holds what nothing is known about. After a restart that is no reason to stop serving.
    fn not_answering(
        &mut self,
        server: &Server<'_>,
        reason: &'static str,
        message: String,
        is_silent: bool,
    ) {
        let is_evident = is_silent && self.settings.relays_unready;
        match server.provider.is_marked_awake() && !is_evident {
            true => self.hold(server.requester, reason, message),
            false => self.not_serving(server, reason, message),
        }
    }

    /// Relays that the requester is not served, and stops routing, if it was.
    fn not_serving(&mut self, server: &Server<'_>, reason: &'static str, message: String) {
        let (requester, provider) = (server.requester, server.provider);
        self.hold(requester, reason, message);
        // The label of a new direct provider says that its engine starts awake.
        let is_new = server.bookkeeping.is_none() && !requester.server.is_ready;
        if provider.is_marked_awake() && !is_new && reason != "EngineUnready" {
            let (mut labels, mut annotations) = (Map::new(), Map::new());
            server.routing().remove_in(&mut labels, &mut annotations);
            labels.insert(SLEEPING_LABEL.to_owned(), json!("true"));
            let metadata = json!({"labels": labels, "annotations": annotations});
            self.plan.write(patch(provider, &metadata));
        }
        self.plan.steps.extend(readiness_gate(requester, false, self.now).map(Step::new));
        let Ok(port) = requester.admin_port() else { return };
        let (ready, unready) =
            (relay(requester, port, provider, true), relay(requester, port, provider, false));
        let was_sent = self.call_state(&ready).is_some()
            || (self.call_state(&unready).is_some() && self.done_at(&unready).is_none());
        if requester.server.is_ready || was_sent {
            self.plan.call(unready);
        }
    }

    /// Whether several questions in a row were not answered, the last one long enough after the
    /// provider began to serve: questions from before that say nothing about it.
    fn is_silent<F: Fact>(&self, provider: &ActuationPod, state: Option<&FactState<F>>) -> bool {
        let since = end_of(provider.last_use(), self.settings.unready_limit);
        let failure = state.and_then(|it| it.failure.as_ref());
        failure.is_some_and(|it| it.count >= MAX_UNANSWERED && it.at >= since)
    }

    fn is_unready_for_long(&mut self, provider: &ActuationPod) -> bool {
        let Some(since) = provider.unready_since() else { return false };
        let limit = end_of(since, self.settings.unready_limit);
        if self.now < limit {
            self.plan.requeue_at(limit, self.now);
            return false;
        }
        true
    }
}
