//! What is known about launchers, engines and requesters, and how their answers are read.

use std::collections::{BTreeMap, BTreeSet};

use gantry_reconcile::{Fact, Key, Uid};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::labels::{INSTANCE_CONFIG_KEY, INSTANCE_PORT_KEY, LAUNCHER_PORT};
use crate::view::{ActuationPod, ClaimedDevice};

/// A port of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// The pod.
    pub pod: Key,
    /// Its UID: another pod may get its name, or its address.
    pub uid: Uid,
    /// Its address.
    pub ip: String,
    /// The port.
    pub port: u16,
}

impl Endpoint {
    /// A port of this pod.
    #[must_use]
    pub fn of(pod: &ActuationPod, port: u16) -> Self {
        let uid = pod.metadata.uid.clone();
        Self { pod: pod.metadata.key(), uid, ip: pod.ip.clone(), port }
    }

    /// The API of this launcher.
    #[must_use]
    pub fn launcher(pod: &ActuationPod) -> Self {
        Self::of(pod, LAUNCHER_PORT)
    }

    /// The address in the form of URLs.
    #[must_use]
    pub fn address(&self) -> String {
        match self.ip.contains(':') {
            true => format!("[{}]:{}", self.ip, self.port),
            false => format!("{}:{}", self.ip, self.port),
        }
    }
}

/// The instances of a launcher.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LauncherState {
    /// The ID of the launcher process, from launchers that fence calls.
    pub boot: Option<String>,
    /// The instances.
    pub instances: Vec<InstanceState>,
}

impl Fact for LauncherState {
    type Subject = Endpoint;
    const NAME: &'static str = "launcher-state";
}

impl LauncherState {
    /// The instance with this ID.
    #[must_use]
    pub fn instance(&self, id: &str) -> Option<&InstanceState> {
        self.instances.iter().find(|it| it.id == id)
    }
}

/// An instance of a launcher.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstanceState {
    /// Its ID.
    pub id: String,
    /// Whether its process has ended.
    pub is_stopped: bool,
    /// The UUIDs of its accelerators.
    pub gpu_uuids: Vec<String>,
    /// Its port; `None` if its annotations have none.
    pub port: Option<u16>,
    /// Its InferenceServerConfig; `None` if its annotations have none.
    pub config: Option<String>,
    /// Whether it sleeps; `None` if it did not answer.
    pub is_sleeping: Option<bool>,
    /// The exit code of its process; negative for a signal.
    pub exit_code: Option<i64>,
    /// The end of its log, once it has stopped.
    pub log_tail: Option<String>,
}

/// A launcher process that announces events.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LauncherProcess {
    /// The launcher.
    pub launcher: Endpoint,
    /// The ID of the process: another one counts its events from the start.
    pub boot: String,
}

/// What a launcher has announced about its instances.
///
/// An event is a reason to ask, and never an answer: what it says may be over when it arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LauncherEvents {
    /// The revision of the last event; a watch is resumed after it.
    pub revision: u64,
    /// The instances whose engines have begun to answer.
    pub ready: BTreeSet<String>,
    /// When the last event arrived.
    pub arrived: Timestamp,
}

impl Fact for LauncherEvents {
    type Subject = LauncherProcess;
    const NAME: &'static str = "launcher-events";
}

impl LauncherEvents {
    /// No event yet.
    #[must_use]
    pub fn none(now: Timestamp) -> Self {
        Self { revision: 0, ready: BTreeSet::new(), arrived: now }
    }

    /// Adds the event of one line of a watch.
    ///
    /// # Errors
    /// The line is no event.
    pub fn add(&mut self, line: &[u8], now: Timestamp) -> Result<(), String> {
        #[derive(Deserialize)]
        struct Event {
            #[serde(rename = "type")]
            kind: String,
            object: Instance,
        }
        #[derive(Deserialize)]
        struct Instance {
            instance_id: String,
            #[serde(default)]
            revision: u64,
        }
        let event: Event = serde_json::from_slice(line)
            .map_err(|error| format!("the launcher's event cannot be read: {error}"))?;
        let Instance { instance_id, revision } = event.object;
        self.revision = self.revision.max(revision);
        self.arrived = now;
        match event.kind.as_str() {
            "READY" => drop(self.ready.insert(instance_id)),
            "CREATED" | "STOPPED" | "DELETED" => drop(self.ready.remove(&instance_id)),
            // Events of later launchers say that something changed, and no more.
            _ => {}
        }
        Ok(())
    }
}

/// The question about the log of a running instance.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogQuestion {
    /// The launcher.
    pub launcher: Endpoint,
    /// The ID of the instance.
    pub instance: String,
    /// The counter of the binding.
    pub counter: u64,
}

