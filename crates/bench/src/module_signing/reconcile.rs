//! Measures the controllers of kernel modules without a server: what it costs to bring Modules to
//! all nodes, and what one node's change costs after that.
//!
//! Objects are passed to the controllers as a watch would deliver them, and their writes are
//! applied at once. Every image is built, and its registry has it, so the inquiries about images
//! are part of the cost. Pods become ready as soon as there is a DaemonSet for their node.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use gantry_kernel_modules::facts::{ImageInquiry, ImageState};
use gantry_kernel_modules::labels::{MODULE_LABEL, ROLE_LABEL};
use gantry_kernel_modules::module_counts::ModuleCounts;
use gantry_kernel_modules::view::{DaemonSet, Module, ModulePod, Namespace, Node};
use gantry_kernel_modules::{LiveSettings, ModuleController, NodeLabelController, Settings};
use gantry_process::clock::Clock;
use gantry_reconcile::{
    Change, Controller, FactChange, Inquiry as _, Key, Resource, View as _, World, Write,
};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// The size of a cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) nodes: usize,
    pub(crate) kernels: usize,
    pub(crate) modules: usize,
}

/// What it costs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    /// Time of the controllers until every Module was ready on every node.
    pub(crate) rollout: Duration,
    /// Their plans until then.
    pub(crate) plans: usize,
    /// Their writes until then.
    pub(crate) writes: usize,
    /// Their questions to registries until then.
    pub(crate) questions: usize,
    /// Time to count all Modules for metrics.
    pub(crate) count: Duration,
    /// Time of the controllers after the kernel of one node changed.
    pub(crate) kernel_change: Duration,
    /// Time of the controllers after the readiness of one driver pod changed.
    pub(crate) pod_change: Duration,
}

/// Namespaces that the Modules are in.
const NAMESPACES: usize = 5;
/// How many nodes change, one after the other; the mean is reported.
const CHANGED_NODES: usize = 20;
/// More rounds than this without an end are an error.
const MAX_ROUNDS: usize = 1000;

/// Runs all of it in one cluster.
pub(crate) fn measure(size: Size, clock: &Clock) -> anyhow::Result<Cost> {
    let settings = LiveSettings::new(Settings::default());
    let modules = ModuleController::new(settings.clone());
    let labels = NodeLabelController::new(settings.clone());
    let images = ImageInquiry::new(settings.clone());
    let controllers: [&dyn Controller; 2] = [&modules, &labels];
    let kinds = controllers.iter().flat_map(|it| it.kinds());
    let mut cluster = Cluster {
        world: World::new(kinds),
        controllers,
        images: &images,
        clock,
        objects: BTreeMap::new(),
        queues: Default::default(),
        asked: BTreeSet::new(),
        revision: 0,
        spent: Duration::ZERO,
        cost: Cost::default(),
    };
    cluster.fill(size)?;
    for round in 0.. {
        ensure!(round < MAX_ROUNDS, "the Modules do not come to rest");
        cluster.settle()?;
        if !cluster.run_pods(size)? {
            break;
        }
    }
    let status = cluster.object(&Module::RESOURCE, &module_key(0))?["status"].clone();
    let ready = &status["driverContainer"]["numberReady"];
    ensure!(*ready == json!(size.nodes), "a Module is not ready on every node: {status}");
    cluster.cost.rollout = std::mem::take(&mut cluster.spent);
    let begun = clock.moment();
    let counts = ModuleCounts::of(&cluster.world, &settings.get());
    cluster.cost.count = clock.moment() - begun;
    ensure!(usize::try_from(counts.modules)? == size.modules, "{} Modules", counts.modules);
    let totals = cluster.cost;
    let changes = u32::try_from(CHANGED_NODES.min(size.nodes))?;
    for nth in 0..CHANGED_NODES.min(size.nodes) {
        let name = node_name(nth);
        let other = kernel((nth + 1) % size.kernels);
        cluster.edit(&Node::RESOURCE, &Key::cluster(&name), |it| {
            it["status"]["nodeInfo"]["kernelVersion"] = json!(other);
        })?;
        cluster.settle()?;
    }
    let kernel_change = std::mem::take(&mut cluster.spent) / changes;
    for nth in 0..CHANGED_NODES.min(size.nodes) {
        let key = pod_key(nth % size.modules, nth, "driver-container");
        for ready in ["False", "True"] {
            cluster.edit(&ModulePod::RESOURCE, &key, |it| {
                it["status"]["conditions"][0]["status"] = json!(ready);
            })?;
            cluster.settle()?;
        }
    }
    let pod_change = std::mem::take(&mut cluster.spent) / (2 * changes);
    Ok(Cost { kernel_change, pod_change, ..totals })
}

fn kernel(nth: usize) -> String {
    format!("6.8.0-{}-generic", 10 + nth)
}

fn node_name(nth: usize) -> String {
    format!("node-{nth:05}")
}

fn namespace(module: usize) -> String {
    format!("drivers-{}", module % NAMESPACES)
}

