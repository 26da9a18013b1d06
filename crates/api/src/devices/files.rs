//! Reads files from before there were API kinds: an inventory of nodes, and the claims of one pod.
//!
//! They have neither `apiVersion` nor `kind`; their fields identify them.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::attribute::check_attributes;
use super::capacity::check_capacities;
use super::term::{RequiredSelection, check_terms};
use super::{Attribute, ResourceCapacity, Term, TopologyRule, check_file_driver, normalise, serve};
use crate::alias::{self, Alias, AliasNotice};
use crate::decode::{self, Decoded};
use crate::finding::Findings;
use crate::schema::{self, Schema};
use gantry_yaml::node::{Content, Node, Path};

/// A node and its pools.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeDevices {
    /// Name of the node.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Its pools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<NodePool>,
}

/// Devices of one driver on a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodePool {
    /// Name of the pool.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Name of the driver; a slash is allowed here (`example.com/foozer`).
    #[schemars(length(min = 1))]
    pub driver: String,
    /// Attributes that all devices have in common.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attributes: Vec<Attribute>,
    /// The devices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<NodeDevice>,
}

/// A device and what it has to give.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeDevice {
    /// Name of the device.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Attributes of this device. They override those of the pool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attributes: Vec<Attribute>,
    /// What the device has to give.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capacities: Vec<ResourceCapacity>,
}

/// What a pod wants: for itself, then for each of its containers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodCapacityClaim {
    /// What the pod as a whole wants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_claim: Option<CapacityClaim>,
    /// What each container wants, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub container_claims: Vec<CapacityClaim>,
    /// Topologies that all claims should share.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topologies: Vec<TopologyRule>,
}

/// What a pod or a container wants. Each entry is served by one device of any pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CapacityClaim {
    /// Name of the claim.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Its entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<Term>,
    /// Topologies that its entries should share.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topologies: Vec<TopologyRule>,
}

/// Reads a document that is one of these files; nothing if it is another one.
pub(crate) fn read_file_form(node: &mut Node, findings: &mut Findings) -> Option<Decoded> {
    if is_nodes(node) {
        let read = read::<Vec<NodeDevices>>(node, nodes_schemas(), normalise_nodes, findings);
        return Some(read.map_or(Decoded::Refused, |nodes| {
            check_nodes(&nodes, findings);
            Decoded::Nodes(nodes)
        }));
    }
    let is_claim = !is_object(node) && (has(node, "podClaim") || has(node, "containerClaims"));
    is_claim.then(|| {
        let read = read::<PodCapacityClaim>(node, claim_schemas(), normalise_claim, findings);
        read.map_or(Decoded::Refused, |claim| {
            claim.validate(findings);
            Decoded::CapacityClaim(Box::new(claim))
        })
    })
}

fn read<T: DeserializeOwned>(
    node: &mut Node,
    schemas: &Schemas,
    normalise: fn(&mut Node, &mut Findings),
    findings: &mut Findings,
) -> Option<T> {
    decode::normalise_values(node, &schemas.lenient, true, &Path::root(), findings);
    normalise(node, findings);
    decode::report(schemas.strict.check(&node.to_json()), findings);
    if !findings.is_accepted() {
        return None;
    }
    match serde_json::from_value(node.to_json()) {
        Ok(read) => Some(read),
        Err(error) => {
            findings.error(&Path::root(), format!("cannot be read: {error}"));
            None
        }
    }
}

/// A list of nodes, bare or under the name of its type, or a single node. A bare list is what it
/// becomes.
fn is_nodes(node: &mut Node) -> bool {
    let wrapped = match node.entries_mut() {
        Some(entries) if entries.len() == 1 => {
            let name = entries[0].0.name.to_ascii_lowercase();
            matches!(name.as_str(), "noderesources" | "nodedevices").then(|| entries.remove(0).1)
        }
        Some(_) | None => None,
    };
    if let Some(inner) = wrapped {
        *node = inner;
    }
    if !is_object(node) && has(node, "pools") {
        let only = std::mem::replace(node, Node::without_position(Content::Null));
        *node = Node { at: only.at, value: Content::List(vec![only]) };
    }
    node.items()
        .is_some_and(|items| items.iter().all(|item| item.entries().is_some() && !is_object(item)))
}

