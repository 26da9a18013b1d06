//! Whether pods find places one by one: on the nodes there are, beside what others were promised, with the
//! devices they claim.
//!
//! The sum of what is free says nothing about its pieces. Here all pods of an AppWrapper are placed on
//! nodes at once, together with the pods of everybody else who passed and whose pods are not there yet.
//! Nothing of that is written down: the scheduler will find a way of its own, and that there is one is all
//! that is asked. Taints, node selectors, required node affinity, every resource and the number of pods
//! count; ports, spreading and wishes about other pods do not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gantry_api::devices::DevicePool;
use gantry_devices::constraint::Constraints;
use gantry_devices::problem::{Budget, Inventory, Request};
use gantry_devices::{Gang as Question, GroupAnswer, Member, Shortfall, allocate_group};
use gantry_pods::Requests;
use gantry_pods::gang::{Gang, Squad};
use gantry_pods::view::{Node, Phase, Pod};
use gantry_reconcile::{Key, World};

use crate::amounts::{Amounts, GPU, Rest, spell};
use crate::app_wrapper::AppWrapper;
use crate::books::Books;
use crate::claims::{Asked, Equipment};

/// Steps that are spent on one AppWrapper at most: a fraction of a second.
const STEPS: u64 = 100_000;

/// What is called a resource here, because nodes have room for so many.
const PODS: &str = "pods";

/// The nodes of a world, and who is to be on them, as one plan sees it.
pub(crate) struct Floor<'a> {
    world: &'a World,
    books: &'a Books,
    nodes: Vec<Arc<Node>>,
    equipment: Option<Equipment>,
    /// Those who passed and whose pods are still to come.
    promised: Vec<Promise>,
}

/// Pods that are still to come.
#[derive(Clone, Debug)]
struct Promise {
    key: Key,
    priority: i32,
    gang: Gang,
}

/// Nodes that are treated as if they were there, and what devices they have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Added {
    pub(crate) nodes: Vec<Arc<Node>>,
    pub(crate) pools: Vec<DevicePool>,
}

/// Whether everybody finds a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// Everybody does.
    Yes,
    /// That was not found out in time.
    Unknown,
    /// Not everybody does; this is why.
    No(String),
}

/// Who is treated as if they were not there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gone {
    /// These AppWrappers, with all that they have.
    pub(crate) wrappers: BTreeSet<Key>,
    /// Pods of AppWrappers below this priority; devices they have are nobody else's.
    pub(crate) below: Option<i32>,
}

impl<'a> Floor<'a> {
    /// The nodes of a world. Claims are looked at if there are constraints to read them by.
    pub(crate) fn new(
        world: &'a World,
        books: &'a Books,
        constraints: Option<&Arc<Constraints>>,
    ) -> Self {
        Self::with(world, books, constraints, &Added::default())
    }

    /// The same, with nodes that the books know of and the world does not.
    pub(crate) fn with(
        world: &'a World,
        books: &'a Books,
        constraints: Option<&Arc<Constraints>>,
        added: &Added,
    ) -> Self {
        let nobody = |_: &Key| false;
        let usable = |it: &Arc<Node>| books.capacity.left(&it.metadata.name, &nobody).is_some();
        let nodes = world.shelf::<Node>().all().into_iter().chain(added.nodes.iter().cloned());
        let nodes: Vec<Arc<Node>> = nodes.filter(usable).collect();
        let equipment =
            constraints.map(|it| Equipment::new(world, &nodes, &added.pools, Arc::clone(it)));
        let mut floor = Self { world, books, nodes, equipment, promised: Vec::new() };
        let mut holders: Vec<(&Key, &Arc<Gang>)> = books.gangs.iter().collect();
        holders.sort_unstable_by_key(|(key, _)| *key);
        for (key, gang) in holders {
            let gang = gang.without(floor.there(key).iter());
            if gang.squads.is_empty() {
                continue;
            }
            // Who passed and finds no places any more, because a node is gone, keeps nobody waiting.
            let finds = floor.ask(&gang, &BTreeMap::new(), &Gone::default());
            if matches!(finds, Fit::Yes) {
                floor.promise(key, gang);
            }
        }
        floor
    }

