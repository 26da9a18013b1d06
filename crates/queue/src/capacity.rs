//! Caches the capacity of the cluster and how much of it is used, updated with every change.
//!
//! Nodes are added up in groups with the same taints, because what is free depends on what an
//! AppWrapper's pods tolerate. The result is a sum: it does not show that the free capacity may be
//! too fragmented.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use gantry_pods::view::{Node, Phase, Pod, Taint, TaintEffect};
use gantry_pods::{Requests, fit};
use gantry_reconcile::Key;

use crate::amounts::{Amounts, OtherResources};
use crate::demand::PodTolerations;
use crate::item_objects::APP_WRAPPER_LABEL;

/// Nodes, pods, and the sums over them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Capacity {
    rest: OtherResources,
    nodes: HashMap<String, NodeCapacity>,
    groups: BTreeMap<TaintGroupKey, TaintGroup>,
    pods: HashMap<Key, PodUsage>,
    usages: HashMap<Key, WrapperUsage>,
}

/// The taints of a group of nodes as one text, equal for the same taints.
pub type TaintGroupKey = Arc<str>;

/// Nodes with the same taints.
#[derive(Clone, Debug, Default, PartialEq)]
struct TaintGroup {
    taints: Vec<Taint>,
    nodes: usize,
    allocatable: Amounts,
    used: Amounts,
}

/// A node. One that accepts no pods, or does not exist, is in no group.
#[derive(Clone, Debug, Default, PartialEq)]
struct NodeCapacity {
    /// Whether the node was observed, and not only pods on it.
    is_observed: bool,
    /// Whether it is not ready: its pods use nothing that an AppWrapper could rely on.
    is_not_ready: bool,
    group: Option<TaintGroupKey>,
    allocatable: Amounts,
    used: Amounts,
    /// How many pods it accepts, where it says so.
    max_pods: Option<i64>,
    labels: BTreeMap<String, String>,
    pods: BTreeSet<Key>,
}

impl NodeCapacity {
    fn is_reachable(&self) -> bool {
        self.is_observed && !self.is_not_ready
    }
}

/// A pod.
#[derive(Clone, Debug, PartialEq)]
struct PodUsage {
    amounts: Amounts,
    /// The AppWrapper it belongs to.
    wrapper: Option<Key>,
    location: PodLocation,
    /// Whether it is being deleted: its replacement may exist already.
    is_deleting: bool,
}

impl PodUsage {
    fn is_running(&self) -> bool {
        !self.is_deleting && matches!(self.location, PodLocation::OnNode(_))
    }
}

/// The location of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PodLocation {
    /// On a node.
    OnNode(String),
    /// It has succeeded: its work need not be done again.
    Succeeded,
}

/// What the pods of one AppWrapper use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WrapperUsage {
    /// The number of its pods on nodes or succeeded.
    pub pods: usize,
    /// What they use of nodes that exist and are not reported as not ready, and what succeeded pods
    /// used. What was on any other node must be provided elsewhere.
    pub used: Amounts,
    /// The part of that which is requested by pods that have not ended and are not being deleted.
    pub running: Amounts,
    /// What they use of schedulable nodes, by group.
    pub by_group: BTreeMap<TaintGroupKey, Amounts>,
}

/// The free capacity of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreeCapacity {
    /// The resources that pods may request.
    pub amounts: Amounts,
    /// The number of pods it accepts; any number where it does not say.
    pub pods: i64,
}

impl FreeCapacity {
    /// Adds the resources of a pod that is gone.
    pub fn release(&mut self, amounts: &Amounts) {
        self.amounts.add(amounts);
        self.pods = self.pods.saturating_add(1);
    }
}

/// The effect of a change on pending AppWrappers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CapacityChange {
    /// Whether there may be more free capacity than before.
    pub released: bool,
    /// The AppWrappers whose pods use something else now.
    pub wrappers: BTreeSet<Key>,
}

