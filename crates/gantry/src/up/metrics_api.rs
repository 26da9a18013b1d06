//! The metrics API, `metrics.k8s.io/v1beta1`: what simulated nodes and pods use.

use std::sync::Arc;

use gantry_api::quantity::Quantity;
use gantry_apiserver::Api;
use gantry_apiserver::discovery::aggregation::{Aggregated, AggregatedResource, Rows};
use gantry_controller::Handle;
use gantry_process::clock::Clock;
use gantry_reconcile::{Key, Meta, World};
use gantry_sim::usage::{ContainerUsage, Sampling, peers};
use gantry_sim::view::{Node, Pod};
use serde_json::{Value, json};

/// Lets a server answer the metrics API.
pub(super) fn serve(api: &Api, handle: &Handle, clock: &Clock, sampling: Sampling) {
    let (handle, clock) = (handle.clone(), clock.clone());
    api.aggregate(Arc::new(UsageMetrics { handle, clock, sampling }));
}

/// What nodes and pods use now.
struct UsageMetrics {
    handle: Handle,
    clock: Clock,
    sampling: Sampling,
}

const NODES: AggregatedResource = AggregatedResource {
    plural: "nodes",
    kind: "NodeMetrics",
    namespaced: false,
    missing_as: "nodemetrics",
};
const PODS: AggregatedResource = AggregatedResource {
    plural: "pods",
    kind: "PodMetrics",
    namespaced: true,
    missing_as: "podmetrics",
};

/// Of what a node itself uses of what it has: one part in so many.
const SYSTEM: i128 = 100;
/// Nano-units in a unit.
const NANOS: i128 = 1_000_000_000;

impl Aggregated for UsageMetrics {
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
            let nodes = world.shelf::<Node>().all();
            return nodes.iter().filter_map(|node| self.node(world, node)).collect();
        }
        let pods = world.shelf::<Pod>();
        let pods = if namespace.is_empty() { pods.all() } else { pods.within(namespace) };
        pods.iter().filter_map(|pod| self.pod(world, pod)).collect()
    }

    fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let world = self.handle.world();
        if resource == NODES.plural {
            let node = world.shelf::<Node>().get(&Key::cluster(name))?;
            return self.node(world, &node);
        }
        let pod = world.shelf::<Pod>().get(&Key::new(namespace, name))?;
        self.pod(world, &pod)
    }

    fn rows(&self, resource: &str, objects: &[Value]) -> Rows {
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
        Rows { columns, cells: objects.iter().map(row).collect() }
    }
}

impl UsageMetrics {
    fn used(&self, world: &World, pod: &Pod) -> Option<Vec<ContainerUsage>> {
        self.sampling.of(pod, peers(world, pod), self.clock.now())
    }

    /// What an object about this one begins with.
    fn about(&self, resource: AggregatedResource, meta: &Meta) -> Value {
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
            "timestamp": whole(self.sampling.last(now)),
            "window": format!("{}s", self.sampling.window.as_secs()),
        })
    }

    fn pod(&self, world: &World, pod: &Pod) -> Option<Value> {
        let used = self.used(world, pod)?;
        let mut metrics = self.about(PODS, &pod.metadata);
        let container = |it: &ContainerUsage| json!({"name": it.name, "usage": {"cpu": cpu(it.cpu), "memory": memory(it.memory)}});
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
        let (mut processor, mut bytes) = (has("cpu") / SYSTEM, has("memory") / SYSTEM);
        let pods = world.shelf::<Pod>().tagged(&Pod::on_node(&node.metadata.name));
        for used in pods.iter().filter_map(|pod| self.used(world, pod)).flatten() {
            processor += used.cpu;
            bytes += used.memory;
        }
        let mut metrics = self.about(NODES, &node.metadata);
        metrics["usage"] = json!({"cpu": cpu(processor), "memory": memory(bytes)});
        Some(metrics)
    }
}

/// A moment as objects have it: to the second.
fn whole(moment: jiff::Timestamp) -> String {
    jiff::Timestamp::from_second(moment.as_second()).unwrap_or(moment).to_string()
}

/// Thousand-millionths of a processor, as objects spell them.
fn cpu(nanos: i128) -> String {
    let text = format!("{nanos}n");
    Quantity::parse(&text).map_or(text, |it| it.to_string())
}

/// Thousand-millionths of a byte, as objects spell bytes.
fn memory(nanos: i128) -> String {
    let text = format!("{}Ki", nanos / NANOS / 1024);
    Quantity::parse(&text).map_or(text, |it| it.to_string())
}
