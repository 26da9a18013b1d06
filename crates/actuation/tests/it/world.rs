//! A simulated cluster with requesters, launchers and engines that change by calls and with time.

mod fleet;
pub(crate) mod invariants;
mod node_agent;

use std::time::Duration;

use gantry_actuation::calls::PROTOCOL;
use gantry_actuation::facts::{
    Endpoint, EngineQuestion, EngineState, InstanceLog, InstanceState, LauncherEvents,
    LauncherProcess, LauncherState, LogQuestion, RequesterAccelerators,
};
use gantry_actuation::inquiries::{
    EngineInquiry, EventInquiry, LauncherInquiry, LogInquiry, RequesterInquiry,
};
use gantry_actuation::settings::Settings;
use gantry_actuation::view::{
    AcceleratorMap, ActuationPod, InferenceServerConfig, LauncherConfig, LauncherPopulationPolicy,
    Node,
};
use gantry_harness::{
    ExternalSystems, MakePeer, Scenario, Server, SimulatedInquiry, SimulatedPeer, UserAction,
};
use gantry_reconcile::write::Propagation;
use gantry_reconcile::{Controller, Key, Resource, View as _};
use jiff::SignedDuration;
use serde_json::{Value, json};

pub(crate) use self::fleet::Fleet;
pub(crate) use self::node_agent::NodeAgent;
use self::node_agent::{ProbeInquiry, StubReady};

/// The namespace of everything.
pub(crate) const NAMESPACE: &str = "n";
/// The annotation from which the stub of a requester knows its accelerators.
pub(crate) const GPUS: &str = "test/gpus";

/// The inquiries of a scenario.
pub(crate) struct Inquiries {
    launchers: SimulatedInquiry<LauncherInquiry>,
    engines: SimulatedInquiry<EngineInquiry>,
    events: SimulatedInquiry<EventInquiry>,
    requesters: SimulatedInquiry<RequesterInquiry>,
    logs: SimulatedInquiry<LogInquiry>,
    probes: SimulatedInquiry<ProbeInquiry>,
}

impl Inquiries {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            launchers: SimulatedInquiry {
                inquiry: LauncherInquiry(settings.clone().into()),
                answer: launcher_state,
            },
            engines: SimulatedInquiry {
                inquiry: EngineInquiry(settings.clone().into()),
                answer: engine_state,
            },
            // An answer of the simulation does not wait for an event.
            events: SimulatedInquiry {
                inquiry: EventInquiry { interval: Duration::from_secs(2) },
                answer: launcher_events,
            },
            requesters: SimulatedInquiry { inquiry: RequesterInquiry, answer: accelerators },
            logs: SimulatedInquiry { inquiry: LogInquiry, answer: instance_log },
            probes: SimulatedInquiry { inquiry: ProbeInquiry, answer: stub_ready },
        }
    }
}

/// A scenario with these controllers. `make` creates the launchers and engines.
pub(crate) fn scenario<'a>(
    controllers: &'a [&'a dyn Controller],
    inquiries: &'a Inquiries,
    fleet: Fleet,
    script: Vec<UserAction>,
) -> Scenario<'a> {
    let make: MakePeer<'a> =
        Box::new(move || -> Box<dyn SimulatedPeer> { Box::new(fleet.clone()) });
    Scenario {
        controllers,
        objects: objects(),
        script,
        horizon: Duration::from_secs(150),
        external: ExternalSystems {
            peers: vec![(PROTOCOL, make)],
            inquiries: vec![
                &inquiries.launchers,
                &inquiries.engines,
                &inquiries.events,
                &inquiries.logs,
                &inquiries.requesters,
                &inquiries.probes,
            ],
            invariants: invariants::all(SignedDuration::ZERO),
            ..ExternalSystems::default()
        },
        ..Scenario::default()
    }
}

/// A node, a LauncherConfig, and three models.
fn objects() -> Vec<(Resource, Value)> {
    let node = json!({"metadata": {"name": "n1"}});
    let launcher = json!({
        "metadata": {"namespace": NAMESPACE, "name": "lc"},
        "spec": {
            "maxInstances": 2,
            "podTemplate": {"spec": {"containers": [{"name": "inference-server", "image": "l"}]}},
        },
    });
    let mut objects = vec![(Node::RESOURCE, node), (LauncherConfig::RESOURCE, launcher)];
    for (name, port) in [("a", 8005), ("b", 8006), ("c", 8007)] {
        let config = json!({
            "metadata": {"namespace": NAMESPACE, "name": name},
            "spec": {
                "launcherConfigName": "lc",
                "modelServerConfig": {
                    "port": port, "options": format!("--model {name}"),
                    "labels": {"model": name},
                },
            },
        });
        objects.push((InferenceServerConfig::RESOURCE, config));
    }
    objects
}

