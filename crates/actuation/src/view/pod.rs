//! Pods: requesters, providers, and what decisions read of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use gantry_pods::view::{Condition, ConditionStatus, ContainerStatus, Phase};
use gantry_reconcile::world::IndexValue;
use gantry_reconcile::{Key, Meta, Resource, Uid, View};
use jiff::Timestamp;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::claims::RequesterClaims;
use crate::labels::{
    ADMIN_PORT_ANNOTATION, BINDING_COUNTER_ANNOTATION, DEFAULT_ADMIN_PORT, DISCARD_ANNOTATION,
    DUAL_LABEL, HOSTNAME_LABEL, INFERENCE_SERVER, LAST_USE_ANNOTATION, LAUNCHER_CONFIG_LABEL,
    NOMINAL_ANNOTATION, PAIRING_MANAGER, PROXY_PORT_ANNOTATION, READINESS_GATE,
    REQUESTER_ANNOTATION, SERVER_CONFIG_ANNOTATION, SERVER_PATCH_ANNOTATION, SLEEPING_LABEL,
    UNBINDING_ANNOTATION, VISIBLE_DEVICES,
};

/// A pod, as far as actuation reads it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ActuationPod {
    /// Metadata.
    pub metadata: Meta,
    /// The node that runs it; empty until it is scheduled.
    pub node_name: String,
    /// The node that its node selector names; providers are always made for one.
    pub selected_node: String,
    /// The whole spec, of requesters of the direct variant only.
    pub spec: Option<Arc<Value>>,
    /// The engine, of direct providers only.
    pub engine: Option<DirectEngine>,
    /// The claims for its devices, of requesters only.
    pub claims: RequesterClaims,
    /// Whether it declares the readiness gate of the pairing controller.
    pub has_readiness_gate: bool,
    /// The phase.
    pub phase: Phase,
    /// The address; empty until there is one.
    pub ip: String,
    /// The conditions.
    pub conditions: Vec<Condition>,
    /// The state of the container `inference-server`.
    pub server: ServerContainer,
    /// How often its containers were restarted.
    pub restarts: i64,
    /// When the pairing controller last wrote it.
    pub last_write: Option<Timestamp>,
}

/// The state of the container `inference-server`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerContainer {
    /// Whether it runs.
    pub is_running: bool,
    /// Whether it is ready.
    pub is_ready: bool,
    /// How often it was restarted.
    pub restarts: i64,
    /// When it started.
    pub started_at: Option<Timestamp>,
}

/// The engine of a direct provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectEngine {
    /// Its port, or why there is none.
    pub port: Result<u16, String>,
    /// The indices of its accelerators.
    pub visible_devices: Vec<String>,
}

/// How a requester wants to be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Variant<'a> {
    /// By an engine in a pod of its own, made with this patch.
    Direct(&'a str),
    /// By an instance in a launcher, as this InferenceServerConfig says.
    Launcher(&'a str),
}

/// The binding of a provider.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Binding {
    /// The requester's UID.
    pub uid: Uid,
    /// The requester's name.
    pub name: String,
}