/// The end of the log of a running instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceLog {
    /// The text.
    pub tail: String,
}

impl Fact for InstanceLog {
    type Subject = LogQuestion;
    const NAME: &'static str = "instance-log";
}

/// The question about an engine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EngineQuestion {
    /// The engine.
    pub endpoint: Endpoint,
    /// The engine's binding and restarts: what is known about another one does not count.
    pub epoch: String,
}

impl EngineQuestion {
    /// The question about the engine on this port of a provider.
    #[must_use]
    pub fn of(provider: &ActuationPod, port: u16) -> Self {
        let counter = provider.binding_counter();
        let epoch = format!("{counter}/{}", provider.server.restarts);
        Self { endpoint: Endpoint::of(provider, port), epoch }
    }
}

/// The state of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineState {
    /// Whether it sleeps.
    pub is_sleeping: bool,
}

impl Fact for EngineState {
    type Subject = EngineQuestion;
    const NAME: &'static str = "engine-state";
}

/// The accelerators that a requester was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequesterAccelerators {
    /// Their UUIDs, in the order reported.
    pub uuids: Vec<String>,
}

impl Fact for RequesterAccelerators {
    type Subject = Endpoint;
    const NAME: &'static str = "requester-accelerators";
}

/// The question about the devices of a ResourceClaim.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimQuestion {
    /// The claim.
    pub claim: Key,
    /// The requester, by name.
    pub pod: Key,
    /// Its UID.
    pub uid: Uid,
    /// The request in the claim; empty for all.
    pub request: String,
}

/// The devices that a ResourceClaim was given for a requester.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimAllocation {
    /// The devices.
    pub devices: Vec<ClaimedDevice>,
}

impl Fact for ClaimAllocation {
    type Subject = ClaimQuestion;
    const NAME: &'static str = "claim-allocation";
}

/// The memory in use on the accelerators of a requester, in MiB.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AcceleratorMemory {
    /// The amount by UUID.
    pub used: BTreeMap<String, u64>,
}

impl Fact for AcceleratorMemory {
    type Subject = Endpoint;
    const NAME: &'static str = "accelerator-memory";
}

impl AcceleratorMemory {
    /// Returns what keeps an engine on these accelerators from being woken: one that is missing, or
    /// one with more than this amount in use.
    #[must_use]
    pub fn problem(&self, accelerators: &[String], most: u64) -> Option<String> {
        accelerators.iter().find_map(|uuid| match self.used.get(uuid) {
            None => Some(format!("the memory of accelerator {uuid} is not reported")),
            Some(used) if *used > most => Some(format!(
                "accelerator {uuid} has {used} MiB in use; the most before a wake is {most} MiB"
            )),
            Some(_) => None,
        })
    }
}

/// Reads the list of a launcher's instances. Whether they sleep is asked separately.
///
/// # Errors
/// The launcher refused, or the answer is no list.
pub fn read_instances(status: u16, body: &[u8]) -> Result<LauncherState, String> {
    #[derive(Deserialize)]
    struct List {
        #[serde(default)]
        boot_id: Option<String>,
        instances: Vec<Value>,
    }
    check_status(status, body)?;
    let list: List = serde_json::from_slice(body)
        .map_err(|error| format!("the launcher's list of instances cannot be read: {error}"))?;
    let mut instances = Vec::new();
    for item in &list.instances {
        let text = |name: &str| item[name].as_str();
        let Some(id) = text("instance_id") else {
            return Err("the launcher listed an instance without instance_id".to_owned());
        };
        let annotation = |name: &str| item["annotations"][name].as_str();
        let uuids = item["gpu_uuids"].as_array().into_iter().flatten();
        instances.push(InstanceState {
            id: id.to_owned(),
            is_stopped: text("status") == Some("stopped"),
            gpu_uuids: uuids.filter_map(|it| it.as_str().map(str::to_owned)).collect(),
            port: annotation(INSTANCE_PORT_KEY).and_then(|it| it.parse().ok()),
            config: annotation(INSTANCE_CONFIG_KEY).map(str::to_owned),
            is_sleeping: None,
            exit_code: item["exit_code"].as_i64(),
            log_tail: None,
        });
    }
    Ok(LauncherState { boot: list.boot_id, instances })
}

/// Reads whether an engine sleeps.
///
/// # Errors
/// The engine is not ready to answer, or the answer is not one.
pub fn read_sleeping(status: u16, body: &[u8]) -> Result<EngineState, String> {
    #[derive(Deserialize)]
    struct Answer {
        is_sleeping: bool,
    }
    check_status(status, body)?;
    let answer: Answer = serde_json::from_slice(body)
        .map_err(|error| format!("the engine's answer to is_sleeping cannot be read: {error}"))?;
    Ok(EngineState { is_sleeping: answer.is_sleeping })
}

