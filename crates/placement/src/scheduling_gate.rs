//! Pods that another scheduler binds: their scheduling gate, and the handling of pods that stay
//! unbound after it is removed.
//!
//! A pod with the gate is allocated devices like any other. Then it is pinned to the node of its
//! devices and its gate is removed, in one write, which conflicts if the pod has changed; from
//! there on its own scheduler is responsible. That scheduler checks more than this one, and may
//! reject the node. A pod whose gate is removed cannot be pinned to another node any more, so if it
//! has a controller, it is deleted to be recreated, and that node is not chosen again for a while.
//! The refusal is recorded in a pool of its devices before the pod is deleted ([`node_refusals`]),
//! because no other object keeps it. A pod without a controller gets an event and keeps its
//! devices, since its scheduler may still bind it at any moment.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;

use gantry_api::devices::{
    DeviceClaim, DeviceClaimTemplate, DevicePool, DevicePrivilegedClaim, PodDevices,
};
use gantry_pods::view::{ConditionStatus, NodeSelectorTerm, Pod};
use gantry_reconcile::labels::{Operator, Requirement};
use gantry_reconcile::{
    Change, Controller, Event, Held, Key, Kind, ObjectReference, OwnerReference, Plan, Step,
    Subresource, Uid, View, World, Write,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::condition::truncate_to_second;
use crate::pod_claims::{self, PendingReason};
use crate::views::DeviceObject;

pub(crate) mod node_refusals;

/// The scheduling gate that keeps other schedulers from pods whose devices are not allocated yet.
pub const SCHEDULING_GATE: &str = "devmgmtproto.k8s.io/devices";
/// The annotation that records where and when the gate of a pod was removed.
pub(crate) const GATE_OPENED_ANNOTATION: &str = "devmgmtproto.k8s.io/gate-opened";
/// How long a scheduler may take to bind a pod after its gate is removed.
const BIND_TIMEOUT: Duration = Duration::from_secs(30);

/// How the gate of a pod was removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OpenedGate {
    /// The node it is pinned to; empty for a pod that claims nothing.
    pub(crate) node: String,
    /// When the gate was removed.
    pub(crate) at: Timestamp,
    /// Whether it was reported that the pod is stuck.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) stuck: bool,
}

/// Whether a pod has the gate.
pub(crate) fn is_gated(pod: &Pod) -> bool {
    pod.spec.scheduling_gates.iter().any(|it| it.name == SCHEDULING_GATE)
}

/// Whether the gate is the only scheduling gate of a pod.
pub(crate) fn is_only_gate(pod: &Pod) -> bool {
    is_gated(pod) && pod.spec.scheduling_gates.len() == 1
}

/// Returns how the gate of a pod was removed, if it had one. A value that cannot be parsed is
/// ignored, and so is one that was copied from another pod: that is older than the pod itself.
pub(crate) fn opened_gate(pod: &Pod) -> Option<OpenedGate> {
    let text = pod.metadata.annotations.get(GATE_OPENED_ANNOTATION)?;
    let opened: OpenedGate = serde_json::from_str(text).ok()?;
    let own = pod.metadata.creation_timestamp.is_none_or(|made| opened.at >= made);
    (own && !is_gated(pod)).then_some(opened)
}

/// Returns the node a pod is bound or pinned to; empty if it has none yet.
pub(crate) fn assigned_node(pod: &Pod) -> Cow<'_, str> {
    match pod.spec.node_name.is_empty() {
        true => opened_gate(pod).map(|it| it.node).unwrap_or_default().into(),
        false => pod.spec.node_name.as_str().into(),
    }
}

/// Pins a pod to a node, if one is named, and removes its gate.
pub(crate) fn open_gate(pod: &Pod, node: &str, now: Timestamp) -> Result<Step, PendingReason> {
    let gates = pod.spec.scheduling_gates.iter().filter(|it| it.name != SCHEDULING_GATE);
    let gates: Vec<Value> = gates.map(|it| json!({"name": it.name})).collect();
    let mut spec = json!({"schedulingGates": gates});
    let mut said = "the pod claims no devices; its scheduler can bind it now".to_owned();
    if !node.is_empty() {
        spec["affinity"] = json!({"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": pinned_node_terms(pod, node)?,
            },
        }});
        said = format!("the devices of the pod are on node {node}; its scheduler can bind it now");
    }
    // The server's clock may be ahead of ours.
    let at = pod.metadata.creation_timestamp.map_or(now, |made| made.max(now));
    let opened = OpenedGate { node: node.to_owned(), at: truncate_to_second(at), stuck: false };
    let write = Write::Merge {
        resource: Pod::RESOURCE,
        key: pod.metadata.key(),
        subresource: Subresource::Main,
        fence: pod.metadata.fence(),
        body: json!({"metadata": {"annotations": opened_annotation(&opened)}, "spec": spec}),
    };
    Ok(Step::new(write).on_success(
        Event::normal(pod_reference(pod), "GateOpened", said).with_action("Scheduling"),
    ))
}

