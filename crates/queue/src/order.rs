//! Orders pending AppWrappers: by priority, then by age, then by name.
//!
//! AppWrappers that are alike for the decision share one subqueue: if the first of it does not fit,
//! none of it does. So the cost of a cycle grows with the number of classes that are pending, not
//! with the number of jobs.

use std::cmp::{Ordering, Reverse};
use std::collections::btree_set;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::sync::Arc;

use crate::gang::Gang;
use gantry_reconcile::Key;
use jiff::Timestamp;

use crate::amounts::{Amounts, GPU};
use crate::app_wrapper::AppWrapper;
use crate::demand::PodTolerations;
use crate::fair_share::{DominantShare, NamespaceShares};
use crate::settings::Settings;

/// Returns the priority that orders the queue: the static one, or the one that grows while waiting.
#[must_use]
pub fn priority(wrapper: &AppWrapper, settings: &Settings, now: Timestamp) -> f64 {
    let fixed = f64::from(wrapper.spec.priority);
    match settings.dynamic_priority {
        false => fixed,
        true => aged_priority(fixed, wrapper.spec.slope, wrapper.first_seen(), now),
    }
}

fn aged_priority(priority: f64, slope: f64, first_seen: Timestamp, now: Timestamp) -> f64 {
    if slope == 0.0 {
        return priority;
    }
    priority + slope * now.duration_since(first_seen).as_secs_f64()
}

/// A floating-point priority with a total order.
#[derive(Clone, Copy, Debug)]
struct SortablePriority(f64);

impl Ord for SortablePriority {
    fn cmp(&self, other: &Self) -> Ordering {
        // Both zeros are equal.
        (self.0 + 0.0).total_cmp(&(other.0 + 0.0))
    }
}

impl PartialOrd for SortablePriority {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for SortablePriority {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for SortablePriority {}

/// What the AppWrappers of one subqueue have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SchedulingClass {
    /// The demand of each.
    pub demand: Amounts,
    /// The taints that its pods tolerate.
    pub reach: PodTolerations,
    /// The required labels of nodes, where they are honored.
    pub node_labels: BTreeMap<String, String>,
    /// Its priority, where that decides what is available.
    pub priority: Option<i32>,
    /// Those of its labels that name what it is charged to.
    pub labels: BTreeMap<String, String>,
    /// Its pods one by one, where each must fit on a node.
    pub gang: Option<Arc<Gang>>,
    /// Its namespace, where namespaces take turns.
    pub namespace: Option<String>,
}

impl SchedulingClass {
    /// Returns the class of an AppWrapper with these quota trees.
    #[must_use]
    pub fn of(wrapper: &AppWrapper, settings: &Settings, trees: &BTreeSet<String>) -> Self {
        let demand = wrapper.demand();
        let selector = wrapper.scheduling().filter(|_| settings.honor_node_selector);
        let labels = wrapper.metadata.labels.iter().filter(|(name, _)| trees.contains(*name));
        let weighs = settings.preempts() || settings.quota;
        Self {
            demand: demand.for_inference(settings.inference).clone(),
            reach: demand.tolerations,
            node_labels: selector.map(|it| it.node_selector.clone()).unwrap_or_default(),
            priority: weighs.then_some(wrapper.spec.priority),
            labels: labels.map(|(name, node)| (name.clone(), node.clone())).collect(),
            gang: gang(wrapper, settings),
            namespace: settings.fairness.then(|| wrapper.metadata.namespace.clone()),
        }
    }
}

/// Returns the pods of an AppWrapper, where each must fit on a node: because the settings say so
/// for all, or because they claim devices.
#[must_use]
pub(crate) fn gang(wrapper: &AppWrapper, settings: &Settings) -> Option<Arc<Gang>> {
    let claims = settings.devices && wrapper.claims_devices();
    (settings.packs() || claims).then(|| Arc::new(Gang::of(wrapper)))
}

/// A position in a subqueue; the smallest is first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct QueuePosition {
    /// The priority at a time that is the same for all of the subqueue.
    rank: Reverse<SortablePriority>,
    /// Whether it was not observed yet; it then comes after all that were: its creation time is
    /// known to the second only.
    is_new: bool,
    first_seen: Timestamp,
    key: Key,
}

