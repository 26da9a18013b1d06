//! Ends a binding: stops routing, puts the engine to sleep, and releases both pods.

use gantry_reconcile::{Call, Event, Step, Write};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{
    Planner, delete, end_of, finalizers_without, is_alive, notice, patch, release_requester,
    warning,
};
use crate::bookkeeping::{BOOKKEEPING, Bookkeeping, InstanceUse};
use crate::calls::{Engine, delete_instance};
use crate::facts::{Endpoint, EngineState, LauncherState};
use crate::inquiries::engine_question;
use crate::instance::instance_id;
use crate::labels::{
    BINDING_COUNTER_ANNOTATION, DISCARD_ANNOTATION, DUAL_LABEL, ENGINE_FAILURES_ANNOTATION,
    INSTANCE_USE_ANNOTATION, LAST_USE_ANNOTATION, PROVIDER_FINALIZER, REQUESTER_ANNOTATION,
    SLEEPING_LABEL, UNBINDING_ANNOTATION,
};
use crate::view::{ActuationPod, InferenceServerConfig};

/// After how many refused or unanswered attempts to delete an instance its launcher is deleted.
const MAX_DELETE_FAILURES: u32 = 5;

impl Planner<'_> {
    /// Makes the next step towards the end of a provider's binding.
    pub(super) fn unbind(&mut self, provider: &ActuationPod, has_others: bool) {
        if provider.restarts > 0 && !provider.is_ready() {
            let message = "the provider restarts and is not ready".to_owned();
            return self.delete_provider(provider, "ProviderInTrouble", &message);
        }
        let Some(since) = provider.unbinding_since() else {
            let step = self.begin_unbinding(provider, None, None);
            return self.plan.steps.push(step);
        };
        match &provider.engine {
            Some(engine) => {
                let engine = engine.port.clone();
                self.unbind_direct(provider, engine, since, has_others);
            }
            None => self.unbind_launcher(provider, since, has_others),
        }
    }

    /// Records that the binding ends, and stops routing, in one write. From here on every call of
    /// the binding is older than those that end it.
    pub(super) fn begin_unbinding(
        &self,
        provider: &ActuationPod,
        discard: Option<&str>,
        failures: Option<String>,
    ) -> Step {
        let (mut labels, mut annotations) = (Map::new(), Map::new());
        if let Ok(bookkeeping) = Bookkeeping::read(provider) {
            bookkeeping.routing.remove_in(&mut labels, &mut annotations);
        }
        let counter = provider.binding_counter().saturating_add(1);
        annotations.insert(BINDING_COUNTER_ANNOTATION.to_owned(), json!(counter.to_string()));
        annotations.insert(UNBINDING_ANNOTATION.to_owned(), json!(self.now.to_string()));
        if let Some(reason) = discard {
            annotations.insert(DISCARD_ANNOTATION.to_owned(), json!(reason));
        }
        if let Some(failures) = failures {
            annotations.insert(ENGINE_FAILURES_ANNOTATION.to_owned(), json!(failures));
        }
        Step::new(patch(provider, &json!({"labels": labels, "annotations": annotations})))
    }

    fn unbind_launcher(&mut self, launcher: &ActuationPod, since: Timestamp, has_others: bool) {
        if !launcher.is_reachable() {
            // No process is left that could be awake.
            return self.finish_unbinding(launcher, has_others);
        }
        let bookkeeping = match Bookkeeping::read(launcher) {
            Ok(bookkeeping) => bookkeeping,
            Err(problem) => return self.delete_provider(launcher, "BookkeepingLost", &problem),
        };
        let limit = end_of(since, self.settings.unbinding_limit);
        let is_late = self.now >= limit;
        if !is_late {
            self.plan.requeue_at(limit, self.now);
        }
        let known = self.world.facts::<LauncherState>().get(&Endpoint::launcher(launcher));
        let observed = known.as_ref().and_then(|it| it.observed.as_ref());
        let Some(state) = observed.filter(|it| it.at >= since).map(|it| &it.value) else {
            if is_late {
                let message = "the launcher does not answer".to_owned();
                return self.delete_provider(launcher, "LauncherUnreachable", &message);
            }
            return self.hold(launcher, "AwaitingState", "asks the launcher".to_owned());
        };
        let boot = state.boot.as_deref();
        let instance = state.instance(&bookkeeping.id).filter(|it| !it.is_stopped);
        let is_unwanted = match instance {
            // The delete has the fence of the end: a late create is refused after it.
            None => true,
            Some(_) => {
                is_late
                    || launcher.discard_reason().is_some()
                    || self.is_obsolete(launcher, &bookkeeping)
            }
        };
        if is_unwanted {
            let call = delete_instance(launcher, boot, &bookkeeping.id);
            let failures = self.call_state(&call).map_or(0, |it| it.value.failures);
            if is_late && failures >= MAX_DELETE_FAILURES {
                let message = format!("instance {} cannot be deleted", bookkeeping.id);
                return self.delete_provider(launcher, "InstanceNotDeleted", &message);
            }
            return match self.done_at(&call) {
                Some(_) => self.finish_unbinding(launcher, has_others),
                None => self.await_call(launcher, call, "AwaitingDeletion"),
            };
        }
        let id = Some(bookkeeping.id.as_str());
        let engine = Engine { provider: launcher, port: bookkeeping.port, instance: id, boot };
        self.put_to_sleep(&engine, since, has_others);
    }

    fn unbind_direct(
        &mut self,
        provider: &ActuationPod,
        port: Result<u16, String>,
        since: Timestamp,
        has_others: bool,
    ) {
        // An engine that has not started, or starts again, would be awake.
        if !provider.is_reachable() {
            let message = "its engine does not run".to_owned();
            return self.delete_provider(provider, "EngineNotRunning", &message);
        }
        let port = match port {
            Ok(port) => port,
            Err(problem) => return self.delete_provider(provider, "EngineUnreachable", &problem),
        };
        let limit = end_of(since, self.settings.unbinding_limit);
        if self.now >= limit {
            let message = "the engine cannot be put to sleep";
            return self.delete_provider(provider, "EngineNotAsleep", message);
        }
        self.plan.requeue_at(limit, self.now);
        let engine = Engine { provider, port, instance: None, boot: None };
        self.put_to_sleep(&engine, since, has_others);
    }

    /// Puts an engine to sleep, has that confirmed, and then releases its provider.
    fn put_to_sleep(&mut self, engine: &Engine<'_>, since: Timestamp, has_others: bool) {
        let provider = engine.provider;
        let drained = end_of(since, self.settings.drain_limit);
        let drains = self.now < drained && provider.is_marked_awake();
        if drains {
            self.plan.requeue_at(drained, self.now);
        }
        let (call, before) = (engine.sleep(drains), engine.sleep(true));
        let done = self.done_at(&call).or_else(|| self.done_at(&before));
        // The record of what was done is kept for as long as the call is wanted.
        let call = if self.done_at(&before).is_some() { before } else { call };
        let Some(done) = done else { return self.await_call(provider, call, "AwaitingSleep") };
        let question = engine_question(provider);
        let known = question.and_then(|it| self.world.facts::<EngineState>().observed(&it));
        match known.filter(|it| it.at > done) {
            Some(known) if known.value.is_sleeping => self.finish_unbinding(provider, has_others),
            Some(_) => {
                // Something woke it since: without the call its state is forgotten, and the next
                // plan wants it once more.
                self.plan.requeue_after(std::time::Duration::ZERO);
                self.hold(provider, "AwaitingSleep", "the engine is awake again".to_owned());
            }
            None => self.await_call(provider, call, "AwaitingConfirmation"),
        }
    }

    /// Whether the InferenceServerConfig of an instance would now make another one.
    fn is_obsolete(&self, launcher: &ActuationPod, bookkeeping: &Bookkeeping) -> bool {
        let name = bookkeeping.config.annotations.get(crate::labels::INSTANCE_CONFIG_KEY);
        let key = name.map(|it| launcher.metadata.key().in_same_namespace(it));
        let config = key.and_then(|it| self.world.store::<InferenceServerConfig>().get(&it));
        let uuids = &bookkeeping.config.gpu_uuids;
        config.is_some_and(|it| {
            !uuids.is_empty() && instance_id(&it.spec.model_server_config, uuids) != bookkeeping.id
        })
    }

    /// Removes the binding from a provider whose engine sleeps or is gone, then the finalizer of
    /// its requester.
    fn finish_unbinding(&mut self, provider: &ActuationPod, has_others: bool) {
        let (mut labels, mut annotations) = (Map::new(), Map::new());
        let bookkeeping = Bookkeeping::read(provider).ok();
        if let Some(it) = &bookkeeping {
            it.routing.remove_in(&mut labels, &mut annotations);
            let uses = InstanceUse::read(provider).after(&it.id, self.now);
            annotations.insert(INSTANCE_USE_ANNOTATION.to_owned(), json!(uses));
        }
        let own = [REQUESTER_ANNOTATION, UNBINDING_ANNOTATION, DISCARD_ANNOTATION];
        for key in own.iter().chain(&BOOKKEEPING) {
            annotations.insert((*key).to_owned(), Value::Null);
        }
        annotations.insert(LAST_USE_ANNOTATION.to_owned(), json!(self.now.to_string()));
        labels.insert(DUAL_LABEL.to_owned(), Value::Null);
        labels.insert(SLEEPING_LABEL.to_owned(), json!("true"));
        let mut metadata = json!({"labels": labels, "annotations": annotations});
        if let Some(finalizers) = finalizers_without(provider, PROVIDER_FINALIZER) {
            metadata["finalizers"] = json!(finalizers);
        }
        let message = match provider.binding() {
            Some(it) => format!("unbound from requester {}", it.name),
            None => "unbound".to_owned(),
        };
        let mut step =
            Step::new(patch(provider, &metadata)).on_success(notice(provider, "Unbound", message));
        let requester = self.requester.as_ref().filter(|it| !is_alive(it) && !has_others);
        step.then.extend(requester.and_then(|it| release_requester(it)));
        self.plan.steps.push(step);
    }

    /// Deletes a provider that cannot be unbound.
    pub(super) fn delete_provider(
        &mut self,
        provider: &ActuationPod,
        reason: &'static str,
        message: &str,
    ) {
        let event: Event = warning(provider, reason, format!("{message}; the pod is deleted"));
        let write: Write = delete(provider);
        self.plan.steps.push(Step::new(write).on_success(event));
    }

    /// Keeps a call in flight, and says what it waits for.
    pub(super) fn await_call(&mut self, pod: &ActuationPod, call: Call, reason: &'static str) {
        let state = self.call_state(&call);
        let refusal = state.as_ref().and_then(|it| it.value.refused().map(ToString::to_string));
        let error = refusal.or_else(|| state.and_then(|it| it.value.error.clone()));
        let message = match error {
            Some(error) => format!("waits for {} of {}: {error}", call.purpose, call.target),
            None => format!("waits for {} of {}", call.purpose, call.target),
        };
        self.hold(pod, reason, message);
        self.plan.call(call);
    }
}