fn opened_annotation(opened: &OpenedGate) -> Value {
    json!({GATE_OPENED_ANNOTATION: json!(opened).to_string()})
}

/// Adds a node name to the required node affinity of a pod. One matching term is enough for a
/// scheduler, so each is narrowed; an empty term matches no node, and must stay so.
fn pinned_node_terms(pod: &Pod, node: &str) -> Result<Vec<Value>, PendingReason> {
    let pin = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    let required = pod.spec.affinity.node_affinity.required.as_ref();
    let terms = required.map(|it| it.node_selector_terms.as_slice()).unwrap_or_default();
    if terms.is_empty() {
        return Ok(vec![json!({"matchFields": [pin]})]);
    }
    let narrowed = |term: &NodeSelectorTerm| {
        let NodeSelectorTerm { match_expressions, match_fields } = term;
        let list = |all: &[Requirement]| {
            all.iter().map(requirement_to_json).collect::<Result<Vec<_>, _>>()
        };
        let (expressions, mut fields) = (list(match_expressions)?, list(match_fields)?);
        if !expressions.is_empty() || !fields.is_empty() {
            fields.push(pin.clone());
        }
        let mut term = json!({});
        for (name, list) in [("matchExpressions", expressions), ("matchFields", fields)] {
            if !list.is_empty() {
                term[name] = Value::Array(list);
            }
        }
        Ok(term)
    };
    terms.iter().map(narrowed).collect()
}

fn requirement_to_json(requirement: &Requirement) -> Result<Value, PendingReason> {
    let Requirement { key, operator, values } = requirement;
    let operator = match operator {
        Operator::In => "In",
        Operator::NotIn => "NotIn",
        Operator::Exists => "Exists",
        Operator::DoesNotExist => "DoesNotExist",
        Operator::Gt => "Gt",
        Operator::Lt => "Lt",
        Operator::Unknown => {
            let text = format!("the pod's node affinity has an unknown operator for \"{key}\"");
            return Err(PendingReason::new("UnknownAffinity", text));
        }
    };
    let mut text = json!({"key": key, "operator": operator});
    if !values.is_empty() {
        text["values"] = json!(values);
    }
    Ok(text)
}

/// Refers to a pod in events and held reasons.
pub(crate) fn pod_reference(pod: &Pod) -> ObjectReference {
    ObjectReference::to(&Pod::RESOURCE, &pod.metadata)
}

/// Deletes or reports pods whose gate is removed and that no scheduler binds.
#[derive(Clone, Copy, Debug, Default)]
pub struct GateController;

type PoolObject = DeviceObject<DevicePool>;