/// Reads the accelerators of a requester.
///
/// # Errors
/// The stub refused, or the answer is no list of texts.
pub fn read_accelerators(status: u16, body: &[u8]) -> Result<RequesterAccelerators, String> {
    check_status(status, body)?;
    let uuids: Vec<String> = serde_json::from_slice(body)
        .map_err(|error| format!("the requester's list of accelerators cannot be read: {error}"))?;
    Ok(RequesterAccelerators { uuids })
}

/// Reads the memory in use on the accelerators of a requester.
///
/// # Errors
/// The stub refused, or the answer is no map of amounts.
pub fn read_memory(status: u16, body: &[u8]) -> Result<AcceleratorMemory, String> {
    check_status(status, body)?;
    let used = serde_json::from_slice(body)
        .map_err(|error| format!("the requester's memory in use cannot be read: {error}"))?;
    Ok(AcceleratorMemory { used })
}

/// The text of a body for messages, cut to a readable length.
pub(crate) fn shown(body: &[u8]) -> String {
    const MAX_SHOWN_CHARS: usize = 300;
    let text = String::from_utf8_lossy(body);
    text.trim().chars().take(MAX_SHOWN_CHARS).collect()
}

fn check_status(status: u16, body: &[u8]) -> Result<(), String> {
    match status {
        200..=299 => Ok(()),
        _ => Err(format!("HTTP status {status}: {}", shown(body))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn answers_are_read() {
        let list = json!({
            "revision": 3, "total_instances": 1, "running_instances": 0, "boot_id": "b1",
            "instances": [{
                "status": "stopped", "instance_id": "I1", "revision": 2, "options": "",
                "gpu_uuids": ["GPU-0"], "exit_code": -9, "unknown": 1,
                "annotations": {"isc-name": "a", "inference-port": "8005"},
            }, {"status": "criu_checkpointed", "instance_id": "I2"}],
        });
        let state = read_instances(200, list.to_string().as_bytes()).unwrap();
        assert_eq!(state.boot.as_deref(), Some("b1"));
        let expected = InstanceState {
            id: "I1".to_owned(),
            is_stopped: true,
            gpu_uuids: vec!["GPU-0".to_owned()],
            port: Some(8005),
            config: Some("a".to_owned()),
            exit_code: Some(-9),
            ..InstanceState::default()
        };
        assert_eq!(state.instance("I1"), Some(&expected));
        assert!(!state.instance("I2").unwrap().is_stopped, "a state of later launchers");
        assert!(read_sleeping(200, b"{\"is_sleeping\": true}").unwrap().is_sleeping);
        let uuids = read_accelerators(200, b"[\"GPU-1\", \"GPU-0\"]").unwrap().uuids;
        assert_eq!(uuids, ["GPU-1", "GPU-0"]);
        let memory = read_memory(200, b"{\"a\": 4096, \"b\": 5000}").unwrap();
        let problem = |uuid: &str| memory.problem(&[uuid.to_owned()], 4096);
        assert_eq!(problem("a"), None);
        assert!(problem("b").unwrap().contains("5000 MiB in use"));
        assert!(problem("c").unwrap().contains("not reported"));
    }

    #[test]
    fn g_39_events_are_added_up() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let mut events = LauncherEvents::none(at(1));
        let line = |kind: &str, id: &str, revision: u64| {
            json!({"type": kind, "object": {"instance_id": id, "revision": revision}}).to_string()
        };
        let lines = [("CREATED", "a", 1), ("CREATED", "b", 2), ("READY", "a", 1), ("NEW", "b", 3)];
        for (kind, id, revision) in lines {
            events.add(line(kind, id, revision).as_bytes(), at(2)).unwrap();
        }
        let ready = ["a".to_owned()].into();
        assert_eq!(events, LauncherEvents { revision: 3, ready, arrived: at(2) });
        events.add(line("STOPPED", "a", 4).as_bytes(), at(3)).unwrap();
        assert!(events.ready.is_empty() && events.arrived == at(3));
        let error = events.add(b"{}", at(4)).unwrap_err();
        assert!(error.contains("cannot be read") && events.arrived == at(3), "{error}");
    }

    #[test]
    fn bad_answers_are_errors() {
        assert!(read_instances(500, b"no").unwrap_err().contains("HTTP status 500: no"));
        assert!(read_instances(200, b"{}").unwrap_err().contains("cannot be read"));
        assert!(read_instances(200, b"{\"instances\": [{}]}").unwrap_err().contains("instance_id"));
        assert!(read_sleeping(200, b"{}").unwrap_err().contains("cannot be read"));
        assert!(read_accelerators(200, b"[1]").unwrap_err().contains("cannot be read"));
    }
}
