//! The questions that are open about launchers, engines and requesters.

mod logs;

use std::time::Duration;

use gantry_reconcile::inquiry::{Concurrency, InquiryPolicy, WantedQuestions};
use gantry_reconcile::{Change, Fact, FactChange, FactKind, Inquiry, Key, Kind, World};
use jiff::Timestamp;

use crate::bookkeeping::Bookkeeping;
use crate::facts::{
    AcceleratorMemory, ClaimAllocation, ClaimQuestion, Endpoint, EngineQuestion, EngineState,
    LauncherEvents, LauncherProcess, LauncherState, RequesterAccelerators,
};
use crate::labels::INSTANCE_ID_ANNOTATION;
use crate::settings::LiveSettings;
use crate::view::{ActuationPod, UsedResourceClaim, bound_to};

pub use self::logs::{LogInquiry, log_question};

/// The least and the greatest interval between questions about a provider that is about to change.
const MIN_TRANSITION_INTERVAL: Duration = Duration::from_millis(50);
const MAX_TRANSITION_INTERVAL: Duration = Duration::from_secs(1);
/// How often the accelerators of a requester are asked again; they do not change.
const ACCELERATORS_INTERVAL: Duration = Duration::from_secs(600);

/// Asks launchers for their instances, and each instance whether it sleeps.
#[derive(Clone, Debug)]
pub struct LauncherInquiry(pub LiveSettings);

/// Waits for the events of bound launchers that announce them, so that an engine is asked when it
/// begins to answer, and not some time after.
#[derive(Clone, Debug, Default)]
pub struct EventInquiry {
    /// After how long the next event is waited for; zero where answers wait for an event.
    pub interval: Duration,
}

/// How many launchers are waited for at once. Each occupies a connection.
const MAX_WATCHED_LAUNCHERS: usize = 512;
/// How long one wait for an event may take; the responder ends it before.
const EVENT_TIMEOUT: Duration = Duration::from_secs(600);

/// Asks the engines of bound providers, and of direct ones, whether they sleep.
#[derive(Clone, Debug)]
pub struct EngineInquiry(pub LiveSettings);

/// Asks requesters for their accelerators.
#[derive(Clone, Debug)]
pub struct RequesterInquiry;

/// Reads the ResourceClaims of requesters.
#[derive(Clone, Debug)]
pub struct ClaimInquiry;

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
        let question = Endpoint::launcher(&pod);
        let event = last_event(world, &pod);
        renewed::<LauncherState>(world, &pod, question, event.map(|it| it.arrived), now)
    }

    fn facts(&self) -> Vec<FactKind> {
        vec![FactKind::of::<LauncherEvents>(), FactKind::of::<LauncherState>()]
    }

    fn enqueue_for_fact(&self, _: &World, change: &FactChange) -> Vec<Key> {
        // An answer may be older than an event that arrived before it.
        let own = change.of::<LauncherState>().map(|it| it.subject.pod.clone());
        own.into_iter().chain(announced(change)).collect()
    }

    fn policy(&self, _: &Endpoint) -> InquiryPolicy {
        policy(self.0.get().renewal_interval)
    }

    fn concurrency(&self) -> Concurrency {
        Concurrency { total: 64, per_group: 64 }
    }
}

impl Inquiry for EventInquiry {
    type Fact = LauncherEvents;

    fn name(&self) -> &'static str {
        "launcher-events"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<ActuationPod>()]
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        let concerns = change.both::<ActuationPod>().any(ActuationPod::is_launcher);
        concerns.then(|| change.key.clone()).into_iter().collect()
    }

    fn facts(&self) -> Vec<FactKind> {
        vec![FactKind::of::<LauncherState>()]
    }

    fn enqueue_for_fact(&self, _: &World, change: &FactChange) -> Vec<Key> {
        let change = change.of::<LauncherState>();
        change.map(|it| it.subject.pod.clone()).into_iter().collect()
    }

    fn wanted_questions(
        &self,
        world: &World,
        key: &Key,
        _: Timestamp,
    ) -> WantedQuestions<LauncherProcess> {
        let pod = world.store::<ActuationPod>().get(key);
        pod.and_then(|it| launcher_process(world, &it)).into_iter().collect()
    }

    fn policy(&self, _: &LauncherProcess) -> InquiryPolicy {
        InquiryPolicy { timeout: EVENT_TIMEOUT, ..policy(self.interval) }
    }

    fn concurrency(&self) -> Concurrency {
        Concurrency { total: MAX_WATCHED_LAUNCHERS, per_group: MAX_WATCHED_LAUNCHERS }
    }
}

/// The process of a launcher whose events matter: it is bound, and says which process it is.
fn launcher_process(world: &World, pod: &ActuationPod) -> Option<LauncherProcess> {
    if !pod.is_launcher() || !pod.is_reachable() || pod.binding().is_none() {
        return None;
    }
    let launcher = Endpoint::launcher(pod);
    let state = world.facts::<LauncherState>().observed(&launcher)?;
    Some(LauncherProcess { launcher, boot: state.value.boot.clone()? })
}