impl Controller for GateController {
    fn name(&self) -> &'static str {
        "device-gate"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![
            Kind::of::<Pod>(),
            Kind::of::<PoolObject>(),
            Kind::of::<DeviceObject<DeviceClaim>>(),
            Kind::of::<DeviceObject<DevicePrivilegedClaim>>(),
            Kind::of::<DeviceObject<DeviceClaimTemplate>>(),
            Kind::of::<DeviceObject<PodDevices>>(),
        ]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        if let Some(pod) = change.after::<Pod>() {
            return if awaits_binding(pod) { vec![change.key.clone()] } else { Vec::new() };
        }
        let mut keys = BTreeSet::new();
        if let Some(pool) = change.after::<PoolObject>() {
            for refusal in &pool.status.refusals {
                let owned = world.store::<Pod>().owned_by(&Uid::new(&refusal.owner_uid));
                keys.extend(
                    owned.iter().filter(|it| awaits_binding(it)).map(|it| it.metadata.key()),
                );
            }
        }
        keys.into_iter().collect()
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let Some(pod) = world.store::<Pod>().get(key).filter(|it| awaits_binding(it)) else {
            return plan;
        };
        let Some(opened) = opened_gate(&pod).filter(|it| !it.node.is_empty()) else { return plan };
        let due = opened.at.checked_add(BIND_TIMEOUT).unwrap_or(opened.at);
        let why = match unschedulable_message(&pod) {
            Some(why) => why,
            None if due <= now => format!("not bound within {} seconds", BIND_TIMEOUT.as_secs()),
            None => {
                plan.requeue_at(due, now);
                return plan;
            }
        };
        let node = &opened.node;
        let message = format!("the pod's devices are on node {node}, and it is stuck there: {why}");
        match pod.metadata.controller() {
            Some(owner) => {
                delete_for_rescheduling(world, &pod, owner, node, &message, now, &mut plan);
            }
            None => report_stuck(&pod, &opened, &message, &mut plan),
        }
        let reason = "StuckOnNode".into();
        plan.held.push(Held { about: pod_reference(&pod), reason, message, until: None });
        plan
    }
}

/// Whether the gate of a pod is removed and it is not bound yet.
fn awaits_binding(pod: &Pod) -> bool {
    let open = pod.spec.node_name.is_empty() && pod.spec.scheduling_gates.is_empty();
    open && opened_gate(pod).is_some() && !pod.is_terminal() && !pod.metadata.is_terminating()
}

/// Returns the message of a scheduler that rejects the node of a pod. While it preempts other pods
/// for it, it does not reject it yet.
fn unschedulable_message(pod: &Pod) -> Option<String> {
    let said = pod.condition("PodScheduled").filter(|it| {
        it.status == ConditionStatus::False
            && it.reason == "Unschedulable"
            && pod.status.nominated_node_name.is_empty()
    })?;
    Some(said.message.clone())
}

/// Deletes a pod, so that its controller replaces it on another node, once the refusal is recorded.
fn delete_for_rescheduling(
    world: &World,
    pod: &Pod,
    owner: &OwnerReference,
    node: &str,
    message: &str,
    now: Timestamp,
    plan: &mut Plan,
) {
    if let Some(pool) = refusal_pool(world, pod)
        && !node_refusals::is_recorded(&pool, &owner.uid, node, now)
    {
        plan.write(node_refusals::record(&pool, &owner.uid, node, now));
        return;
    }
    let delete = Write::Delete {
        resource: Pod::RESOURCE,
        key: pod.metadata.key(),
        // A pod that was bound in the meantime has changed, and stays.
        fence: pod.metadata.fence(),
        grace: None,
        propagation: None,
    };
    let said = format!("{message}; it is deleted so that it can be recreated on another node");
    let note = Event::warning(pod_reference(pod), "StuckOnNode", said).with_action("Scheduling");
    plan.steps.push(Step::new(delete).on_success(note));
}

/// Reports once that a pod is stuck.
fn report_stuck(pod: &Pod, opened: &OpenedGate, message: &str, plan: &mut Plan) {
    if opened.stuck {
        return;
    }
    let write = Write::Merge {
        resource: Pod::RESOURCE,
        key: pod.metadata.key(),
        subresource: Subresource::Main,
        fence: pod.metadata.fence(),
        body: json!({
            "metadata": {
                "annotations": opened_annotation(&OpenedGate { stuck: true, ..opened.clone() }),
            },
        }),
    };
    let said = format!("{message}; delete and recreate it to try another node");
    let note = Event::warning(pod_reference(pod), "StuckOnNode", said).with_action("Scheduling");
    plan.steps.push(Step::new(write).on_success(note));
}

/// Returns the pool in which the refusal of a node for a pod is recorded: the first it has devices
/// of. If that pool is gone, the node has no devices that would attract the next pod.
fn refusal_pool(world: &World, pod: &Pod) -> Option<std::sync::Arc<PoolObject>> {
    let resolved = pod_claims::resolve(world, pod).ok()?;
    let names: BTreeSet<&str> = resolved
        .claims
        .iter()
        .flat_map(|(_, claim)| claim.allocations())
        .map(|it| it.device_pool_name.as_str())
        .collect();
    names.into_iter().find_map(|name| world.store::<PoolObject>().get(&Key::cluster(name)))
}

#[cfg(test)]
mod tests;
