//! What a pretended node says of itself, and how often.

use gantry_reconcile::{
    Change, Controller, Fence, Held, Key, Kind, Part, Plan, Reference, View, World, Write,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::range::Range;
use super::{Settings, annotation, second};
use crate::lot;
use crate::view::{Address, Amounts, Lease, Node, NodeCondition, NodeInfo, NodeStatus, Truth};

/// Where nodes renew their leases.
const LEASES: &str = "kube-node-lease";
/// How long a lease holds, in seconds.
const LEASE: i64 = 40;
/// How often it is renewed.
const RENEWAL: SignedDuration = SignedDuration::from_secs(10);
/// By how much that varies, in hundredths, so that nodes do not renew all at once.
const VARIES: i32 = 4;
/// How often a node says how it is when nothing has changed.
const REPORT: SignedDuration = SignedDuration::from_secs(300);
/// The version that pretended kubelets have: that of the API they speak.
pub(crate) const KUBELET: &str = "v1.34.10";
/// The kernel of nodes that name none.
pub(crate) const KERNEL: &str = "6.8.0-gantry";

/// Speaks for the pretended nodes: registers what they are, and renews their leases.
#[derive(Clone, Debug, Default)]
pub struct Nodes {
    settings: Settings,
}

impl Nodes {
    /// For the nodes that these settings pretend.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self { settings }
    }
}

impl Controller for Nodes {
    fn name(&self) -> &'static str {
        "kubelet-nodes"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Node>(), Kind::of::<Lease>()]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        let key = Key::cluster(change.key.name());
        let ours = if change.is::<Lease>() {
            // Our own renewals need no answer; a lease that vanished does.
            change.is_removal() && change.key.namespace() == LEASES
        } else {
            change.after::<Node>().is_some_and(|it| self.settings.pretends(it))
        };
        if ours && world.shelf::<Node>().get(&key).is_some() { vec![key] } else { Vec::new() }
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let node = world.shelf::<Node>().get(key).filter(|it| self.settings.pretends(it));
        let Some(node) = node else { return plan };
        if !self.settings.is_up(&node) {
            plan.hold(no_power(&node), now);
            return plan;
        }
        renew(&mut plan, world, &node, now);
        report(&mut plan, &node, now);
        plan
    }
}

fn no_power(node: &Node) -> Held {
    Held {
        about: Reference::to(&Node::RESOURCE, &node.metadata),
        reason: "NoPower".into(),
        message: format!(
            "annotation {} says it is down; `gantry node revive {}` brings it back",
            annotation::POWER,
            node.metadata.name
        ),
        until: None,
    }
}

/// Renews the node's lease when it is time.
fn renew(plan: &mut Plan, world: &World, node: &Node, now: Timestamp) {
    let meta = &node.metadata;
    let key = Key::new(LEASES, &meta.name);
    let Some(lease) = world.shelf::<Lease>().get(&key) else {
        plan.write(Write::Create { resource: Lease::RESOURCE, body: lease(node, now) });
        plan.look_at(now + RENEWAL, now);
        return;
    };
    // Whole ten-thousandths of the renewal time, from four hundredths less to four more.
    let varied = i32::try_from(lot::below(
        u64::try_from(VARIES * 200).unwrap_or_default(),
        &[meta.uid.as_str(), &lease.metadata.resource_version.to_string()],
    ));
    let wait = RENEWAL + RENEWAL * (varied.unwrap_or_default() - VARIES * 100) / 10_000;
    let due = lease.spec.renew_time.map_or(now, |it| it.checked_add(wait).unwrap_or(now));
    if due > now {
        plan.look_at(due, now);
        return;
    }
    plan.write(Write::Merge {
        resource: Lease::RESOURCE,
        key,
        part: Part::Main,
        // Nobody else renews it, and a renewal is right whatever else has changed.
        fence: Fence { uid: lease.metadata.uid.clone(), revision: None },
        body: json!({"spec": {
            "holderIdentity": meta.name,
            "leaseDurationSeconds": LEASE,
            "renewTime": micro(now),
        }}),
    });
    plan.look_at(now + RENEWAL, now);
}

fn lease(node: &Node, now: Timestamp) -> Value {
    let meta = &node.metadata;
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": meta.name,
            "namespace": LEASES,
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Node", "name": meta.name, "uid": meta.uid.as_str(),
            }],
        },
        "spec": {
            "holderIdentity": meta.name,
            "leaseDurationSeconds": LEASE,
            "renewTime": micro(now),
        },
    })
}

/// A moment as leases have it: to the microsecond.
fn micro(now: Timestamp) -> String {
    format!("{now:.6}")
}

/// Says how the node is, when that has changed or it is time.
fn report(plan: &mut Plan, node: &Node, now: Timestamp) {
    // Before it has addresses for pods it cannot say where it is.
    let Some(range) = Range::read(&node.spec.pod_cidr) else { return };
    let mut next = match wanted(node, range) {
        Ok(next) => next,
        Err(message) => {
            let about = Reference::to(&Node::RESOURCE, &node.metadata);
            let reason = "UnreadableAnnotation".into();
            plan.hold(Held { about, reason, message, until: None }, now);
            return;
        }
    };
    let last = node.condition("Ready").and_then(|it| it.last_heartbeat_time);
    let due = last.map_or(now, |it| it.checked_add(REPORT).unwrap_or(now));
    next.conditions = conditions(node, now, if due <= now { Some(now) } else { None });
    if next == node.status {
        plan.look_at(due, now);
        return;
    }
    next.conditions = conditions(node, now, Some(now));
    plan.write(Write::Merge {
        resource: Node::RESOURCE,
        key: node.metadata.key(),
        part: Part::Status,
        fence: node.metadata.fence(),
        body: json!({"status": render(&next, &node.status)}),
    });
    plan.look_at(now + REPORT, now);
}

