//! A controller that switches by calls which of the engines on an accelerator is awake.
//!
//! Engines that share an accelerator must never be awake at the same time. The generation of the
//! accelerator is the fence: every call carries it, and an engine refuses calls of an older
//! generation than the last it accepted. An engine is woken only when all others have accepted to
//! sleep in this generation, so a wake-up that was sent for an older one, by any process, is
//! refused wherever it arrives.

use std::collections::{BTreeMap, BTreeSet};

use gantry_reconcile::inquiry::{InquiryPolicy, WantedQuestions};
use gantry_reconcile::{
    CallId, CallState, Fact, FactChange, FactKind, Inquiry, Refusal, Reply, Target,
};

use super::*;

/// Declares which of its engines is to be awake.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Accelerator {
    metadata: Meta,
    spec: AcceleratorSpec,
    status: AcceleratorStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AcceleratorSpec {
    engines: Vec<String>,
    awake: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AcceleratorStatus {
    awake: String,
}

impl View for Accelerator {
    const RESOURCE: Resource = Resource::namespaced("test", "v1", "accelerators", "Accelerator");
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// The state that an engine reports.
#[derive(Clone, Copy, Debug, PartialEq)]
struct EngineState {
    awake: bool,
    generation: i64,
}

impl Fact for EngineState {
    type Subject = String;
    const NAME: &'static str = "engine-state";
}

/// All engines, with their true state.
#[derive(Debug)]
struct Engines {
    states: BTreeMap<String, EngineState>,
    /// Whether an engine refuses calls older than the last one it accepted.
    fenced: bool,
    /// Engines that are waking up, and when they are awake.
    waking: BTreeMap<String, Timestamp>,
}

const PROTOCOL: &str = "engine";

impl Engines {
    fn new(fenced: bool) -> Self {
        Self { states: BTreeMap::new(), fenced, waking: BTreeMap::new() }
    }

    fn state(&self, name: &str) -> EngineState {
        self.states.get(name).copied().unwrap_or(EngineState { awake: false, generation: 0 })
    }
}

impl SimulatedPeer for Engines {
    fn call(&mut self, call: &Call, now: Timestamp) -> Reply {
        let name = &call.target.address;
        let generation = call.request["generation"].as_i64().unwrap();
        let state = self.state(name);
        if self.fenced && generation < state.generation {
            let message = format!("generation {} was accepted before", state.generation);
            return Reply::Refused(Refusal { code: 409, reason: "Conflict".to_owned(), message });
        }
        let awake = call.purpose == "wake";
        if awake && !state.awake {
            // It occupies the accelerator at once, and takes a second to wake up.
            self.waking.insert(name.clone(), now + Duration::from_secs(1));
        } else if !awake {
            self.waking.remove(name);
        }
        self.states.insert(name.clone(), EngineState { awake, generation });
        Reply::Done(json!({}))
    }

    fn advance_to(&mut self, now: Timestamp) {
        self.waking.retain(|_, until| *until > now);
    }

    fn next_change(&self) -> Option<Timestamp> {
        self.waking.values().min().copied()
    }
}

/// Asks engines for their state.
struct EngineInquiry;

impl Inquiry for EngineInquiry {
    type Fact = EngineState;

    fn name(&self) -> &'static str {
        "engines"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Accelerator>()]
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        vec![change.key.clone()]
    }

    fn wanted_questions(&self, world: &World, key: &Key, _: Timestamp) -> WantedQuestions<String> {
        let accelerator = world.store::<Accelerator>().get(key);
        accelerator.iter().flat_map(|it| it.spec.engines.clone()).collect()
    }

    fn policy(&self, _: &String) -> InquiryPolicy {
        InquiryPolicy { refresh_interval: Duration::from_secs(20), ..InquiryPolicy::default() }
    }
}

/// Puts engines to sleep and wakes one of them.
struct EngineSwitchController;

