//! Who is first: by priority, then by age, then by name.
//!
//! AppWrappers that are alike for the decision wait in one line: if the first of a line does not fit,
//! none of it does. So what a decision costs grows with how many kinds of jobs wait, not with how
//! many jobs.

use std::cmp::{Ordering, Reverse};
use std::collections::btree_set;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::sync::Arc;

use gantry_pods::gang::Gang;
use gantry_reconcile::Key;
use jiff::Timestamp;

use crate::amounts::{Amounts, GPU};
use crate::app_wrapper::AppWrapper;
use crate::demand::Reach;
use crate::fair::{Share, Shares};
use crate::settings::Settings;

/// The priority that orders the queue: the static one, or with what was gained by waiting.
#[must_use]
pub fn priority(wrapper: &AppWrapper, settings: &Settings, now: Timestamp) -> f64 {
    let fixed = f64::from(wrapper.spec.priority);
    match settings.dynamic_priority {
        false => fixed,
        true => gained(fixed, wrapper.spec.slope, wrapper.first_seen(), now),
    }
}

fn gained(priority: f64, slope: f64, first_seen: Timestamp, now: Timestamp) -> f64 {
    if slope == 0.0 {
        return priority;
    }
    priority + slope * now.duration_since(first_seen).as_secs_f64()
}

/// A number that can be sorted.
#[derive(Clone, Copy, Debug)]
struct Rank(f64);

impl Ord for Rank {
    fn cmp(&self, other: &Self) -> Ordering {
        // Both zeros are the same.
        (self.0 + 0.0).total_cmp(&(other.0 + 0.0))
    }
}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Rank {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Rank {}

/// What AppWrappers of one line have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Class {
    /// What each asks for.
    pub demand: Amounts,
    /// Which taints its pods put up with.
    pub reach: Reach,
    /// The labels of nodes it may be on, where they count.
    pub node_labels: BTreeMap<String, String>,
    /// Its priority, where that decides what is available.
    pub priority: Option<i32>,
    /// Those of its labels that name what it is charged to.
    pub labels: BTreeMap<String, String>,
    /// Its pods one by one, where each of them must find a place.
    pub gang: Option<Arc<Gang>>,
    /// Its namespace, where they take turns.
    pub namespace: Option<String>,
}

impl Class {
    /// The class of an AppWrapper, where these are the quota trees.
    #[must_use]
    pub fn of(wrapper: &AppWrapper, settings: &Settings, trees: &BTreeSet<String>) -> Self {
        let demand = wrapper.demand();
        let selector = wrapper.scheduling().filter(|_| settings.honor_node_selector);
        let labels = wrapper.metadata.labels.iter().filter(|(name, _)| trees.contains(*name));
        let weighs = settings.preempts() || settings.quota;
        Self {
            demand: demand.by(settings.inference).clone(),
            reach: demand.reach,
            node_labels: selector.map(|it| it.node_selector.clone()).unwrap_or_default(),
            priority: weighs.then_some(wrapper.spec.priority),
            labels: labels.map(|(name, node)| (name.clone(), node.clone())).collect(),
            gang: gang(wrapper, settings),
            namespace: settings.fairness.then(|| wrapper.metadata.namespace.clone()),
        }
    }
}

/// The pods of an AppWrapper, where each of them must find a place: because the settings say so for all,
/// or because they claim devices.
#[must_use]
pub(crate) fn gang(wrapper: &AppWrapper, settings: &Settings) -> Option<Arc<Gang>> {
    let claims = settings.devices && wrapper.claims_devices();
    (settings.packs() || claims).then(|| Arc::new(Gang::of(wrapper)))
}

/// A place in a line, the first before the second.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// The priority it has at a time that is the same for all of the line.
    rank: Reverse<Rank>,
    /// Who was not seen yet comes after all who were: when it was made is known to the second only.
    is_new: bool,
    first_seen: Timestamp,
    key: Key,
}

/// One who waits.
#[derive(Clone, Debug, PartialEq)]
struct Waiter {
    line: Line,
    place: Place,
    priority: i32,
}

/// AppWrappers of one class that gain priority in the same way: who is before whom never changes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Line {
    class: Arc<Class>,
    /// The bits of the slope; zero where nobody gains anything.
    slope: u64,
}

/// All who wait, in lines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lines {
    lines: HashMap<Line, BTreeSet<Place>>,
    waiters: HashMap<Key, Waiter>,
    /// The quota trees there are, where they count.
    trees: BTreeSet<String>,
}

impl Lines {
    /// Lines of which none has anybody in it yet, where these are the quota trees.
    #[must_use]
    pub fn of(trees: BTreeSet<String>) -> Self {
        Self { trees, ..Self::default() }
    }

    /// The quota trees that were told of.
    #[must_use]
    pub fn trees(&self) -> &BTreeSet<String> {
        &self.trees
    }

    /// Puts an AppWrapper in its place, whatever that was before. Returns whether that is another one.
    pub fn put(&mut self, wrapper: &AppWrapper, settings: &Settings) -> bool {
        let key = wrapper.metadata.key();
        let slope = if settings.dynamic_priority { wrapper.spec.slope + 0.0 } else { 0.0 };
        let first_seen = wrapper.first_seen();
        let fixed = f64::from(wrapper.spec.priority);
        let rank = gained(fixed, slope, first_seen, Timestamp::UNIX_EPOCH);
        let (rank, is_new) = (Reverse(Rank(rank)), wrapper.is_new());
        let place = Place { rank, is_new, first_seen, key: key.clone() };
        let class = Class::of(wrapper, settings, &self.trees);
        let line = Line { class: Arc::new(class), slope: slope.to_bits() };
        // The class of the others is the same, and is kept once.
        let known = self.lines.get_key_value(&line).map(|(line, _)| line.clone());
        let waiter = Waiter { line: known.unwrap_or(line), place, priority: wrapper.spec.priority };
        if self.waiters.get(&key) == Some(&waiter) {
            return false;
        }
        self.take(&key);
        self.lines.entry(waiter.line.clone()).or_default().insert(waiter.place.clone());
        self.waiters.insert(key, waiter);
        true
    }

