//! Pods that another scheduler gives to nodes: the gate before them, and what becomes of those that
//! are stuck behind it.
//!
//! A pod with the gate is given devices like any other. Then it is pinned to the node of its devices
//! and its gate is opened, in one write, which is refused if the pod has changed; from there on it is its
//! scheduler's. That one looks at more than we do, and may refuse the node. A pod that is open cannot
//! be pinned to another node any more, so if somebody controls it, it is deleted to be made anew, and
//! that node is not chosen again for a while. That is written into a pool of its devices before it is
//! deleted ([`refusal`]): nobody remembers it otherwise. If nobody controls it, it is told and keeps its
//! devices, since its scheduler may still bind it at any moment.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;

use gantry_api::devices::{
    DeviceClaim, DeviceClaimTemplate, DevicePool, DevicePrivilegedClaim, PodDevices,
};
use gantry_pods::view::{NodeSelectorTerm, Pod, Truth};
use gantry_reconcile::labels::{Operator, Requirement};
use gantry_reconcile::{
    Change, Controller, Held, Key, Kind, Note, Owner, Part, Plan, Reference, Step, Uid, View,
    World, Write,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::carrier::{self, Trouble};
use crate::condition::second;
use crate::seen::Seen;

pub(crate) mod refusal;

/// What keeps other schedulers from pods whose devices are not settled.
pub const GATE: &str = "devmgmtproto.k8s.io/devices";
/// Where and when the gate of a pod was opened.
pub(crate) const OPENED_ANNOTATION: &str = "devmgmtproto.k8s.io/gate-opened";
/// How long a scheduler may take to bind a pod whose gate is open.
const PATIENCE: Duration = Duration::from_secs(30);

/// How the gate of a pod was opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Opened {
    /// The node it is pinned to; empty for a pod that claims nothing.
    pub(crate) node: String,
    /// When.
    pub(crate) at: Timestamp,
    /// Whether it was told that the pod is stuck.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) stuck: bool,
}

/// Whether a pod has the gate.
pub(crate) fn is_gated(pod: &Pod) -> bool {
    pod.spec.scheduling_gates.iter().any(|it| it.name == GATE)
}

/// Whether nothing but the gate keeps a pod from its scheduler.
pub(crate) fn is_last(pod: &Pod) -> bool {
    is_gated(pod) && pod.spec.scheduling_gates.len() == 1
}

/// How the gate of a pod was opened, if it had one. What somebody else wrote there is nothing, nor is
/// what was copied from another pod: that is older than the pod itself.
pub(crate) fn opened(pod: &Pod) -> Option<Opened> {
    let text = pod.metadata.annotations.get(OPENED_ANNOTATION)?;
    let opened: Opened = serde_json::from_str(text).ok()?;
    let own = pod.metadata.creation_timestamp.is_none_or(|made| opened.at >= made);
    (own && !is_gated(pod)).then_some(opened)
}

/// The node a pod is on, or is pinned to; empty if it has none yet.
pub(crate) fn node_of(pod: &Pod) -> Cow<'_, str> {
    match pod.spec.node_name.is_empty() {
        true => opened(pod).map(|it| it.node).unwrap_or_default().into(),
        false => pod.spec.node_name.as_str().into(),
    }
}

/// Pins a pod to a node, if one is named, and opens its gate.
pub(crate) fn open(pod: &Pod, node: &str, now: Timestamp) -> Result<Step, Trouble> {
    let gates = pod.spec.scheduling_gates.iter().filter(|it| it.name != GATE);
    let gates: Vec<Value> = gates.map(|it| json!({"name": it.name})).collect();
    let mut spec = json!({"schedulingGates": gates});
    let mut said = "the pod claims no devices; its scheduler may go on".to_owned();
    if !node.is_empty() {
        spec["affinity"] = json!({"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": pinned(pod, node)?,
            },
        }});
        said = format!("the devices of the pod are on node {node}; its scheduler may go on");
    }
    // The server's clock may be ahead of ours.
    let at = pod.metadata.creation_timestamp.map_or(now, |made| made.max(now));
    let opened = Opened { node: node.to_owned(), at: second(at), stuck: false };
    let write = Write::Merge {
        resource: Pod::RESOURCE,
        key: pod.metadata.key(),
        part: Part::Main,
        fence: pod.metadata.fence(),
        body: json!({"metadata": {"annotations": told(&opened)}, "spec": spec}),
    };
    Ok(Step::new(write).done(Note::normal(about(pod), "GateOpened", said).doing("Scheduling")))
}

fn told(opened: &Opened) -> Value {
    json!({OPENED_ANNOTATION: json!(opened).to_string()})
}

