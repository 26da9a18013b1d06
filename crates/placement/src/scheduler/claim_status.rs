//! The status of a claim that is allocated devices.

use std::collections::BTreeMap;

use gantry_api::devices::{Consumer, DeviceAllocation};
use gantry_devices::lower::allocations;
use gantry_devices::problem::{Claim as Asked, ClaimAllocation, Inventory};
use gantry_pods::view::Pod;
use gantry_reconcile::Write;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorTerm};
use serde_json::{Value, json};

use crate::claim::{ALLOCATED_CONDITION, Claim, reserved_for_json};
use crate::condition::{self, ConditionUpdate};
use crate::config::ConfigCopies;

use super::cycle_state::CycleState;

/// The devices that one claim gets.
#[derive(Clone, Debug)]
pub(super) struct ClaimGrant {
    pub(super) allocations: Vec<DeviceAllocation>,
    /// The selected alternative of each term that has several.
    pub(super) selected: BTreeMap<String, usize>,
}

impl ClaimGrant {
    /// Converts an allocation to the form of the claim's status. Devices with administrator access
    /// have no access mode: they are not held.
    pub(super) fn new(inventory: &Inventory, asked: &Asked, given: &ClaimAllocation) -> Self {
        let mut allocations = allocations(inventory, asked, given);
        let mut selected = BTreeMap::new();
        for (term, got) in asked.terms.iter().zip(&given.terms) {
            selected.insert(term.name.clone(), got.alternative);
            let admin = term.alternatives.get(got.alternative).is_some_and(|it| it.admin);
            let of_term =
                allocations.iter_mut().filter(|it| it.claim_name.as_ref() == Some(&term.name));
            for allocation in of_term {
                allocation.access_mode = match admin {
                    true => None,
                    false => allocation
                        .access_mode
                        .or(Some(gantry_api::devices::AccessMode::ReadWriteExclusive)),
                };
            }
        }
        Self { allocations, selected }
    }
}

/// Allocates devices to a claim, for one pod, on ledger entries that were written at these times.
pub(super) fn allocate_claim(
    scene: &CycleState<'_>,
    pod: &Pod,
    node: usize,
    claim: &Claim,
    given: &ClaimGrant,
    copies: &ConfigCopies,
    entries: impl IntoIterator<Item = Timestamp>,
) -> Write {
    let now = scene.now;
    let mut conditions = claim.with_allocated_condition(
        ConditionUpdate::new_true(ALLOCATED_CONDITION, "Allocated"),
        entries,
        now,
    );
    let schedulable = ConditionUpdate::new_true("Schedulable", "Allocated");
    conditions = condition::merge(&conditions, &[schedulable], claim.meta().generation, now);
    let consumer = consumer(pod);
    let mut status = reserved_for_json(std::slice::from_ref(&consumer));
    status["allocations"] = json!(given.allocations);
    status["conditions"] = condition::to_json(&conditions);
    status["claimConfigs"] = array_or_null(&copies.of_claim);
    match node_reach(scene, &given.allocations) {
        NodeReach::Node => {
            status["nodeName"] = json!(scene.nodes()[node].node.metadata.name);
            status["nodeSelector"] = Value::Null;
        }
        NodeReach::Selected(selector) => {
            status["nodeName"] = Value::Null;
            status["nodeSelector"] = json!(selector);
        }
        NodeReach::Everywhere => {
            status["nodeName"] = Value::Null;
            status["nodeSelector"] = Value::Null;
        }
    }
    match claim {
        Claim::Plain(seen) => {
            let several = |name: &String| {
                let terms = seen.object.iter().flat_map(|it| &it.spec.claims);
                terms.into_iter().any(|term| term.name == *name && !term.one_of.is_empty())
            };
            let selected = given.selected.iter().filter(|(name, _)| several(name));
            let selected: BTreeMap<_, _> = selected.collect();
            status["selected"] = if selected.is_empty() { Value::Null } else { json!(selected) };
            status["classConfigs"] = array_or_null(&copies.of_classes);
        }
        Claim::Privileged(_) => {}
    }
    claim.update_status(&status)
}

/// Returns a pod as claims name it.
pub(super) fn consumer(pod: &Pod) -> Consumer {
    Consumer { name: pod.metadata.name.clone(), uid: pod.metadata.uid.as_str().to_owned() }
}

fn array_or_null(list: &[Value]) -> Value {
    if list.is_empty() { Value::Null } else { json!(list) }
}

/// The nodes from which all devices of an allocation are reachable.
enum NodeReach {
    Node,
    Selected(NodeSelector),
    Everywhere,
}

/// How many combinations of selectors are expanded at most; beyond that a claim stays on its node.
const MAX_SELECTOR_TERMS: usize = 64;

fn node_reach(scene: &CycleState<'_>, allocations: &[DeviceAllocation]) -> NodeReach {
    let mut terms: Option<Vec<NodeSelectorTerm>> = None;
    let mut names: Vec<&str> = allocations.iter().map(|it| it.device_pool_name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let spec = scene.pool(name).and_then(|it| it.object.as_ref().ok()).map(|it| &it.spec);
        let Some(spec) = spec else { return NodeReach::Node };
        match &spec.node_selector {
            _ if spec.all_nodes => {}
            Some(selector) => {
                let both = match terms {
                    None => selector.node_selector_terms.clone(),
                    Some(known) => intersect_terms(&known, &selector.node_selector_terms),
                };
                terms = Some(both);
            }
            None => return NodeReach::Node,
        }
    }
    match terms {
        None => NodeReach::Everywhere,
        Some(terms) if terms.len() <= MAX_SELECTOR_TERMS => {
            NodeReach::Selected(NodeSelector { node_selector_terms: terms })
        }
        Some(_) => NodeReach::Node,
    }
}

/// Returns the nodes that are selected by one of these terms and by one of those.
fn intersect_terms(
    these: &[NodeSelectorTerm],
    those: &[NodeSelectorTerm],
) -> Vec<NodeSelectorTerm> {
    let joined = |one: &NodeSelectorTerm, other: &NodeSelectorTerm| {
        let both = |one: &Option<Vec<_>>, other: &Option<Vec<_>>| {
            let all: Vec<_> = one.iter().chain(other).flatten().cloned().collect();
            (!all.is_empty()).then_some(all)
        };
        NodeSelectorTerm {
            match_expressions: both(&one.match_expressions, &other.match_expressions),
            match_fields: both(&one.match_fields, &other.match_fields),
        }
    };
    let pairs = these.iter().flat_map(|one| those.iter().map(move |other| joined(one, other)));
    pairs.take(MAX_SELECTOR_TERMS + 1).collect()
}
