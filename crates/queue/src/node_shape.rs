//! Chooses the nodes that would make an AppWrapper fit for which there is too little free capacity.
//!
//! Node shapes describe nodes that could be added. For each the evaluation of the queue is
//! repeated, as if so many of them existed: the sum of free capacity, whether all pods fit on nodes
//! beside those of every admitted AppWrapper, and whether they find the devices they claim. So no
//! shape is chosen that the queue would then refuse. Of all shapes that help, the smallest is
//! chosen.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use gantry_api::devices::DevicePool;
use gantry_api::quantity::{Format, Quantity};
use gantry_devices::constraint::Constraints;
use gantry_pods::Requests;
use gantry_pods::devices::DeviceObject;
use gantry_pods::view::{ConditionStatus, Node, NodeCondition, Phase, Pod};
use gantry_reconcile::{Key, Kind, View as _, World};

use crate::admission_cycle::capacity_fit;
use crate::amounts::{Amounts, OtherResources};
use crate::app_wrapper::AppWrapper;
use crate::claims;
use crate::order::SchedulingClass;
use crate::packing::AddedNodes;
use crate::queue_cache::{QueueCache, quota_trees};
use crate::settings::Settings;

/// How many nodes of a shape are tried at most. A job that needs more is beyond what this search
/// can determine node by node.
const MAX_ADDED_NODES: u32 = 1024;

/// The label that identifies a node.
const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";

/// Nodes that are alike and of which more could be added.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeShape {
    /// The name of the shape.
    pub name: String,
    /// A sample node: its labels, its taints and what it has for pods. Its name does not matter,
    /// and it is assumed to be ready.
    pub node: Node,
    /// The name of an existing node of this shape, if there is any: new nodes have the same
    /// devices, and the same DaemonSet pods use their share of each.
    pub existing_node: Option<String>,
    /// How many more may be added.
    pub max_count: u32,
}

/// What would make an AppWrapper fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShapeChoice {
    /// Nothing is needed: there is enough free capacity.
    Fits,
    /// This many more nodes of a shape are needed.
    Needs {
        /// The shape.
        shape: String,
        /// How many more; at least one, and one less would not suffice.
        count: u32,
        /// Why other shapes do not help.
        others: Vec<RejectedShape>,
    },
    /// No shape helps.
    NoShapeHelps(Vec<RejectedShape>),
}

/// A shape that does not help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectedShape {
    /// The shape.
    pub shape: String,
    /// Why it does not help.
    pub why: String,
}

impl fmt::Display for RejectedShape {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}: {}", self.shape, self.why)
    }
}

/// Finds the nodes that would make an AppWrapper fit.
#[derive(Clone, Debug, Default)]
pub struct ShapeChooser {
    /// Compiled device constraints, cached; compiling is deterministic.
    constraints: Arc<Constraints>,
}

impl ShapeChooser {
    /// Returns the kinds it reads.
    #[must_use]
    pub fn kinds(settings: &Settings) -> Vec<Kind> {
        let devices = settings.devices.then(claims::kinds).into_iter().flatten();
        let others = [Kind::of::<AppWrapper>(), Kind::of::<Pod>(), Kind::of::<Node>()];
        others.into_iter().chain(devices).collect()
    }

    /// Returns what keeps an AppWrapper from fitting on the existing nodes even if no other were
    /// admitted, or `None` if it would fit then, so that others use what it needs.
    #[must_use]
    pub fn missing_alone(
        &self,
        world: &World,
        settings: &Settings,
        wrapper: &AppWrapper,
    ) -> Option<String> {
        let asked = FitQuestion::new(world, settings, wrapper, &self.constraints);
        let cluster =
            HypotheticalCluster { cache: asked.queue_cache(), added: AddedNodes::default() };
        let others: BTreeSet<Key> = cluster.cache.holdings.admitted().cloned().collect();
        asked.missing(&cluster, others)
    }

