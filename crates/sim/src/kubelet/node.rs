//! Registers simulated nodes, renews their leases and reports their status.

use gantry_kube_controllers::status::truncate_to_seconds;
use gantry_reconcile::{
    Change, Controller, FactChange, FactKind, Fence, Held, Key, Kind, ObjectReference, Plan,
    Subresource, View, World, Write,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::pod_cidr::PodCidr;
use super::{Settings, annotation, device_plugins, kernel_state};
use crate::kernel::{self, KernelSpec, KernelState};
use crate::view::{
    ConditionStatus, Lease, Node, NodeAddress, NodeCondition, NodeStatus, NodeSystemInfo,
    RegisteredDevices, ResourceList,
};
use gantry_kube_controllers::deterministic_random;

/// The namespace of node leases.
const LEASE_NAMESPACE: &str = "kube-node-lease";
/// The duration of a node lease, in seconds.
const LEASE_DURATION_SECONDS: i64 = 40;
/// How often a node lease is renewed.
const LEASE_RENEW_INTERVAL: SignedDuration = SignedDuration::from_secs(10);
/// By how many percent the interval varies, so that nodes do not renew all at once.
const LEASE_RENEW_JITTER_PERCENT: i32 = 4;
/// How often a node reports an unchanged status.
const STATUS_REPORT_INTERVAL: SignedDuration = SignedDuration::from_secs(300);
/// The version of simulated kubelets: that of the API they use.
pub(crate) const KUBELET_VERSION: &str = "v1.34.10";

/// Runs the simulated nodes: registers them, and renews their leases.
#[derive(Clone, Debug, Default)]
pub struct SimulatedNodes {
    settings: Settings,
}

impl SimulatedNodes {
    /// Creates a controller for the nodes that these settings simulate.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self { settings }
    }
}

impl Controller for SimulatedNodes {
    fn name(&self) -> &'static str {
        "kubelet-nodes"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Node>(), Kind::of::<Lease>()]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        let key = Key::cluster(change.key.name());
        let ours = if change.is::<Lease>() {
            // Own renewals need no reaction; a deleted lease does.
            change.is_removal() && change.key.namespace() == LEASE_NAMESPACE
        } else {
            change.after::<Node>().is_some_and(|it| self.settings.simulates(it))
        };
        if ours && world.store::<Node>().get(&key).is_some() { vec![key] } else { Vec::new() }
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let node = world.store::<Node>().get(key).filter(|it| self.settings.simulates(it));
        let Some(node) = node else { return plan };
        if !self.settings.is_up(&node) {
            plan.hold(held_without_power(&node), now);
            return plan;
        }
        renew_lease(&mut plan, world, &node, now);
        if let Err(message) = KernelSpec::of(&node) {
            plan.hold(unreadable_annotation(&node, message), now);
            return plan;
        }
        if !write_annotations(&mut plan, world, &node, now) {
            report_status(&mut plan, world, &node, now);
        }
        plan
    }

    fn facts(&self) -> Vec<FactKind> {
        vec![FactKind::of::<KernelState>(), FactKind::of::<RegisteredDevices>()]
    }

    fn enqueue_for_fact(&self, _: &World, change: &FactChange) -> Vec<Key> {
        let kernel = change.of::<KernelState>().filter(|it| it.is_significant());
        let devices = change.of::<RegisteredDevices>().filter(|it| it.is_significant());
        let devices = devices.map(|it| Key::cluster(&it.subject.node));
        kernel.map(|it| it.subject.clone()).into_iter().chain(devices).collect()
    }
}

/// Writes annotations that are due, and returns whether any are. The status follows.
fn write_annotations(plan: &mut Plan, world: &World, node: &Node, now: Timestamp) -> bool {
    let kernel = kernel_state::due_annotation(world, node, now);
    let due: Map<String, Value> = kernel
        .into_iter()
        .chain(device_plugins::due_annotation(world, node))
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    if due.is_empty() {
        return false;
    }
    plan.write(Write::Merge {
        resource: Node::RESOURCE,
        key: node.metadata.key(),
        subresource: Subresource::Main,
        fence: node.metadata.fence(),
        body: json!({"metadata": {"annotations": due}}),
    });
    true
}

