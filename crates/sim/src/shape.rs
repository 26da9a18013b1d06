//! Nodes as data: what a pretended cluster is made of.
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
//!   zone: a                   # label topology.kubernetes.io/zone
//!   labels: {tier: gold}
//!   taints:
//!   - {key: nvidia.com/gpu, value: present, effect: NoSchedule}
//! ```

use std::collections::BTreeMap;

use gantry_api::quantity::Quantity;
use gantry_reconcile::{View, Write};
use serde_json::{Map, Value, json};

use crate::kubelet::annotation;
use crate::view::{Node, Taint};

mod order;
mod read;

pub use order::{add, cordon, kill, remove, revive, uncordon, upgrade_kernel};
pub use read::{Fault, MOST_NODES, read};

/// Some nodes that are alike.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// What their names begin with.
    pub name: String,
    /// How many there are.
    pub count: u32,
    /// How many more there may be when jobs need them; none if absent.
    pub max: Option<u32>,
    /// Processors of each.
    pub cpu: Quantity,
    /// Memory of each.
    pub memory: Quantity,
    /// Disk of each.
    pub ephemeral_storage: Quantity,
    /// How many pods each takes.
    pub pods: u32,
    /// Accelerators of each, by the name pods ask for them by.
    pub accelerators: BTreeMap<String, Accelerator>,
    /// The release of their kernel, when it matters.
    pub kernel_version: Option<String>,
    /// Where they are.
    pub zone: Option<String>,
    /// More labels.
    pub labels: BTreeMap<String, String>,
    /// What keeps pods away.
    pub taints: Vec<Taint>,
}

/// Accelerators of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accelerator {
    /// How many.
    pub count: u32,
    /// What they are, for the label `<resource>.product`.
    pub model: Option<String>,
}

impl Shape {
    /// One node with what most machines have.
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
            zone: None,
            labels: BTreeMap::new(),
            taints: Vec::new(),
        }
    }

    /// The node with this number, as the API has it.
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
            (annotation::FAKE, "fake".to_owned()),
            (annotation::CAPACITY, Value::Object(capacity).to_string()),
        ]);
        if let Some(kernel) = &self.kernel_version {
            annotations.insert(annotation::KERNEL, kernel.clone());
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

    /// What makes the nodes with these numbers.
    pub(crate) fn makes(&self, numbers: impl IntoIterator<Item = u32>) -> Vec<Write> {
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

/// The nodes of a cluster nobody has described: two plain ones, and one with eight accelerators.
#[must_use]
pub fn usual() -> Vec<Shape> {
    let plain = Shape { count: 2, zone: Some("a".to_owned()), ..Shape::new("node") };
    let accelerator = Accelerator { count: 8, model: Some("Gantry-Pretended-80GB".to_owned()) };
    let accelerated = Shape {
        cpu: Quantity::from(96),
        memory: amount("1Ti"),
        accelerators: BTreeMap::from([("nvidia.com/gpu".to_owned(), accelerator)]),
        zone: Some("b".to_owned()),
        ..Shape::new("gpu")
    };
    vec![plain, accelerated]
}

#[cfg(test)]
mod tests;
