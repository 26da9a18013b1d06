//! The questions that are open about launchers, engines and requesters.

use std::time::Duration;

use gantry_reconcile::inquiry::{Concurrency, InquiryPolicy, WantedQuestions};
use gantry_reconcile::{Change, Fact, Inquiry, Key, Kind, World};
use jiff::{SignedDuration, Timestamp};

use crate::bookkeeping::Bookkeeping;
use crate::facts::{
    AcceleratorMemory, Endpoint, EngineQuestion, EngineState, LauncherState, RequesterAccelerators,
};
use crate::settings::LiveSettings;
use crate::view::{ActuationPod, bound_to};

/// The least and the greatest interval between questions about a provider that is about to change.
const MIN_TRANSITION_INTERVAL: Duration = Duration::from_millis(50);
const MAX_TRANSITION_INTERVAL: Duration = Duration::from_secs(1);
/// How often the accelerators of a requester are asked again; they do not change.
const ACCELERATORS_INTERVAL: Duration = Duration::from_secs(600);

/// Asks launchers for their instances, and each instance whether it sleeps.
#[derive(Clone, Debug)]
pub struct LauncherInquiry(pub LiveSettings);

/// Asks the engines of bound providers, and of direct ones, whether they sleep.
#[derive(Clone, Debug)]
pub struct EngineInquiry(pub LiveSettings);

/// Asks requesters for their accelerators.
#[derive(Clone, Debug)]
pub struct RequesterInquiry;

/// Asks requesters for the memory in use on their accelerators while an engine may be woken for
/// them, if the settings say so.
#[derive(Clone, Debug)]
pub struct MemoryInquiry(pub LiveSettings);

impl Inquiry for LauncherInquiry {
    type Fact = LauncherState;

    fn name(&self) -> &'static str {
        "launchers"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<ActuationPod>()]
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        let concerns = change.both::<ActuationPod>().any(ActuationPod::is_launcher);
        concerns.then(|| change.key.clone()).into_iter().collect()
    }

    fn wanted_questions(
        &self,
        world: &World,
        key: &Key,
        now: Timestamp,
    ) -> WantedQuestions<Endpoint> {
        let Some(pod) = world.store::<ActuationPod>().get(key) else {
            return WantedQuestions::default();
        };
        if !pod.is_launcher() || !pod.is_reachable() {
            return WantedQuestions::default();
        }
        renewed::<LauncherState>(world, &pod, Endpoint::launcher(&pod), now)
    }

    fn policy(&self, _: &Endpoint) -> InquiryPolicy {
        policy(self.0.get().renewal_interval)
    }

    fn concurrency(&self) -> Concurrency {
        Concurrency { total: 64, per_group: 64 }
    }
}

impl Inquiry for EngineInquiry {
    type Fact = EngineState;

    fn name(&self) -> &'static str {
        "engines"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<ActuationPod>()]
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        let concerns = change.both::<ActuationPod>().any(ActuationPod::is_provider);
        concerns.then(|| change.key.clone()).into_iter().collect()
    }

    fn wanted_questions(
        &self,
        world: &World,
        key: &Key,
        now: Timestamp,
    ) -> WantedQuestions<EngineQuestion> {
        let Some(pod) = world.store::<ActuationPod>().get(key) else {
            return WantedQuestions::default();
        };
        match engine_question(&pod) {
            Some(question) if pod.is_reachable() => {
                renewed::<EngineState>(world, &pod, question, now)
            }
            Some(_) | None => WantedQuestions::default(),
        }
    }

    fn policy(&self, _: &EngineQuestion) -> InquiryPolicy {
        policy(self.0.get().renewal_interval)
    }

    fn concurrency(&self) -> Concurrency {
        Concurrency { total: 64, per_group: 64 }
    }
}

impl Inquiry for RequesterInquiry {
    type Fact = RequesterAccelerators;

    fn name(&self) -> &'static str {
        "requesters"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<ActuationPod>()]
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        let concerns = change.both::<ActuationPod>().any(|it| it.variant().is_some());
        concerns.then(|| change.key.clone()).into_iter().collect()
    }

    fn wanted_questions(
        &self,
        world: &World,
        key: &Key,
        _: Timestamp,
    ) -> WantedQuestions<Endpoint> {
        let pod = world.store::<ActuationPod>().get(key);
        pod.and_then(|it| requester_endpoint(&it)).into_iter().collect()
    }

    fn policy(&self, _: &Endpoint) -> InquiryPolicy {
        policy(ACCELERATORS_INTERVAL)
    }
}