/// The last event of a launcher.
fn last_event(world: &World, pod: &ActuationPod) -> Option<LauncherEvents> {
    let process = launcher_process(world, pod)?;
    world.facts::<LauncherEvents>().observed(&process).map(|it| it.value.clone())
}

/// The pod that an event is about.
fn announced(change: &FactChange) -> Vec<Key> {
    let change = change.of::<LauncherEvents>();
    change.map(|it| it.subject.launcher.pod.clone()).into_iter().collect()
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
                // Only its own engine matters: an event of another one is no reason to ask.
                let event = last_event(world, &pod).filter(|it| {
                    pod.annotation(INSTANCE_ID_ANNOTATION).is_some_and(|id| it.ready.contains(id))
                });
                renewed::<EngineState>(world, &pod, question, event.map(|it| it.arrived), now)
            }
            Some(_) | None => WantedQuestions::default(),
        }
    }

    fn facts(&self) -> Vec<FactKind> {
        vec![FactKind::of::<LauncherEvents>(), FactKind::of::<EngineState>()]
    }

    fn enqueue_for_fact(&self, _: &World, change: &FactChange) -> Vec<Key> {
        // An answer may be older than an event that arrived before it.
        let own = change.of::<EngineState>().map(|it| it.subject.endpoint.pod.clone());
        own.into_iter().chain(announced(change)).collect()
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

impl Inquiry for ClaimInquiry {
    type Fact = ClaimAllocation;

    fn name(&self) -> &'static str {
        "resource-claims"
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
    ) -> WantedQuestions<ClaimQuestion> {
        let pod = world.store::<ActuationPod>().get(key);
        // Claims are allocated before the requester has an address.
        let pod = pod.filter(|it| requester_endpoint(it).is_some());
        let questions = pod.iter().flat_map(|pod| {
            pod.claims.resource_claims.iter().filter_map(|it| claim_question(pod, it))
        });
        questions.collect()
    }

    fn policy(&self, _: &ClaimQuestion) -> InquiryPolicy {
        InquiryPolicy { refresh_interval: ACCELERATORS_INTERVAL, ..InquiryPolicy::default() }
    }
}