    /// What the pods of an AppWrapper ask for that are on nodes, or have succeeded.
    fn there(&self, wrapper: &Key) -> Vec<Amounts> {
        let pods = self.world.shelf::<Pod>().tagged(&crate::progress::pods_of(wrapper));
        let there = pods.iter().filter(|pod| match pod.status.phase {
            Phase::Succeeded => true,
            Phase::Failed => false,
            Phase::Pending | Phase::Running | Phase::Unknown => !pod.spec.node_name.is_empty(),
        });
        there.map(|pod| Amounts::of(&Requests::of(pod), Rest::Counted)).collect()
    }

    /// Takes note that all of these pods are to come.
    pub(crate) fn promise(&mut self, key: &Key, gang: Gang) {
        let priority = self.priority(key);
        self.promised.push(Promise { key: key.clone(), priority, gang });
    }

    fn priority(&self, key: &Key) -> i32 {
        self.world.shelf::<AppWrapper>().get(key).map_or(0, |it| it.spec.priority)
    }

    /// Whether all pods of an AppWrapper find places on nodes with these labels, beside all that is
    /// promised.
    pub(crate) fn ask(
        &mut self,
        gang: &Gang,
        labels: &BTreeMap<String, String>,
        gone: &Gone,
    ) -> Fit {
        let is_gone = |key: &Key| {
            gone.wrappers.contains(key) || gone.below.is_some_and(|it| self.priority(key) < it)
        };
        let others: Vec<Squad> = self
            .promised
            .iter()
            .filter(|it| !gone.wrappers.contains(&it.key))
            .filter(|it| gone.below.is_none_or(|below| it.priority >= below))
            .flat_map(|it| it.gang.squads.iter().cloned())
            .collect();
        let names = names(gang.squads.iter().chain(&others));
        let rooms: Vec<Vec<i64>> =
            self.nodes.iter().map(|node| self.room(node, &names, &is_gone)).collect();
        let asked = match self.read(gang, &others, gone) {
            Ok(asked) => asked,
            Err(why) => return Fit::No(why),
        };
        let mut shared: BTreeMap<&Key, &Request> = BTreeMap::new();
        for (key, request) in asked.iter().flat_map(|it| &it.shared) {
            shared.entry(key).or_insert(request);
        }
        let keys: Vec<&Key> = shared.keys().copied().collect();
        let squads = gang.squads.iter().chain(&others).zip(&asked).enumerate();
        let members = squads.map(|(at, (squad, asked))| Member {
            count: squad.count,
            needs: names.iter().map(|name| amount(&squad.requests, name)).collect(),
            nodes: self
                .nodes
                .iter()
                .map(|node| {
                    let own = |(key, value): (&String, &String)| {
                        node.metadata.labels.get(key) == Some(value)
                    };
                    let labelled = at >= gang.squads.len() || labels.iter().all(own);
                    labelled && squad.wishes.allow(node) && asked.allows(node)
                })
                .collect(),
            request: asked.request.as_ref(),
            shared: asked.shared.iter().filter_map(|(key, _)| position(&keys, key)).collect(),
        });
        let question =
            Question { rooms, members: members.collect(), shared: shared.into_values().collect() };
        let nothing = Inventory::default();
        let inventory = self.equipment.as_ref().map_or(&nothing, |it| it.inventory());
        let budget = Budget { steps: STEPS, stop: None };
        match allocate_group(inventory, &question, &budget) {
            GroupAnswer::Placed(_) => Fit::Yes,
            GroupAnswer::Indeterminate(_) => Fit::Unknown,
            GroupAnswer::Unsatisfiable(shortfall) => {
                Fit::No(explain(&question, &gang.squads, &names, &shortfall))
            }
        }
    }

    /// What all these pods claim; nothing where nobody looks at that.
    fn read(&mut self, gang: &Gang, others: &[Squad], gone: &Gone) -> Result<Vec<Asked>, String> {
        let mut asked = Vec::new();
        let Some(equipment) = &mut self.equipment else {
            asked.resize_with(gang.squads.len() + others.len(), Asked::default);
            return Ok(asked);
        };
        equipment.begin(self.world, &gone.wrappers);
        // Whoever is the first to look at the names of devices changes what the others were told about
        // them before; the second time all are told the same.
        for _ in 0..2 {
            asked.clear();
            for squad in &gang.squads {
                let claims = squad.claims.as_ref().map(|it| equipment.read(self.world, it));
                asked.push(claims.transpose()?.unwrap_or_default());
            }
            for squad in others {
                // They passed; what has become of their claims since is between them and the
                // scheduler.
                let claims = squad.claims.as_ref().map(|it| equipment.read(self.world, it));
                asked.push(claims.and_then(Result::ok).unwrap_or_default());
            }
        }
        Ok(asked)
    }

