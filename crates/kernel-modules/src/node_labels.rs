//! Labels of nodes: their kernel, which Modules are ready there, and ordered upgrades.
//!
//! One controller writes all of them, with one patch a node, so that no two disagree.

pub mod device_user;
mod upgrade;

use std::collections::{BTreeMap, BTreeSet};

use gantry_kmod::KernelRelease;
use gantry_reconcile::{
    Change, Controller, Event, Fence, Key, Kind, ObjectReference, Plan, Step, Subresource,
    View as _, World, Write,
};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use self::device_user::{DeviceUser, Drain, device_users, drain, drained_resources};
use crate::labels::{KERNEL_LABEL, ModulePart, NodeLabel, NodeLabelKind, kmm_ready_labels};
use crate::settings::{KernelLabeling, LiveSettings, Settings};
use crate::view::{Module, ModulePod, Node};

pub use upgrade::{UpgradeStep, VersionLabels, next_step};

/// Writes the labels of nodes.
#[derive(Clone, Debug)]
pub struct NodeLabelController {
    settings: LiveSettings,
    /// Whether pods that use devices are evicted. They are watched only then, from the start.
    drains: bool,
}

impl NodeLabelController {
    /// The controller's name.
    pub const NAME: &'static str = "module-node-labels";

    /// Labels nodes with these settings.
    #[must_use]
    pub fn new(settings: LiveSettings) -> Self {
        let drains = settings.get().drain_device_users;
        Self { settings, drains }
    }
}

impl Controller for NodeLabelController {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Vec<Kind> {
        let mut kinds = vec![Kind::of::<Node>(), Kind::of::<ModulePod>(), Kind::of::<Module>()];
        kinds.extend(self.drains.then(Kind::of::<DeviceUser>));
        kinds
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        if change.is::<Node>() {
            return match (change.before::<Node>(), change.after::<Node>()) {
                (_, None) => Vec::new(),
                (Some(before), Some(after)) if is_same(before, after) => Vec::new(),
                (_, Some(_)) => vec![change.key.clone()],
            };
        }
        if change.is::<ModulePod>() {
            let nodes = change.both::<ModulePod>().map(|it| it.spec.node_name.as_str());
            let nodes: BTreeSet<&str> = nodes.filter(|it| !it.is_empty()).collect();
            return nodes.into_iter().map(Key::cluster).collect();
        }
        if change.is::<DeviceUser>() {
            let nodes = change.both::<DeviceUser>().filter_map(DeviceUser::used_node);
            let nodes: BTreeSet<&str> = nodes.collect();
            return nodes.into_iter().map(Key::cluster).collect();
        }
        // Labels of a node depend on whether the Module exists and has versions.
        let versions =
            |it: Option<&Module>| it.map(|it| (has_versions(it), drained_resources(&it.metadata)));
        if versions(change.before()) == versions(change.after()) {
            return Vec::new();
        }
        let nodes = world.store::<Node>().list();
        let labelled = nodes.iter().filter(|node| {
            let mut labels = node.metadata.labels.keys().filter_map(|key| NodeLabel::parse(key));
            labels.any(|it| it.module_key() == change.key)
        });
        labelled.map(|node| node.metadata.key()).collect()
    }

    fn plan(&self, world: &World, key: &Key, _: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let Some(node) = world.store::<Node>().get(key) else { return plan };
        let changes = label_changes(world, &node, &self.settings.get(), self.drains);
        let LabelChanges { labels, events, drain } = changes;
        plan.steps.extend(drain.evictions);
        plan.events.extend(drain.events);
        plan.held.extend(drain.held);
        if labels.is_empty() {
            return plan;
        }
        let mut step = Step::new(Write::Merge {
            resource: Node::RESOURCE,
            key: key.clone(),
            subresource: Subresource::Main,
            fence: Fence { revision: None, ..node.metadata.fence() },
            body: json!({"metadata": {"labels": labels}}),
        });
        step.success_events = events;
        plan.steps.push(step);
        plan
    }
}

/// Whether the versions of a Module on nodes follow their labels. An invalid one is left as it is.
fn has_versions(module: &Module) -> bool {
    module.spec.is_err() || !module.version().is_empty() && !module.metadata.is_terminating()
}

/// Whether two states of a node have the same labels and kernel.
fn is_same(before: &Node, after: &Node) -> bool {
    before.metadata.labels == after.metadata.labels
        && before.status.node_info.kernel_version == after.status.node_info.kernel_version
}

/// The labels of a node that change, as a merge patch, and the events about it.
#[derive(Debug, Default)]
struct LabelChanges {
    labels: Map<String, Value>,
    events: Vec<Event>,
    drain: Drain,
}

impl LabelChanges {
    /// Sets or removes a label, unless it is so already.
    fn set(&mut self, node: &Node, key: String, value: Option<&str>) -> bool {
        if node.metadata.labels.get(&key).map(String::as_str) == value {
            return false;
        }
        self.labels.insert(key, value.map_or(Value::Null, |it| json!(it)));
        true
    }
}

/// What is on a node of one Module.
#[derive(Debug, Default)]
struct ModuleOnNode {
    /// Whether any pod of the driver is there, in any state.
    has_driver_pod: bool,
    /// Whether any pod of the device plugin is there, in any state.
    has_plugin_pod: bool,
    /// The version of a driver pod that is ready; empty without versions.
    ready_driver: Option<String>,
    /// Whether a pod of the device plugin is ready.
    ready_plugin: bool,
    /// The image of the ready driver.
    image: String,
}

