//! Which nodes would make an AppWrapper fit for which there is no room.
//!
//! There are shapes of nodes that there could be more of. For each the question of the queue is asked
//! again, as if so many of them were there: what is free in sum, whether all pods find places one by one
//! beside those of everybody who passed, and whether they find the devices they claim. So nothing is
//! found to help that the queue would then refuse. Of all that help, the smallest is chosen.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use gantry_api::devices::DevicePool;
use gantry_api::quantity::{Format, Quantity};
use gantry_devices::constraint::Constraints;
use gantry_pods::Requests;
use gantry_pods::devices::Seen;
use gantry_pods::view::{Node, NodeCondition, Phase, Pod, Truth};
use gantry_reconcile::{Key, Kind, View as _, World};

use crate::amounts::{Amounts, Rest};
use crate::app_wrapper::AppWrapper;
use crate::books::{Books, trees};
use crate::claims;
use crate::decide::room;
use crate::order::Class;
use crate::packing::Added;
use crate::settings::Settings;

/// How many nodes of a shape are thought of at most. One job that needs more is beyond what is found out
/// by thinking of them one by one.
const MOST: u32 = 1024;

/// The label of a node that says which one it is.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// Nodes that are alike and that there could be more of.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// What they are called.
    pub name: String,
    /// One of them: its labels, its taints and what it has for pods. Its name does not matter, and it is
    /// taken to be ready.
    pub node: Node,
    /// The name of a node that is one of them, if there is any: they have the same devices, and the same
    /// pods of DaemonSets take their share of each.
    pub like: Option<String>,
    /// How many more there may be.
    pub most: u32,
}

/// What would make an AppWrapper fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing is needed: there is room.
    Fits,
    /// So many more nodes of a shape.
    Needs {
        /// The shape.
        shape: String,
        /// How many more; never none, and one less would not do.
        count: u32,
        /// Why shapes do not help that do not.
        others: Vec<Useless>,
    },
    /// No shape helps.
    Hopeless(Vec<Useless>),
}

/// A shape that does not help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Useless {
    /// The shape.
    pub shape: String,
    /// Why not.
    pub why: String,
}

impl fmt::Display for Useless {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}: {}", self.shape, self.why)
    }
}

/// Finds out which nodes would help.
#[derive(Clone, Debug, Default)]
pub struct Chooser {
    /// Constraints on devices that were compiled before; they are the same whenever they are compiled.
    constraints: Arc<Constraints>,
}

impl Chooser {
    /// The kinds it looks at.
    #[must_use]
    pub fn kinds(settings: &Settings) -> Vec<Kind> {
        let devices = settings.devices.then(claims::kinds).into_iter().flatten();
        let others = [Kind::of::<AppWrapper>(), Kind::of::<Pod>(), Kind::of::<Node>()];
        others.into_iter().chain(devices).collect()
    }

    /// What keeps an AppWrapper from fitting on the nodes there are even if nobody else had passed; nothing
    /// if it would fit then, so that others have what it needs.
    #[must_use]
    pub fn missing_alone(
        &self,
        world: &World,
        settings: &Settings,
        wrapper: &AppWrapper,
    ) -> Option<String> {
        let asked = Asked::new(world, settings, wrapper, &self.constraints);
        let stage = Stage { books: asked.books(), added: Added::default() };
        let others: BTreeSet<Key> = stage.books.holdings.holders().cloned().collect();
        asked.missing(&stage, others)
    }

    /// The smallest that makes an AppWrapper fit beside everybody who passed: the one with the fewest
    /// accelerators in all its nodes, then with the least cpu, the least memory, the fewest nodes, and the
    /// first by name.
    ///
    /// Pods are placed one by one whatever the settings say: nodes that help in sum alone are bought in
    /// vain. Whether an AppWrapper has quota is not looked at.
    #[must_use]
    pub fn choose(
        &self,
        world: &World,
        settings: &Settings,
        wrapper: &AppWrapper,
        shapes: &[Shape],
    ) -> Answer {
        let asked = Asked::new(world, settings, wrapper, &self.constraints);
        let mut stage = Stage { books: asked.books(), added: Added::default() };
        if asked.missing(&stage, BTreeSet::new()).is_none() {
            return Answer::Fits;
        }
        let mut best: Option<(Size, &Shape, u32)> = None;
        let mut useless = Vec::new();
        for shape in shapes {
            let model = Model::of(world, shape, &asked.settings);
            let found = least(shape.most.min(MOST), |count| {
                stage.set(&model, count);
                asked.missing(&stage, BTreeSet::new())
            });
            stage.set(&model, 0);
            match found {
                Ok(count) => {
                    let size = model.size(count);
                    let better = best
                        .as_ref()
                        .is_none_or(|(than, of, _)| (&size, &shape.name) < (than, &of.name));
                    if better {
                        best = Some((size, shape, count));
                    }
                }
                Err(why) => useless.push(Useless { shape: shape.name.clone(), why }),
            }
        }
        match best {
            Some((_, shape, count)) => {
                Answer::Needs { shape: shape.name.clone(), count, others: useless }
            }
            None => Answer::Hopeless(useless),
        }
    }
}

