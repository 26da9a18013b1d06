//! What the cluster has and what is taken of it, kept up to date with every change.
//!
//! Nodes are added up in groups that keep the same pods away, because what is free depends on what an
//! AppWrapper's pods put up with. It is a sum: that what is free may be in pieces too small is not seen.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use gantry_pods::view::{Node, Phase, Pod, Taint, TaintEffect};
use gantry_pods::{Requests, fit};
use gantry_reconcile::Key;

use crate::amounts::{Amounts, Rest};
use crate::demand::Reach;
use crate::dispatch::LABEL;

/// Nodes, pods, and the sums over them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Capacity {
    rest: Rest,
    nodes: HashMap<String, Spot>,
    groups: BTreeMap<Barrier, Group>,
    pods: HashMap<Key, Load>,
    usages: HashMap<Key, Usage>,
}

/// What keeps pods away from nodes, in one word that is the same for the same taints.
pub type Barrier = Arc<str>;

/// Nodes with the same taints.
#[derive(Clone, Debug, Default, PartialEq)]
struct Group {
    taints: Vec<Taint>,
    nodes: usize,
    room: Amounts,
    used: Amounts,
}

/// A node. One that takes no pods, or is not there, is in no group.
#[derive(Clone, Debug, Default, PartialEq)]
struct Spot {
    /// Whether the node was seen, and not only pods on it.
    is_known: bool,
    /// Whether it is not ready: what is on it takes nothing that an AppWrapper could count on.
    is_not_ready: bool,
    group: Option<Barrier>,
    room: Amounts,
    used: Amounts,
    /// How many pods it takes, where it says so.
    most_pods: Option<i64>,
    labels: BTreeMap<String, String>,
    pods: BTreeSet<Key>,
}

impl Spot {
    fn is_reachable(&self) -> bool {
        self.is_known && !self.is_not_ready
    }
}

/// A pod.
#[derive(Clone, Debug, PartialEq)]
struct Load {
    amounts: Amounts,
    /// The AppWrapper it belongs to.
    wrapper: Option<Key>,
    place: Place,
    /// Whether it is being deleted: what replaces it may be there already.
    is_going: bool,
}

impl Load {
    fn runs(&self) -> bool {
        !self.is_going && matches!(self.place, Place::On(_))
    }
}

/// Where a pod is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// On a node.
    On(String),
    /// It has succeeded: what it did need not be done again.
    Done,
}

/// What the pods of one AppWrapper take.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    /// How many there are, on nodes or done.
    pub pods: usize,
    /// Of nodes that are there and not reported as not ready, and what pods took that have succeeded. What
    /// was on any other node must be made up for elsewhere.
    pub used: Amounts,
    /// What of that is asked for by pods that have not ended and are not being deleted.
    pub running: Amounts,
    /// Of nodes that count as room, by group.
    pub on: BTreeMap<Barrier, Amounts>,
}

/// What is left of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// What pods may ask for.
    pub amounts: Amounts,
    /// How many it takes; any number where it does not say.
    pub pods: i64,
}

impl Left {
    /// A pod is gone that took this.
    pub fn without(&mut self, amounts: &Amounts) {
        self.amounts.add(amounts);
        self.pods = self.pods.saturating_add(1);
    }
}

/// What a change means to those that wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effect {
    /// Whether there may be more room than before.
    pub released: bool,
    /// The AppWrappers whose pods take something else now.
    pub wrappers: BTreeSet<Key>,
}

impl Capacity {
    /// An empty cluster, in which these resources count.
    #[must_use]
    pub fn new(rest: Rest) -> Self {
        Self { rest, ..Self::default() }
    }

    /// Takes note of a node, or that it is gone.
    pub fn node(&mut self, name: &str, node: Option<&Node>) -> Effect {
        let mut effect = Effect::default();
        let group = node.and_then(barrier_of);
        let next = match node {
            None => Spot::default(),
            Some(node) => Spot {
                is_known: true,
                is_not_ready: node.is_not_ready(),
                group: group.as_ref().map(|(barrier, _)| Arc::clone(barrier)),
                room: Amounts::of(&Requests::available(&node.status.allocatable), self.rest),
                most_pods: node.status.allocatable.get("pods").map(|it| it.value_rounded_up()),
                labels: node.metadata.labels.clone(),
                ..Spot::default()
            },
        };
        // Nodes say every few seconds that they live; most of it changes nothing here.
        let same = |it: &Spot| {
            (it.is_known, it.is_not_ready, &it.group, &it.room, it.most_pods, &it.labels)
                == (
                    next.is_known,
                    next.is_not_ready,
                    &next.group,
                    &next.room,
                    next.most_pods,
                    &next.labels,
                )
        };
        let before = self.nodes.get(name);
        let is_same = match before {
            Some(before) => same(before),
            None => node.is_none(),
        };
        if is_same {
            return effect;
        }
        let pods = before.map(|it| it.pods.clone()).unwrap_or_default();
        for key in &pods {
            self.detach(key, &mut effect);
        }
        self.leave_group(name);
        let room = next.room.clone();
        self.nodes.insert(name.to_owned(), next);
        if let Some((barrier, taints)) = group {
            let new = || Group { taints, ..Group::default() };
            let group = self.groups.entry(barrier).or_insert_with(new);
            group.nodes += 1;
            group.room.add(&room);
            effect.released = true;
        }
        for key in &pods {
            self.attach(key, &mut effect);
        }
        self.forget_if_empty(name);
        effect
    }