    /// Takes an AppWrapper out.
    pub fn take(&mut self, key: &Key) {
        let Some(waiter) = self.waiters.remove(key) else { return };
        if let Some(places) = self.lines.get_mut(&waiter.line) {
            places.remove(&waiter.place);
            if places.is_empty() {
                self.lines.remove(&waiter.line);
            }
        }
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// The class of one who waits.
    #[must_use]
    pub fn class(&self, key: &Key) -> Option<&Arc<Class>> {
        self.waiters.get(key).map(|it| &it.line.class)
    }

    /// A walk over all who wait, the first one first.
    #[must_use]
    pub fn walk(&self, now: Timestamp) -> Walk<'_> {
        self.walk_fairly(now, None)
    }

    /// The same; with shares, namespaces of the same priority take turns.
    #[must_use]
    pub fn walk_fairly(&self, now: Timestamp, shares: Option<Shares>) -> Walk<'_> {
        let mut walk = Walk { lines: self, heads: BTreeMap::new(), shares, now };
        for (line, places) in &self.lines {
            walk.push(line, places.iter());
        }
        walk
    }
}

/// Who is before whom: the larger one.
type Turn<'a> = (Rank, Reverse<(bool, Timestamp)>, Reverse<&'a Key>);

/// The first of a line that is left, and who comes after it.
struct Head<'a> {
    order: Turn<'a>,
    line: &'a Line,
    rest: btree_set::Iter<'a, Place>,
}

impl Ord for Head<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order.cmp(&other.order)
    }
}

impl PartialOrd for Head<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl Eq for Head<'_> {}

/// A walk over the queue in its order.
pub struct Walk<'a> {
    lines: &'a Lines,
    /// The first of each line that is left, by namespace where they take turns.
    heads: BTreeMap<&'a str, BinaryHeap<Head<'a>>>,
    shares: Option<Shares>,
    now: Timestamp,
}

/// Where a walk has come to.
pub struct Stop<'a>(Head<'a>);

impl<'a> Stop<'a> {
    /// Who is there.
    #[must_use]
    pub fn key(&self) -> &'a Key {
        self.0.order.2.0
    }

    /// Its class.
    #[must_use]
    pub fn class(&self) -> &'a Arc<Class> {
        &self.0.line.class
    }

    /// Its priority now.
    #[must_use]
    pub fn priority(&self) -> f64 {
        self.0.order.0.0
    }
}

impl<'a> Walk<'a> {
    /// Who is next. The others of its line are passed over, unless the walk
    /// [goes on](Walk::go_on) with them.
    pub fn stop(&mut self) -> Option<Stop<'a>> {
        let turn = |heads: &BinaryHeap<Head<'a>>, share: Share| {
            let (rank, first_seen, key) = heads.peek()?.order;
            Some((rank, Reverse(share), first_seen, key))
        };
        let turns = self.heads.iter().filter_map(|(namespace, heads)| {
            let share = self.shares.as_ref().map_or(Share::NOTHING, |it| it.of(namespace));
            Some((turn(heads, share)?, *namespace))
        });
        let (_, namespace) = turns.max()?;
        let heads = self.heads.get_mut(namespace)?;
        let head = heads.pop();
        if heads.is_empty() {
            self.heads.remove(namespace);
        }
        head.map(Stop)
    }

    /// Lets the others of the same line have their turn too.
    pub fn go_on(&mut self, stop: Stop<'a>) {
        let Head { line, rest, .. } = stop.0;
        self.push(line, rest);
    }

    /// Takes note of what a namespace was given.
    pub fn give(&mut self, namespace: &str, amounts: &Amounts) {
        if let Some(shares) = &mut self.shares {
            shares.give(namespace, &named(amounts));
        }
    }

    fn push(&mut self, line: &'a Line, mut rest: btree_set::Iter<'a, Place>) {
        let Some(place) = rest.next() else { return };
        let Some(waiter) = self.lines.waiters.get(&place.key) else { return };
        let slope = f64::from_bits(line.slope);
        let priority = gained(f64::from(waiter.priority), slope, place.first_seen, self.now);
        let since = Reverse((place.is_new, place.first_seen));
        let order = (Rank(priority), since, Reverse(&place.key));
        let namespace = line.class.namespace.as_deref().unwrap_or_default();
        self.heads.entry(namespace).or_default().push(Head { order, line, rest });
    }
}

/// Amounts by the names of resources.
pub(crate) fn named(amounts: &Amounts) -> BTreeMap<String, i64> {
    let Amounts { cpu, memory, gpu, others } = amounts;
    let three = [("cpu", *cpu), ("memory", *memory), (GPU, *gpu)];
    let three = three.into_iter().map(|(name, amount)| (name.to_owned(), amount));
    three.chain(others.iter().map(|(name, amount)| (name.clone(), *amount))).collect()
}

impl std::fmt::Debug for Walk<'_> {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let lines: usize = self.heads.values().map(BinaryHeap::len).sum();
        write!(to, "Walk({lines} lines left)")
    }
}

impl std::fmt::Debug for Stop<'_> {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "Stop({})", self.key())
    }
}

#[cfg(test)]
mod tests;