impl EngineSwitchController {
    fn call(purpose: &'static str, engine: &str, accelerator: &Accelerator) -> Call {
        let generation = accelerator.metadata.generation;
        Call {
            id: CallId::new(format!("{purpose}/{engine}/{generation}")),
            target: Target {
                protocol: PROTOCOL,
                address: engine.to_owned(),
                uid: Uid::default(),
                group: accelerator.metadata.name.clone(),
            },
            purpose,
            request: json!({ "generation": generation }),
            timeout: Duration::from_secs(1),
        }
    }
}

impl Controller for EngineSwitchController {
    fn name(&self) -> &'static str {
        "switch"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Accelerator>()]
    }

    fn facts(&self) -> Vec<FactKind> {
        vec![FactKind::of::<EngineState>()]
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        vec![change.key.clone()]
    }

    fn enqueue_for_fact(&self, world: &World, change: &FactChange) -> Vec<Key> {
        let Some(change) = change.of::<EngineState>().filter(|it| it.is_significant()) else {
            return Vec::new();
        };
        let all = world.store::<Accelerator>().list();
        let concerned = all.iter().filter(|it| it.spec.engines.contains(change.subject));
        concerned.map(|it| it.metadata.key()).collect()
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let Some(accelerator) = world.store::<Accelerator>().get(key) else { return plan };
        let generation = accelerator.metadata.generation;
        let (facts, calls) = (world.facts::<EngineState>(), world.facts::<CallState>());
        let done =
            |call: &Call| calls.observed(&call.id).is_some_and(|it| it.value.done().is_some());
        // A state of this generation stays: only a newer generation may change it.
        let is = |engine: &String, awake: bool| {
            let state = facts.observed(engine);
            state.is_some_and(|it| it.value == EngineState { awake, generation })
        };
        let mut unsettled = 0;
        for engine in accelerator.spec.engines.iter().filter(|it| **it != accelerator.spec.awake) {
            let call = Self::call("sleep", engine, &accelerator);
            if is(engine, false) {
                continue;
            }
            unsettled += usize::from(!done(&call));
            // The call is wanted until the state is observed: the record of its reply may be lost.
            if facts.get(engine).is_some() {
                plan.call(call);
            }
        }
        let wake = Self::call("wake", &accelerator.spec.awake, &accelerator);
        let is_awake = is(&accelerator.spec.awake, true);
        if unsettled > 0 {
            let about = ObjectReference::to(&Accelerator::RESOURCE, &accelerator.metadata);
            let message = format!("{unsettled} engines are not known to sleep");
            plan.hold(Held { about, reason: "AwaitingSleep".into(), message, until: None }, now);
            return plan;
        }
        let is_done = is_awake || done(&wake);
        // After a restart nothing is known: the engine is asked before it is called.
        if !is_awake && facts.get(&accelerator.spec.awake).is_some() {
            plan.call(wake);
        }
        if is_done && accelerator.status.awake != accelerator.spec.awake {
            plan.write(Write::Merge {
                resource: Accelerator::RESOURCE,
                key: key.clone(),
                subresource: Subresource::Status,
                body: json!({ "status": { "awake": accelerator.spec.awake } }),
                fence: accelerator.metadata.fence(),
            });
        }
        plan
    }
}

fn engines_of(accelerator: &Value) -> BTreeSet<String> {
    let all = accelerator["spec"]["engines"].as_array().into_iter().flatten();
    all.filter_map(|it| it.as_str().map(str::to_owned)).collect()
}

/// Checks that no two engines are awake on one accelerator.
fn one_at_a_time(server: &Server) -> Result<(), String> {
    let engines = server.peer::<Engines>(PROTOCOL);
    for accelerator in server.list(&Accelerator::RESOURCE) {
        let all = engines_of(accelerator);
        let awake: Vec<&String> = all.iter().filter(|it| engines.state(it).awake).collect();
        if awake.len() > 1 {
            return Err(format!("{awake:?} are awake"));
        }
    }
    Ok(())
}