/// The fields of the spec that are read.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct StoredSpec {
    node_name: String,
    node_selector: BTreeMap<String, String>,
    readiness_gates: Vec<Gate>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Gate {
    condition_type: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct StoredStatus {
    phase: Phase,
    #[serde(rename = "podIP")]
    pod_ip: String,
    conditions: Vec<Condition>,
    resource_claim_statuses: Value,
    container_statuses: Vec<ContainerStatus>,
    init_container_statuses: Vec<ContainerStatus>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StoredPod {
    metadata: Value,
    spec: Value,
    status: StoredStatus,
}

impl<'de> Deserialize<'de> for ActuationPod {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;
        let StoredPod { metadata, spec, status } = StoredPod::deserialize(from)?;
        let managed = metadata["managedFields"].as_array().into_iter().flatten();
        let written = managed.filter(|it| it["manager"] == PAIRING_MANAGER);
        let last_write = written.filter_map(|it| it["time"].as_str()?.parse().ok()).max();
        let stored = match spec.is_null() {
            true => StoredSpec::default(),
            false => StoredSpec::deserialize(&spec).map_err(D::Error::custom)?,
        };
        let meta = match metadata.is_null() {
            true => Meta::default(),
            false => Meta::deserialize(metadata).map_err(D::Error::custom)?,
        };
        let server = status.container_statuses.iter().find(|it| it.name == INFERENCE_SERVER);
        let server = server.map_or_else(ServerContainer::default, |it| ServerContainer {
            is_running: it.state.running.is_some(),
            is_ready: it.ready,
            restarts: it.restart_count,
            started_at: it.state.running.as_ref().and_then(|it| it.started_at),
        });
        let all = status.container_statuses.iter().chain(&status.init_container_statuses);
        let restarts = all.map(|it| it.restart_count).sum();
        let gates = stored.readiness_gates.iter();
        let mut selector = stored.node_selector;
        let mut pod = Self {
            metadata: meta,
            node_name: stored.node_name,
            selected_node: selector.remove(HOSTNAME_LABEL).unwrap_or_default(),
            spec: None,
            engine: None,
            claims: RequesterClaims::default(),
            has_readiness_gate: gates.into_iter().any(|it| it.condition_type == READINESS_GATE),
            phase: status.phase,
            ip: status.pod_ip,
            conditions: status.conditions,
            server,
            restarts,
            last_write,
        };
        if pod.annotation(NOMINAL_ANNOTATION).is_some() {
            pod.engine = Some(DirectEngine::of(&spec));
        }
        if pod.variant().is_some() {
            let (annotations, made) = (&pod.metadata.annotations, &status.resource_claim_statuses);
            pod.claims = RequesterClaims::read(annotations, &spec, made);
        }
        if matches!(pod.variant(), Some(Variant::Direct(_))) {
            pod.spec = Some(Arc::new(spec));
        }
        Ok(pod)
    }
}

impl DirectEngine {
    /// The engine that the container `inference-server` of this spec runs.
    #[must_use]
    pub fn of(spec: &Value) -> Self {
        let containers = spec["containers"].as_array().into_iter().flatten();
        let server = containers.into_iter().find(|it| it["name"] == INFERENCE_SERVER);
        let env = server.and_then(|it| it["env"].as_array()).into_iter().flatten();
        let devices = env.into_iter().find(|it| it["name"] == VISIBLE_DEVICES);
        let devices = devices.and_then(|it| it["value"].as_str()).unwrap_or_default();
        let devices = devices.split(',').filter(|it| !it.is_empty()).map(str::to_owned);
        let port = match server {
            Some(server) => engine_port(server),
            None => Err(format!("no container is named \"{INFERENCE_SERVER}\"")),
        };
        Self { port, visible_devices: devices.collect() }
    }
}

/// The port of a container's readiness probe.
fn engine_port(container: &Value) -> Result<u16, String> {
    let place = format!("containers[name={INFERENCE_SERVER}].readinessProbe");
    let probe = &container["readinessProbe"];
    if probe.is_null() {
        return Err(format!("{place}: required; its httpGet.port is the port of the engine"));
    }
    let get = &probe["httpGet"];
    if get.is_null() {
        return Err(format!("{place}.httpGet: required; its port is the port of the engine"));
    }
    match &get["port"] {
        Value::Number(number) => number
            .as_u64()
            .and_then(|it| u16::try_from(it).ok())
            .filter(|it| *it > 0)
            .ok_or_else(|| format!("{place}.httpGet.port: {number} is no port; use 1 to 65535")),
        Value::String(name) if name == "http" || name == "HTTP" => Ok(80),
        other => Err(format!("{place}.httpGet.port: {other} is not supported; use a number")),
    }
}

impl View for ActuationPod {
    const RESOURCE: Resource = Resource::namespaced("", "v1", "pods", "Pod");

    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn index_values(&self) -> Vec<IndexValue> {
        let namespace = &self.metadata.namespace;
        let mut values = Vec::new();
        match self.variant() {
            Some(variant) => {
                values.push(requester_with_uid(&self.metadata.uid));
                if let Variant::Launcher(config) = variant {
                    values.push(with_server_config(namespace, config));
                }
                if !self.node_name.is_empty() {
                    values.push(on_node(&self.node_name));
                }
            }
            None if self.is_provider() => {
                values.extend(self.binding().map(|it| bound_to(&it.uid)));
                values.push(on_node(&self.selected_node));
                values.extend(
                    self.launcher_config()
                        .map(|it| launchers_of(namespace, it, &self.selected_node)),
                );
            }
            None => {}
        }
        values
    }
}

/// The index value of the requester with this UID.
#[must_use]
pub fn requester_with_uid(uid: &Uid) -> IndexValue {
    IndexValue { index: "requester", value: uid.as_str().to_owned() }
}

/// The index value of the providers bound to the requester with this UID.
#[must_use]
pub fn bound_to(uid: &Uid) -> IndexValue {
    IndexValue { index: "bound-to", value: uid.as_str().to_owned() }
}

/// The index value of the requesters and providers of a node.
#[must_use]
pub fn on_node(node: &str) -> IndexValue {
    IndexValue { index: "node", value: node.to_owned() }
}

/// The index value of the launchers of a LauncherConfig on a node.
#[must_use]
pub fn launchers_of(namespace: &str, config: &str, node: &str) -> IndexValue {
    IndexValue { index: "launchers", value: format!("{namespace}/{config}/{node}") }
}

/// The index value of the requesters that name an InferenceServerConfig.
#[must_use]
pub fn with_server_config(namespace: &str, config: &str) -> IndexValue {
    IndexValue { index: "server-config", value: format!("{namespace}/{config}") }
}

impl ActuationPod {
    /// The value of an annotation; an empty one counts as absent.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.get(key).map(String::as_str).filter(|it| !it.is_empty())
    }

    /// The value of a label; an empty one counts as absent.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.get(key).map(String::as_str).filter(|it| !it.is_empty())
    }

    /// How it wants to be served; `None` if it is no requester.
    #[must_use]
    pub fn variant(&self) -> Option<Variant<'_>> {
        let launcher = self.annotation(SERVER_CONFIG_ANNOTATION).map(Variant::Launcher);
        launcher.or_else(|| self.annotation(SERVER_PATCH_ANNOTATION).map(Variant::Direct))
    }

    /// Whether it is a provider, bound or not.
    #[must_use]
    pub fn is_provider(&self) -> bool {
        self.variant().is_none() && (self.is_launcher() || self.engine.is_some())
    }

    /// Whether it is a launcher.
    #[must_use]
    pub fn is_launcher(&self) -> bool {
        self.launcher_config().is_some()
    }

    /// The name of the LauncherConfig of a launcher.
    #[must_use]
    pub fn launcher_config(&self) -> Option<&str> {
        self.label(LAUNCHER_CONFIG_LABEL)
    }

    /// The requester that the provider is bound to.
    #[must_use]
    pub fn binding(&self) -> Option<Binding> {
        let (uid, name) = self.annotation(REQUESTER_ANNOTATION)?.split_once(' ')?;
        let is_valid = !uid.is_empty() && !name.is_empty() && !name.contains(' ');
        is_valid.then(|| Binding { uid: Uid::new(uid), name: name.to_owned() })
    }

    /// The counter of the provider's bindings.
    #[must_use]
    pub fn binding_counter(&self) -> u64 {
        self.annotation(BINDING_COUNTER_ANNOTATION).and_then(|it| it.parse().ok()).unwrap_or(0)
    }

    /// When its binding began to end; `None` while it does not.
    #[must_use]
    pub fn unbinding_since(&self) -> Option<Timestamp> {
        let text = self.annotation(UNBINDING_ANNOTATION)?;
        // An unreadable time is one long ago: the binding ends all the same.
        Some(text.parse().unwrap_or(Timestamp::UNIX_EPOCH))
    }

    /// Why its engine must not be used again.
    #[must_use]
    pub fn discard_reason(&self) -> Option<&str> {
        self.annotation(DISCARD_ANNOTATION)
    }

    /// When it was last bound or unbound; its creation if it never was.
    #[must_use]
    pub fn last_use(&self) -> Timestamp {
        let recorded = self.annotation(LAST_USE_ANNOTATION).and_then(|it| it.parse().ok());
        recorded.or(self.metadata.creation_timestamp).unwrap_or(Timestamp::UNIX_EPOCH)
    }

    /// The name of the pod it is paired with.
    #[must_use]
    pub fn dual(&self) -> Option<&str> {
        self.label(DUAL_LABEL)
    }

    /// Whether its label says that the engine serves.
    #[must_use]
    pub fn is_marked_awake(&self) -> bool {
        self.label(SLEEPING_LABEL) == Some("false")
    }

    /// Whether it has succeeded or failed.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }

    /// Its condition of this type.
    #[must_use]
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|it| it.kind == kind)
    }

    /// Whether its `Ready` condition is true.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.condition("Ready").is_some_and(|it| it.status == ConditionStatus::True)
    }

    /// Since when its `Ready` condition is not true.
    #[must_use]
    pub fn unready_since(&self) -> Option<Timestamp> {
        match self.condition("Ready") {
            Some(it) if it.status == ConditionStatus::True => None,
            Some(it) => it.last_transition_time.or(self.metadata.creation_timestamp),
            None => self.metadata.creation_timestamp,
        }
    }

    /// Whether its engine or launcher may run: it has an address and its container runs.
    #[must_use]
    pub fn is_reachable(&self) -> bool {
        !self.ip.is_empty() && self.server.is_running && !self.is_terminal()
    }

    /// The port of a requester's control interface.
    ///
    /// # Errors
    /// The annotation is not a port.
    pub fn admin_port(&self) -> Result<u16, String> {
        port_annotation(self, ADMIN_PORT_ANNOTATION).map(|it| it.unwrap_or(DEFAULT_ADMIN_PORT))
    }

    /// The port of a requester's proxy; `None` if it is not used.
    ///
    /// # Errors
    /// The annotation is not a port.
    pub fn proxy_port(&self) -> Result<Option<u16>, String> {
        port_annotation(self, PROXY_PORT_ANNOTATION)
    }

    /// The key under which the requester is paired: its UID, because a name may be used again
    /// before the engine of its last bearer sleeps.
    #[must_use]
    pub fn pairing_key(&self) -> Key {
        Key::new(&self.metadata.namespace, self.metadata.uid.as_str())
    }
}

fn port_annotation(pod: &ActuationPod, key: &str) -> Result<Option<u16>, String> {
    let Some(text) = pod.annotation(key) else { return Ok(None) };
    match text.parse() {
        Ok(port) if port > 0 => Ok(Some(port)),
        Ok(_) | Err(_) => {
            Err(format!("annotation {key}: {text:?} is no port; use a number from 1 to 65535"))
        }
    }
}
