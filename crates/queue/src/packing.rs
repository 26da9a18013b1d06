//! Whether pods find places one by one: on the nodes there are, beside what others were promised, with the
//! devices they claim.
//!
//! The sum of what is free says nothing about its pieces. Here all pods of an AppWrapper are placed on
//! nodes at once, together with the pods of everybody else who passed and whose pods are not there yet.
//! Nothing of that is written down: the scheduler will find a way of its own, and that there is one is all
//! that is asked. Taints, node selectors, required node affinity, every resource and the number of pods
//! count; ports, spreading and wishes about other pods do not.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
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
use crate::capacity::Left;
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
    /// What is left of each of them.
    rooms: Rc<[Left]>,
    /// The same when nobody is there below this priority, for whoever asked last.
    above: RefCell<Option<(i32, Rc<[Left]>)>>,
    /// Where each node is among them.
    places: OnceCell<HashMap<String, usize>>,
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
        let nodes = world.shelf::<Node>().all().into_iter().chain(added.nodes.iter().cloned());
        let usable = nodes.filter_map(|it| Some((books.capacity.left(&it.metadata.name)?, it)));
        let (rooms, nodes): (Vec<Left>, Vec<Arc<Node>>) = usable.unzip();
        let equipment =
            constraints.map(|it| Equipment::new(world, &nodes, &added.pools, Arc::clone(it)));
        let (rooms, above, places) = (Rc::from(rooms), RefCell::default(), OnceCell::new());
        let promised = Vec::new();
        let mut floor = Self { world, books, nodes, rooms, above, places, equipment, promised };
        let there = |key: &Key| books.capacity.usage(key).map_or(0, |it| it.pods);
        let holders = books.gangs.iter();
        let mut holders: Vec<(&Key, &Arc<Gang>)> =
            holders.filter(|(key, gang)| there(key) < gang.count()).collect();
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
        let others: Vec<Squad> = self
            .promised
            .iter()
            .filter(|it| !gone.wrappers.contains(&it.key))
            .filter(|it| gone.below.is_none_or(|below| it.priority >= below))
            .flat_map(|it| it.gang.squads.iter().cloned())
            .collect();
        let asked = match self.read(gang, &others, gone) {
            Ok(asked) => asked,
            Err(why) => return Fit::No(why),
        };
        let rooms = self.without(gone);
        let own = |node: &Node| has(node, labels);
        // Who would find no place even if it were alone need not be asked about together with others.
        for (squad, asked) in gang.squads.iter().zip(&asked) {
            let may = |node: &Node| own(node) && squad.wishes.allow(node) && asked.allows(node);
            if let Some(why) = alone(squad, self.nodes.iter().zip(rooms.iter()), may) {
                return Fit::No(why);
            }
        }
        let names = names(gang.squads.iter().chain(&others));
        let row = |left: &Left| names.iter().map(|name| room(left, name)).collect();
        let rooms: Vec<Vec<i64>> = rooms.iter().map(row).collect();
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
                    let labelled = at >= gang.squads.len() || own(node);
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
                Fit::No(explain(&question, &gang.squads, &shortfall))
            }
        }
    }

    /// Whether pods of an AppWrapper find no places on nodes with these labels even if nobody but those on them
    /// is there, whatever they claim.
    pub(crate) fn bars(&self, gang: &Gang, labels: &BTreeMap<String, String>, gone: &Gone) -> bool {
        let rooms = self.without(gone);
        gang.squads.iter().any(|squad| {
            let may = |node: &Node| has(node, labels) && squad.wishes.allow(node);
            places(squad, self.nodes.iter().zip(rooms.iter()), may) < squad.count
        })
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

    /// What is left of each node when nobody is there below this priority.
    fn above(&self, below: i32) -> Rc<[Left]> {
        let mut last = self.above.borrow_mut();
        if let Some((_, rooms)) = last.as_ref().filter(|(known, _)| *known == below) {
            return Rc::clone(rooms);
        }
        let mut rooms = self.rooms.to_vec();
        let users = self.books.capacity.users();
        users.filter(|key| self.priority(key) < below).for_each(|key| self.lift(key, &mut rooms));
        let rooms = Rc::from(rooms);
        *last = Some((below, Rc::clone(&rooms)));
        rooms
    }

    /// What is left of each node without those that are gone.
    fn without(&self, gone: &Gone) -> Rc<[Left]> {
        let mut rooms =
            gone.below.map_or_else(|| Rc::clone(&self.rooms), |below| self.above(below));
        let is_below = |key: &Key| gone.below.is_some_and(|below| self.priority(key) < below);
        for key in gone.wrappers.iter().filter(|key| !is_below(key)) {
            self.lift(key, Rc::make_mut(&mut rooms));
        }
        rooms
    }

    /// Takes the pods of an AppWrapper off their nodes.
    fn lift(&self, wrapper: &Key, rooms: &mut [Left]) {
        let places = self.places.get_or_init(|| {
            let names = self.nodes.iter().map(|it| it.metadata.name.clone());
            names.enumerate().map(|(at, name)| (name, at)).collect()
        });
        for pod in self.world.shelf::<Pod>().tagged(&crate::progress::pods_of(wrapper)) {
            let taken = self.books.capacity.taken(&pod.metadata.key());
            let place = taken.and_then(|(node, amounts)| Some((places.get(node)?, amounts)));
            if let Some((at, amounts)) = place {
                rooms[*at].without(amounts);
            }
        }
    }
}