fn label_changes(world: &World, node: &Node, settings: &Settings, drains: bool) -> LabelChanges {
    let mut changes = LabelChanges::default();
    if settings.kernel_labeling == KernelLabeling::Own {
        let release = node.status.node_info.kernel_version.parse::<KernelRelease>();
        // A kernel that cannot be read is reported with the Modules that select the node.
        let label = release.ok().map(|it| it.label_safe());
        if !node.status.node_info.kernel_version.is_empty() {
            changes.set(node, KERNEL_LABEL.to_owned(), label.as_deref());
        }
    }
    let mut modules = modules_on(world, node);
    for key in node.metadata.labels.keys() {
        if let Some(label) = NodeLabel::parse(key) {
            modules.entry(label.module_key()).or_default();
        }
    }
    for (module, on_node) in &modules {
        ready_labels(node, module, on_node, settings, &mut changes);
        version_labels(world, node, (module, on_node), drains, &mut changes);
    }
    changes
}

/// The Modules with pods on a node.
fn modules_on(world: &World, node: &Node) -> BTreeMap<Key, ModuleOnNode> {
    let mut modules: BTreeMap<Key, ModuleOnNode> = BTreeMap::new();
    for pod in world.store::<ModulePod>().by_index(&ModulePod::node_index(&node.metadata.name)) {
        let (Some(module), Some(part)) = (pod.module(), pod.part()) else { continue };
        let on_node = modules.entry(module.clone()).or_default();
        match part {
            ModulePart::DriverContainer => {
                on_node.has_driver_pod = true;
                if pod.is_ready() {
                    let key = NodeLabelKind::DriverVersion.key(module.namespace(), module.name());
                    let version = pod.metadata.labels.get(&key).cloned().unwrap_or_default();
                    on_node.ready_driver = Some(version);
                    let image = pod.status.container_statuses.first().map(|it| it.image.clone());
                    on_node.image = image.unwrap_or_default();
                }
            }
            ModulePart::DevicePlugin => {
                on_node.has_plugin_pod = true;
                on_node.ready_plugin |= pod.is_ready();
            }
        }
    }
    modules
}

/// The labels that say what is ready.
fn ready_labels(
    node: &Node,
    module: &Key,
    on_node: &ModuleOnNode,
    settings: &Settings,
    changes: &mut LabelChanges,
) {
    let (namespace, name) = (module.namespace(), module.name());
    let ready = on_node.ready_driver.as_ref().map(|_| "");
    let plugin_ready = on_node.ready_plugin.then_some("");
    let key = NodeLabelKind::Ready.key(namespace, name);
    if changes.set(node, key, ready) {
        let kernel = &node.status.node_info.kernel_version;
        let about = ObjectReference::to(&Node::RESOURCE, &node.metadata);
        changes.events.push(match ready {
            Some(_) => {
                let image = &on_node.image;
                let message = format!("Module {module} is loaded on kernel {kernel}: {image}");
                Event::normal(about, "ModuleLoaded", message)
            }
            None => {
                let message = format!("Module {module} is not ready on kernel {kernel} any more");
                Event::normal(about, "ModuleUnloaded", message)
            }
        });
    }
    changes.set(node, NodeLabelKind::DevicePluginReady.key(namespace, name), plugin_ready);
    let version = on_node.ready_driver.as_deref().filter(|it| !it.is_empty());
    changes.set(node, NodeLabelKind::VersionReady.key(namespace, name), version);
    if settings.kmm_labels {
        let [driver, plugin] = kmm_ready_labels(module);
        changes.set(node, driver, ready);
        changes.set(node, plugin, plugin_ready);
    }
}

/// The labels of an ordered upgrade.
fn version_labels(
    world: &World,
    node: &Node,
    (module, on_node): (&Key, &ModuleOnNode),
    drains: bool,
    changes: &mut LabelChanges,
) {
    let (namespace, name) = (module.namespace(), module.name());
    let label = |kind: NodeLabelKind| {
        let key = kind.key(namespace, name);
        node.metadata.labels.get(&key).cloned()
    };
    let modules = world.store::<Module>();
    let found = modules.get(module);
    // What cannot be read is left as it is.
    let is_versioned =
        found.as_ref().is_some_and(|it| has_versions(it)) || modules.is_unreadable(module);
    let drained = found.as_ref().filter(|_| drains && is_versioned);
    // What is wrong with the annotation is reported with the Module.
    let resources = drained.and_then(|it| drained_resources(&it.metadata).ok()).unwrap_or_default();
    let users = device_users(world, &node.metadata.name, &resources);
    let labels = VersionLabels {
        wanted: label(NodeLabelKind::WantedVersion).filter(|_| is_versioned),
        driver: label(NodeLabelKind::DriverVersion),
        plugin: label(NodeLabelKind::PluginVersion),
        has_driver_pod: on_node.has_driver_pod,
        has_plugin_pod: on_node.has_plugin_pod,
        has_device_users: !users.is_empty(),
        is_ready: label(NodeLabelKind::Ready).is_some(),
    };
    let (kind, value) = match next_step(&labels) {
        UpgradeStep::None | UpgradeStep::Wait => return,
        UpgradeStep::Drain => {
            let drain = drained.map(|it| drain(world, &node.metadata.name, it, &users));
            changes.drain.append(drain.unwrap_or_default());
            return;
        }
        UpgradeStep::SetDriver(version) => (NodeLabelKind::DriverVersion, Some(version)),
        UpgradeStep::SetPlugin(version) => (NodeLabelKind::PluginVersion, Some(version)),
        UpgradeStep::RemoveDriver => (NodeLabelKind::DriverVersion, None),
        UpgradeStep::RemovePlugin => (NodeLabelKind::PluginVersion, None),
    };
    changes.set(node, kind.key(namespace, name), value.as_deref());
}

#[cfg(test)]
mod tests;
