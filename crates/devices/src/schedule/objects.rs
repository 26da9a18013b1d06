//! The objects that were read, by kind.

use std::collections::{BTreeMap, BTreeSet};

use gantry_api::decode::Decoded;
use gantry_api::devices::{
    DeviceAllocation, DeviceClaim, DeviceClaimTemplate, DeviceClass, DeviceDriver, DevicePool,
    DevicePrivilegedClaim, PodCapacityClaim, PodDevices,
};
use gantry_api::finding::Source;
use gantry_api::meta::ObjectMeta;
use gantry_api::object::Object;
use serde_json::Value;

use crate::lower::{Catalog, NodeLabels, Snapshot, file_pools};

/// The objects of files, of a cluster, or of a cluster with files laid over it.
///
/// An object that is read again replaces the one before, as if it had been applied.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    /// Where most of it comes from, which decides how strictly it is parsed.
    pub source: Source,
    /// Drivers.
    pub drivers: Vec<DeviceDriver>,
    /// Classes.
    pub classes: Vec<DeviceClass>,
    /// Pools.
    pub pools: Vec<DevicePool>,
    /// Claims.
    pub claims: Vec<DeviceClaim>,
    /// Privileged claims.
    pub privileged: Vec<DevicePrivilegedClaim>,
    /// Templates.
    pub templates: Vec<DeviceClaimTemplate>,
    /// Claims of pods in objects of their own.
    pub pod_devices: Vec<PodDevices>,
    /// Nodes. Those that pools name need not be among them.
    pub nodes: Vec<NodeLabels>,
    /// Pods, unparsed.
    pub pods: Vec<Value>,
    /// The claims of pods in the oldest files.
    pub capacity_claims: Vec<PodCapacityClaim>,
}

impl Objects {
    /// Creates an empty set of objects of a source.
    #[must_use]
    pub fn of(source: Source) -> Self {
        Self { source, ..Self::default() }
    }

    /// Adds a parsed document. Returns whether its kind is used here.
    pub fn add(&mut self, content: Decoded) -> bool {
        match content {
            Decoded::Object(object) => return self.add_object(object),
            Decoded::Nodes(nodes) => {
                let (nodes, pools) = file_pools(&nodes);
                for node in nodes {
                    self.remove_node(&node.name);
                    self.nodes.push(node);
                }
                // Their names are unique only on their node.
                self.pools.extend(pools);
            }
            Decoded::CapacityClaim(claim) => self.capacity_claims.push(*claim),
            Decoded::Foreign(value) => return self.add_foreign(value),
            Decoded::Refused => return false,
        }
        true
    }

    fn add_object(&mut self, object: Object) -> bool {
        match object {
            Object::DeviceDriver(it) => put(&mut self.drivers, *it, |it| &it.metadata),
            Object::DeviceClass(it) => put(&mut self.classes, *it, |it| &it.metadata),
            Object::DevicePool(it) => put(&mut self.pools, *it, |it| &it.metadata),
            Object::DeviceClaim(it) => put(&mut self.claims, *it, |it| &it.metadata),
            Object::DevicePrivilegedClaim(it) => put(&mut self.privileged, *it, |it| &it.metadata),
            Object::DeviceClaimTemplate(it) => put(&mut self.templates, *it, |it| &it.metadata),
            Object::PodDevices(it) => put(&mut self.pod_devices, *it, |it| &it.metadata),
            Object::InferenceServerConfig(_)
            | Object::LauncherConfig(_)
            | Object::LauncherPopulationPolicy(_)
            | Object::ManagedClusterModule(_)
            | Object::Module(_)
            | Object::Preflight(_)
            | Object::QuotaSubtree(_)
            | Object::AppWrapper(_)
            | Object::SchedulingSpec(_) => return false,
        }
        true
    }