/// Returns whether it has an `apiVersion` or `kind`.
fn is_object(node: &Node) -> bool {
    node.has("apiVersion") || node.has("kind")
}

fn has(node: &Node, field: &str) -> bool {
    node.entries().is_some_and(|e| e.iter().any(|(key, _)| key.name.eq_ignore_ascii_case(field)))
}

fn normalise_nodes(nodes: &mut Node, findings: &mut Findings) {
    for (index, node) in nodes.items_mut().into_iter().flatten().enumerate() {
        let path = Path::root().index(index).key("pools");
        for (index, pool) in items(node, "pools").enumerate() {
            let path = path.index(index);
            normalise::devices_under_resources(pool, &path, findings);
            normalise::attributes(pool, &path, findings);
            let path = path.key("devices");
            for (index, device) in items(pool, "devices").enumerate() {
                let path = path.index(index);
                let alias = Alias {
                    within: "",
                    old: "resources",
                    new: "capacities",
                    notice: AliasNotice::Silent,
                };
                alias::rewrite_at(&[alias], device, &path, findings);
                normalise::attributes(device, &path, findings);
                normalise::capacities(device, "capacities", &path, findings);
            }
        }
    }
}

fn items<'a>(holder: &'a mut Node, field: &str) -> impl Iterator<Item = &'a mut Node> {
    holder.get_mut(field).and_then(Node::items_mut).into_iter().flatten()
}

fn normalise_claim(file: &mut Node, findings: &mut Findings) {
    if let Some(claim) = file.get_mut("podClaim") {
        normalise_entries(claim, &Path::of("podClaim"), findings);
    }
    let path = Path::of("containerClaims");
    for (index, claim) in items(file, "containerClaims").enumerate() {
        normalise_entries(claim, &path.index(index), findings);
    }
}

fn normalise_entries(claim: &mut Node, path: &Path, findings: &mut Findings) {
    let path = path.key("claims");
    for (index, entry) in items(claim, "claims").enumerate() {
        let path = path.index(index);
        if is_object(entry) || entry.has("spec") {
            unwrap_claim(entry, &path, findings);
        } else {
            let alias = Alias {
                within: "",
                old: "capacities",
                new: "requests",
                notice: AliasNotice::Silent,
            };
            alias::rewrite_at(&[alias], entry, &path, findings);
            normalise::term(entry, &path, findings);
        }
    }
}

/// A whole DeviceClaim in the place of an entry: the name is the object's, the rest its only term.
fn unwrap_claim(entry: &mut Node, path: &Path, findings: &mut Findings) {
    if let Some(kind) = entry.get("kind").and_then(Node::text)
        && kind != "DeviceClaim"
    {
        let text = format!("\"{kind}\" is not a claim; write an entry or a DeviceClaim");
        findings.error(&path.key("kind"), text);
        return;
    }
    let Some((_, mut spec)) = entry.take("spec") else {
        findings.error(&path.key("spec"), "Required value");
        return;
    };
    let spec_path = path.key("spec");
    normalise::claim_spec(&mut spec, &spec_path, findings);
    let Some(Content::List(mut terms)) = spec.take("claims").map(|(_, claims)| claims.value) else {
        findings.error(&spec_path.key("claims"), "Required value");
        return;
    };
    if terms.len() != 1 {
        let text = format!("a claim in this place has one entry, not {}", terms.len());
        findings.error(&spec_path.key("claims"), text);
        return;
    }
    let mut term = terms.remove(0);
    if let Some(name) = entry.get("metadata").and_then(|metadata| metadata.get("name")) {
        term.set("name", name.clone());
    }
    // With one term, a condition on the claim is a condition on the term.
    for (key, value) in spec.entries_mut().into_iter().flat_map(std::mem::take) {
        match term.get(&key.name) {
            Some(present) if !present.same_value(&value) => {
                let text = "set for the claim and for its entry with different values";
                findings.error_at(&spec_path.key(&key.name), key.at, text);
            }
            _ => term.set(&key.name, value),
        }
    }
    *entry = term;
}

