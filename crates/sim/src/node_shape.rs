//! Nodes as data: what a simulated cluster is made of.
//!
//! `gantry up --nodes FILE` takes a list of shapes. Only the name is required:
//!
//! ```yaml
//! nodes:
//! - name: gpu                 # nodes gpu-0, gpu-1, …
//!   count: 2                  # 1
//!   max: 4                    # none: how many more there may be when jobs need them
//!   cpu: 96                   # 32
//!   memory: 1Ti               # 128Gi
//!   pods: 110                 # 110
//!   ephemeralStorage: 2Ti     # 512Gi
//!   accelerators:
//!     nvidia.com/gpu: {count: 8, model: NVIDIA-H100-80GB-HBM3}   # label nvidia.com/gpu.product
//!   kernelVersion: 6.8.0-45-generic
//!   moduleSignatures: enforce   # off: which kernel modules are loaded; or lockdown
//!   trustedKeys: |              # none: certificates that the kernel trusts, in PEM
//!     -----BEGIN CERTIFICATE-----
//!   zone: a                   # label topology.kubernetes.io/zone
//!   labels: {tier: gold}
//!   taints:
//!   - {key: nvidia.com/gpu, value: present, effect: NoSchedule}
//! ```

use std::collections::BTreeMap;

use gantry_api::quantity::Quantity;
use gantry_kmod::verify::Enforcement;
use gantry_reconcile::{View, Write};
use serde_json::{Map, Value, json};

use crate::kernel::enforcement_text;
use crate::kubelet::annotation;
use crate::view::{Node, Taint};

mod node_operations;
mod parse;

pub use node_operations::{add, cordon, power_off, power_on, remove, uncordon, upgrade_kernel};
pub use parse::{MAX_NODES_PER_SHAPE, ShapeError, parse};

/// Nodes of the same shape.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeShape {
    /// The prefix of their names.
    pub name: String,
    /// The number of nodes.
    pub count: u32,
    /// How many more nodes there may be when jobs need them; none if absent.
    pub max: Option<u32>,
    /// The CPUs of each.
    pub cpu: Quantity,
    /// The memory of each.
    pub memory: Quantity,
    /// The ephemeral storage of each.
    pub ephemeral_storage: Quantity,
    /// The pod capacity of each.
    pub pods: u32,
    /// The accelerators of each, by resource name.
    pub accelerators: BTreeMap<String, Accelerator>,
    /// The release of their kernel, if it matters.
    pub kernel_version: Option<String>,
    /// How strict their kernel is about signatures of modules, if it is.
    pub module_signatures: Option<Enforcement>,
    /// The certificates that their kernel trusts, in PEM.
    pub trusted_keys: Option<String>,
    /// The zone of the nodes.
    pub zone: Option<String>,
    /// Additional labels.
    pub labels: BTreeMap<String, String>,
    /// Taints of the nodes.
    pub taints: Vec<Taint>,
}

/// The accelerators of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accelerator {
    /// The number of accelerators.
    pub count: u32,
    /// The model, for the label `<resource>.product`.
    pub model: Option<String>,
}

impl NodeShape {
    /// Creates a shape of one node with the default capacity.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            count: 1,
            max: None,
            cpu: amount("32"),
            memory: amount("128Gi"),
            ephemeral_storage: amount("512Gi"),
            pods: 110,
            accelerators: BTreeMap::new(),
            kernel_version: None,
            module_signatures: None,
            trusted_keys: None,
            zone: None,
            labels: BTreeMap::new(),
            taints: Vec::new(),
        }
    }

    /// Returns the node with this number, as an API object.
    #[must_use]
    pub fn node(&self, number: u32) -> Value {
        let name = format!("{}-{number}", self.name);
        let mut capacity = Map::new();
        let mut labels = BTreeMap::from([
            ("kubernetes.io/hostname".to_owned(), name.clone()),
            ("kubernetes.io/os".to_owned(), "linux".to_owned()),
            ("kubernetes.io/arch".to_owned(), "amd64".to_owned()),
            ("node.kubernetes.io/instance-type".to_owned(), self.name.clone()),
        ]);
        let amounts = [
            ("cpu", json!(self.cpu)),
            ("memory", json!(self.memory)),
            ("ephemeral-storage", json!(self.ephemeral_storage)),
            ("pods", json!(self.pods.to_string())),
        ];
        capacity.extend(amounts.map(|(name, amount)| (name.to_owned(), amount)));
        for (resource, accelerator) in &self.accelerators {
            capacity.insert(resource.clone(), json!(accelerator.count.to_string()));
            if let Some(model) = &accelerator.model {
                labels.insert(format!("{resource}.product"), model.clone());
            }
        }
        if let Some(zone) = &self.zone {
            labels.insert("topology.kubernetes.io/zone".to_owned(), zone.clone());
        }
        labels.extend(self.labels.clone());
        let mut annotations = BTreeMap::from([
            (annotation::KWOK_NODE, "fake".to_owned()),
            (annotation::CAPACITY, Value::Object(capacity).to_string()),
        ]);
        if let Some(kernel) = &self.kernel_version {
            annotations.insert(annotation::KERNEL, kernel.clone());
        }
        if let Some(signatures) = self.module_signatures {
            let text = enforcement_text(signatures).to_owned();
            annotations.insert(annotation::MODULE_SIGNATURES, text);
        }
        if let Some(keys) = &self.trusted_keys {
            annotations.insert(annotation::TRUSTED_KEYS, keys.clone());
        }
        let mut node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels, "annotations": annotations},
            "spec": {},
        });
        if !self.taints.is_empty() {
            node["spec"]["taints"] = self.taints.iter().map(taint).collect();
        }
        node
    }

    /// Returns the creates of the nodes with these numbers.
    pub(crate) fn create_writes(&self, numbers: impl IntoIterator<Item = u32>) -> Vec<Write> {
        let body = |number| Write::Create { resource: Node::RESOURCE, body: self.node(number) };
        numbers.into_iter().map(body).collect()
    }
}

fn amount(text: &str) -> Quantity {
    Quantity::parse(text).expect("only called with quantities that are written here")
}

fn taint(taint: &Taint) -> Value {
    let mut body = json!({"key": taint.key, "effect": taint.effect.as_str()});
    if !taint.value.is_empty() {
        body["value"] = json!(taint.value);
    }
    body
}

/// Returns the default nodes: two plain ones, and one with eight accelerators.
#[must_use]
pub fn default_shapes() -> Vec<NodeShape> {
    let plain = NodeShape { count: 2, zone: Some("a".to_owned()), ..NodeShape::new("node") };
    let accelerator = Accelerator { count: 8, model: Some("Gantry-Simulated-80GB".to_owned()) };
    let accelerated = NodeShape {
        cpu: Quantity::from(96),
        memory: amount("1Ti"),
        accelerators: BTreeMap::from([("nvidia.com/gpu".to_owned(), accelerator)]),
        zone: Some("b".to_owned()),
        ..NodeShape::new("gpu")
    };
    vec![plain, accelerated]
}

#[cfg(test)]
mod tests;