impl Capacity {
    /// Creates an empty cluster, in which these resources are tracked.
    #[must_use]
    pub fn new(rest: OtherResources) -> Self {
        Self { rest, ..Self::default() }
    }

    /// Records a node, or that it is gone.
    pub fn update_node(&mut self, name: &str, node: Option<&Node>) -> CapacityChange {
        let mut effect = CapacityChange::default();
        let group = node.and_then(taint_group_of);
        let next = match node {
            None => NodeCapacity::default(),
            Some(node) => NodeCapacity {
                is_observed: true,
                is_not_ready: node.is_not_ready(),
                group: group.as_ref().map(|(barrier, _)| Arc::clone(barrier)),
                allocatable: Amounts::of(
                    &Requests::from_allocatable(&node.status.allocatable),
                    self.rest,
                ),
                max_pods: node.status.allocatable.get("pods").map(|it| it.value_rounded_up()),
                labels: node.metadata.labels.clone(),
                ..NodeCapacity::default()
            },
        };
        // Nodes report a heartbeat every few seconds; most of these reports change nothing here.
        let same = |it: &NodeCapacity| {
            (it.is_observed, it.is_not_ready, &it.group, &it.allocatable, it.max_pods, &it.labels)
                == (
                    next.is_observed,
                    next.is_not_ready,
                    &next.group,
                    &next.allocatable,
                    next.max_pods,
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
        self.remove_from_group(name);
        let room = next.allocatable.clone();
        self.nodes.insert(name.to_owned(), next);
        if let Some((barrier, taints)) = group {
            let new = || TaintGroup { taints, ..TaintGroup::default() };
            let group = self.groups.entry(barrier).or_insert_with(new);
            group.nodes += 1;
            group.allocatable.add(&room);
            effect.released = true;
        }
        for key in &pods {
            self.attach(key, &mut effect);
        }
        self.forget_if_empty(name);
        effect
    }

    /// Records a pod, or that it is gone.
    pub fn update_pod(&mut self, key: &Key, pod: Option<&Pod>) -> CapacityChange {
        let load = pod.and_then(|it| self.read_pod(it));
        let mut effect = CapacityChange::default();
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

    /// Returns what is free for pods with these tolerations, on nodes with these labels.
    #[must_use]
    pub fn free(&self, reach: &PodTolerations, labels: &BTreeMap<String, String>) -> Amounts {
        let mut free = Amounts::default();
        if labels.is_empty() {
            for group in self.groups.values().filter(|it| it.is_tolerated_by(reach)) {
                free.add(&group.allocatable);
                free.subtract(&group.used);
            }
        } else {
            for spot in self.nodes.values().filter(|it| self.is_eligible(it, reach, labels)) {
                free.add(&spot.allocatable);
                free.subtract(&spot.used);
            }
        }
        free.clamp_to_zero();
        free
    }

    /// Returns whether a node counts as capacity for pods with these tolerations and node labels.
    fn is_eligible(
        &self,
        spot: &NodeCapacity,
        reach: &PodTolerations,
        labels: &BTreeMap<String, String>,
    ) -> bool {
        let group = spot.group.as_ref().and_then(|it| self.groups.get(it));
        group.is_some_and(|it| it.is_tolerated_by(reach))
            && labels.iter().all(|(key, value)| spot.labels.get(key) == Some(value))
    }

    /// Returns what becomes free for pods with these tolerations when those of an AppWrapper are
    /// gone.
    #[must_use]
    pub fn freed_by_wrapper(&self, wrapper: &Key, reach: &PodTolerations) -> Amounts {
        let mut freed = Amounts::default();
        let on = self.usages.get(wrapper).into_iter().flat_map(|it| &it.by_group);
        on.filter(|(barrier, _)| self.is_tolerated(barrier, reach))
            .for_each(|(_, it)| freed.add(it));
        freed
    }

    /// Returns what becomes free for pods with these tolerations, on nodes with these labels, when
    /// these pods are gone.
    #[must_use]
    pub fn freed_by_pods(
        &self,
        pods: impl Iterator<Item = Key>,
        reach: &PodTolerations,
        labels: &BTreeMap<String, String>,
    ) -> Amounts {
        let mut freed = Amounts::default();
        for load in pods.filter_map(|key| self.pods.get(&key)) {
            let PodLocation::OnNode(node) = &load.location else { continue };
            if self.nodes.get(node).is_some_and(|it| self.is_eligible(it, reach, labels)) {
                freed.add(&load.amounts);
            }
        }
        freed
    }

    /// Returns the free capacity of a node, or `None` for one that accepts no pods.
    #[must_use]
    pub fn node_free(&self, node: &str) -> Option<FreeCapacity> {
        let spot = self.nodes.get(node).filter(|it| it.group.is_some())?;
        let mut amounts = spot.allocatable.clone();
        amounts.subtract(&spot.used);
        let there = i64::try_from(spot.pods.len()).unwrap_or(i64::MAX);
        let pods = spot.max_pods.map_or(i64::MAX, |most| most.saturating_sub(there));
        Some(FreeCapacity { amounts, pods })
    }

    /// Returns the node of a pod, and what it uses there.
    #[must_use]
    pub fn pod_usage(&self, pod: &Key) -> Option<(&str, &Amounts)> {
        let load = self.pods.get(pod)?;
        match &load.location {
            PodLocation::OnNode(node) => Some((node, &load.amounts)),
            PodLocation::Succeeded => None,
        }
    }

    /// Returns the AppWrappers that have pods on nodes, or succeeded pods.
    pub fn app_wrappers(&self) -> impl Iterator<Item = &Key> {
        self.usages.keys()
    }

    /// Returns the sum of what nodes have that accept pods.
    #[must_use]
    pub fn allocatable(&self) -> Amounts {
        let mut room = Amounts::default();
        self.groups.values().for_each(|it| room.add(&it.allocatable));
        room
    }

    /// Returns what the pods of an AppWrapper use.
    #[must_use]
    pub fn usage(&self, wrapper: &Key) -> Option<&WrapperUsage> {
        self.usages.get(wrapper)
    }

    /// Returns whether pods with these tolerations may run on nodes of a group.
    #[must_use]
    pub fn is_tolerated(&self, barrier: &TaintGroupKey, reach: &PodTolerations) -> bool {
        self.groups.get(barrier).is_some_and(|it| it.is_tolerated_by(reach))
    }

    /// Subtracts a node from its group. Its pods must have been subtracted before.
    fn remove_from_group(&mut self, name: &str) {
        let Some(spot) = self.nodes.get(name) else { return };
        let Some(barrier) = &spot.group else { return };
        if let Some(group) = self.groups.get_mut(barrier) {
            group.nodes -= 1;
            group.allocatable.subtract(&spot.allocatable);
            if group.nodes == 0 {
                self.groups.remove(barrier);
            }
        }
    }

    fn read_pod(&self, pod: &Pod) -> Option<PodUsage> {
        let wrapper = pod.metadata.labels.get(APP_WRAPPER_LABEL);
        let wrapper = wrapper.map(|name| Key::new(&pod.metadata.namespace, name));
        let place = match pod.status.phase {
            Phase::Succeeded if wrapper.is_some() => PodLocation::Succeeded,
            Phase::Succeeded | Phase::Failed => return None,
            Phase::Pending | Phase::Running | Phase::Unknown if pod.spec.node_name.is_empty() => {
                return None;
            }
            Phase::Pending | Phase::Running | Phase::Unknown => {
                PodLocation::OnNode(pod.spec.node_name.clone())
            }
        };
        let amounts = Amounts::of(&Requests::of(pod), self.rest);
        Some(PodUsage {
            amounts,
            wrapper,
            location: place,
            is_deleting: pod.metadata.is_terminating(),
        })
    }

    /// Adds a pod to the sums of its location.
    fn attach(&mut self, key: &Key, effect: &mut CapacityChange) {
        let Some(load) = self.pods.get(key) else { return };
        let (mut barrier, mut is_reachable) = (None, true);
        if let PodLocation::OnNode(node) = &load.location {
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
                if load.is_running() {
                    usage.running.add(&load.amounts);
                }
            }
            if let Some(barrier) = barrier {
                usage.by_group.entry(barrier).or_default().add(&load.amounts);
            }
            effect.wrappers.insert(wrapper.clone());
        }
    }

    /// Subtracts a pod from the sums of its location. Returns whether it was on a node that counts
    /// as capacity.
    fn detach(&mut self, key: &Key, effect: &mut CapacityChange) -> bool {
        let Some(load) = self.pods.get(key) else { return false };
        let load = load.clone();
        let (mut barrier, mut is_reachable) = (None, true);
        if let PodLocation::OnNode(node) = &load.location
            && let Some(spot) = self.nodes.get_mut(node)
        {
            is_reachable = spot.is_reachable();
            spot.used.subtract(&load.amounts);
            spot.pods.remove(key);
            barrier.clone_from(&spot.group);
            if let Some(group) = spot.group.as_ref().and_then(|it| self.groups.get_mut(it)) {
                group.used.subtract(&load.amounts);
            }
            self.forget_if_empty(node);
        }
        if let Some(wrapper) = &load.wrapper
            && let Some(usage) = self.usages.get_mut(wrapper)
        {
            usage.pods -= 1;
            if is_reachable {
                usage.used.subtract(&load.amounts);
                if load.is_running() {
                    usage.running.subtract(&load.amounts);
                }
            }
            if let Some(barrier) = &barrier
                && let Some(on) = usage.by_group.get_mut(barrier)
            {
                on.subtract(&load.amounts);
                if on.is_zero() {
                    usage.by_group.remove(barrier);
                }
            }
            if *usage == WrapperUsage::default() {
                self.usages.remove(wrapper);
            }
            effect.wrappers.insert(wrapper.clone());
        }
        barrier.is_some()
    }

    /// Forgets a node that does not exist once no pods are on it.
    fn forget_if_empty(&mut self, name: &str) {
        if self.nodes.get(name).is_some_and(|it| !it.is_observed && it.pods.is_empty()) {
            self.nodes.remove(name);
        }
    }
}

/// Returns the group of a node, and its taints; `None` where it accepts no pods.
fn taint_group_of(node: &Node) -> Option<(TaintGroupKey, Vec<Taint>)> {
    if node.spec.unschedulable || !node.is_ready() {
        return None;
    }
    let hard = |it: &&Taint| it.effect != TaintEffect::PreferNoSchedule;
    let mut taints: Vec<Taint> = node.spec.taints.iter().filter(hard).cloned().collect();
    let spell = |it: &Taint| format!("{}={}:{}", it.key, it.value, it.effect.as_str());
    taints.sort_by_cached_key(spell);
    for taint in &mut taints {
        // Nodes do not differ by when a taint was added.
        taint.time_added = None;
    }
    let words: Vec<String> = taints.iter().map(spell).collect();
    Some((TaintGroupKey::from(words.join(",")), taints))
}

impl TaintGroup {
    /// Returns whether pods with these tolerations may run on its nodes. Of templates that cannot
    /// be found it is only known that they do not tolerate what keeps all usual pods away.
    fn is_tolerated_by(&self, reach: &PodTolerations) -> bool {
        match reach.templates() {
            [] => !self.taints.iter().any(fit::repels_ordinary_pods),
            templates => templates.iter().any(|it| !fit::has_untolerated_taint(&self.taints, it)),
        }
    }
}

#[cfg(test)]
mod tests;
