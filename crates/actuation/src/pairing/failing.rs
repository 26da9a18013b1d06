//! Ends bindings that cannot serve, and records engines that have failed.

use std::sync::Arc;

use gantry_reconcile::{Event, Observed, Step};

use super::serving::Server;
use super::status::problem;
use super::{Planner, warning};
use crate::accelerator_use::Blocker;
use crate::engine_failures::{EngineFailure, EngineFailures};
use crate::facts::{InstanceLog, InstanceState};
use crate::inquiries::log_question;
use crate::labels::REQUESTER_ANNOTATION;
use crate::view::{ActuationPod, on_node};

/// How many questions in a row are unanswered at least before a provider is deleted. They are asked
/// each second.
const MIN_UNANSWERED: u64 = 10;

impl Planner<'_> {
    /// Ends a binding that cannot serve: the engine is discarded, and the requester deleted.
    pub(super) fn doom(
        &mut self,
        requester: &ActuationPod,
        provider: &ActuationPod,
        reason: &'static str,
        message: &str,
    ) {
        let event: Event = warning(requester, reason, message.to_owned());
        let step = self.begin_unbinding(provider, Some(reason), None).on_success(event);
        self.plan.steps.push(step);
    }

    /// Ends a binding whose engine has failed: it is discarded, its failure is counted for the wait
    /// of the next one, and the requester, which says why, is deleted.
    pub(super) fn give_up(
        &mut self,
        server: &Server<'_>,
        reason: &'static str,
        why: &str,
        log: Option<&str>,
    ) {
        let (requester, provider) = (server.requester, server.provider);
        let message = with_log(why, log);
        let failures = server.bookkeeping.map(|it| {
            let subject = EngineFailures::subject(&it.config);
            let recorded = self.recorded_failure(provider, &subject);
            let failure = EngineFailure::after(recorded.as_ref(), &message, self.now);
            EngineFailures::read(provider).with(subject, failure)
        });
        let event: Event = warning(requester, reason, message);
        let mut step = self.begin_unbinding(provider, Some(reason), failures).on_success(event);
        let write = problem(requester, &[why.to_owned()], server.accelerators);
        step.then.extend(write.map(Step::new));
        self.plan.steps.push(step);
    }

    /// Holds a requester whose engine may not be awake yet. A provider that does not answer for as
    /// long as an engine may take to sleep is deleted: nobody knows what is awake in it.
    pub(super) fn hold_blocked(&mut self, requester: &ActuationPod, blocker: &Blocker) {
        self.hold(requester, blocker.reason(), blocker.message());
        let Blocker::Unanswered { provider, attempts } = blocker else { return };
        let most = self.settings.unbinding_limit.as_secs();
        if u64::from(*attempts) < most.max(MIN_UNANSWERED) {
            return;
        }
        let provider = self.world.store::<ActuationPod>().get(provider);
        let is_idle = |it: &Arc<ActuationPod>| {
            it.annotation(REQUESTER_ANNOTATION).is_none() && !it.metadata.is_terminating()
        };
        if let Some(provider) = provider.filter(is_idle) {
            let message = "it does not answer whether its engines sleep";
            self.delete_provider(&provider, "ProviderUnreachable", message);
        }
    }

    /// The last failure of an engine that the launchers on the node of this pod record.
    pub(super) fn recorded_failure(
        &self,
        pod: &ActuationPod,
        subject: &str,
    ) -> Option<EngineFailure> {
        let node = if pod.is_provider() { &pod.selected_node } else { &pod.node_name };
        let mut pods = self.world.store::<ActuationPod>().by_index(&on_node(node));
        let namespace = &pod.metadata.namespace;
        pods.retain(|it| it.is_launcher() && it.metadata.namespace == *namespace);
        EngineFailures::last_of(pods.iter().map(|it| &**it), subject)
    }

    /// The end of the instance's log, if it was asked for in this binding.
    pub(super) fn log_of(&self, server: &Server<'_>) -> Option<Arc<Observed<InstanceLog>>> {
        let question = log_question(server.provider)?;
        self.world.facts::<InstanceLog>().observed(&question)
    }
}

/// How an instance ended.
pub(super) fn end_of_instance(instance: &InstanceState) -> String {
    match instance.exit_code {
        Some(code) if code < 0 => format!("instance {} ended by signal {}", instance.id, -code),
        Some(code) => format!("instance {} ended with exit code {code}", instance.id),
        None => format!("instance {} ended", instance.id),
    }
}

/// A message with the end of a log, if there is one.
pub(super) fn with_log(message: &str, log: Option<&str>) -> String {
    match log.map(str::trim).filter(|it| !it.is_empty()) {
        Some(tail) => format!("{message}; the end of its log: {tail}"),
        None => message.to_owned(),
    }
}