impl Inquiry for MemoryInquiry {
    type Fact = AcceleratorMemory;

    fn name(&self) -> &'static str {
        "accelerator-memory"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<ActuationPod>()]
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        let own = |pod: &ActuationPod| match pod.variant() {
            Some(_) => Some(pod.metadata.key()),
            None => pod.binding().map(|it| pod.metadata.key().in_same_namespace(&it.name)),
        };
        change.both::<ActuationPod>().filter_map(own).collect()
    }

    fn wanted_questions(
        &self,
        world: &World,
        key: &Key,
        now: Timestamp,
    ) -> WantedQuestions<Endpoint> {
        let pods = world.store::<ActuationPod>();
        let requester = pods.get(key).filter(|_| self.0.get().checks_memory);
        let question = requester.as_ref().and_then(|it| requester_endpoint(it));
        let (Some(requester), Some(question)) = (requester, question) else {
            return WantedQuestions::default();
        };
        let providers = pods.by_index(&bound_to(&requester.metadata.uid));
        match providers.iter().find(|it| !it.is_marked_awake() || it.engine.is_some()) {
            Some(provider) => renewed::<AcceleratorMemory>(world, provider, question, now),
            None => WantedQuestions::default(),
        }
    }

    fn policy(&self, _: &Endpoint) -> InquiryPolicy {
        policy(self.0.get().renewal_interval)
    }
}

/// The question about the engine of a provider: the instance that it is bound for, or the only one
/// of a direct provider.
#[must_use]
pub fn engine_question(provider: &ActuationPod) -> Option<EngineQuestion> {
    let port = match &provider.engine {
        Some(engine) => *engine.port.as_ref().ok()?,
        None => {
            provider.binding()?;
            Bookkeeping::read(provider).ok()?.port
        }
    };
    Some(EngineQuestion::of(provider, port))
}

/// The control interface of a requester that can be asked.
#[must_use]
pub fn requester_endpoint(requester: &ActuationPod) -> Option<Endpoint> {
    let is_asked = requester.variant().is_some()
        && !requester.metadata.is_terminating()
        && !requester.is_terminal()
        && !requester.ip.is_empty();
    is_asked.then(|| requester.admin_port().ok().map(|port| Endpoint::of(requester, port)))?
}

/// A question that is asked more often while its provider is about to change: after its binding,
/// and while its binding ends.
fn renewed<F: Fact>(
    world: &World,
    provider: &ActuationPod,
    question: F::Subject,
    now: Timestamp,
) -> WantedQuestions<F::Subject> {
    let mut wanted = WantedQuestions::default();
    let since = provider.unbinding_since().unwrap_or_else(|| provider.last_use());
    let is_settled = provider.binding().is_none()
        || (provider.is_marked_awake() && provider.unbinding_since().is_none());
    let observed = world.facts::<F>().observed(&question);
    if !is_settled {
        let elapsed = Duration::try_from(now.duration_since(since)).unwrap_or_default();
        let interval = elapsed.clamp(MIN_TRANSITION_INTERVAL, MAX_TRANSITION_INTERVAL);
        if observed.as_ref().is_some_and(|it| it.age(now) >= interval) {
            wanted.stale.insert(question.clone());
        }
        let interval = SignedDuration::try_from(interval).unwrap_or_default();
        wanted.requeue_at = now.checked_add(interval).ok();
    } else if observed.is_some_and(|it| it.at < since) {
        // What was observed before the last change of the binding is not what it led to.
        wanted.stale.insert(question.clone());
    }
    wanted.questions.insert(question);
    wanted
}

fn policy(refresh_interval: Duration) -> InquiryPolicy {
    InquiryPolicy {
        refresh_interval,
        timeout: Duration::from_secs(5),
        first_retry_delay: MIN_TRANSITION_INTERVAL,
        max_retry_delay: MAX_TRANSITION_INTERVAL,
        leader_only: true,
    }
}
