//! What a claim is told that is given devices.

use std::collections::BTreeMap;

use gantry_api::devices::{Consumer, DeviceAllocation};
use gantry_devices::lower::allocations;
use gantry_devices::problem::{Claim as Asked, ClaimAllocation, Inventory};
use gantry_pods::view::Pod;
use gantry_reconcile::Write;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorTerm};
use serde_json::{Value, json};

use crate::claim::{ALLOCATED, Claim, reserved};
use crate::condition::{self, Says};
use crate::config::Copies;

use super::scene::Scene;

/// What one claim gets.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub(super) allocations: Vec<DeviceAllocation>,
    /// Which alternative each term got that has several.
    pub(super) selected: BTreeMap<String, usize>,
}

impl Given {
    /// In the words of the claim's status. What an administrator looks at has no access mode: it is
    /// held by nobody.
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

/// Gives a claim its devices, for one pod, on entries that were made at these times.
pub(super) fn commit(
    scene: &Scene<'_>,
    pod: &Pod,
    node: usize,
    claim: &Claim,
    given: &Given,
    copies: &Copies,
    entries: impl IntoIterator<Item = Timestamp>,
) -> Write {
    let now = scene.now;
    let mut conditions = claim.turned(Says::yes(ALLOCATED, "Allocated"), entries, now);
    let schedulable = Says::yes("Schedulable", "Allocated");
    conditions = condition::with(&conditions, &[schedulable], claim.meta().generation, now);
    let consumer = consumer(pod);
    let mut status = reserved(std::slice::from_ref(&consumer));
    status["allocations"] = json!(given.allocations);
    status["conditions"] = condition::spell(&conditions);
    status["claimConfigs"] = some(&copies.of_claim);
    match reach(scene, &given.allocations) {
        Reach::Node => {
            status["nodeName"] = json!(scene.sites()[node].node.metadata.name);
            status["nodeSelector"] = Value::Null;
        }
        Reach::Selected(selector) => {
            status["nodeName"] = Value::Null;
            status["nodeSelector"] = json!(selector);
        }
        Reach::Everywhere => {
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
            status["classConfigs"] = some(&copies.of_classes);
        }
        Claim::Privileged(_) => {}
    }
    claim.write(&status)
}

/// A pod as claims name it.
pub(super) fn consumer(pod: &Pod) -> Consumer {
    Consumer { name: pod.metadata.name.clone(), uid: pod.metadata.uid.as_str().to_owned() }
}

fn some(list: &[Value]) -> Value {
    if list.is_empty() { Value::Null } else { json!(list) }
}

/// Which nodes reach all devices of an allocation.
enum Reach {
    Node,
    Selected(NodeSelector),
    Everywhere,
}

/// Ways to combine selectors at most; beyond that a claim stays on its node.
const MOST_TERMS: usize = 64;

fn reach(scene: &Scene<'_>, allocations: &[DeviceAllocation]) -> Reach {
    let mut terms: Option<Vec<NodeSelectorTerm>> = None;
    let mut names: Vec<&str> = allocations.iter().map(|it| it.device_pool_name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let spec = scene.pool(name).and_then(|it| it.object.as_ref().ok()).map(|it| &it.spec);
        let Some(spec) = spec else { return Reach::Node };
        match &spec.node_selector {
            _ if spec.all_nodes => {}
            Some(selector) => {
                let both = match terms {
                    None => selector.node_selector_terms.clone(),
                    Some(known) => crossed(&known, &selector.node_selector_terms),
                };
                terms = Some(both);
            }
            None => return Reach::Node,
        }
    }
    match terms {
        None => Reach::Everywhere,
        Some(terms) if terms.len() <= MOST_TERMS => {
            Reach::Selected(NodeSelector { node_selector_terms: terms })
        }
        Some(_) => Reach::Node,
    }
}

/// The nodes that are selected by one of these and by one of those.
fn crossed(these: &[NodeSelectorTerm], those: &[NodeSelectorTerm]) -> Vec<NodeSelectorTerm> {
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
    pairs.take(MOST_TERMS + 1).collect()
}