/// The engines that are awake, and the status of the accelerators.
fn shape(server: &Server) -> Value {
    let engines = server.peer::<Engines>(PROTOCOL);
    let all = server.list(&Accelerator::RESOURCE);
    let shape = all.into_iter().map(|it| {
        let awake: Vec<String> =
            engines_of(it).into_iter().filter(|it| engines.state(it).awake).collect();
        json!([it["metadata"]["name"], it["status"]["awake"], awake])
    });
    shape.collect()
}

fn accelerator(name: &str, awake: &str) -> (Resource, Value) {
    let engines: Vec<String> = (0..3).map(|nth| format!("{name}-{nth}")).collect();
    let object = json!({
        "metadata": { "namespace": "n", "name": name },
        "spec": { "engines": engines, "awake": awake },
    });
    (Accelerator::RESOURCE, object)
}

fn select(name: &'static str, awake: &'static str) -> UserAction {
    Box::new(move |server: &mut Server| {
        server.edit(&Accelerator::RESOURCE, &Key::new("n", name), |it| {
            it["spec"]["awake"] = json!(awake);
        });
    })
}

fn scenario<'a>(
    controllers: &'a [&'a dyn Controller],
    inquiry: &'a SimulatedInquiry<EngineInquiry>,
    fenced: bool,
) -> Scenario<'a> {
    let engines = move || -> Box<dyn SimulatedPeer> { Box::new(Engines::new(fenced)) };
    let always = Invariant { name: "one engine awake", check: Box::new(one_at_a_time) };
    Scenario {
        controllers,
        objects: vec![accelerator("a", "a-0"), accelerator("b", "b-2")],
        script: vec![
            select("a", "a-1"),
            select("b", "b-0"),
            select("a", "a-0"),
            select("a", "a-2"),
            select("b", "b-1"),
            select("a", "a-1"),
        ],
        horizon: Duration::from_secs(60),
        external: ExternalSystems {
            peers: vec![(PROTOCOL, Box::new(engines))],
            inquiries: vec![inquiry],
            invariants: vec![always],
            ..ExternalSystems::default()
        },
        ..Scenario::default()
    }
}

fn simulated_inquiry() -> SimulatedInquiry<EngineInquiry> {
    SimulatedInquiry {
        inquiry: EngineInquiry,
        answer: |server, engine| Ok(server.peer::<Engines>(PROTOCOL).state(engine)),
    }
}

/// Lost, duplicated and late calls, also of crashed processes, two leaders, and a crash at every
/// move.
#[test]
fn one_engine_is_awake_despite_call_faults() {
    let inquiry = simulated_inquiry();
    scenario(&[&EngineSwitchController], &inquiry, true).prove(0..60, shape).unwrap();
}

/// Without the fence the invariant is violated: it is really checked, and calls are really late.
#[test]
fn without_the_fence_two_engines_are_awake() {
    let inquiry = simulated_inquiry();
    let found = scenario(&[&EngineSwitchController], &inquiry, false).prove(0..60, shape);
    let failure = found.unwrap_err();
    assert!(
        matches!(*failure, Failure::InvariantViolated { invariant: "one engine awake", .. }),
        "{failure}"
    );
}

/// A fact that no key wants any more is forgotten, and so is the state of a call that no key wants.
#[test]
fn unwanted_facts_are_forgotten() {
    let inquiry = simulated_inquiry();
    let controllers: [&dyn Controller; 1] = [&EngineSwitchController];
    let scenario = Scenario { script: Vec::new(), ..scenario(&controllers, &inquiry, true) };
    let mut stage = TestCluster::new(&scenario);
    stage.advance(Duration::from_secs(50)).unwrap();
    let world = stage.world().clone();
    assert_eq!(world.facts::<EngineState>().len(), 6);
    assert_eq!(shape(stage.server()), json!([["a", "a-0", ["a-0"]], ["b", "b-2", ["b-2"]]]));
    assert!(world.facts::<CallState>().is_empty(), "states were observed, and no call is wanted");
    stage.server().delete(&Accelerator::RESOURCE, &Key::new("n", "a"), Propagation::Background);
    stage.advance(Duration::from_secs(5)).unwrap();
    assert_eq!(world.facts::<EngineState>().len(), 3);
}
