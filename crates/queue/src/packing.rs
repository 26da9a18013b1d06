//! Checks whether every pod fits on a node: on the existing nodes, beside what is reserved for
//! others, with the devices the pods claim.
//!
//! The sum of free capacity says nothing about its fragments. Here all pods of an AppWrapper are
//! placed on nodes at once, together with the pods of every other admitted AppWrapper that do not
//! exist yet. The placement is not recorded: the scheduler will find its own, and that one exists
//! is all that is asked. Taints, node selectors, required node affinity, every resource and the
//! number of pods count; ports, topology spread and pod affinity do not.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use crate::gang::{Gang, IdenticalPods};
use gantry_api::devices::DevicePool;
use gantry_devices::constraint::Constraints;
use gantry_devices::problem::{Budget, Inventory, Request};
use gantry_devices::{Gang as Question, GangMember, GroupOutcome, Shortfall, allocate_group};
use gantry_pods::Requests;
use gantry_pods::view::{Node, Phase, Pod};
use gantry_reconcile::{Key, World};

use crate::amounts::{Amounts, GPU, OtherResources, format_amount};
use crate::app_wrapper::AppWrapper;
use crate::capacity::FreeCapacity;
use crate::claims::{DeviceInventory, PodDeviceRequests};
use crate::queue_cache::QueueCache;

/// The maximum number of search steps for one AppWrapper: a fraction of a second.
const MAX_PACKING_STEPS: u64 = 100_000;

/// The pseudo-resource for the number of pods that a node accepts.
const PODS_RESOURCE: &str = "pods";

/// The nodes of a world, and the pods that are to be placed on them, during one cycle.
pub(crate) struct NodePacking<'a> {
    world: &'a World,
    cache: &'a QueueCache,
    nodes: Vec<Arc<Node>>,
    /// The free capacity of each of them.
    free: Rc<[FreeCapacity]>,
    /// The same without pods below this priority, cached for the last question.
    free_above: RefCell<Option<(i32, Rc<[FreeCapacity]>)>>,
    /// The index of each node.
    node_indexes: OnceCell<HashMap<String, usize>>,
    devices: Option<DeviceInventory>,
    /// The admitted AppWrappers whose pods do not exist yet.
    reserved: Vec<ReservedPods>,
}

/// Pods that do not exist yet.
#[derive(Clone, Debug)]
struct ReservedPods {
    key: Key,
    priority: i32,
    gang: Gang,
}

/// Nodes that are assumed to exist, and their devices.
#[derive(Clone, Debug, Default)]
pub(crate) struct AddedNodes {
    pub(crate) nodes: Vec<Arc<Node>>,
    pub(crate) pools: Vec<DevicePool>,
}

/// Whether all pods fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// All pods fit.
    Yes,
    /// That was not determined in time.
    Unknown,
    /// Not all pods fit; this is why.
    No(String),
}

/// What is assumed to be gone.
#[derive(Clone, Debug, Default)]
pub(crate) struct AssumedGone {
    /// These AppWrappers, with all that they have.
    pub(crate) wrappers: BTreeSet<Key>,
    /// Pods of AppWrappers below this priority; their devices stay allocated.
    pub(crate) below: Option<i32>,
}

impl<'a> NodePacking<'a> {
    /// Returns the nodes of a world. Claims are considered if there are constraints to read them
    /// with.
    pub(crate) fn new(
        world: &'a World,
        cache: &'a QueueCache,
        constraints: Option<&Arc<Constraints>>,
    ) -> Self {
        Self::with_added_nodes(world, cache, constraints, &AddedNodes::default())
    }

    /// Returns the same, with nodes that the cache has and the world does not.
    pub(crate) fn with_added_nodes(
        world: &'a World,
        cache: &'a QueueCache,
        constraints: Option<&Arc<Constraints>>,
        added: &AddedNodes,
    ) -> Self {
        let nodes = world.store::<Node>().list().into_iter().chain(added.nodes.iter().cloned());
        let usable =
            nodes.filter_map(|it| Some((cache.capacity.node_free(&it.metadata.name)?, it)));
        let (rooms, nodes): (Vec<FreeCapacity>, Vec<Arc<Node>>) = usable.unzip();
        let equipment =
            constraints.map(|it| DeviceInventory::new(world, &nodes, &added.pools, Arc::clone(it)));
        let (rooms, above, places) = (Rc::from(rooms), RefCell::default(), OnceCell::new());
        let promised = Vec::new();
        let mut floor = Self {
            world,
            cache,
            nodes,
            free: rooms,
            free_above: above,
            node_indexes: places,
            devices: equipment,
            reserved: promised,
        };
        let there = |key: &Key| cache.capacity.usage(key).map_or(0, |it| it.pods);
        let holders = cache.gangs.iter();
        let mut holders: Vec<(&Key, &Arc<Gang>)> =
            holders.filter(|(key, gang)| there(key) < gang.count()).collect();
        holders.sort_unstable_by_key(|(key, _)| *key);
        for (key, gang) in holders {
            let gang = gang.remaining(floor.placed_pods(key).iter());
            if gang.pods.is_empty() {
                continue;
            }
            // An admitted AppWrapper that does not fit any more, because a node is gone, blocks no
            // other.
            let finds = floor.fit(&gang, &BTreeMap::new(), &AssumedGone::default());
            if matches!(finds, Fit::Yes) {
                floor.reserve(key, gang);
            }
        }
        floor
    }