    fn room(&self, node: &Node, names: &[&str], is_gone: &dyn Fn(&Key) -> bool) -> Vec<i64> {
        let (left, pods) = self
            .books
            .capacity
            .left(&node.metadata.name, is_gone)
            .unwrap_or_else(|| (Amounts::default(), Some(0)));
        let of = |name: &&str| match *name {
            PODS => pods.unwrap_or(i64::MAX),
            other => amount(&left, other),
        };
        names.iter().map(of).collect()
    }
}

fn position(keys: &[&Key], key: &Key) -> Option<usize> {
    keys.iter().position(|it| *it == key)
}

/// Everything that somebody asks for, each pod being one of those a node takes.
fn names<'s>(squads: impl Iterator<Item = &'s Squad>) -> Vec<&'s str> {
    let mut others: BTreeSet<&str> = BTreeSet::new();
    for squad in squads {
        others.extend(squad.requests.others.keys().map(String::as_str));
    }
    others.remove(PODS);
    ["cpu", "memory", GPU, PODS].into_iter().chain(others).collect()
}

fn amount(amounts: &Amounts, name: &str) -> i64 {
    match name {
        "cpu" => amounts.cpu,
        "memory" => amounts.memory,
        GPU => amounts.gpu,
        PODS => 1,
        other => amounts.others.get(other).copied().unwrap_or_default(),
    }
}

/// Why not everybody finds a place, about the pods in question: those that would not even if they were
/// alone; else that there is none for all.
fn explain(
    question: &Question<'_>,
    squads: &[Squad],
    names: &[&str],
    shortfall: &Shortfall,
) -> String {
    for (squad, member) in squads.iter().zip(&question.members) {
        let nodes = question.rooms.iter().zip(&member.nodes);
        let rooms: Vec<&Vec<i64>> = nodes.filter(|(_, may)| **may).map(|(room, _)| room).collect();
        let found = rooms.iter().fold(0_usize, |sum, room| sum.saturating_add(fits(member, room)));
        if found >= member.count {
            continue;
        }
        let pods = tell(squad);
        if rooms.is_empty() {
            return format!("fits in total, but no placement: {pods}, no node that they may be on");
        }
        for (at, name) in names.iter().enumerate().filter(|(at, _)| member.needs[*at] > 0) {
            let largest = rooms.iter().map(|room| room[at]).max().unwrap_or_default().max(0);
            if largest < member.needs[at] {
                let largest = spell(name, largest);
                let what = if *name == "cpu" { String::new() } else { format!(" of {name}") };
                return format!(
                    "fits in total, but no placement: {pods}, largest free node has {largest}{what}"
                );
            }
        }
        return format!("fits in total, but no placement: {pods}, nodes have room for {found}");
    }
    let claims = question.members.iter().any(|it| it.request.is_some() || !it.shared.is_empty());
    let Shortfall { member, placed } = *shortfall;
    let all: Vec<String> = squads.iter().map(tell).collect();
    match squads.get(member).filter(|it| it.claims.is_some()) {
        Some(squad) => {
            let count = squad.count;
            format!(
                "no devices for all pods at once: {}, {placed} of {count} find theirs",
                tell(squad)
            )
        }
        None if claims => format!("no placement with devices: {}", all.join(" and ")),
        None => {
            format!("fits in total, but no placement: {} do not fit together", all.join(" and "))
        }
    }
}

/// Some pods and what each asks for.
fn tell(squad: &Squad) -> String {
    let Squad { count, requests, .. } = squad;
    let mut names: Vec<&str> = vec!["cpu", "memory", GPU];
    names.extend(requests.others.keys().map(String::as_str));
    let asks = names.into_iter().filter(|name| amount(requests, name) > 0);
    let asks: Vec<String> = asks
        .map(|name| match (name, spell(name, amount(requests, name))) {
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

/// How many of a member find room in what is left of a node, if they are alone.
fn fits(member: &Member<'_>, room: &[i64]) -> usize {
    let wanted = member.needs.iter().zip(room).filter(|(need, _)| **need > 0);
    let most = wanted.map(|(need, left)| usize::try_from((*left).max(0) / need).unwrap_or(0));
    most.min().unwrap_or(usize::MAX).min(member.count)
}

#[cfg(test)]
mod tests;