/// The question about a claim that a requester uses; `None` until the claim is made.
#[must_use]
pub fn claim_question(pod: &ActuationPod, used: &UsedResourceClaim) -> Option<ClaimQuestion> {
    let (pod, name) = (&pod.metadata, used.name.as_ref()?);
    Some(ClaimQuestion {
        claim: pod.key().in_same_namespace(name),
        pod: pod.key(),
        uid: pod.uid.clone(),
        request: used.request.clone(),
    })
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
            Some(provider) => renewed::<AcceleratorMemory>(world, provider, question, None, now),
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
/// and while its binding ends. It is asked at once after an `event` that is newer than its answer.
fn renewed<F: Fact>(
    world: &World,
    provider: &ActuationPod,
    question: F::Subject,
    event: Option<Timestamp>,
    now: Timestamp,
) -> WantedQuestions<F::Subject> {
    let mut wanted = WantedQuestions::default();
    let since = provider.unbinding_since().unwrap_or_else(|| provider.last_use());
    let is_settled = provider.binding().is_none()
        || (provider.is_marked_awake() && provider.unbinding_since().is_none());
    let known = world.facts::<F>().get(&question);
    let asked_at = known.as_ref().and_then(|it| it.observed.as_ref()).map(|it| it.at);
    let failed_at = known.as_ref().and_then(|it| it.failure.as_ref()).map(|it| it.at);
    if let Some(event) = event
        && asked_at.is_none_or(|it| it < event)
        && failed_at.is_none_or(|it| it < event)
    {
        wanted.expedited.insert(question.clone());
    }
    if !is_settled {
        let next = next_question(since, asked_at.unwrap_or(now));
        if asked_at.is_some() && now >= next {
            wanted.stale.insert(question.clone());
        }
        wanted.requeue_at = Some(if now < next { next } else { next_question(since, now) });
    } else if asked_at.is_some_and(|it| it < since) {
        // What was observed before the last change of the binding is not what it led to.
        wanted.stale.insert(question.clone());
    }
    wanted.questions.insert(question);
    wanted
}

/// When a provider that is about to change since a time is asked next after its last question. The
/// delays from one question to the next double, up to the greatest.
fn next_question(since: Timestamp, last: Timestamp) -> Timestamp {
    let (mut at, mut delay) = (since, MIN_TRANSITION_INTERVAL);
    while delay < MAX_TRANSITION_INTERVAL {
        at = at.checked_add(delay).unwrap_or(Timestamp::MAX);
        if at > last {
            return at;
        }
        delay *= 2;
    }
    last.checked_add(MAX_TRANSITION_INTERVAL).unwrap_or(Timestamp::MAX)
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    fn at(millisecond: i64) -> Timestamp {
        Timestamp::from_millisecond(millisecond).unwrap()
    }

    #[test]
    fn g_39_delays_double_from_one_question_to_the_next() {
        let (mut last, mut delays) = (at(0), Vec::new());
        for _ in 0..8 {
            let next = next_question(at(0), last);
            delays.push(next.duration_since(last).as_millis());
            last = next;
        }
        assert_eq!(delays, [50, 100, 200, 400, 800, 1000, 1000, 1000]);
        assert_eq!(next_question(at(0), at(90)), at(150), "a question between two of them");
        assert_eq!(next_question(at(500), at(0)), at(550), "an answer from before");
    }

    /// A launcher that is bound for instance `I`, and has announced nothing.
    fn bound_launcher() -> (World, Key, Endpoint) {
        let pod = json!({
            "metadata": {
                "namespace": "n", "name": "l", "uid": "ul", "resourceVersion": "1",
                "labels": {"dual-pods.llm-d.ai/launcher-config-name": "lc"},
                "annotations": {
                    "dual-pods.llm-d.ai/requester": "u r",
                    "dual-pods.llm-d.ai/instance-id": "I",
                    "dual-pods.llm-d.ai/server-port": "8005",
                    "dual-pods.llm-d.ai/vllm-config": "{\"options\": \"\"}",
                    "dual-pods.llm-d.ai/isc-routing-metadata": "{}",
                },
            },
            "spec": {"nodeSelector": {"kubernetes.io/hostname": "n1"}},
            "status": {
                "podIP": "10.0.0.1",
                "containerStatuses": [{"name": "inference-server", "state": {"running": {}}}],
            },
        });
        let world = World::new([Kind::of::<ActuationPod>()]);
        let store = world.single_store_for(&<ActuationPod as gantry_reconcile::View>::RESOURCE);
        store.unwrap().observe(&pod.to_string()).unwrap().unwrap();
        let key = Key::new("n", "l");
        let pod = world.store::<ActuationPod>().get(&key).unwrap();
        let endpoint = Endpoint::launcher(&pod);
        (world, key, endpoint)
    }

    #[test]
    fn g_39_events_are_awaited_of_bound_launchers_that_announce_them() {
        let (world, key, endpoint) = bound_launcher();
        let inquiry = EventInquiry::default();
        let wanted = || inquiry.wanted_questions(&world, &key, at(0)).questions;
        let record = |boot: Option<&str>| {
            let boot = boot.map(str::to_owned);
            let state = LauncherState { boot, ..LauncherState::default() };
            world.facts::<LauncherState>().record(endpoint.clone(), state, at(0))
        };
        assert!(wanted().is_empty(), "nothing is known about the launcher");
        let change = record(None);
        assert_eq!(inquiry.enqueue_for_fact(&world, &change), std::slice::from_ref(&key));
        assert!(wanted().is_empty(), "a launcher of an older release is asked instead");
        record(Some("b1"));
        let process = |boot: &str| {
            let (launcher, boot) = (endpoint.clone(), boot.to_owned());
            BTreeSet::from([LauncherProcess { launcher, boot }])
        };
        assert_eq!(wanted(), process("b1"));
        record(Some("b2"));
        assert_eq!(wanted(), process("b2"), "another process is watched from the start");
    }

    #[test]
    fn g_39_an_engine_is_asked_as_soon_as_it_is_announced() {
        let (world, key, endpoint) = bound_launcher();
        let state = LauncherState { boot: Some("b1".to_owned()), ..LauncherState::default() };
        world.facts::<LauncherState>().record(endpoint.clone(), state, at(0));
        let pod = world.store::<ActuationPod>().get(&key).unwrap();
        let question = engine_question(&pod).unwrap();
        let engines = world.facts::<EngineState>();
        engines.fail(question.clone(), "connection refused".to_owned(), at(100));
        let announce = |id: &str, millisecond: i64| {
            let process = LauncherProcess { launcher: endpoint.clone(), boot: "b1".to_owned() };
            let (ready, arrived) = (BTreeSet::from([id.to_owned()]), at(millisecond));
            let events = LauncherEvents { revision: 1, ready, arrived };
            world.facts::<LauncherEvents>().record(process, events, at(0))
        };
        let settings = LiveSettings::default();
        let (engine, launcher) = (EngineInquiry(settings.clone()), LauncherInquiry(settings));
        let expedited = || engine.wanted_questions(&world, &key, at(300)).expedited;
        assert!(expedited().is_empty(), "it is asked when its delay has passed");
        let change = announce("other", 200);
        assert!(expedited().is_empty(), "another engine answers");
        assert_eq!(engine.enqueue_for_fact(&world, &change), std::slice::from_ref(&key));
        let asked = launcher.wanted_questions(&world, &key, at(300)).expedited;
        assert_eq!(asked, [endpoint.clone()].into(), "the instances have changed");
        announce("I", 200);
        assert_eq!(expedited(), [question.clone()].into());
        engines.fail(question.clone(), "connection refused".to_owned(), at(250));
        assert!(expedited().is_empty(), "once for each event");
        announce("I", 260);
        engines.record(question, EngineState { is_sleeping: false }, at(270));
        assert!(expedited().is_empty(), "the answer is newer");
    }
}
