//! Which nodes each Module selects, grouped by kernel.
//!
//! A Module's plan depends on the kernels of its nodes and not on the nodes. The groups are updated
//! with every change of a node, so that a plan costs what a Module has kernels, however many nodes
//! there are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};

use gantry_reconcile::{Change, FactChange, Key, Kind, Observer, World};

use crate::labels::NFD_KERNEL_LABEL;
use crate::view::{Module, Node};

/// The nodes of one kernel that a Module selects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelNodes {
    /// How many they are.
    pub count: usize,
    /// Their architectures.
    pub architectures: BTreeSet<String>,
    /// The values of the label that node feature discovery sets.
    pub nfd_labels: BTreeSet<String>,
}

/// What is counted of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NodeKernel {
    kernel: Arc<str>,
    architecture: Arc<str>,
    nfd_label: Option<Arc<str>>,
}

impl NodeKernel {
    fn of(node: &Node) -> Self {
        let info = &node.status.node_info;
        Self {
            kernel: info.kernel_version.as_str().into(),
            architecture: info.architecture.as_str().into(),
            nfd_label: node.metadata.labels.get(NFD_KERNEL_LABEL).map(|it| it.as_str().into()),
        }
    }
}

/// The architecture of a node and its label of node feature discovery.
type NodeVariant = (Arc<str>, Option<Arc<str>>);

/// The nodes that one Module selects.
#[derive(Debug, Default)]
struct ModuleNodes {
    /// The selector of the Module when it was valid last.
    selector: BTreeMap<String, String>,
    nodes: BTreeMap<Key, NodeKernel>,
    /// How many nodes of each kernel are alike.
    groups: BTreeMap<Arc<str>, BTreeMap<NodeVariant, usize>>,
}

impl ModuleNodes {
    fn selects(&self, node: &Node) -> bool {
        self.selector.iter().all(|(key, value)| node.metadata.labels.get(key) == Some(value))
    }

    fn set(&mut self, node: &Key, kernel: Option<NodeKernel>) {
        let before = match &kernel {
            Some(kernel) => self.nodes.insert(node.clone(), kernel.clone()),
            None => self.nodes.remove(node),
        };
        if before == kernel {
            return;
        }
        if let Some(NodeKernel { kernel, architecture, nfd_label }) = before
            && let Some(group) = self.groups.get_mut(&kernel)
        {
            let variant = (architecture, nfd_label);
            if let Some(count) = group.get_mut(&variant) {
                *count -= 1;
                if *count == 0 {
                    group.remove(&variant);
                }
            }
            if group.is_empty() {
                self.groups.remove(&kernel);
            }
        }
        if let Some(NodeKernel { kernel, architecture, nfd_label }) = kernel {
            let group = self.groups.entry(kernel).or_default();
            *group.entry((architecture, nfd_label)).or_default() += 1;
        }
    }
}

/// The nodes that each Module selects.
#[derive(Debug, Default)]
pub struct SelectedNodes(RwLock<BTreeMap<Key, ModuleNodes>>);

impl SelectedNodes {
    /// The kernels of the nodes that a Module selects.
    #[must_use]
    pub fn kernels(&self, module: &Key) -> BTreeMap<String, KernelNodes> {
        let modules = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let groups = modules.get(module).into_iter().flat_map(|it| &it.groups);
        groups
            .map(|(kernel, variants)| {
                let mut nodes = KernelNodes::default();
                for ((architecture, nfd_label), count) in variants {
                    nodes.count += count;
                    nodes.architectures.insert(architecture.to_string());
                    nodes.nfd_labels.extend(nfd_label.iter().map(ToString::to_string));
                }
                (kernel.to_string(), nodes)
            })
            .collect()
    }

    /// How many nodes a Module selects.
    #[must_use]
    pub fn count(&self, module: &Key) -> usize {
        let modules = self.0.read().unwrap_or_else(PoisonError::into_inner);
        modules.get(module).map_or(0, |it| it.nodes.len())
    }
}

/// Keeps [`SelectedNodes`] up to date.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeGrouper;

impl Observer for NodeGrouper {
    fn name(&self) -> &'static str {
        "module-nodes"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Module>(), Kind::of::<Node>()]
    }

    fn observe(&self, world: &World, change: &Change) {
        let selected = world.derived::<SelectedNodes>();
        // The lock is held while stores are read, never the other way round.
        let mut modules = selected.0.write().unwrap_or_else(PoisonError::into_inner);
        if change.is::<Node>() {
            if !is_relevant(change) {
                return;
            }
            let node = world.store::<Node>().get(&change.key);
            for nodes in modules.values_mut() {
                let node = node.as_deref().filter(|it| nodes.selects(it));
                nodes.set(&change.key, node.map(NodeKernel::of));
            }
        } else if change.is::<Module>() {
            let Some(module) = world.store::<Module>().get(&change.key) else {
                modules.remove(&change.key);
                return;
            };
            // An invalid Module keeps its nodes: nothing of it is deleted.
            let Ok(spec) = &module.spec else { return };
            let known = modules.get(&change.key);
            if known.is_some_and(|it| it.selector == spec.selector) {
                return;
            }
            let selector = spec.selector.clone();
            let mut nodes = ModuleNodes { selector, ..ModuleNodes::default() };
            for node in world.store::<Node>().list() {
                if nodes.selects(&node) {
                    nodes.set(&node.metadata.key(), Some(NodeKernel::of(&node)));
                }
            }
            modules.insert(change.key.clone(), nodes);
        }
    }

    fn observe_fact(&self, _: &World, _: &FactChange) {}
}

impl NodeGrouper {
    /// Groups the nodes of all Modules of a world that nothing observes.
    pub(crate) fn group_all(world: &World) {
        let selected = world.derived::<SelectedNodes>();
        let mut modules = selected.0.write().unwrap_or_else(PoisonError::into_inner);
        modules.clear();
        let nodes = world.store::<Node>().list();
        for module in world.store::<Module>().list() {
            let found = modules.entry(module.metadata.key()).or_default();
            for node in nodes.iter().filter(|it| module.selects(&it.metadata.labels)) {
                found.set(&node.metadata.key(), Some(NodeKernel::of(node)));
            }
        }
    }
}

/// Whether a change of a node may concern the Modules that select it.
#[must_use]
pub fn is_relevant(change: &Change) -> bool {
    match (change.before::<Node>(), change.after::<Node>()) {
        (Some(before), Some(after)) => {
            before.metadata.labels != after.metadata.labels
                || NodeKernel::of(before) != NodeKernel::of(after)
        }
        _ => true,
    }
}

/// The Modules whose nodes differ after a change of a node.
#[must_use]
pub fn affected_modules(world: &World, change: &Change) -> Vec<Key> {
    if !is_relevant(change) {
        return Vec::new();
    }
    let kernel = |module: &Module, node: Option<&Node>| {
        node.filter(|node| module.selects(&node.metadata.labels)).map(NodeKernel::of)
    };
    let modules = world.store::<Module>().list();
    let affected = modules.iter().filter(|module| {
        kernel(module, change.before::<Node>()) != kernel(module, change.after::<Node>())
    });
    affected.map(|module| module.metadata.key()).collect()
}

#[cfg(test)]
mod tests;