/// The map of the accelerators of the node, for direct providers.
pub(crate) fn accelerator_map() -> (Resource, Value) {
    let indices = json!({"g0": 0, "g1": 1, "g2": 2}).to_string();
    let map = json!({
        "metadata": {"namespace": NAMESPACE, "name": "gpu-map"}, "data": {"n1": indices},
    });
    (AcceleratorMap::RESOURCE, map)
}

/// A policy that wants this many launchers on each node.
pub(crate) fn policy(count: u32) -> (Resource, Value) {
    let policy = json!({
        "metadata": {"namespace": NAMESPACE, "name": "p"},
        "spec": {
            "enhancedNodeSelector": {"labelSelector": {}},
            "countForLauncher": [{"launcherConfigName": "lc", "launcherCount": count}],
        },
    });
    (LauncherPopulationPolicy::RESOURCE, policy)
}

/// Creates a requester for a model on these accelerators.
pub(crate) fn create(name: &'static str, config: &'static str, gpus: &'static str) -> UserAction {
    Box::new(move |server: &mut Server| {
        server.create(&ActuationPod::RESOURCE, requester(name, config, gpus));
    })
}

/// Creates a requester of the direct variant for a model on these accelerators.
pub(crate) fn create_direct(
    name: &'static str,
    model: &'static str,
    gpus: &'static str,
) -> UserAction {
    Box::new(move |server: &mut Server| {
        let mut pod = requester(name, model, gpus);
        let patch = format!("metadata: {{labels: {{model: {model}}}}}");
        pod["metadata"]["annotations"] =
            json!({"dual-pods.llm-d.ai/server-patch": patch, GPUS: gpus});
        let probe = json!({"httpGet": {"path": "/health", "port": 8005}});
        pod["spec"]["containers"][0]["readinessProbe"] = probe;
        server.create(&ActuationPod::RESOURCE, pod);
    })
}

/// Changes an object.
pub(crate) fn edit(resource: Resource, name: &'static str, change: fn(&mut Value)) -> UserAction {
    Box::new(move |server: &mut Server| {
        let key = match resource == Node::RESOURCE {
            true => Key::cluster(name),
            false => Key::new(NAMESPACE, name),
        };
        server.edit(&resource, &key, change);
    })
}

/// The node is lost with all its pods, and comes back.
pub(crate) fn lose_node() -> [UserAction; 2] {
    let lost: UserAction = Box::new(|server: &mut Server| {
        server.delete(&Node::RESOURCE, &Key::cluster("n1"), Propagation::Background);
        let pods: Vec<Key> = pods(server).iter().map(|it| it.metadata.key()).collect();
        for pod in pods {
            server.delete(&ActuationPod::RESOURCE, &pod, Propagation::Background);
        }
    });
    let back: UserAction = Box::new(|server: &mut Server| {
        server.create(&Node::RESOURCE, json!({"metadata": {"name": "n1"}}));
    });
    [lost, back]
}

/// A requester of the launcher variant.
pub(crate) fn requester(name: &str, config: &str, gpus: &str) -> Value {
    json!({
        "metadata": {
            "namespace": NAMESPACE, "name": name,
            "annotations": {"dual-pods.llm-d.ai/inference-server-config": config, GPUS: gpus},
        },
        "spec": {"nodeName": "n1", "containers": [{"name": "inference-server"}]},
    })
}

/// Deletes a pod.
pub(crate) fn delete(name: &'static str) -> UserAction {
    Box::new(move |server: &mut Server| {
        let key = Key::new(NAMESPACE, name);
        server.delete(&ActuationPod::RESOURCE, &key, Propagation::Background);
    })
}

/// Something that happens to the launchers and engines.
pub(crate) fn disturb(what: fn(&mut Fleet)) -> UserAction {
    Box::new(move |server: &mut Server| what(server.peer_mut::<Fleet>(PROTOCOL)))
}

/// The requesters: name, whether ready, paired, and kept by the finalizer; and the models that are
/// awake, with their accelerators.
pub(crate) fn shape(server: &Server) -> Value {
    let pods = pods(server);
    let requesters: Vec<Value> = pods
        .iter()
        .filter(|it| it.variant().is_some())
        .map(|it| {
            let is_kept = !it.metadata.finalizers.is_empty();
            json!([it.metadata.name, it.server.is_ready, it.dual().is_some(), is_kept])
        })
        .collect();
    let bound = pods.iter().filter(|it| it.is_provider() && it.binding().is_some()).count();
    let awake: Vec<String> = invariants::awake(server)
        .into_iter()
        .map(|it| format!("{} {:?}", it.label, it.gpus))
        .collect();
    json!({"requesters": requesters, "bound": bound, "awake": awake})
}