    /// Returns what the pods of an AppWrapper request that are on nodes, or have succeeded.
    fn placed_pods(&self, wrapper: &Key) -> Vec<Amounts> {
        let pods = self.world.store::<Pod>().by_index(&crate::progress::pods_tag(wrapper));
        let there = pods.iter().filter(|pod| match pod.status.phase {
            Phase::Succeeded => true,
            Phase::Failed => false,
            Phase::Pending | Phase::Running | Phase::Unknown => !pod.spec.node_name.is_empty(),
        });
        there.map(|pod| Amounts::of(&Requests::of(pod), OtherResources::Counted)).collect()
    }

    /// Records that all of these pods are to be created.
    pub(crate) fn reserve(&mut self, key: &Key, gang: Gang) {
        let priority = self.priority(key);
        self.reserved.push(ReservedPods { key: key.clone(), priority, gang });
    }

    fn priority(&self, key: &Key) -> i32 {
        self.world.store::<AppWrapper>().get(key).map_or(0, |it| it.spec.priority)
    }

    /// Checks whether all pods of an AppWrapper fit on nodes with these labels, beside all
    /// reservations.
    pub(crate) fn fit(
        &mut self,
        gang: &Gang,
        labels: &BTreeMap<String, String>,
        gone: &AssumedGone,
    ) -> Fit {
        let others: Vec<IdenticalPods> = self
            .reserved
            .iter()
            .filter(|it| !gone.wrappers.contains(&it.key))
            .filter(|it| gone.below.is_none_or(|below| it.priority >= below))
            .flat_map(|it| it.gang.pods.iter().cloned())
            .collect();
        let asked = match self.read_claims(gang, &others, gone) {
            Ok(asked) => asked,
            Err(why) => return Fit::No(why),
        };
        let rooms = self.free_without(gone);
        let own = |node: &Node| has_labels(node, labels);
        // Pods that would not fit even alone need not be placed together with others.
        for (squad, asked) in gang.pods.iter().zip(&asked) {
            let may = |node: &Node| {
                own(node) && squad.node_constraints.allows_node(node) && asked.allows(node)
            };
            if let Some(why) = explain_alone(squad, self.nodes.iter().zip(rooms.iter()), may) {
                return Fit::No(why);
            }
        }
        let names = resource_names(gang.pods.iter().chain(&others));
        let row = |left: &FreeCapacity| names.iter().map(|name| free_of(left, name)).collect();
        let rooms: Vec<Vec<i64>> = rooms.iter().map(row).collect();
        let mut shared: BTreeMap<&Key, &Request> = BTreeMap::new();
        for (key, request) in asked.iter().flat_map(|it| &it.shared) {
            shared.entry(key).or_insert(request);
        }
        let keys: Vec<&Key> = shared.keys().copied().collect();
        let squads = gang.pods.iter().chain(&others).zip(&asked).enumerate();
        let members = squads.map(|(at, (squad, asked))| GangMember {
            count: squad.count,
            needs: names.iter().map(|name| amount(&squad.requests, name)).collect(),
            nodes: self
                .nodes
                .iter()
                .map(|node| {
                    let labelled = at >= gang.pods.len() || own(node);
                    labelled && squad.node_constraints.allows_node(node) && asked.allows(node)
                })
                .collect(),
            request: asked.request.as_ref(),
            shared: asked.shared.iter().filter_map(|(key, _)| position(&keys, key)).collect(),
        });
        let question = Question {
            free_capacity: rooms,
            members: members.collect(),
            shared: shared.into_values().collect(),
        };
        let nothing = Inventory::default();
        let inventory = self.devices.as_ref().map_or(&nothing, |it| it.inventory());
        let budget = Budget { steps: MAX_PACKING_STEPS, stop: None };
        match allocate_group(inventory, &question, &budget) {
            GroupOutcome::Placed(_) => Fit::Yes,
            GroupOutcome::Indeterminate(_) => Fit::Unknown,
            GroupOutcome::Unsatisfiable(shortfall) => {
                Fit::No(explain(&question, &gang.pods, &shortfall))
            }
        }
    }