fn module_key(nth: usize) -> Key {
    Key::new(&namespace(nth), &format!("module-{nth}"))
}

fn pod_key(module: usize, node: usize, part: &str) -> Key {
    module_key(module).in_same_namespace(&format!("module-{module}-{part}-{node}"))
}

/// The objects of a server, the controllers, and what they have to do.
struct Cluster<'a> {
    world: World,
    controllers: [&'a dyn Controller; 2],
    images: &'a ImageInquiry,
    clock: &'a Clock,
    objects: BTreeMap<(String, Key), Value>,
    /// Keys to plan, of each controller, and of the inquiry.
    queues: [BTreeSet<Key>; 3],
    asked: BTreeSet<String>,
    revision: u64,
    /// Time of the controllers since it was read last.
    spent: Duration,
    cost: Cost,
}

impl Cluster<'_> {
    fn fill(&mut self, size: Size) -> anyhow::Result<()> {
        for nth in 0..NAMESPACES {
            let name = format!("drivers-{nth}");
            self.store(&Namespace::RESOURCE, json!({"metadata": {"name": name}}))?;
        }
        for nth in 0..size.nodes {
            let node = json!({
                "metadata": {"name": node_name(nth), "labels": {"kubernetes.io/os": "linux"}},
                "spec": {},
                "status": {
                    "nodeInfo": {
                        "kernelVersion": kernel(nth % size.kernels), "architecture": "amd64",
                    },
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            });
            self.store(&Node::RESOURCE, node)?;
        }
        for nth in 0..size.modules {
            let key = module_key(nth);
            let module = json!({
                "metadata": {"name": key.name(), "namespace": key.namespace(), "generation": 1},
                "spec": {
                    "selector": {"kubernetes.io/os": "linux"},
                    "driverContainer": {"container": {
                        "modprobe": {"moduleName": "hello"},
                        "containerImage": format!("quay.io/v/{}:${{KERNEL_VERSION}}", key.name()),
                        "build": {"dockerfile": "FROM a"},
                        "kernelMappings": [{"literal": "5.0.0"}, {"regexp": "^6\\..+-generic$"}],
                    }},
                    "devicePlugin": {"container": {"image": "quay.io/v/plugin:1"}},
                },
            });
            self.store(&Module::RESOURCE, module)?;
        }
        Ok(())
    }

    fn object(&self, resource: &Resource, key: &Key) -> anyhow::Result<&Value> {
        let found = self.objects.get(&(resource.to_string(), key.clone()));
        found.with_context(|| format!("there is no {resource} {key}"))
    }

    fn edit(
        &mut self,
        resource: &Resource,
        key: &Key,
        change: impl FnOnce(&mut Value),
    ) -> anyhow::Result<()> {
        let mut object = self.object(resource, key)?.clone();
        change(&mut object);
        self.store(resource, object)
    }

    /// Stores an object and shows it to the controllers.
    fn store(&mut self, resource: &Resource, mut object: Value) -> anyhow::Result<()> {
        self.revision += 1;
        let metadata = &mut object["metadata"];
        metadata["resourceVersion"] = json!(self.revision.to_string());
        if metadata["uid"].is_null() {
            metadata["uid"] = json!(format!("uid-{}", self.revision));
        }
        let text = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
        let key = Key::new(&text("namespace"), &text("name"));
        let stored = object.to_string();
        self.objects.insert((resource.to_string(), key), object);
        for store in self.world.stores_for_resource(resource) {
            if let Some(change) = store.observe(&stored)? {
                self.deliver(&change);
            }
        }
        Ok(())
    }

    fn deliver(&mut self, change: &Change) {
        let begun = self.clock.moment();
        for controller in self.controllers {
            if let Some(observer) = controller.observer()
                && observer.kinds().iter().any(|it| *it.resource() == change.resource)
            {
                observer.observe(&self.world, change);
            }
        }
        for (queue, controller) in self.queues.iter_mut().zip(self.controllers) {
            if controller.kinds().iter().any(|it| *it.resource() == change.resource) {
                queue.extend(controller.enqueue(&self.world, change));
            }
        }
        if self.images.kinds().iter().any(|it| *it.resource() == change.resource) {
            self.queues[2].extend(self.images.enqueue(&self.world, change));
        }
        self.spent += self.clock.moment() - begun;
    }

    fn deliver_fact(&mut self, change: &FactChange) {
        let begun = self.clock.moment();
        for (queue, controller) in self.queues.iter_mut().zip(self.controllers) {
            queue.extend(controller.enqueue_for_fact(&self.world, change));
        }
        self.spent += self.clock.moment() - begun;
    }

    /// Plans until nothing is left to do.
    fn settle(&mut self) -> anyhow::Result<()> {
        let now = Timestamp::UNIX_EPOCH;
        for _ in 0..MAX_ROUNDS {
            let questions = std::mem::take(&mut self.queues[2]);
            for key in &questions {
                let begun = self.clock.moment();
                let wanted = self.images.wanted_questions(&self.world, key, now).questions;
                self.spent += self.clock.moment() - begun;
                for query in wanted {
                    if !self.asked.insert(format!("{query:?}")) {
                        continue;
                    }
                    self.cost.questions += 1;
                    let digest = "sha256:00".to_owned();
                    let state = ImageState::Present { digest, input_hash: None };
                    let change = self.world.facts::<ImageState>().record(query, state, now);
                    self.deliver_fact(&change);
                }
            }
            let mut has_planned = !questions.is_empty();
            for index in 0..self.controllers.len() {
                for key in std::mem::take(&mut self.queues[index]) {
                    has_planned = true;
                    let begun = self.clock.moment();
                    let plan = self.controllers[index].plan(&self.world, &key, now);
                    self.spent += self.clock.moment() - begun;
                    self.cost.plans += 1;
                    for step in plan.steps {
                        self.write(&step.write)?;
                        for then in step.then {
                            self.write(&then.write)?;
                        }
                    }
                }
            }
            if !has_planned {
                return Ok(());
            }
        }
        anyhow::bail!("the controllers do not come to rest")
    }

    fn write(&mut self, write: &Write) -> anyhow::Result<()> {
        self.cost.writes += 1;
        match write {
            Write::Create { resource, body } => self.store(resource, body.clone()),
            Write::Merge { resource, key, body, .. } => {
                self.edit(resource, key, |it| merge(it, body))
            }
            Write::Apply { resource, key, body, .. } => {
                let found = self.objects.get(&(resource.to_string(), key.clone()));
                let mut object = found.cloned().unwrap_or_else(|| json!({}));
                merge(&mut object, body);
                self.store(resource, object)
            }
            Write::Delete { resource, key, .. } => {
                let Some(object) = self.objects.remove(&(resource.to_string(), key.clone())) else {
                    return Ok(());
                };
                for store in self.world.stores_for_resource(resource) {
                    if let Some(change) = store.observe_deletion(&object.to_string())? {
                        self.deliver(&change);
                    }
                }
                Ok(())
            }
            Write::Bind { .. } | Write::Evict { .. } => {
                anyhow::bail!("Modules bind no pods, and evict none by default")
            }
        }
    }

    /// Runs the pods of DaemonSets that have none, and reports their numbers. Returns whether any
    /// were started.
    fn run_pods(&mut self, size: Size) -> anyhow::Result<bool> {
        let mut started = false;
        for set in self.world.store::<DaemonSet>().list() {
            let selector = &set.spec.template.spec.node_selector;
            let nodes: Vec<usize> = (0..size.nodes)
                .filter(|nth| {
                    let node = self.world.store::<Node>().get(&Key::cluster(&node_name(*nth)));
                    node.is_some_and(|node| {
                        selector.iter().all(|(key, value)| {
                            node.metadata.labels.get(key).is_some_and(|it| it == value)
                        })
                    })
                })
                .collect();
            let count = i32::try_from(nodes.len())?;
            if set.status.number_ready == count {
                continue;
            }
            started = true;
            let labels = &set.metadata.labels;
            let module: usize = labels[MODULE_LABEL].trim_start_matches("module-").parse()?;
            for node in nodes {
                let key = pod_key(module, node, &labels[ROLE_LABEL]);
                let pod = json!({
                    "metadata": {
                        "name": key.name(), "namespace": key.namespace(), "labels": labels,
                        "ownerReferences": [{
                            "apiVersion": "apps/v1", "kind": "DaemonSet", "controller": true,
                            "name": set.metadata.name, "uid": set.metadata.uid.as_str(),
                        }],
                    },
                    "spec": {"nodeName": node_name(node)},
                    "status": {"conditions": [{"type": "Ready", "status": "True"}]},
                });
                self.store(&ModulePod::RESOURCE, pod)?;
            }
            let key = set.metadata.key();
            let numbers = ["desiredNumberScheduled", "numberReady", "numberAvailable"];
            self.edit(&DaemonSet::RESOURCE, &key, |it| {
                numbers.iter().for_each(|field| it["status"][field] = json!(count));
            })?;
        }
        Ok(started)
    }
}

/// Applies a JSON merge patch.
fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    for (name, value) in fields {
        if value.is_null() {
            if let Some(object) = object.as_object_mut() {
                object.shift_remove(name);
            }
        } else {
            merge(&mut object[name], value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_module_gets_ready_with_few_writes() {
        let size = Size { nodes: 40, kernels: 4, modules: 5 };
        let cost = measure(size, &Clock::system()).unwrap();
        assert_eq!(cost.questions, size.kernels * size.modules);
        // DaemonSets of drivers and plugins, accounts, finalizers, labels of nodes and of
        // namespaces, and statuses: nothing for each pair of node and Module.
        assert!(cost.writes < 40 * size.nodes, "{cost:?}");
        assert!(cost.plans > size.modules + size.nodes, "{cost:?}");
    }
}