/// What is left of a resource.
fn room(left: &Left, name: &str) -> i64 {
    match name {
        PODS => left.pods,
        other => amount(&left.amounts, other),
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

/// Whether a node has all of these labels.
fn has(node: &Node, labels: &BTreeMap<String, String>) -> bool {
    labels.iter().all(|(key, value)| node.metadata.labels.get(key) == Some(value))
}

/// For how many of these pods there are places if they are alone.
fn places<'n>(
    squad: &Squad,
    nodes: impl Iterator<Item = (&'n Arc<Node>, &'n Left)>,
    may: impl Fn(&Node) -> bool,
) -> usize {
    let mut found = 0_usize;
    for (node, left) in nodes {
        let fits = fits(squad, left);
        if fits > 0 && may(node) {
            found = found.saturating_add(fits);
            if found >= squad.count {
                break;
            }
        }
    }
    found
}

/// Why pods do not all find places even if they are alone; nothing if they do.
fn alone<'n>(
    squad: &Squad,
    nodes: impl Iterator<Item = (&'n Arc<Node>, &'n Left)> + Clone,
    may: impl Fn(&Node) -> bool,
) -> Option<String> {
    let found = places(squad, nodes.clone(), &may);
    if found >= squad.count {
        return None;
    }
    let pods = tell(squad);
    let rooms: Vec<&Left> = nodes.filter(|(node, _)| may(node)).map(|(_, left)| left).collect();
    if rooms.is_empty() {
        return Some(format!(
            "fits in total, but no placement: {pods}, no node that they may be on"
        ));
    }
    for name in names([squad].into_iter()) {
        let largest = rooms.iter().map(|left| room(left, name)).max().unwrap_or_default().max(0);
        if largest < amount(&squad.requests, name) {
            let largest = spell(name, largest);
            let what = if name == "cpu" { String::new() } else { format!(" of {name}") };
            return Some(format!(
                "fits in total, but no placement: {pods}, largest free node has {largest}{what}"
            ));
        }
    }
    Some(format!("fits in total, but no placement: {pods}, nodes have room for {found}"))
}

/// Why not everybody finds a place, though each kind of pods does if it is alone.
fn explain(question: &Question<'_>, squads: &[Squad], shortfall: &Shortfall) -> String {
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

/// How many of these pods find room in what is left of a node, if they are alone.
fn fits(squad: &Squad, left: &Left) -> usize {
    let Amounts { cpu, memory, gpu, others } = &squad.requests;
    let own = [(1, left.pods), (*cpu, left.amounts.cpu), (*memory, left.amounts.memory)];
    let rest = others.iter().filter(|(name, _)| *name != PODS);
    let rest = rest.map(|(name, need)| (*need, amount(&left.amounts, name)));
    let all = own.into_iter().chain([(*gpu, left.amounts.gpu)]).chain(rest);
    let most = all.filter(|(need, _)| *need > 0).map(|(need, left)| left.max(0) / need).min();
    most.and_then(|it| usize::try_from(it).ok()).unwrap_or(usize::MAX).min(squad.count)
}

#[cfg(test)]
mod tests;
