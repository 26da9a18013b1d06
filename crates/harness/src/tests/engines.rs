//! A controller that changes which of the engines on an accelerator is awake, by calls.
//!
//! Engines that share an accelerator must never be awake at the same time. The generation of the accelerator
//! is the fence: every call carries it, and an engine refuses calls of an older generation than the last it
//! accepted. An engine is woken only when all others have accepted to sleep in this generation, so a wake-up
//! that was sent for an older one, by any process, is refused wherever it arrives.

use std::collections::{BTreeMap, BTreeSet};

use gantry_reconcile::inquiry::{InquiryPolicy, Wanted};
use gantry_reconcile::{
    CallId, CallState, Fact, FactChange, FactKind, Inquiry, Refusal, Reply, Target,
};

use super::*;

/// Says which of its engines is to be awake.
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

/// What an engine says about itself.
#[derive(Clone, Copy, Debug, PartialEq)]
struct EngineState {
    awake: bool,
    generation: i64,
}

impl Fact for EngineState {
    type Subject = String;
    const NAME: &'static str = "engine-state";
}

/// All engines, as they really are.
#[derive(Debug)]
struct Engines {
    states: BTreeMap<String, EngineState>,
    /// Whether an engine refuses what is older than what it has accepted.
    fenced: bool,
    /// Engines that wake up, and until when that takes.
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

impl Edge for Engines {
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
            // It takes the accelerator from the first moment on, and a second until it is done.
            self.waking.insert(name.clone(), now + Duration::from_secs(1));
        } else if !awake {
            self.waking.remove(name);
        }
        self.states.insert(name.clone(), EngineState { awake, generation });
        Reply::Done(json!({}))
    }

    fn pass(&mut self, now: Timestamp) {
        self.waking.retain(|_, until| *until > now);
    }

    fn next_change(&self) -> Option<Timestamp> {
        self.waking.values().min().copied()
    }
}

/// Asks engines for their state.
struct AskEngines;

impl Inquiry for AskEngines {
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

    fn wanted(&self, world: &World, key: &Key, _: Timestamp) -> Wanted<String> {
        let accelerator = world.shelf::<Accelerator>().get(key);
        accelerator.iter().flat_map(|it| it.spec.engines.clone()).collect()
    }

    fn policy(&self, _: &String) -> InquiryPolicy {
        InquiryPolicy { refresh_interval: Duration::from_secs(20), ..InquiryPolicy::default() }
    }
}

/// Puts engines to sleep and wakes one of them.
struct Switch;

impl Switch {
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

impl Controller for Switch {
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
        let Some(change) = change.of::<EngineState>().filter(|it| it.is_news()) else {
            return Vec::new();
        };
        let all = world.shelf::<Accelerator>().all();
        let concerned = all.iter().filter(|it| it.spec.engines.contains(change.subject));
        concerned.map(|it| it.metadata.key()).collect()
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let Some(accelerator) = world.shelf::<Accelerator>().get(key) else { return plan };
        let generation = accelerator.metadata.generation;
        let (facts, calls) = (world.facts::<EngineState>(), world.facts::<CallState>());
        let done =
            |call: &Call| calls.observed(&call.id).is_some_and(|it| it.value.done().is_some());
        // A state of this generation stays: nobody may change it but by a newer one.
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
            // It is wanted until the state is observed: what is said to have been done may be forgotten.
            if facts.get(engine).is_some() {
                plan.call(call);
            }
        }
        let wake = Self::call("wake", &accelerator.spec.awake, &accelerator);
        let is_awake = is(&accelerator.spec.awake, true);
        if unsettled > 0 {
            let about = Reference::to(&Accelerator::RESOURCE, &accelerator.metadata);
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
                part: Part::Status,
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

/// Never two awake on one accelerator.
fn one_at_a_time(server: &Server) -> Result<(), String> {
    let engines = server.edge::<Engines>(PROTOCOL);
    for accelerator in server.list(&Accelerator::RESOURCE) {
        let all = engines_of(accelerator);
        let awake: Vec<&String> = all.iter().filter(|it| engines.state(it).awake).collect();
        if awake.len() > 1 {
            return Err(format!("{awake:?} are awake"));
        }
    }
    Ok(())
}

/// Which engines are awake, and what the accelerators say.
fn shape(server: &Server) -> Value {
    let engines = server.edge::<Engines>(PROTOCOL);
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

fn select(name: &'static str, awake: &'static str) -> Action {
    Box::new(move |server: &mut Server| {
        server.edit(&Accelerator::RESOURCE, &Key::new("n", name), |it| {
            it["spec"]["awake"] = json!(awake);
        });
    })
}

fn scenario<'a>(
    controllers: &'a [&'a dyn Controller],
    inquiry: &'a Asking<AskEngines>,
    fenced: bool,
) -> Scenario<'a> {
    let engines = move || -> Box<dyn Edge> { Box::new(Engines::new(fenced)) };
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
        outside: Outside {
            edges: vec![(PROTOCOL, Box::new(engines))],
            inquiries: vec![inquiry],
            always: vec![always],
            ..Outside::default()
        },
        ..Scenario::default()
    }
}

fn asking() -> Asking<AskEngines> {
    Asking {
        inquiry: AskEngines,
        answer: |server, engine| Ok(server.edge::<Engines>(PROTOCOL).state(engine)),
    }
}

/// Lost, doubled and late calls, ghosts of dead processes, two leaders, and a crash at every move.
#[test]
fn one_engine_is_awake_whatever_happens_to_calls() {
    let inquiry = asking();
    scenario(&[&Switch], &inquiry, true).prove(0..60, shape).unwrap();
}

/// Without the fence the invariant is seen to break: it is checked, and calls are really late.
#[test]
fn without_the_fence_two_engines_are_awake() {
    let inquiry = asking();
    let found = scenario(&[&Switch], &inquiry, false).prove(0..60, shape);
    let failure = found.unwrap_err();
    assert!(matches!(*failure, Failure::Broken { invariant: "one engine awake", .. }), "{failure}");
}

/// What nobody wants to know any more is forgotten, and a call that nobody wants is too.
#[test]
fn what_is_no_longer_wanted_is_forgotten() {
    let inquiry = asking();
    let controllers: [&dyn Controller; 1] = [&Switch];
    let scenario = Scenario { script: Vec::new(), ..scenario(&controllers, &inquiry, true) };
    let mut stage = Stage::new(&scenario);
    stage.pass(Duration::from_secs(50)).unwrap();
    let world = stage.world().clone();
    assert_eq!(world.facts::<EngineState>().len(), 6);
    assert_eq!(shape(stage.server()), json!([["a", "a-0", ["a-0"]], ["b", "b-2", ["b-2"]]]));
    assert!(world.facts::<CallState>().is_empty(), "states were observed, and no call is wanted");
    stage.server().delete(&Accelerator::RESOURCE, &Key::new("n", "a"), Propagation::Background);
    stage.pass(Duration::from_secs(5)).unwrap();
    assert_eq!(world.facts::<EngineState>().len(), 3);
}