/// Whether all is as it should be in the end, where it depends on the order of moves which
/// requesters there are: each is served, by one engine that is awake, and nothing else is bound.
pub(crate) fn settled(server: &Server) -> Value {
    let pods = pods(server);
    let requesters: Vec<&ActuationPod> = pods.iter().filter(|it| it.variant().is_some()).collect();
    let unserved: Vec<&str> = requesters
        .iter()
        .filter(|it| !it.server.is_ready || it.dual().is_none() || it.metadata.is_terminating())
        .map(|it| it.metadata.name.as_str())
        .collect();
    let bound = pods.iter().filter(|it| it.is_provider() && it.binding().is_some()).count();
    let awake = invariants::awake(server).len();
    json!({
        "unserved": unserved,
        "unbound": requesters.len() - bound.min(requesters.len()),
        "bound too many": bound - requesters.len().min(bound),
        "awake too many": awake - bound.min(awake),
    })
}

/// All pods as controllers read them.
pub(crate) fn pods(server: &Server) -> Vec<ActuationPod> {
    let all = server.list(&ActuationPod::RESOURCE).into_iter();
    all.map(|it| serde_json::from_value(it.clone()).unwrap()).collect()
}

fn pod(server: &Server, endpoint: &Endpoint) -> Result<ActuationPod, String> {
    let found = server.get(&ActuationPod::RESOURCE, &endpoint.pod).cloned();
    let pod: ActuationPod = serde_json::from_value(found.ok_or("no such pod")?).unwrap();
    let is_dead = pod.metadata.deletion_grace_period_seconds == Some(0);
    match pod.metadata.uid == endpoint.uid && !is_dead {
        true => Ok(pod),
        false => Err("connection refused".to_owned()),
    }
}

fn launcher_state(server: &Server, endpoint: &Endpoint) -> Result<LauncherState, String> {
    pod(server, endpoint)?;
    let fleet = server.peer::<Fleet>(PROTOCOL);
    if fleet.is_silent {
        return Err("connection timed out".to_owned());
    }
    let launcher = fleet.launcher(&endpoint.uid);
    let instances = launcher.instances.iter().map(|(id, it)| InstanceState {
        id: id.clone(),
        is_stopped: it.is_stopped,
        gpu_uuids: it.gpus.clone(),
        port: Some(it.port),
        config: Some(it.config.clone()),
        is_sleeping: fleet.is_sleeping(it),
        ..InstanceState::default()
    });
    let boot = fleet.is_fenced.then(|| format!("b{}", launcher.boot));
    Ok(LauncherState { boot, instances: instances.collect() })
}

fn instance_log(server: &Server, question: &LogQuestion) -> Result<InstanceLog, String> {
    pod(server, &question.launcher)?;
    Ok(InstanceLog { tail: format!("the log of {}", question.instance) })
}

fn launcher_events(server: &Server, process: &LauncherProcess) -> Result<LauncherEvents, String> {
    pod(server, &process.launcher)?;
    let fleet = server.peer::<Fleet>(PROTOCOL);
    let launcher = fleet.launcher(&process.launcher.uid);
    if process.boot != format!("b{}", launcher.boot) {
        return Err("connection refused".to_owned());
    }
    let (revision, changed) = launcher.events;
    let ready = launcher.instances.iter().filter(|(_, it)| fleet.is_sleeping(it).is_some());
    let last = ready.clone().map(|(_, it)| it.answers_at).max();
    let arrived = last.into_iter().chain([changed]).max().unwrap_or_default();
    let ready = ready.map(|(id, _)| id.clone()).collect();
    Ok(LauncherEvents { revision, ready, arrived })
}

fn engine_state(server: &Server, question: &EngineQuestion) -> Result<EngineState, String> {
    let pod = pod(server, &question.endpoint)?;
    let fleet = server.peer::<Fleet>(PROTOCOL);
    let refused = || "connection refused".to_owned();
    if pod.engine.is_some() {
        let is_sleeping = !fleet.direct_engine(&pod.metadata.uid);
        return Ok(EngineState { is_sleeping });
    }
    let launcher = fleet.launcher(&pod.metadata.uid);
    let mut instances = launcher.instances.values();
    let engine = instances.find(|it| it.port == question.endpoint.port && !it.is_stopped);
    let is_sleeping = engine.and_then(|it| fleet.is_sleeping(it)).ok_or_else(refused)?;
    Ok(EngineState { is_sleeping })
}

fn accelerators(server: &Server, endpoint: &Endpoint) -> Result<RequesterAccelerators, String> {
    let pod = pod(server, endpoint)?;
    let gpus = pod.annotation(GPUS).unwrap_or_default();
    Ok(RequesterAccelerators { uuids: gpus.split(',').map(str::to_owned).collect() })
}

fn stub_ready(server: &Server, question: &Endpoint) -> Result<StubReady, String> {
    let fleet = server.peer::<Fleet>(PROTOCOL);
    Ok(StubReady(fleet.ready_stubs.contains(&question.uid)))
}
