//! Pods that use the devices of a Module, which are evicted before its driver changes versions.
//!
//! The device plugin of the old version is gone by then, so that its devices are not allocated to
//! the pods that take the place of those that were evicted.

use std::collections::BTreeSet;
use std::sync::Arc;

use gantry_reconcile::world::IndexValue;
use gantry_reconcile::{
    Event, Fence, Held, Key, Meta, ObjectReference, Resource, Step, View, World, Write,
};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::NodeLabelController;
use crate::labels::DRAIN_ANNOTATION;
use crate::view::Module;

/// The reason of a node that waits for pods to end.
pub const DRAINING: &str = "Draining";
/// The reason of a node with pods that may not be evicted.
pub const DRAIN_BLOCKED: &str = "DrainBlocked";
/// The reason of a Module whose pods cannot be evicted.
pub const DRAIN_NOT_POSSIBLE: &str = "DrainNotPossible";

/// How many pods a message names.
const MAX_NAMED_PODS: usize = 5;

/// A pod, as far as it uses devices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceUser {
    /// Metadata.
    pub metadata: Meta,
    /// The node that it is bound to; empty if there is none, or if its containers have ended.
    pub node: String,
    /// The extended resources that its containers request.
    pub resources: BTreeSet<String>,
}

/// The fields of a pod that are read.
#[derive(Default, Deserialize)]
#[serde(default)]
struct StoredPod {
    metadata: Meta,
    spec: StoredSpec,
    status: StoredStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct StoredSpec {
    node_name: String,
    containers: Vec<StoredContainer>,
    init_containers: Vec<StoredContainer>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StoredContainer {
    resources: StoredResources,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StoredResources {
    /// Servers copy limits of extended resources to requests, and require them to be equal.
    limits: Map<String, Value>,
    requests: Map<String, Value>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StoredStatus {
    phase: String,
}

impl<'de> Deserialize<'de> for DeviceUser {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let StoredPod { metadata, spec, status } = StoredPod::deserialize(from)?;
        let has_ended = matches!(status.phase.as_str(), "Succeeded" | "Failed");
        let containers = spec.containers.iter().chain(&spec.init_containers);
        let amounts =
            containers.flat_map(|it| it.resources.limits.iter().chain(&it.resources.requests));
        let used = amounts.filter(|(name, amount)| is_extended(name) && !is_zero(amount));
        let resources = used.map(|(name, _)| name.clone()).collect();
        let node = if has_ended { String::new() } else { spec.node_name };
        Ok(Self { metadata, node, resources })
    }
}

/// Whether a resource is one that device plugins offer: all others have no domain, or that of
/// Kubernetes.
fn is_extended(name: &str) -> bool {
    name.split_once('/')
        .is_some_and(|(domain, _)| domain != "kubernetes.io" && !domain.ends_with(".kubernetes.io"))
}

fn is_zero(amount: &Value) -> bool {
    *amount == "0" || *amount == 0
}

impl View for DeviceUser {
    const RESOURCE: Resource = Resource::namespaced("", "v1", "pods", "Pod");

    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn index_values(&self) -> Vec<IndexValue> {
        self.used_node().map(Self::node_index).into_iter().collect()
    }
}

impl DeviceUser {
    /// The index value of the pods that use devices of a node.
    fn node_index(node: &str) -> IndexValue {
        IndexValue { index: "device-node", value: node.to_owned() }
    }

    /// The node whose devices it uses.
    #[must_use]
    pub fn used_node(&self) -> Option<&str> {
        (!self.node.is_empty() && !self.resources.is_empty()).then_some(self.node.as_str())
    }
}

/// The resources of a Module whose users are evicted; none without the annotation.
///
/// # Errors
/// The value of the annotation cannot be used, and why.
pub fn drained_resources(module: &Meta) -> Result<BTreeSet<String>, String> {
    let Some(text) = module.annotations.get(DRAIN_ANNOTATION) else { return Ok(BTreeSet::new()) };
    let mut resources = BTreeSet::new();
    for name in text.split(',').map(str::trim) {
        let has_name = name.split_once('/').is_some_and(|(_, it)| !it.is_empty());
        if !is_extended(name) || !has_name {
            return Err(format!(
                "annotation {DRAIN_ANNOTATION}: \"{name}\" is no resource of a device plugin; name \
                 those that this device plugin offers, such as example.com/gpu, separated by commas"
            ));
        }
        resources.insert(name.to_owned());
    }
    Ok(resources)
}

/// Why the users of a Module's devices are not evicted, although its annotation asks for it.
pub(crate) fn drain_problem(module: &Module, is_enabled: bool) -> Option<String> {
    match drained_resources(&module.metadata) {
        Err(why) => Some(format!("{why}; until then no pod is evicted")),
        Ok(resources) if resources.is_empty() || is_enabled => None,
        Ok(_) => Some(format!(
            "annotation {DRAIN_ANNOTATION} has no effect: no pod is evicted before the setting \
             modules.upgrade.drain is true"
        )),
    }
}

/// The pods on a node that use any of these resources.
pub(super) fn device_users(
    world: &World,
    node: &str,
    resources: &BTreeSet<String>,
) -> Vec<Arc<DeviceUser>> {
    if resources.is_empty() {
        return Vec::new();
    }
    let mut users = world.store::<DeviceUser>().by_index(&DeviceUser::node_index(node));
    users.retain(|it| !it.resources.is_disjoint(resources));
    users.sort_by_key(|it| it.metadata.key());
    users
}

/// What a node does about the pods that use the devices of a Module.
#[derive(Debug, Default)]
pub(super) struct Drain {
    pub(super) evictions: Vec<Step>,
    pub(super) events: Vec<Event>,
    pub(super) held: Vec<Held>,
}

impl Drain {
    /// Adds what is done about the devices of another Module.
    pub(super) fn append(&mut self, other: Self) {
        let Self { evictions, events, held } = other;
        self.evictions.extend(evictions);
        self.events.extend(events);
        self.held.extend(held);
    }
}

/// Evicts the pods that are not ending yet, and holds the Module until all have ended.
pub(super) fn drain(
    world: &World,
    node: &str,
    module: &Module,
    users: &[Arc<DeviceUser>],
) -> Drain {
    let about = ObjectReference::to(&Module::RESOURCE, &module.metadata);
    let refused = world.refused_writes(NodeLabelController::NAME, &Key::cluster(node));
    let mut drain = Drain::default();
    let mut blocked = Vec::new();
    for user in users.iter().filter(|it| !it.metadata.is_terminating()) {
        let key = user.metadata.key();
        let fence = Fence { revision: None, ..user.metadata.fence() };
        let write = Write::Evict { key: key.clone(), fence };
        if let Some(refused) = refused.iter().find(|it| it.matches(&write)) {
            blocked.push(format!("{key}: {}", refused.refusal.message));
        }
        let message = format!(
            "evicted pod {key} from node {node}: it uses {} of Module {}, whose driver changes",
            joined(&user.resources),
            module.metadata.key(),
        );
        let event = Event::normal(about.clone(), "DeviceUserEvicted", message);
        drain.evictions.push(Step::new(write).on_success(event));
    }
    let mut message = format!(
        "node {node}: the driver changes when no pod uses its devices; evicted are {}",
        listed(users.iter().map(|it| it.metadata.key().to_string())),
    );
    let mut reason = DRAINING;
    if !blocked.is_empty() {
        reason = DRAIN_BLOCKED;
        let blocked = listed(blocked.into_iter());
        message = format!(
            "{message}; refused and retried: {blocked}; scale up what the budget is about, or \
             delete the pods yourself"
        );
        drain.events.push(Event::warning(about.clone(), DRAIN_BLOCKED, message.clone()));
    }
    drain.held.push(Held { about, reason: reason.into(), message, until: None });
    drain
}

fn joined(resources: &BTreeSet<String>) -> String {
    resources.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// The first of some texts, and how many more there are.
fn listed(texts: impl ExactSizeIterator<Item = String>) -> String {
    let more = texts.len().saturating_sub(MAX_NAMED_PODS);
    let named: Vec<String> = texts.take(MAX_NAMED_PODS).collect();
    let named = named.join(", ");
    if more == 0 { named } else { format!("{named} and {more} more") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn user(spec: &Value, phase: &str) -> DeviceUser {
        let pod = json!({"metadata": {"name": "p"}, "spec": spec, "status": {"phase": phase}});
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn a_pod_uses_devices_of_its_node_until_it_has_ended() {
        let gpu = || json!({"resources": {"limits": {"example.com/gpu": "1", "cpu": "1"}}});
        let spec = |container: Value| json!({"nodeName": "a", "containers": [container]});
        let table = [
            (spec(gpu()), "Running", Some("a")),
            (spec(gpu()), "", Some("a")),
            (spec(gpu()), "Succeeded", None),
            (spec(gpu()), "Failed", None),
            (spec(json!({"resources": {"requests": {"example.com/gpu": "2"}}})), "", Some("a")),
            (
                json!({"nodeName": "a", "containers": [{}], "initContainers": [gpu()]}),
                "",
                Some("a"),
            ),
            (json!({"containers": [gpu()]}), "Pending", None),
            (spec(json!({"resources": {"limits": {"example.com/gpu": "0"}}})), "", None),
            (
                spec(json!({"resources": {"limits": {"cpu": "1", "hugepages-2Mi": "2Mi"}}})),
                "",
                None,
            ),
            (spec(json!({"resources": {"limits": {"requests.kubernetes.io/x": "1"}}})), "", None),
            (spec(json!({})), "Running", None),
        ];
        for (spec, phase, expected) in table {
            assert_eq!(user(&spec, phase).used_node(), expected, "{spec} {phase}");
        }
    }

    #[test]
    fn the_annotation_names_resources_of_device_plugins() {
        let resources = |text: &str| {
            let annotations = [(DRAIN_ANNOTATION.to_owned(), text.to_owned())].into();
            drained_resources(&Meta { annotations, ..Meta::default() })
        };
        assert_eq!(drained_resources(&Meta::default()), Ok(BTreeSet::new()));
        let one = |name: &str| BTreeSet::from([name.to_owned()]);
        assert_eq!(resources("example.com/gpu"), Ok(one("example.com/gpu")));
        assert_eq!(resources("a.b/c, a.b/d").unwrap().len(), 2);
        for bad in ["", "cpu", "example.com/gpu,", "example.com/", "requests.kubernetes.io/x"] {
            let why = resources(bad).unwrap_err();
            assert!(why.contains("such as example.com/gpu"), "{bad}: {why}");
        }
    }

    #[test]
    fn messages_name_some_pods() {
        let pods = |count: usize| listed((0..count).map(|it| it.to_string()));
        assert_eq!(pods(2), "0, 1");
        assert_eq!(pods(7), "0, 1, 2, 3, 4 and 2 more");
    }
}