/// A pending AppWrapper.
#[derive(Clone, Debug, PartialEq)]
struct PendingEntry {
    subqueue: SubqueueKey,
    position: QueuePosition,
    priority: i32,
}

/// AppWrappers of one class that gain priority at the same rate: their order never changes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SubqueueKey {
    class: Arc<SchedulingClass>,
    /// The bits of the slope; zero where priorities are static.
    slope: u64,
}

/// All pending AppWrappers, in subqueues.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PendingQueue {
    subqueues: HashMap<SubqueueKey, BTreeSet<QueuePosition>>,
    entries: HashMap<Key, PendingEntry>,
    /// The quota trees, where they are enabled.
    trees: BTreeSet<String>,
}

impl PendingQueue {
    /// Creates an empty queue with these quota trees.
    #[must_use]
    pub fn of(trees: BTreeSet<String>) -> Self {
        Self { trees, ..Self::default() }
    }

    /// Returns the quota trees the queue was created with.
    #[must_use]
    pub fn trees(&self) -> &BTreeSet<String> {
        &self.trees
    }

    /// Inserts an AppWrapper, or moves it. Returns whether its position changed.
    pub fn insert(&mut self, wrapper: &AppWrapper, settings: &Settings) -> bool {
        let key = wrapper.metadata.key();
        let slope = if settings.dynamic_priority { wrapper.spec.slope + 0.0 } else { 0.0 };
        let first_seen = wrapper.first_seen();
        let fixed = f64::from(wrapper.spec.priority);
        let rank = aged_priority(fixed, slope, first_seen, Timestamp::UNIX_EPOCH);
        let (rank, is_new) = (Reverse(SortablePriority(rank)), wrapper.is_new());
        let place = QueuePosition { rank, is_new, first_seen, key: key.clone() };
        let class = SchedulingClass::of(wrapper, settings, &self.trees);
        let line = SubqueueKey { class: Arc::new(class), slope: slope.to_bits() };
        // The class is shared with the others of the subqueue.
        let known = self.subqueues.get_key_value(&line).map(|(line, _)| line.clone());
        let waiter = PendingEntry {
            subqueue: known.unwrap_or(line),
            position: place,
            priority: wrapper.spec.priority,
        };
        if self.entries.get(&key) == Some(&waiter) {
            return false;
        }
        self.remove(&key);
        self.subqueues.entry(waiter.subqueue.clone()).or_default().insert(waiter.position.clone());
        self.entries.insert(key, waiter);
        true
    }

    /// Removes an AppWrapper.
    pub fn remove(&mut self, key: &Key) {
        let Some(waiter) = self.entries.remove(key) else { return };
        if let Some(places) = self.subqueues.get_mut(&waiter.subqueue) {
            places.remove(&waiter.position);
            if places.is_empty() {
                self.subqueues.remove(&waiter.subqueue);
            }
        }
    }

    /// Returns the number of pending AppWrappers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether no AppWrapper is pending.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the class of a pending AppWrapper.
    #[must_use]
    pub fn class(&self, key: &Key) -> Option<&Arc<SchedulingClass>> {
        self.entries.get(key).map(|it| &it.subqueue.class)
    }

    /// Returns a cursor over all pending AppWrappers in queue order.
    #[must_use]
    pub fn cursor(&self, now: Timestamp) -> QueueCursor<'_> {
        self.fair_cursor(now, None)
    }

    /// Returns the same cursor; with shares, namespaces of the same priority take turns.
    #[must_use]
    pub fn fair_cursor(&self, now: Timestamp, shares: Option<NamespaceShares>) -> QueueCursor<'_> {
        let mut walk = QueueCursor { queue: self, heads: BTreeMap::new(), shares, now };
        for (line, places) in &self.subqueues {
            walk.push(line, places.iter());
        }
        walk
    }
}

/// The order of the queue: the largest is first.
type OrderKey<'a> = (SortablePriority, Reverse<(bool, Timestamp)>, Reverse<&'a Key>);

/// The first remaining AppWrapper of a subqueue, and those after it.
struct SubqueueHead<'a> {
    order: OrderKey<'a>,
    subqueue: &'a SubqueueKey,
    rest: btree_set::Iter<'a, QueuePosition>,
}