fn unreadable_annotation(node: &Node, message: String) -> Held {
    let about = ObjectReference::to(&Node::RESOURCE, &node.metadata);
    Held { about, reason: "UnreadableAnnotation".into(), message, until: None }
}

fn held_without_power(node: &Node) -> Held {
    Held {
        about: ObjectReference::to(&Node::RESOURCE, &node.metadata),
        reason: "NoPower".into(),
        message: format!(
            "annotation {} powers it off; `gantry node revive {}` powers it on",
            annotation::NODE_POWER,
            node.metadata.name
        ),
        until: None,
    }
}

/// Renews the node's lease when it is due.
fn renew_lease(plan: &mut Plan, world: &World, node: &Node, now: Timestamp) {
    let meta = &node.metadata;
    let key = Key::new(LEASE_NAMESPACE, &meta.name);
    let Some(lease) = world.store::<Lease>().get(&key) else {
        plan.write(Write::Create { resource: Lease::RESOURCE, body: lease_body(node, now) });
        plan.requeue_at(now + LEASE_RENEW_INTERVAL, now);
        return;
    };
    // Ten-thousandths of the renewal interval, from four percent less to four percent more.
    let varied = i32::try_from(deterministic_random::draw_below(
        u64::try_from(LEASE_RENEW_JITTER_PERCENT * 200).unwrap_or_default(),
        &[meta.uid.as_str(), &lease.metadata.resource_version.to_string()],
    ));
    let wait = LEASE_RENEW_INTERVAL
        + LEASE_RENEW_INTERVAL * (varied.unwrap_or_default() - LEASE_RENEW_JITTER_PERCENT * 100)
            / 10_000;
    let due = lease.spec.renew_time.map_or(now, |it| it.checked_add(wait).unwrap_or(now));
    if due > now {
        plan.requeue_at(due, now);
        return;
    }
    plan.write(Write::Merge {
        resource: Lease::RESOURCE,
        key,
        subresource: Subresource::Main,
        // Only this controller renews it, and a renewal is right whatever else has changed.
        fence: Fence { uid: lease.metadata.uid.clone(), revision: None },
        body: json!({"spec": {
            "holderIdentity": meta.name,
            "leaseDurationSeconds": LEASE_DURATION_SECONDS,
            "renewTime": micro_time(now),
        }}),
    });
    plan.requeue_at(now + LEASE_RENEW_INTERVAL, now);
}

fn lease_body(node: &Node, now: Timestamp) -> Value {
    let meta = &node.metadata;
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": meta.name,
            "namespace": LEASE_NAMESPACE,
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Node", "name": meta.name, "uid": meta.uid.as_str(),
            }],
        },
        "spec": {
            "holderIdentity": meta.name,
            "leaseDurationSeconds": LEASE_DURATION_SECONDS,
            "renewTime": micro_time(now),
        },
    })
}

/// Formats a time as leases have it: to the microsecond.
fn micro_time(now: Timestamp) -> String {
    format!("{now:.6}")
}

/// Reports the node's status, when it has changed or a report is due.
fn report_status(plan: &mut Plan, world: &World, node: &Node, now: Timestamp) {
    // Without a pod CIDR the node has no address to report.
    let Some(range) = PodCidr::parse(&node.spec.pod_cidr) else { return };
    let mut next = match desired_status(world, node, range) {
        Ok(next) => next,
        Err(message) => {
            plan.hold(unreadable_annotation(node, message), now);
            return;
        }
    };
    // While it reboots, the node reports the kernel that it had.
    let boots_at = kernel_state::boots_at(node).filter(|it| *it > now);
    if let Some(boots_at) = boots_at {
        let have = &node.status.node_info;
        next.node_info.kernel_version.clone_from(&have.kernel_version);
        next.node_info.boot_id.clone_from(&have.boot_id);
        plan.requeue_at(boots_at, now);
    }
    let is_rebooting = boots_at.is_some();
    let last = node.condition("Ready").and_then(|it| it.last_heartbeat_time);
    let due = last.map_or(now, |it| it.checked_add(STATUS_REPORT_INTERVAL).unwrap_or(now));
    let said = if due <= now { Some(now) } else { None };
    next.conditions = conditions(node, now, said, is_rebooting);
    if next == node.status {
        plan.requeue_at(due, now);
        return;
    }
    next.conditions = conditions(node, now, Some(now), is_rebooting);
    plan.write(Write::Merge {
        resource: Node::RESOURCE,
        key: node.metadata.key(),
        subresource: Subresource::Status,
        fence: node.metadata.fence(),
        body: json!({"status": render(&next, &node.status)}),
    });
    plan.requeue_at(now + STATUS_REPORT_INTERVAL, now);
}

