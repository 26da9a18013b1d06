//! The metrics API, `metrics.k8s.io/v1beta1`: what simulated nodes and pods use.

use std::sync::Arc;

use gantry_api::quantity::Quantity;
use gantry_apiserver::Api;
use gantry_apiserver::discovery::aggregation::{AggregatedApi, AggregatedResource, TableRows};
use gantry_controller::ManagerHandle;
use gantry_kube_controllers::metrics::{ContainerUsage, PodMetrics as _};
use gantry_process::clock::Clock;
use gantry_reconcile::{Key, Meta, World};
use gantry_sim::usage::{Sampling, count_peers};
use gantry_sim::view::{Node, Pod};
use serde_json::{Value, json};

/// Serves the metrics API.
pub(super) fn serve(api: &Api, handle: &ManagerHandle, clock: &Clock, sampling: Sampling) {
    let (handle, clock) = (handle.clone(), clock.clone());
    api.register_aggregated_api(Arc::new(UsageMetrics { handle, clock, sampling }));
}

/// The current usage of nodes and pods.
struct UsageMetrics {
    handle: ManagerHandle,
    clock: Clock,
    sampling: Sampling,
}

const NODES: AggregatedResource = AggregatedResource {
    plural: "nodes",
    kind: "NodeMetrics",
    namespaced: false,
    not_found_kind: "nodemetrics",
};
const PODS: AggregatedResource = AggregatedResource {
    plural: "pods",
    kind: "PodMetrics",
    namespaced: true,
    not_found_kind: "podmetrics",
};

/// The divisor of a node's capacity that gives the usage of the node itself.
const NODE_OVERHEAD_DIVISOR: i128 = 100;
/// Nano-units in a unit.
const NANOS_PER_UNIT: i128 = 1_000_000_000;

impl AggregatedApi for UsageMetrics {
    fn group(&self) -> &'static str {
        "metrics.k8s.io"
    }

    fn version(&self) -> &'static str {
        "v1beta1"
    }

    fn resources(&self) -> &'static [AggregatedResource] {
        &[NODES, PODS]
    }

    fn list(&self, resource: &str, namespace: &str) -> Vec<Value> {
        let world = self.handle.world();
        if resource == NODES.plural {
            let nodes = world.store::<Node>().list();
            return nodes.iter().filter_map(|node| self.node(world, node)).collect();
        }
        let pods = world.store::<Pod>();
        let pods = if namespace.is_empty() { pods.list() } else { pods.in_namespace(namespace) };
        pods.iter().filter_map(|pod| self.pod(world, pod)).collect()
    }

    fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let world = self.handle.world();
        if resource == NODES.plural {
            let node = world.store::<Node>().get(&Key::cluster(name))?;
            return self.node(world, &node);
        }
        let pod = world.store::<Pod>().get(&Key::new(namespace, name))?;
        self.pod(world, &pod)
    }

    fn rows(&self, resource: &str, objects: &[Value]) -> TableRows {
        let column = |name: &str, format: &str| {
            let description = if name == "Name" { "Name of the resource" } else { "" };
            json!({
                "name": name, "type": "string", "format": format,
                "description": description, "priority": 0,
            })
        };
        let columns = [("Name", "name"), ("cpu", "quantity"), ("memory", "quantity")];
        let columns = columns.iter().chain(&[("Window", "duration")]);
        let columns = columns.map(|(name, format)| column(name, format)).collect();
        let row = |object: &Value| {
            let used = |name: &str| match resource == NODES.plural {
                true => object["usage"][name].clone(),
                false => {
                    let containers = object["containers"].as_array().into_iter().flatten();
                    let amounts = containers.filter_map(|it| it["usage"][name].as_str());
                    let sum: i128 =
                        amounts.filter_map(|it| Some(Quantity::parse(it).ok()?.nanos())).sum();
                    json!(if name == "cpu" { cpu(sum) } else { memory(sum) })
                }
            };
            let name = object["metadata"]["name"].clone();
            vec![name, used("cpu"), used("memory"), object["window"].clone()]
        };
        TableRows { columns, cells: objects.iter().map(row).collect() }
    }
}

impl UsageMetrics {
    fn used(&self, world: &World, pod: &Pod) -> Option<Vec<ContainerUsage>> {
        self.sampling.usage(pod, count_peers(world, pod), self.clock.now())
    }

    /// Returns the header of a metrics object about this object.
    fn object_header(&self, resource: AggregatedResource, meta: &Meta) -> Value {
        let now = self.clock.now();
        let mut metadata = json!({
            "name": meta.name,
            "creationTimestamp": whole(now),
        });
        if !meta.namespace.is_empty() {
            metadata["namespace"] = json!(meta.namespace);
        }
        if !meta.labels.is_empty() {
            metadata["labels"] = json!(meta.labels);
        }
        json!({
            "kind": resource.kind,
            "apiVersion": "metrics.k8s.io/v1beta1",
            "metadata": metadata,
            "timestamp": whole(self.sampling.last_sample(now)),
            "window": format!("{}s", self.sampling.window.as_secs()),
        })
    }

    fn pod(&self, world: &World, pod: &Pod) -> Option<Value> {
        let used = self.used(world, pod)?;
        let mut metrics = self.object_header(PODS, &pod.metadata);
        let container = |it: &ContainerUsage| {
            json!({
                "name": it.name, "usage": {"cpu": cpu(it.cpu), "memory": memory(it.memory)},
            })
        };
        metrics["containers"] = used.iter().map(container).collect();
        Some(metrics)
    }

    fn node(&self, world: &World, node: &Node) -> Option<Value> {
        if !node.is_ready() {
            return None;
        }
        let has = |name: &str| {
            let amount = node.status.allocatable.get(name);
            amount.map(|it| it.nanos()).unwrap_or_default()
        };
        let (mut processor, mut bytes) =
            (has("cpu") / NODE_OVERHEAD_DIVISOR, has("memory") / NODE_OVERHEAD_DIVISOR);
        let pods = world.store::<Pod>().by_index(&Pod::node_tag(&node.metadata.name));
        for used in pods.iter().filter_map(|pod| self.used(world, pod)).flatten() {
            processor += used.cpu;
            bytes += used.memory;
        }
        let mut metrics = self.object_header(NODES, &node.metadata);
        metrics["usage"] = json!({"cpu": cpu(processor), "memory": memory(bytes)});
        Some(metrics)
    }
}

/// Renders a time as objects have it: to the second.
fn whole(moment: jiff::Timestamp) -> String {
    jiff::Timestamp::from_second(moment.as_second()).unwrap_or(moment).to_string()
}

/// Renders nano-CPUs as objects spell them.
fn cpu(nanos: i128) -> String {
    let text = format!("{nanos}n");
    Quantity::parse(&text).map_or(text, |it| it.to_string())
}

/// Renders nano-bytes as objects spell bytes.
fn memory(nanos: i128) -> String {
    let text = format!("{}Ki", nanos / NANOS_PER_UNIT / 1024);
    Quantity::parse(&text).map_or(text, |it| it.to_string())
}