fn check_nodes(nodes: &[NodeDevices], findings: &mut Findings) {
    let mut nodes_seen = BTreeSet::new();
    for (index, node) in nodes.iter().enumerate() {
        let path = Path::root().index(index);
        unique(&node.name, &mut nodes_seen, &path, findings);
        let mut pools_seen = BTreeSet::new();
        for (index, pool) in node.pools.iter().enumerate() {
            let path = path.key("pools").index(index);
            unique(&pool.name, &mut pools_seen, &path, findings);
            check_file_driver(&pool.driver, &path.key("driver"), findings);
            check_attributes(&pool.attributes, &path.key("attributes"), findings);
            let mut devices_seen = BTreeSet::new();
            for (index, device) in pool.devices.iter().enumerate() {
                let path = path.key("devices").index(index);
                unique(&device.name, &mut devices_seen, &path, findings);
                check_attributes(&device.attributes, &path.key("attributes"), findings);
                check_capacities(&device.capacities, &path.key("capacities"), findings);
            }
        }
    }
}

fn unique<'a>(name: &'a str, seen: &mut BTreeSet<&'a str>, path: &Path, findings: &mut Findings) {
    if !seen.insert(name) {
        findings.error(&path.key("name"), format!("Duplicate value: \"{name}\""));
    }
}

impl PodCapacityClaim {
    fn validate(&self, findings: &mut Findings) {
        if let Some(claim) = &self.pod_claim {
            claim.validate(&Path::of("podClaim"), findings);
        }
        for (index, claim) in self.container_claims.iter().enumerate() {
            claim.validate(&Path::of("containerClaims").index(index), findings);
        }
    }
}

impl CapacityClaim {
    fn validate(&self, path: &Path, findings: &mut Findings) {
        check_terms(&self.claims, &path.key("claims"), RequiredSelection::Nothing, findings);
    }
}

/// The form that letter case is mended by, and the form that is insisted on.
struct Schemas {
    lenient: Schema,
    strict: Schema,
}

impl Schemas {
    fn new(strict: &Value, widen: fn(&mut Value)) -> Self {
        let mut lenient = strict.clone();
        widen(&mut lenient);
        let compile = |schema| Schema::compile(schema).expect("a test reads every file form");
        Self { lenient: compile(&lenient), strict: compile(strict) }
    }
}

fn nodes_schemas() -> &'static Schemas {
    static COMPILED: OnceLock<Schemas> = OnceLock::new();
    COMPILED.get_or_init(|| {
        Schemas::new(&schema::of::<Vec<NodeDevices>>(), |schema| {
            let pool = serve::schema_of(schema, "[].pools[]");
            pool["properties"]["resources"] = pool["properties"]["devices"].clone();
        })
    })
}

fn claim_schemas() -> &'static Schemas {
    static COMPILED: OnceLock<Schemas> = OnceLock::new();
    COMPILED.get_or_init(|| {
        Schemas::new(&schema::of::<PodCapacityClaim>(), |schema| {
            for claims in ["podClaim.claims[]", "containerClaims[].claims[]"] {
                let entry = serve::schema_of(schema, claims);
                for field in ["apiVersion", "kind", "metadata", "spec", "capacities", "count"] {
                    entry["properties"][field] =
                        json!({"x-kubernetes-preserve-unknown-fields": true});
                }
            }
        })
    })
}