/// Returns the status of a node, except for its conditions.
fn desired_status(world: &World, node: &Node, range: PodCidr) -> Result<NodeStatus, String> {
    let have = &node.status;
    let said = |name: &str| -> Result<Option<ResourceList>, String> {
        let Some(text) = node.metadata.annotations.get(name) else { return Ok(None) };
        let read = serde_json::from_str(text);
        read.map(Some).map_err(|error| {
            format!("annotation {name} is {text:?}: write a JSON map of quantities ({error})")
        })
    };
    let has = |amounts: &ResourceList| {
        let own = device_plugins::without_plugin_resources(node, amounts);
        (!own.is_empty()).then_some(own)
    };
    let mut capacity = said(annotation::CAPACITY)?
        .or_else(|| has(&have.capacity))
        .unwrap_or_else(default_capacity);
    let mut allocatable = match said(annotation::ALLOCATABLE)? {
        Some(said) => said,
        None if node.metadata.annotations.contains_key(annotation::CAPACITY) => capacity.clone(),
        None => has(&have.allocatable).unwrap_or_else(|| capacity.clone()),
    };
    device_plugins::add_plugin_resources(world, node, &mut capacity);
    device_plugins::add_plugin_resources(world, node, &mut allocatable);
    let addresses = if have.addresses.is_empty() {
        let address = |kind: &str, address: String| NodeAddress { kind: kind.to_owned(), address };
        vec![
            address("InternalIP", range.node_address().to_string()),
            address("Hostname", node.metadata.name.clone()),
        ]
    } else {
        have.addresses.clone()
    };
    let node_info = info(node);
    let phase = "Running".to_owned();
    Ok(NodeStatus { allocatable, capacity, conditions: Vec::new(), addresses, node_info, phase })
}

/// Returns the capacity of a node that declares none: enough for anything.
fn default_capacity() -> ResourceList {
    let amount = |text: &str| text.parse().expect("a quantity that was written here");
    let all = [("cpu", "1k"), ("memory", "1Ti"), ("pods", "1M")];
    all.into_iter().map(|(name, text)| (name.to_owned(), amount(text))).collect()
}

fn info(node: &Node) -> NodeSystemInfo {
    let have = &node.status.node_info;
    let meta = &node.metadata;
    let kept = |have: &str, make: &dyn Fn() -> String| {
        if have.is_empty() { make() } else { have.to_owned() }
    };
    let uid = meta.uid.as_str();
    let kernel = kernel::desired_release(node).to_owned();
    let label = |name: &str, otherwise: &str| {
        meta.labels.get(name).map_or(otherwise, String::as_str).to_owned()
    };
    // Another kernel means that the machine was rebooted.
    let boot_id = match have.kernel_version == kernel {
        true => kernel::boot_id(node),
        false => kernel::new_boot_id(node),
    };
    NodeSystemInfo {
        architecture: kept(&have.architecture, &|| label("kubernetes.io/arch", "amd64")),
        boot_id,
        container_runtime_version: kept(&have.container_runtime_version, &|| {
            "gantry://0.1.0".to_owned()
        }),
        kernel_version: kernel,
        kube_proxy_version: have.kube_proxy_version.clone(),
        kubelet_version: kept(&have.kubelet_version, &|| KUBELET_VERSION.to_owned()),
        machine_id: kept(&have.machine_id, &|| {
            deterministic_random::digest(&[uid, "machine"])[..32].to_owned()
        }),
        operating_system: kept(&have.operating_system, &|| label("kubernetes.io/os", "linux")),
        os_image: kept(&have.os_image, &|| "Gantry (simulated)".to_owned()),
        system_uuid: kept(&have.system_uuid, &|| deterministic_random::uuid(&[uid, "system"])),
    }
}