impl Ord for SubqueueHead<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order.cmp(&other.order)
    }
}

impl PartialOrd for SubqueueHead<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for SubqueueHead<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl Eq for SubqueueHead<'_> {}

/// A cursor over the queue in its order.
pub struct QueueCursor<'a> {
    queue: &'a PendingQueue,
    /// The first remaining AppWrapper of each subqueue, by namespace where they take turns.
    heads: BTreeMap<&'a str, BinaryHeap<SubqueueHead<'a>>>,
    shares: Option<NamespaceShares>,
    now: Timestamp,
}

/// The AppWrapper that a cursor has reached.
pub struct QueuedItem<'a>(SubqueueHead<'a>);

impl<'a> QueuedItem<'a> {
    /// Returns its key.
    #[must_use]
    pub fn key(&self) -> &'a Key {
        self.0.order.2.0
    }

    /// Returns its class.
    #[must_use]
    pub fn class(&self) -> &'a Arc<SchedulingClass> {
        &self.0.subqueue.class
    }

    /// Returns its current priority.
    #[must_use]
    pub fn priority(&self) -> f64 {
        self.0.order.0.0
    }
}

impl<'a> QueueCursor<'a> {
    /// Returns the next AppWrapper. The others of its subqueue are skipped, unless
    /// [`Self::continue_class`] is called.
    pub fn next_item(&mut self) -> Option<QueuedItem<'a>> {
        let turn = |heads: &BinaryHeap<SubqueueHead<'a>>, share: DominantShare| {
            let (rank, first_seen, key) = heads.peek()?.order;
            Some((rank, Reverse(share), first_seen, key))
        };
        let turns = self.heads.iter().filter_map(|(namespace, heads)| {
            let share = self.shares.as_ref().map_or(DominantShare::ZERO, |it| it.of(namespace));
            Some((turn(heads, share)?, *namespace))
        });
        let (_, namespace) = turns.max()?;
        let heads = self.heads.get_mut(namespace)?;
        let head = heads.pop();
        if heads.is_empty() {
            self.heads.remove(namespace);
        }
        head.map(QueuedItem)
    }

    /// Continues with the others of the same subqueue.
    pub fn continue_class(&mut self, stop: QueuedItem<'a>) {
        let SubqueueHead { subqueue: line, rest, .. } = stop.0;
        self.push(line, rest);
    }

    /// Adds to what a namespace was given.
    pub fn add_usage(&mut self, namespace: &str, amounts: &Amounts) {
        if let Some(shares) = &mut self.shares {
            shares.add_usage(namespace, &amounts_by_name(amounts));
        }
    }

    fn push(&mut self, line: &'a SubqueueKey, mut rest: btree_set::Iter<'a, QueuePosition>) {
        let Some(place) = rest.next() else { return };
        let Some(waiter) = self.queue.entries.get(&place.key) else { return };
        let slope = f64::from_bits(line.slope);
        let priority = aged_priority(f64::from(waiter.priority), slope, place.first_seen, self.now);
        let since = Reverse((place.is_new, place.first_seen));
        let order = (SortablePriority(priority), since, Reverse(&place.key));
        let namespace = line.class.namespace.as_deref().unwrap_or_default();
        self.heads.entry(namespace).or_default().push(SubqueueHead { order, subqueue: line, rest });
    }
}

/// Returns amounts by resource name.
pub(crate) fn amounts_by_name(amounts: &Amounts) -> BTreeMap<String, i64> {
    let Amounts { cpu, memory, gpu, others } = amounts;
    let three = [("cpu", *cpu), ("memory", *memory), (GPU, *gpu)];
    let three = three.into_iter().map(|(name, amount)| (name.to_owned(), amount));
    three.chain(others.iter().map(|(name, amount)| (name.clone(), *amount))).collect()
}

impl std::fmt::Debug for QueueCursor<'_> {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let lines: usize = self.heads.values().map(BinaryHeap::len).sum();
        write!(to, "QueueCursor({lines} subqueues left)")
    }
}

impl std::fmt::Debug for QueuedItem<'_> {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "Stop({})", self.key())
    }
}

#[cfg(test)]
mod tests;