    /// Returns the smallest choice that makes an AppWrapper fit beside all admitted ones: the one
    /// with the fewest accelerators in all its nodes, then with the least cpu, the least memory,
    /// the fewest nodes, and the first by name.
    ///
    /// Pods are placed on nodes whatever the settings say: nodes that only help in sum are bought
    /// without effect. Whether an AppWrapper has quota is not considered.
    #[must_use]
    pub fn choose(
        &self,
        world: &World,
        settings: &Settings,
        wrapper: &AppWrapper,
        shapes: &[NodeShape],
    ) -> ShapeChoice {
        let asked = FitQuestion::new(world, settings, wrapper, &self.constraints);
        let mut cluster =
            HypotheticalCluster { cache: asked.queue_cache(), added: AddedNodes::default() };
        if asked.missing(&cluster, BTreeSet::new()).is_none() {
            return ShapeChoice::Fits;
        }
        let mut best: Option<(NodeCost, &NodeShape, u32)> = None;
        let mut useless = Vec::new();
        for shape in shapes {
            let model = NodeModel::of(world, shape, &asked.settings);
            let found = smallest_sufficient(shape.max_count.min(MAX_ADDED_NODES), |count| {
                cluster.set_nodes(&model, count);
                asked.missing(&cluster, BTreeSet::new())
            });
            cluster.set_nodes(&model, 0);
            match found {
                Ok(count) => {
                    let size = model.cost(count);
                    let better = best
                        .as_ref()
                        .is_none_or(|(than, of, _)| (&size, &shape.name) < (than, &of.name));
                    if better {
                        best = Some((size, shape, count));
                    }
                }
                Err(why) => useless.push(RejectedShape { shape: shape.name.clone(), why }),
            }
        }
        match best {
            Some((_, shape, count)) => {
                ShapeChoice::Needs { shape: shape.name.clone(), count, others: useless }
            }
            None => ShapeChoice::NoShapeHelps(useless),
        }
    }
}

/// A question about one AppWrapper.
struct FitQuestion<'a> {
    world: &'a World,
    settings: Settings,
    constraints: &'a Arc<Constraints>,
    wrapper: &'a AppWrapper,
    class: SchedulingClass,
}

impl<'a> FitQuestion<'a> {
    fn new(
        world: &'a World,
        settings: &Settings,
        wrapper: &'a AppWrapper,
        constraints: &'a Arc<Constraints>,
    ) -> Self {
        let settings = Settings { packing_check: true, ..*settings };
        let class = SchedulingClass::of(wrapper, &settings, &quota_trees(world, &settings));
        Self { world, settings, constraints, wrapper, class }
    }

    /// Pending AppWrappers use nothing, and those behind this one are not evaluated.
    fn queue_cache(&self) -> QueueCache {
        QueueCache::of_selected(self.world, &self.settings, |it| !it.awaits_dispatch())
    }

    /// Returns what is missing when these are gone.
    fn missing(&self, cluster: &HypotheticalCluster, gone: BTreeSet<Key>) -> Option<String> {
        let Self { world, settings, constraints, wrapper, class } = self;
        let HypotheticalCluster { cache, added } = cluster;
        capacity_fit::missing_capacity(
            world,
            cache,
            settings,
            constraints,
            added,
            gone,
            (wrapper, class),
        )
    }
}

/// Returns the smallest number up to `most` with which nothing is missing, or what is missing with
/// `most` if there is none. With zero, something is known to be missing. More nodes never help
/// less.
fn smallest_sufficient(
    most: u32,
    mut missing: impl FnMut(u32) -> Option<String>,
) -> Result<u32, String> {
    if most == 0 {
        return Err("no more of them may be added".to_owned());
    }
    if let Some(why) = missing(most) {
        return Err(format!("with {most} more of them still {why}"));
    }
    let (mut few, mut enough) = (0, most);
    while enough - few > 1 {
        let middle = few + (enough - few) / 2;
        match missing(middle) {
            None => enough = middle,
            Some(_) => few = middle,
        }
    }
    Ok(enough)
}

/// A world with more nodes than exist.
struct HypotheticalCluster {
    cache: QueueCache,
    added: AddedNodes,
}

impl HypotheticalCluster {
    /// Sets how many nodes of a model there are. There are none of any other.
    fn set_nodes(&mut self, model: &NodeModel, count: u32) {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        while self.added.nodes.len() > count {
            if let Some(node) = self.added.nodes.pop() {
                self.cache.capacity.update_node(&node.metadata.name, None);
            }
        }
        for at in self.added.nodes.len()..count {
            let node = model.node(at);
            self.cache.capacity.update_node(&node.metadata.name, Some(&node));
            self.added.nodes.push(Arc::new(node));
        }
        let pools = self.added.nodes.iter().flat_map(|node| model.pools(&node.metadata.name));
        self.added.pools = pools.collect();
    }
}

/// The model of each node of a shape.
struct NodeModel {
    node: Node,
    pools: Vec<DevicePool>,
    /// The resources it has for pods.
    allocatable: Amounts,
}