    /// Takes note of a pod, or that it is gone.
    pub fn pod(&mut self, key: &Key, pod: Option<&Pod>) -> Effect {
        let load = pod.and_then(|it| self.load(it));
        let mut effect = Effect::default();
        if self.pods.get(key) == load.as_ref() {
            return effect;
        }
        if self.detach(key, &mut effect) {
            effect.released = true;
        }
        self.pods.remove(key);
        if let Some(load) = load {
            self.pods.insert(key.clone(), load);
            self.attach(key, &mut effect);
        }
        effect
    }

    /// What is free for pods with this reach, on nodes with these labels.
    #[must_use]
    pub fn free(&self, reach: &Reach, labels: &BTreeMap<String, String>) -> Amounts {
        let mut free = Amounts::default();
        if labels.is_empty() {
            for group in self.groups.values().filter(|it| it.lets(reach)) {
                free.add(&group.room);
                free.take(&group.used);
            }
        } else {
            for spot in self.nodes.values().filter(|it| self.counts(it, reach, labels)) {
                free.add(&spot.room);
                free.take(&spot.used);
            }
        }
        free.at_least_nothing();
        free
    }

    /// Whether a node counts as room for pods with this reach that want these labels.
    fn counts(&self, spot: &Spot, reach: &Reach, labels: &BTreeMap<String, String>) -> bool {
        let group = spot.group.as_ref().and_then(|it| self.groups.get(it));
        group.is_some_and(|it| it.lets(reach))
            && labels.iter().all(|(key, value)| spot.labels.get(key) == Some(value))
    }

    /// What becomes free for pods with this reach when those of an AppWrapper are gone.
    #[must_use]
    pub fn freed(&self, wrapper: &Key, reach: &Reach) -> Amounts {
        let mut freed = Amounts::default();
        let on = self.usages.get(wrapper).into_iter().flat_map(|it| &it.on);
        on.filter(|(barrier, _)| self.lets(barrier, reach)).for_each(|(_, it)| freed.add(it));
        freed
    }

    /// What becomes free for pods with this reach, on nodes with these labels, when these are gone.
    #[must_use]
    pub fn freed_by(
        &self,
        pods: impl Iterator<Item = Key>,
        reach: &Reach,
        labels: &BTreeMap<String, String>,
    ) -> Amounts {
        let mut freed = Amounts::default();
        for load in pods.filter_map(|key| self.pods.get(&key)) {
            let Place::On(node) = &load.place else { continue };
            if self.nodes.get(node).is_some_and(|it| self.counts(it, reach, labels)) {
                freed.add(&load.amounts);
            }
        }
        freed
    }

    /// What is left of a node; nothing for one that takes no pods.
    #[must_use]
    pub fn left(&self, node: &str) -> Option<Left> {
        let spot = self.nodes.get(node).filter(|it| it.group.is_some())?;
        let mut amounts = spot.room.clone();
        amounts.take(&spot.used);
        let there = i64::try_from(spot.pods.len()).unwrap_or(i64::MAX);
        let pods = spot.most_pods.map_or(i64::MAX, |most| most.saturating_sub(there));
        Some(Left { amounts, pods })
    }

    /// The node a pod is on, and what it takes there.
    #[must_use]
    pub fn taken(&self, pod: &Key) -> Option<(&str, &Amounts)> {
        let load = self.pods.get(pod)?;
        match &load.place {
            Place::On(node) => Some((node, &load.amounts)),
            Place::Done => None,
        }
    }

    /// The AppWrappers that have pods on nodes, or pods that are done.
    pub fn users(&self) -> impl Iterator<Item = &Key> {
        self.usages.keys()
    }

    /// All that nodes have which take pods.
    #[must_use]
    pub fn room(&self) -> Amounts {
        let mut room = Amounts::default();
        self.groups.values().for_each(|it| room.add(&it.room));
        room
    }

    /// What the pods of an AppWrapper take.
    #[must_use]
    pub fn usage(&self, wrapper: &Key) -> Option<&Usage> {
        self.usages.get(wrapper)
    }

    /// Whether pods with this reach may be on nodes of a group.
    #[must_use]
    pub fn lets(&self, barrier: &Barrier, reach: &Reach) -> bool {
        self.groups.get(barrier).is_some_and(|it| it.lets(reach))
    }

    /// Counts a node out of its group. Its pods must have been counted out before.
    fn leave_group(&mut self, name: &str) {
        let Some(spot) = self.nodes.get(name) else { return };
        let Some(barrier) = &spot.group else { return };
        if let Some(group) = self.groups.get_mut(barrier) {
            group.nodes -= 1;
            group.room.take(&spot.room);
            if group.nodes == 0 {
                self.groups.remove(barrier);
            }
        }
    }