    fn add_foreign(&mut self, value: Value) -> bool {
        match (value["apiVersion"].as_str(), value["kind"].as_str()) {
            (Some("v1"), Some("Pod")) => {
                let identity =
                    |pod: &Value| (pod_namespace(pod).to_owned(), pod_name(pod).to_owned());
                let new = identity(&value);
                match self.pods.iter_mut().find(|old| identity(old) == new) {
                    Some(old) => *old = value,
                    None => self.pods.push(value),
                }
            }
            (Some("v1"), Some("Node")) => {
                let labels = value["metadata"]["labels"].as_object().into_iter().flatten();
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let node = NodeLabels {
                    name: text(&value["metadata"]["name"]),
                    labels: labels.map(|(key, value)| (key.clone(), text(value))).collect(),
                };
                match self.nodes.iter_mut().find(|old| old.name == node.name) {
                    Some(old) => *old = node,
                    None => self.nodes.push(node),
                }
            }
            _ => return false,
        }
        true
    }

    /// Removes a node, with the pools that are on no other. Returns whether there was one.
    pub fn remove_node(&mut self, name: &str) -> bool {
        let before = self.nodes.len() + self.pools.len();
        self.nodes.retain(|node| node.name != name);
        self.pools.retain(|pool| pool.spec.node_name.as_deref() != Some(name));
        before != self.nodes.len() + self.pools.len()
    }

    /// Returns all nodes: those that were read, in their order, then those that only pools name, by
    /// name. On a cluster only those that exist.
    #[must_use]
    pub fn all_nodes(&self) -> Vec<NodeLabels> {
        let mut nodes = self.nodes.clone();
        match self.source {
            Source::Server => {}
            Source::File => {
                let named = self.pools.iter().filter_map(|pool| pool.spec.node_name.clone());
                let named: BTreeSet<String> = named.collect();
                let known = |name: &String| self.nodes.iter().any(|node| node.name == *name);
                nodes.extend(
                    named
                        .into_iter()
                        .filter(|name| !known(name))
                        .map(|name| NodeLabels { name, labels: BTreeMap::new() }),
                );
            }
        }
        nodes
    }

    /// Returns the devices, less what is held: in the ledgers of pools, and by claims that are in
    /// none.
    #[must_use]
    pub fn snapshot(&self, catalog: &Catalog) -> Snapshot {
        let mut snapshot = Snapshot::new(catalog, &self.all_nodes(), &self.pools);
        for claim in &self.claims {
            let allocations = claim.status.iter().flat_map(|status| &status.allocations);
            for allocation in allocations.filter(|it| !self.is_in_ledger(&claim.metadata, it)) {
                snapshot.hold_allocation(allocation);
            }
        }
        snapshot
    }

    fn is_in_ledger(&self, claim: &ObjectMeta, allocation: &DeviceAllocation) -> bool {
        let name = Some(&allocation.device_pool_name);
        let pool = self.pools.iter().find(|pool| pool.metadata.name.as_ref() == name);
        let entries = pool.and_then(|pool| pool.status.as_ref()).map(|status| &status.allocations);
        entries.into_iter().flatten().any(|entry| {
            entry.claim_ref.namespace == namespace_of(claim)
                && Some(&entry.claim_ref.name) == claim.name.as_ref()
                && entry.device_name == allocation.device_name
        })
    }

    /// Returns a pod.
    #[must_use]
    pub fn pod(&self, namespace: &str, name: &str) -> Option<&Value> {
        self.pods.iter().find(|pod| pod_namespace(pod) == namespace && pod_name(pod) == name)
    }
}

/// Replaces the object of the same name, or appends it.
fn put<T>(list: &mut Vec<T>, object: T, metadata: impl Fn(&T) -> &ObjectMeta) {
    let identity = |object: &T| {
        let metadata = metadata(object);
        (namespace_of(metadata).to_owned(), metadata.name.clone())
    };
    let new = identity(&object);
    match list.iter_mut().find(|old| identity(old) == new) {
        Some(old) => *old = object,
        None => list.push(object),
    }
}

/// Returns the namespace of an object. Files leave it out.
pub(super) fn namespace_of(metadata: &ObjectMeta) -> &str {
    metadata.namespace.as_deref().unwrap_or("default")
}

pub(super) fn pod_namespace(pod: &Value) -> &str {
    pod["metadata"]["namespace"].as_str().unwrap_or("default")
}

/// Returns the name of a pod, or its `generateName` prefix.
pub(super) fn pod_name(pod: &Value) -> &str {
    let metadata = &pod["metadata"];
    metadata["name"].as_str().or_else(|| metadata["generateName"].as_str()).unwrap_or_default()
}