impl NodeModel {
    fn of(world: &World, shape: &NodeShape, settings: &Settings) -> Self {
        let mut node = shape.node.clone();
        node.spec.unschedulable = false;
        node.status.conditions = vec![NodeCondition {
            kind: "Ready".to_owned(),
            status: ConditionStatus::True,
            ..NodeCondition::default()
        }];
        // No real node has such a name.
        node.metadata.name = format!("+{}", shape.name);
        let like = shape.existing_node.as_deref();
        if let Some(like) = like {
            subtract_daemon_pods(world, like, &mut node);
        }
        let store =
            world.store_for::<DeviceObject<DevicePool>>(&DeviceObject::<DevicePool>::RESOURCE);
        let pools = store.filter(|_| settings.devices).map(|it| it.list()).unwrap_or_default();
        let pools = pools.iter().filter_map(|it| it.object.as_ref().ok());
        let pools = pools.filter(|it| like.is_some() && it.spec.node_name.as_deref() == like);
        let room = Amounts::of(
            &Requests::from_allocatable(&node.status.allocatable),
            OtherResources::Counted,
        );
        Self { allocatable: room, pools: pools.cloned().collect(), node }
    }

    fn node(&self, at: usize) -> Node {
        let mut node = self.node.clone();
        node.metadata.name = format!("{}/{at}", node.metadata.name);
        node.metadata.labels.insert(HOSTNAME_LABEL.to_owned(), node.metadata.name.clone());
        node
    }

    /// Returns the devices of one of its nodes. None of them is allocated.
    fn pools(&self, node: &str) -> impl Iterator<Item = DevicePool> {
        self.pools.iter().map(move |pool| {
            let mut pool = pool.clone();
            let name = pool.metadata.name.take().unwrap_or_default();
            pool.metadata.name = Some(format!("{node}/{name}"));
            pool.spec.node_name = Some(node.to_owned());
            pool.status = None;
            pool
        })
    }

    /// Returns the cost of so many nodes.
    fn cost(&self, count: u32) -> NodeCost {
        let devices = self.pools.iter().map(|pool| match pool.spec.device_count {
            Some(count) => i64::from(count),
            None => i64::try_from(pool.spec.devices.len()).unwrap_or(i64::MAX),
        });
        let devices = devices.fold(0, i64::saturating_add);
        // Extended resources: no other resource has a slash in its name.
        let counted = self.allocatable.others.iter().filter(|(name, _)| name.contains('/'));
        let counted = counted.fold(self.allocatable.gpu, |sum, (_, it)| sum.saturating_add(*it));
        // Published devices may be counted by the node as well: they are the same ones.
        let accelerators = devices.max(counted);
        let times = |amount: i64| amount.saturating_mul(count.into());
        NodeCost {
            accelerators: times(accelerators),
            cpu: times(self.allocatable.cpu),
            memory: times(self.allocatable.memory),
            count,
        }
    }
}

/// The cost of nodes, the most expensive part first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct NodeCost {
    accelerators: i64,
    cpu: i64,
    memory: i64,
    count: u32,
}

/// Subtracts from a node what DaemonSet pods use on the existing node it is like.
fn subtract_daemon_pods(world: &World, like: &str, node: &mut Node) {
    let pods = world.store::<Pod>().by_index(&Pod::node_tag(like));
    let daemons = pods.iter().filter(|pod| {
        let owner = pod.metadata.controller();
        let stays = match pod.status.phase {
            Phase::Pending | Phase::Running | Phase::Unknown => true,
            Phase::Succeeded | Phase::Failed => false,
        };
        stays && owner.is_some_and(|it| it.kind == "DaemonSet")
    });
    for pod in daemons {
        let Requests { cpu, memory, storage, others } = Requests::of(pod);
        let whole = |amount: i64| Quantity::from_int(amount, Format::DecimalSi).ok();
        let mut taken: BTreeMap<&str, Option<Quantity>> = BTreeMap::from([
            ("cpu", Quantity::parse(&format!("{cpu}m")).ok()),
            ("memory", whole(memory)),
            ("ephemeral-storage", whole(storage)),
            ("pods", whole(1)),
        ]);
        taken.extend(others.iter().map(|(name, amount)| (name.as_str(), whole(*amount))));
        for (name, amount) in taken {
            let Some(have) = node.status.allocatable.get_mut(name) else { continue };
            if let Some(left) = amount.and_then(|it| have.checked_sub(it).ok()) {
                *have = left;
            }
        }
    }
}

#[cfg(test)]
mod tests;