    fn load(&self, pod: &Pod) -> Option<Load> {
        let wrapper = pod.metadata.labels.get(LABEL);
        let wrapper = wrapper.map(|name| Key::new(&pod.metadata.namespace, name));
        let place = match pod.status.phase {
            Phase::Succeeded if wrapper.is_some() => Place::Done,
            Phase::Succeeded | Phase::Failed => return None,
            Phase::Pending | Phase::Running | Phase::Unknown if pod.spec.node_name.is_empty() => {
                return None;
            }
            Phase::Pending | Phase::Running | Phase::Unknown => {
                Place::On(pod.spec.node_name.clone())
            }
        };
        let amounts = Amounts::of(&Requests::of(pod), self.rest);
        Some(Load { amounts, wrapper, place, is_going: pod.metadata.is_going() })
    }

    /// Counts a pod in where it is.
    fn attach(&mut self, key: &Key, effect: &mut Effect) {
        let Some(load) = self.pods.get(key) else { return };
        let (mut barrier, mut is_reachable) = (None, true);
        if let Place::On(node) = &load.place {
            let spot = self.nodes.entry(node.clone()).or_default();
            is_reachable = spot.is_reachable();
            spot.used.add(&load.amounts);
            spot.pods.insert(key.clone());
            barrier.clone_from(&spot.group);
            if let Some(group) = spot.group.as_ref().and_then(|it| self.groups.get_mut(it)) {
                group.used.add(&load.amounts);
            }
        }
        if let Some(wrapper) = &load.wrapper {
            let usage = self.usages.entry(wrapper.clone()).or_default();
            usage.pods += 1;
            if is_reachable {
                usage.used.add(&load.amounts);
                if load.runs() {
                    usage.running.add(&load.amounts);
                }
            }
            if let Some(barrier) = barrier {
                usage.on.entry(barrier).or_default().add(&load.amounts);
            }
            effect.wrappers.insert(wrapper.clone());
        }
    }

    /// Counts a pod out where it was. Returns whether it was on a node that counts as room.
    fn detach(&mut self, key: &Key, effect: &mut Effect) -> bool {
        let Some(load) = self.pods.get(key) else { return false };
        let load = load.clone();
        let (mut barrier, mut is_reachable) = (None, true);
        if let Place::On(node) = &load.place
            && let Some(spot) = self.nodes.get_mut(node)
        {
            is_reachable = spot.is_reachable();
            spot.used.take(&load.amounts);
            spot.pods.remove(key);
            barrier.clone_from(&spot.group);
            if let Some(group) = spot.group.as_ref().and_then(|it| self.groups.get_mut(it)) {
                group.used.take(&load.amounts);
            }
            self.forget_if_empty(node);
        }
        if let Some(wrapper) = &load.wrapper
            && let Some(usage) = self.usages.get_mut(wrapper)
        {
            usage.pods -= 1;
            if is_reachable {
                usage.used.take(&load.amounts);
                if load.runs() {
                    usage.running.take(&load.amounts);
                }
            }
            if let Some(barrier) = &barrier
                && let Some(on) = usage.on.get_mut(barrier)
            {
                on.take(&load.amounts);
                if on.is_nothing() {
                    usage.on.remove(barrier);
                }
            }
            if *usage == Usage::default() {
                self.usages.remove(wrapper);
            }
            effect.wrappers.insert(wrapper.clone());
        }
        barrier.is_some()
    }

    /// A node that is not there stays as long as pods are on it.
    fn forget_if_empty(&mut self, name: &str) {
        if self.nodes.get(name).is_some_and(|it| !it.is_known && it.pods.is_empty()) {
            self.nodes.remove(name);
        }
    }
}

/// The group of a node, and what keeps pods away from it; none where it takes no pods.
fn barrier_of(node: &Node) -> Option<(Barrier, Vec<Taint>)> {
    if node.spec.unschedulable || !node.is_ready() {
        return None;
    }
    let hard = |it: &&Taint| it.effect != TaintEffect::PreferNoSchedule;
    let mut taints: Vec<Taint> = node.spec.taints.iter().filter(hard).cloned().collect();
    let spell = |it: &Taint| format!("{}={}:{}", it.key, it.value, it.effect.as_str());
    taints.sort_by_cached_key(spell);
    for taint in &mut taints {
        // When it was put there is no difference between nodes.
        taint.time_added = None;
    }
    let words: Vec<String> = taints.iter().map(spell).collect();
    Some((Barrier::from(words.join(",")), taints))
}

impl Group {
    /// Whether pods with this reach may be on its nodes. Of templates that nobody can find it is only
    /// known that they do not put up with what keeps all usual pods away.
    fn lets(&self, reach: &Reach) -> bool {
        match reach.templates() {
            [] => !self.taints.iter().any(fit::keeps_usual_pods_away),
            templates => templates.iter().any(|it| !fit::keeps_away(&self.taints, it)),
        }
    }
}

#[cfg(test)]
mod tests;