/// The conditions of a node that has power: type, status, reason, message.
const HEALTHY_CONDITIONS: [(&str, ConditionStatus, &str, &str); 5] = [
    ("Ready", ConditionStatus::True, "KubeletReady", "kubelet is posting ready status"),
    (
        "MemoryPressure",
        ConditionStatus::False,
        "KubeletHasSufficientMemory",
        "kubelet has sufficient memory available",
    ),
    (
        "DiskPressure",
        ConditionStatus::False,
        "KubeletHasNoDiskPressure",
        "kubelet has no disk pressure",
    ),
    (
        "PIDPressure",
        ConditionStatus::False,
        "KubeletHasSufficientPID",
        "kubelet has sufficient PID available",
    ),
    (
        "NetworkUnavailable",
        ConditionStatus::False,
        "RouteCreated",
        "RouteController created a route",
    ),
];

/// The condition of a node that reboots.
const REBOOTING_CONDITION: (&str, ConditionStatus, &str, &str) =
    ("Ready", ConditionStatus::False, "KubeletNotReady", "the node reboots with another kernel");

/// Returns the node's conditions. Those of other controllers are kept.
fn conditions(
    node: &Node,
    now: Timestamp,
    said: Option<Timestamp>,
    is_rebooting: bool,
) -> Vec<NodeCondition> {
    let ours = HEALTHY_CONDITIONS.iter().map(|condition| {
        let (kind, status, reason, message) = match condition {
            ("Ready", ..) if is_rebooting => &REBOOTING_CONDITION,
            condition => condition,
        };
        let before = node.condition(kind);
        let same = before.filter(|it| it.status == *status);
        let heartbeat =
            said.map(truncate_to_seconds).or_else(|| before.and_then(|it| it.last_heartbeat_time));
        NodeCondition {
            kind: (*kind).to_owned(),
            status: *status,
            reason: (*reason).to_owned(),
            message: (*message).to_owned(),
            last_heartbeat_time: heartbeat,
            last_transition_time: same
                .and_then(|it| it.last_transition_time)
                .or_else(|| Some(truncate_to_seconds(now))),
        }
    });
    let theirs = |it: &&NodeCondition| HEALTHY_CONDITIONS.iter().all(|(kind, ..)| it.kind != *kind);
    ours.chain(node.status.conditions.iter().filter(theirs).cloned()).collect()
}

/// Returns quantities for a merge patch: resources that are no longer there are set to null.
fn amounts(next: &ResourceList, before: &ResourceList) -> Value {
    let gone = before.keys().filter(|name| !next.contains_key(*name));
    let gone = gone.map(|name| (name.clone(), Value::Null));
    next.iter().map(|(name, it)| (name.clone(), json!(it))).chain(gone).collect()
}

fn render(status: &NodeStatus, before: &NodeStatus) -> Value {
    let addresses = status.addresses.iter();
    let info = &status.node_info;
    json!({
        "phase": status.phase,
        "capacity": amounts(&status.capacity, &before.capacity),
        "allocatable": amounts(&status.allocatable, &before.allocatable),
        "addresses": addresses
            .map(|it| json!({"type": it.kind, "address": it.address}))
            .collect::<Vec<_>>(),
        "conditions": status.conditions.iter().map(condition).collect::<Vec<_>>(),
        "nodeInfo": {
            "machineID": info.machine_id,
            "systemUUID": info.system_uuid,
            "bootID": info.boot_id,
            "kernelVersion": info.kernel_version,
            "osImage": info.os_image,
            "containerRuntimeVersion": info.container_runtime_version,
            "kubeletVersion": info.kubelet_version,
            "kubeProxyVersion": info.kube_proxy_version,
            "operatingSystem": info.operating_system,
            "architecture": info.architecture,
        },
    })
}

fn condition(condition: &NodeCondition) -> Value {
    json!({
        "type": condition.kind,
        "status": condition.status.as_str(),
        "reason": condition.reason,
        "message": condition.message,
        "lastHeartbeatTime": condition.last_heartbeat_time.map(|it| it.to_string()),
        "lastTransitionTime": condition.last_transition_time.map(|it| it.to_string()),
    })
}

#[cfg(test)]
mod tests;