/// What a pod says about its nodes, and that it is this one. One term of several is enough for a
/// scheduler, so each is narrowed; one that says nothing matches no node, and must stay so.
fn pinned(pod: &Pod, node: &str) -> Result<Vec<Value>, Trouble> {
    let pin = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    let required = pod.spec.affinity.node_affinity.required.as_ref();
    let terms = required.map(|it| it.node_selector_terms.as_slice()).unwrap_or_default();
    if terms.is_empty() {
        return Ok(vec![json!({"matchFields": [pin]})]);
    }
    let narrowed = |term: &NodeSelectorTerm| {
        let NodeSelectorTerm { match_expressions, match_fields } = term;
        let list = |all: &[Requirement]| all.iter().map(spell).collect::<Result<Vec<_>, _>>();
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

fn spell(requirement: &Requirement) -> Result<Value, Trouble> {
    let Requirement { key, operator, values } = requirement;
    let operator = match operator {
        Operator::In => "In",
        Operator::NotIn => "NotIn",
        Operator::Exists => "Exists",
        Operator::DoesNotExist => "DoesNotExist",
        Operator::Gt => "Gt",
        Operator::Lt => "Lt",
        Operator::Unknown => {
            let text = format!("the pod's node affinity asks for \"{key}\" in an unknown way");
            return Err(Trouble::new("UnknownAffinity", text));
        }
    };
    let mut text = json!({"key": key, "operator": operator});
    if !values.is_empty() {
        text["values"] = json!(values);
    }
    Ok(text)
}

fn about(pod: &Pod) -> Reference {
    Reference::to(&Pod::RESOURCE, &pod.metadata)
}

/// Looks after pods whose gate is open and that no scheduler binds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gate;

type Pools = Seen<DevicePool>;

impl Controller for Gate {
    fn name(&self) -> &'static str {
        "device-gate"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![
            Kind::of::<Pod>(),
            Kind::of::<Pools>(),
            Kind::of::<Seen<DeviceClaim>>(),
            Kind::of::<Seen<DevicePrivilegedClaim>>(),
            Kind::of::<Seen<DeviceClaimTemplate>>(),
            Kind::of::<Seen<PodDevices>>(),
        ]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        if let Some(pod) = change.after::<Pod>() {
            return if waits(pod) { vec![change.key.clone()] } else { Vec::new() };
        }
        let mut keys = BTreeSet::new();
        if let Some(pool) = change.after::<Pools>() {
            for refusal in &pool.status.refusals {
                let owned = world.shelf::<Pod>().owned_by(&Uid::new(&refusal.owner_uid));
                keys.extend(owned.iter().filter(|it| waits(it)).map(|it| it.metadata.key()));
            }
        }
        keys.into_iter().collect()
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let Some(pod) = world.shelf::<Pod>().get(key).filter(|it| waits(it)) else { return plan };
        let Some(opened) = opened(&pod).filter(|it| !it.node.is_empty()) else { return plan };
        let due = opened.at.checked_add(PATIENCE).unwrap_or(opened.at);
        let why = match refused(&pod) {
            Some(why) => why,
            None if due <= now => format!("not bound within {} seconds", PATIENCE.as_secs()),
            None => {
                plan.look_at(due, now);
                return plan;
            }
        };
        let node = &opened.node;
        let message = format!("the pod's devices are on node {node}, and it is stuck there: {why}");
        match pod.metadata.controller() {
            Some(owner) => give_up(world, &pod, owner, node, &message, now, &mut plan),
            None => tell(&pod, &opened, &message, &mut plan),
        }
        let reason = "StuckOnNode".into();
        plan.held.push(Held { about: about(&pod), reason, message, until: None });
        plan
    }
}

/// Whether a pod is open and waits to be bound.
fn waits(pod: &Pod) -> bool {
    let open = pod.spec.node_name.is_empty() && pod.spec.scheduling_gates.is_empty();
    open && opened(pod).is_some() && !pod.is_over() && !pod.metadata.is_going()
}

/// What a scheduler says that refuses the node of a pod. While it pushes others out for it, it does
/// not refuse it yet.
fn refused(pod: &Pod) -> Option<String> {
    let said = pod.condition("PodScheduled").filter(|it| {
        it.status == Truth::False
            && it.reason == "Unschedulable"
            && pod.status.nominated_node_name.is_empty()
    })?;
    Some(said.message.clone())
}

/// Deletes a pod, so that another takes its place elsewhere, once it is written where not to go.
fn give_up(
    world: &World,
    pod: &Pod,
    owner: &Owner,
    node: &str,
    message: &str,
    now: Timestamp,
    plan: &mut Plan,
) {
    if let Some(pool) = book(world, pod)
        && !refusal::is_known(&pool, &owner.uid, node, now)
    {
        plan.write(refusal::write(&pool, &owner.uid, node, now));
        return;
    }
    let delete = Write::Delete {
        resource: Pod::RESOURCE,
        key: pod.metadata.key(),
        // Bound in the meantime, it has changed, and stays.
        fence: pod.metadata.fence(),
        grace: None,
        propagation: None,
    };
    let said = format!("{message}; it is deleted so that another can be made for another node");
    let note = Note::warning(about(pod), "StuckOnNode", said).doing("Scheduling");
    plan.steps.push(Step::new(delete).done(note));
}

/// Says of a pod that it is stuck, once.
fn tell(pod: &Pod, opened: &Opened, message: &str, plan: &mut Plan) {
    if opened.stuck {
        return;
    }
    let write = Write::Merge {
        resource: Pod::RESOURCE,
        key: pod.metadata.key(),
        part: Part::Main,
        fence: pod.metadata.fence(),
        body: json!({"metadata": {"annotations": told(&Opened { stuck: true, ..opened.clone() })}}),
    };
    let said = format!("{message}; delete it and make it anew to have it tried on another node");
    let note = Note::warning(about(pod), "StuckOnNode", said).doing("Scheduling");
    plan.steps.push(Step::new(write).done(note));
}

/// The pool in which it is written where a pod was refused: the first it has devices of. Without one,
/// because it is gone, there is nothing to come back for.
fn book(world: &World, pod: &Pod) -> Option<std::sync::Arc<Pools>> {
    let resolved =
        carrier::read(world, pod).and_then(|claims| carrier::resolve(world, pod, &claims)).ok()?;
    let names: BTreeSet<&str> = resolved
        .claims
        .iter()
        .flat_map(|(_, claim)| claim.allocations())
        .map(|it| it.device_pool_name.as_str())
        .collect();
    names.into_iter().find_map(|name| world.shelf::<Pools>().get(&Key::cluster(name)))
}

#[cfg(test)]
mod tests;