    /// Returns whether pods of an AppWrapper do not fit on nodes with these labels even if only the
    /// pods on these nodes are present, whatever they claim.
    pub(crate) fn never_fits(
        &self,
        gang: &Gang,
        labels: &BTreeMap<String, String>,
        gone: &AssumedGone,
    ) -> bool {
        let rooms = self.free_without(gone);
        gang.pods.iter().any(|squad| {
            let may =
                |node: &Node| has_labels(node, labels) && squad.node_constraints.allows_node(node);
            count_fitting(squad, self.nodes.iter().zip(rooms.iter()), may) < squad.count
        })
    }

    /// Returns what all these pods claim; empty where devices are not considered.
    fn read_claims(
        &mut self,
        gang: &Gang,
        others: &[IdenticalPods],
        gone: &AssumedGone,
    ) -> Result<Vec<PodDeviceRequests>, String> {
        let mut asked = Vec::new();
        let Some(equipment) = &mut self.devices else {
            asked.resize_with(gang.pods.len() + others.len(), PodDeviceRequests::default);
            return Ok(asked);
        };
        equipment.assume_gone(self.world, &gone.wrappers);
        // The first claim that compares the names of devices changes how requests before it were
        // read; after a second pass all requests agree.
        for _ in 0..2 {
            asked.clear();
            for squad in &gang.pods {
                let claims = squad.claims.as_ref().map(|it| equipment.read(self.world, it));
                asked.push(claims.transpose()?.unwrap_or_default());
            }
            for squad in others {
                // They are admitted; the scheduler handles what has become of their claims since.
                let claims = squad.claims.as_ref().map(|it| equipment.read(self.world, it));
                asked.push(claims.and_then(Result::ok).unwrap_or_default());
            }
        }
        Ok(asked)
    }

    /// Returns the free capacity of each node without pods below this priority.
    fn free_above(&self, below: i32) -> Rc<[FreeCapacity]> {
        let mut last = self.free_above.borrow_mut();
        if let Some((_, rooms)) = last.as_ref().filter(|(known, _)| *known == below) {
            return Rc::clone(rooms);
        }
        let mut rooms = self.free.to_vec();
        let users = self.cache.capacity.app_wrappers();
        users
            .filter(|key| self.priority(key) < below)
            .for_each(|key| self.remove_pods(key, &mut rooms));
        let rooms = Rc::from(rooms);
        *last = Some((below, Rc::clone(&rooms)));
        rooms
    }

    /// Returns the free capacity of each node without those assumed gone.
    fn free_without(&self, gone: &AssumedGone) -> Rc<[FreeCapacity]> {
        let mut rooms =
            gone.below.map_or_else(|| Rc::clone(&self.free), |below| self.free_above(below));
        let is_below = |key: &Key| gone.below.is_some_and(|below| self.priority(key) < below);
        for key in gone.wrappers.iter().filter(|key| !is_below(key)) {
            self.remove_pods(key, Rc::make_mut(&mut rooms));
        }
        rooms
    }

    /// Removes the pods of an AppWrapper from their nodes.
    fn remove_pods(&self, wrapper: &Key, rooms: &mut [FreeCapacity]) {
        let places = self.node_indexes.get_or_init(|| {
            let names = self.nodes.iter().map(|it| it.metadata.name.clone());
            names.enumerate().map(|(at, name)| (name, at)).collect()
        });
        for pod in self.world.store::<Pod>().by_index(&crate::progress::pods_tag(wrapper)) {
            let taken = self.cache.capacity.pod_usage(&pod.metadata.key());
            let place = taken.and_then(|(node, amounts)| Some((places.get(node)?, amounts)));
            if let Some((at, amounts)) = place {
                rooms[*at].release(amounts);
            }
        }
    }
}

/// Returns how much of a resource is free.
fn free_of(left: &FreeCapacity, name: &str) -> i64 {
    match name {
        PODS_RESOURCE => left.pods,
        other => amount(&left.amounts, other),
    }
}

fn position(keys: &[&Key], key: &Key) -> Option<usize> {
    keys.iter().position(|it| *it == key)
}

/// Returns the names of everything requested, including the number of pods.
fn resource_names<'s>(squads: impl Iterator<Item = &'s IdenticalPods>) -> Vec<&'s str> {
    let mut others: BTreeSet<&str> = BTreeSet::new();
    for squad in squads {
        others.extend(squad.requests.others.keys().map(String::as_str));
    }
    others.remove(PODS_RESOURCE);
    ["cpu", "memory", GPU, PODS_RESOURCE].into_iter().chain(others).collect()
}