/// What is asked about one AppWrapper.
struct Asked<'a> {
    world: &'a World,
    settings: Settings,
    constraints: &'a Arc<Constraints>,
    wrapper: &'a AppWrapper,
    class: Class,
}

impl<'a> Asked<'a> {
    fn new(
        world: &'a World,
        settings: &Settings,
        wrapper: &'a AppWrapper,
        constraints: &'a Arc<Constraints>,
    ) -> Self {
        let settings = Settings { packing_check: true, ..*settings };
        let class = Class::of(wrapper, &settings, &trees(world, &settings));
        Self { world, settings, constraints, wrapper, class }
    }

    /// Who waits takes nothing, and who waits behind this one is not asked.
    fn books(&self) -> Books {
        Books::of_those(self.world, &self.settings, |it| !it.waits())
    }

    /// What is missing when these are gone.
    fn missing(&self, stage: &Stage, gone: BTreeSet<Key>) -> Option<String> {
        let Self { world, settings, constraints, wrapper, class } = self;
        let Stage { books, added } = stage;
        room::missing(world, books, settings, constraints, added, gone, (wrapper, class))
    }
}

/// The least number up to `most` with which nothing is missing; what is missing with `most` if there is
/// none. Without any, something is known to be missing. More never help less.
fn least(most: u32, mut missing: impl FnMut(u32) -> Option<String>) -> Result<u32, String> {
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

/// A world with more nodes than there are.
struct Stage {
    books: Books,
    added: Added,
}

impl Stage {
    /// Lets there be so many nodes of a model. There are none of any other.
    fn set(&mut self, model: &Model, count: u32) {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        while self.added.nodes.len() > count {
            if let Some(node) = self.added.nodes.pop() {
                self.books.capacity.node(&node.metadata.name, None);
            }
        }
        for at in self.added.nodes.len()..count {
            let node = model.node(at);
            self.books.capacity.node(&node.metadata.name, Some(&node));
            self.added.nodes.push(Arc::new(node));
        }
        let pools = self.added.nodes.iter().flat_map(|node| model.pools(&node.metadata.name));
        self.added.pools = pools.collect();
    }
}

/// What each node of a shape is.
struct Model {
    node: Node,
    pools: Vec<DevicePool>,
    /// What it has for pods.
    room: Amounts,
}

impl Model {
    fn of(world: &World, shape: &Shape, settings: &Settings) -> Self {
        let mut node = shape.node.clone();
        node.spec.unschedulable = false;
        node.status.conditions = vec![NodeCondition {
            kind: "Ready".to_owned(),
            status: Truth::True,
            ..NodeCondition::default()
        }];
        // No node has such a name.
        node.metadata.name = format!("+{}", shape.name);
        let like = shape.like.as_deref();
        if let Some(like) = like {
            take_daemons(world, like, &mut node);
        }
        let shelf = world.shelf_at::<Seen<DevicePool>>(&Seen::<DevicePool>::RESOURCE);
        let pools = shelf.filter(|_| settings.devices).map(|it| it.all()).unwrap_or_default();
        let pools = pools.iter().filter_map(|it| it.object.as_ref().ok());
        let pools = pools.filter(|it| like.is_some() && it.spec.node_name.as_deref() == like);
        let room = Amounts::of(&Requests::available(&node.status.allocatable), Rest::Counted);
        Self { room, pools: pools.cloned().collect(), node }
    }

    fn node(&self, at: usize) -> Node {
        let mut node = self.node.clone();
        node.metadata.name = format!("{}/{at}", node.metadata.name);
        node.metadata.labels.insert(HOSTNAME.to_owned(), node.metadata.name.clone());
        node
    }

    /// The devices of one of its nodes. Nobody holds any of them.
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

    /// How much so many of them are.
    fn size(&self, count: u32) -> Size {
        let devices = self.pools.iter().map(|pool| match pool.spec.device_count {
            Some(count) => i64::from(count),
            None => i64::try_from(pool.spec.devices.len()).unwrap_or(i64::MAX),
        });
        let devices = devices.fold(0, i64::saturating_add);
        // What vendors have names for: a slash is in no other.
        let counted = self.room.others.iter().filter(|(name, _)| name.contains('/'));
        let counted = counted.fold(self.room.gpu, |sum, (_, it)| sum.saturating_add(*it));
        // Devices that are published may be counted by the node as well: they are the same ones.
        let accelerators = devices.max(counted);
        let times = |amount: i64| amount.saturating_mul(count.into());
        Size {
            accelerators: times(accelerators),
            cpu: times(self.room.cpu),
            memory: times(self.room.memory),
            count,
        }
    }
}

/// How much something is, the dearest first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Size {
    accelerators: i64,
    cpu: i64,
    memory: i64,
    count: u32,
}

/// Takes from a node what pods of DaemonSets take of the one that it is like.
fn take_daemons(world: &World, like: &str, node: &mut Node) {
    let pods = world.shelf::<Pod>().tagged(&Pod::on_node(like));
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