/// What is to be said of a node, but for its conditions.
fn wanted(node: &Node, range: Range) -> Result<NodeStatus, String> {
    let have = &node.status;
    let said = |name: &str| -> Result<Option<Amounts>, String> {
        let Some(text) = node.metadata.annotations.get(name) else { return Ok(None) };
        let read = serde_json::from_str(text);
        read.map(Some).map_err(|error| {
            format!("annotation {name} is {text:?}: write a JSON map of quantities ({error})")
        })
    };
    let has = |amounts: &Amounts| (!amounts.is_empty()).then(|| amounts.clone());
    let capacity =
        said(annotation::CAPACITY)?.or_else(|| has(&have.capacity)).unwrap_or_else(endless);
    let allocatable = match said(annotation::ALLOCATABLE)? {
        Some(said) => said,
        None if node.metadata.annotations.contains_key(annotation::CAPACITY) => capacity.clone(),
        None => has(&have.allocatable).unwrap_or_else(|| capacity.clone()),
    };
    let addresses = if have.addresses.is_empty() {
        let address = |kind: &str, address: String| Address { kind: kind.to_owned(), address };
        vec![
            address("InternalIP", range.host().to_string()),
            address("Hostname", node.metadata.name.clone()),
        ]
    } else {
        have.addresses.clone()
    };
    let node_info = info(node);
    let phase = "Running".to_owned();
    Ok(NodeStatus { allocatable, capacity, conditions: Vec::new(), addresses, node_info, phase })
}

/// What a node has that says nothing: enough for anything.
fn endless() -> Amounts {
    let amount = |text: &str| text.parse().expect("a quantity that was written here");
    let all = [("cpu", "1k"), ("memory", "1Ti"), ("pods", "1M")];
    all.into_iter().map(|(name, text)| (name.to_owned(), amount(text))).collect()
}

fn info(node: &Node) -> NodeInfo {
    let have = &node.status.node_info;
    let meta = &node.metadata;
    let kept = |have: &str, make: &dyn Fn() -> String| {
        if have.is_empty() { make() } else { have.to_owned() }
    };
    let uid = meta.uid.as_str();
    let kernel = match meta.annotations.get(annotation::KERNEL) {
        Some(kernel) => kernel.clone(),
        None => kept(&have.kernel_version, &|| KERNEL.to_owned()),
    };
    let label = |name: &str, otherwise: &str| {
        meta.labels.get(name).map_or(otherwise, String::as_str).to_owned()
    };
    // Another kernel is another start of the machine.
    let boot_id = if have.kernel_version == kernel && !have.boot_id.is_empty() {
        have.boot_id.clone()
    } else {
        lot::uuid(&[uid, "boot", &kernel])
    };
    NodeInfo {
        architecture: kept(&have.architecture, &|| label("kubernetes.io/arch", "amd64")),
        boot_id,
        container_runtime_version: kept(&have.container_runtime_version, &|| {
            "gantry://0.1.0".to_owned()
        }),
        kernel_version: kernel,
        kube_proxy_version: have.kube_proxy_version.clone(),
        kubelet_version: kept(&have.kubelet_version, &|| KUBELET.to_owned()),
        machine_id: kept(&have.machine_id, &|| lot::digest(&[uid, "machine"])[..32].to_owned()),
        operating_system: kept(&have.operating_system, &|| label("kubernetes.io/os", "linux")),
        os_image: kept(&have.os_image, &|| "Gantry (pretended)".to_owned()),
        system_uuid: kept(&have.system_uuid, &|| lot::uuid(&[uid, "system"])),
    }
}

/// What is true of a node that has power: kind, whether, reason, message.
const HEALTHY: [(&str, Truth, &str, &str); 5] = [
    ("Ready", Truth::True, "KubeletReady", "kubelet is posting ready status"),
    (
        "MemoryPressure",
        Truth::False,
        "KubeletHasSufficientMemory",
        "kubelet has sufficient memory available",
    ),
    ("DiskPressure", Truth::False, "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    (
        "PIDPressure",
        Truth::False,
        "KubeletHasSufficientPID",
        "kubelet has sufficient PID available",
    ),
    ("NetworkUnavailable", Truth::False, "RouteCreated", "RouteController created a route"),
];

/// The node's conditions. Those that somebody else states are kept.
fn conditions(node: &Node, now: Timestamp, said: Option<Timestamp>) -> Vec<NodeCondition> {
    let ours = HEALTHY.iter().map(|(kind, status, reason, message)| {
        let before = node.condition(kind);
        let same = before.filter(|it| it.status == *status);
        let heartbeat = said.map(second).or_else(|| before.and_then(|it| it.last_heartbeat_time));
        NodeCondition {
            kind: (*kind).to_owned(),
            status: *status,
            reason: (*reason).to_owned(),
            message: (*message).to_owned(),
            last_heartbeat_time: heartbeat,
            last_transition_time: same
                .and_then(|it| it.last_transition_time)
                .or_else(|| Some(second(now))),
        }
    });
    let theirs = |it: &&NodeCondition| HEALTHY.iter().all(|(kind, ..)| it.kind != *kind);
    ours.chain(node.status.conditions.iter().filter(theirs).cloned()).collect()
}

/// Amounts as a merge states them: what was there and no longer is must be taken away by name.
fn amounts(next: &Amounts, before: &Amounts) -> Value {
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