fn amount(amounts: &Amounts, name: &str) -> i64 {
    match name {
        "cpu" => amounts.cpu,
        "memory" => amounts.memory,
        GPU => amounts.gpu,
        PODS_RESOURCE => 1,
        other => amounts.others.get(other).copied().unwrap_or_default(),
    }
}

/// Returns whether a node has all of these labels.
fn has_labels(node: &Node, labels: &BTreeMap<String, String>) -> bool {
    labels.iter().all(|(key, value)| node.metadata.labels.get(key) == Some(value))
}

/// Returns how many of these pods fit if they are alone.
fn count_fitting<'n>(
    squad: &IdenticalPods,
    nodes: impl Iterator<Item = (&'n Arc<Node>, &'n FreeCapacity)>,
    may: impl Fn(&Node) -> bool,
) -> usize {
    let mut found = 0_usize;
    for (node, left) in nodes {
        let fits = count_on_node(squad, left);
        if fits > 0 && may(node) {
            found = found.saturating_add(fits);
            if found >= squad.count {
                break;
            }
        }
    }
    found
}

/// Returns why pods do not all fit even if they are alone, or `None` if they do.
fn explain_alone<'n>(
    squad: &IdenticalPods,
    nodes: impl Iterator<Item = (&'n Arc<Node>, &'n FreeCapacity)> + Clone,
    may: impl Fn(&Node) -> bool,
) -> Option<String> {
    let found = count_fitting(squad, nodes.clone(), &may);
    if found >= squad.count {
        return None;
    }
    let pods = describe(squad);
    let rooms: Vec<&FreeCapacity> =
        nodes.filter(|(node, _)| may(node)).map(|(_, left)| left).collect();
    if rooms.is_empty() {
        return Some(format!(
            "fits in total, but no placement: {pods}, no node that they may be on"
        ));
    }
    for name in resource_names([squad].into_iter()) {
        let largest = rooms.iter().map(|left| free_of(left, name)).max().unwrap_or_default().max(0);
        if largest < amount(&squad.requests, name) {
            let largest = format_amount(name, largest);
            let what = if name == "cpu" { String::new() } else { format!(" of {name}") };
            return Some(format!(
                "fits in total, but no placement: {pods}, largest free node has {largest}{what}"
            ));
        }
    }
    Some(format!("fits in total, but no placement: {pods}, nodes fit {found}"))
}

/// Returns why not all pods fit, though each group of identical pods does if it is alone.
fn explain(question: &Question<'_>, squads: &[IdenticalPods], shortfall: &Shortfall) -> String {
    let claims = question.members.iter().any(|it| it.request.is_some() || !it.shared.is_empty());
    let Shortfall { member, placed } = *shortfall;
    let all: Vec<String> = squads.iter().map(describe).collect();
    match squads.get(member).filter(|it| it.claims.is_some()) {
        Some(squad) => {
            let count = squad.count;
            format!(
                "no devices for all pods at once: {}, {placed} of {count} find theirs",
                describe(squad)
            )
        }
        None if claims => format!("no placement with devices: {}", all.join(" and ")),
        None => {
            format!("fits in total, but no placement: {} do not fit together", all.join(" and "))
        }
    }
}

/// Describes some pods and what each requests.
fn describe(squad: &IdenticalPods) -> String {
    let IdenticalPods { count, requests, .. } = squad;
    let mut names: Vec<&str> = vec!["cpu", "memory", GPU];
    names.extend(requests.others.keys().map(String::as_str));
    let asks = names.into_iter().filter(|name| amount(requests, name) > 0);
    let asks: Vec<String> = asks
        .map(|name| match (name, format_amount(name, amount(requests, name))) {
            ("cpu", much) => much,
            (name, much) => format!("{name} {much}"),
        })
        .collect();
    let pods = if *count == 1 { "pod" } else { "pods" };
    match asks.is_empty() {
        true => format!("{count} {pods}"),
        false => format!("{count} {pods} of {}", asks.join(", ")),
    }
}

/// Returns how many of these pods fit into the free capacity of a node, if they are alone.
fn count_on_node(squad: &IdenticalPods, left: &FreeCapacity) -> usize {
    let Amounts { cpu, memory, gpu, others } = &squad.requests;
    let own = [(1, left.pods), (*cpu, left.amounts.cpu), (*memory, left.amounts.memory)];
    let rest = others.iter().filter(|(name, _)| *name != PODS_RESOURCE);
    let rest = rest.map(|(name, need)| (*need, amount(&left.amounts, name)));
    let all = own.into_iter().chain([(*gpu, left.amounts.gpu)]).chain(rest);
    let most = all.filter(|(need, _)| *need > 0).map(|(need, left)| left.max(0) / need).min();
    most.and_then(|it| usize::try_from(it).ok()).unwrap_or(usize::MAX).min(squad.count)
}

#[cfg(test)]
mod tests;
