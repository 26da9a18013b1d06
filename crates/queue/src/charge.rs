//! What AppWrappers are charged to quota trees, and what is charged during a cycle.

use std::collections::BTreeMap;
use std::sync::Arc;

use gantry_api::queue::QueueState;
use gantry_pods::Requests;
use gantry_pods::view::Pod;
use gantry_reconcile::{Key, World};

use crate::amounts::{Amounts, OtherResources};
use crate::app_wrapper::AppWrapper;
use crate::capacity::Capacity;
use crate::condition::{self, kind};
use crate::order::amounts_by_name;
use crate::progress::pods_tag;
use crate::quota::{
    Allocation, Bindings, Consumer, ConsumerId, Forest, ForestCache, LeafForbidden, QuotaHolder,
    Subtree,
};
use crate::quota_leaf;
use crate::settings::{Inference, Settings};
use crate::unreachable;

/// Returns what quota an AppWrapper holds, if any, if its pods request no more than was admitted.
/// One that is being preempted holds none any more, though its pods may still exist.
#[must_use]
pub fn held_quota(wrapper: &AppWrapper, settings: &Settings) -> Option<QuotaHolder> {
    if !wrapper.status.can_run || is_being_preempted(wrapper) {
        return None;
    }
    let passed = condition::newest_since(&wrapper.status, kind::HEAD_OF_LINE);
    let since = passed.unwrap_or_else(|| wrapper.first_seen());
    Some(QuotaHolder { since, consumer: consumer(wrapper, settings) })
}

/// Returns what quota an AppWrapper of a world holds, if any: never less than its pods request.
#[must_use]
pub fn held_quota_in(
    world: &World,
    wrapper: &AppWrapper,
    settings: &Settings,
) -> Option<QuotaHolder> {
    let standing = held_quota(wrapper, settings)?;
    let subtrees = world.store::<Subtree>().list();
    // Most trees have no bindings, and then none are built for each holder.
    let is_bound = subtrees.iter().any(|it| it.bindings().is_some());
    let bindings = match is_bound || settings.require_quota_bindings {
        true => Bindings::of(&subtrees),
        false => Bindings::default(),
    };
    let running = running_in(world, &wrapper.metadata.key());
    Some(adjusted_for_usage(standing, wrapper, (world, settings), &running, &bindings))
}

/// Returns what an AppWrapper that holds this is in fact charged for. One whose pods request more
/// than was admitted, or that names a leaf it may not use, is the first to be preempted.
fn adjusted_for_usage(
    mut standing: QuotaHolder,
    wrapper: &AppWrapper,
    (world, settings): (&World, &Settings),
    running: &Amounts,
    bindings: &Bindings,
) -> QuotaHolder {
    if let Some(taken) = usage_over_admitted(wrapper, settings, running) {
        standing.consumer.request = amounts_by_name(&taken);
        standing.consumer.preempt_first = true;
    }
    if quota_leaf::check_leaves(world, wrapper, bindings, settings).is_err() {
        standing.consumer.preempt_first = true;
    }
    standing
}

/// Returns what an AppWrapper uses whose running pods request more than was admitted, or `None` if
/// they do not: its Deployment was scaled up, a user created pods with its label, or its kind
/// creates pods that cannot be derived from its template.
#[must_use]
pub fn usage_over_admitted(
    wrapper: &AppWrapper,
    settings: &Settings,
    running: &Amounts,
) -> Option<Amounts> {
    if !wrapper.status.can_run {
        return None;
    }
    let mut running = running.clone();
    match settings.inference {
        // Only these were ever admitted.
        Inference::Compat => running.others.clear(),
        Inference::Full => {}
    }
    let mut taken = charged_amounts(wrapper, settings);
    if running.fits_in(&taken) {
        return None;
    }
    taken.raise_to(&running);
    Some(taken)
}

/// Returns what the pods of an AppWrapper request that are on reachable nodes, and not being
/// deleted.
#[must_use]
pub fn running_in(world: &World, key: &Key) -> Amounts {
    let mut running = Amounts::default();
    for pod in world.store::<Pod>().by_index(&pods_tag(key)) {
        if is_running(&pod) && unreachable::unreachable_reason(world, &pod).is_none() {
            running.add(&Amounts::of(&Requests::of(&pod), OtherResources::Counted));
        }
    }
    running
}

/// Returns whether a pod uses resources of a node, and continues to.
pub(crate) fn is_running(pod: &Pod) -> bool {
    !pod.spec.node_name.is_empty() && !pod.is_terminal() && !pod.metadata.is_terminating()
}

/// Returns whether an AppWrapper is being preempted.
pub(crate) fn is_being_preempted(wrapper: &AppWrapper) -> bool {
    wrapper.status.can_run && wrapper.queue_state() == Some(&QueueState::Preempted)
}

/// Returns the labels an AppWrapper must get before it is evaluated.
pub(crate) fn missing_labels(world: &World, wrapper: &AppWrapper) -> BTreeMap<String, String> {
    let (subtrees, labels) = (world.store::<Subtree>().list(), &wrapper.metadata.labels);
    if subtrees.iter().filter_map(|it| it.tree()).all(|tree| labels.contains_key(tree)) {
        return BTreeMap::new();
    }
    // Whether a tree exists is only known once it is built.
    let (forest, _) = Forest::new(subtrees);
    forest.missing_labels(labels)
}

/// The quota trees, with every holder charged.
#[derive(Debug)]
pub(crate) struct QuotaCharges {
    forest_cache: ForestCache,
    /// What was charged in this cycle, in order.
    allocations: Vec<Allocation>,
    /// The AppWrappers being preempted: their priority, and what they use.
    preempted_amounts: Vec<(i32, Amounts)>,
    /// The keys of those.
    preempted_keys: Vec<Key>,
}

impl QuotaCharges {
    /// Returns the charges of a world with these holders, as if rebuilt for every cycle:
    /// AppWrappers admitted first are charged first, so the same ones borrow each time. What the
    /// cached forest of the last cycle still has right is reused.
    pub(crate) fn of<'a>(
        world: &World,
        capacity: &Capacity,
        holders: impl Iterator<Item = &'a Key>,
        settings: &Settings,
        roll: &mut ForestCache,
    ) -> Self {
        let store = world.store::<AppWrapper>();
        let wrappers: Vec<Arc<AppWrapper>> = holders.filter_map(|key| store.get(key)).collect();
        // After a panic an empty cache is left behind.
        let mut roll = std::mem::take(roll);
        let subtrees = world.store::<Subtree>().list();
        roll.update_trees(subtrees);
        let bindings = roll.bindings().clone();
        let standing = wrappers.iter().filter_map(|it| {
            let (standing, none) = (held_quota(it, settings)?, Default::default());
            let usage = capacity.usage(&it.metadata.key()).unwrap_or(&none);
            Some(adjusted_for_usage(standing, it, (world, settings), &usage.running, &bindings))
        });
        roll.update_holders(standing);
        let yielding: Vec<&Arc<AppWrapper>> =
            wrappers.iter().filter(|it| is_being_preempted(it)).collect();
        let keys = yielding.iter().map(|it| it.metadata.key()).collect();
        let yielding = yielding.iter().map(|it| (it.spec.priority, charged_amounts(it, settings)));
        Self {
            forest_cache: roll,
            allocations: Vec::new(),
            preempted_amounts: yielding.collect(),
            preempted_keys: keys,
        }
    }

    /// Returns the AppWrappers that are being preempted.
    pub(crate) fn pending_preemptions(&self) -> impl Iterator<Item = &Key> {
        self.preempted_keys.iter()
    }

    /// Returns whether the labels of an AppWrapper name a node in every tree.
    pub(crate) fn has_labels(&self, wrapper: &AppWrapper) -> bool {
        self.forest_cache.forest().missing_labels(&wrapper.metadata.labels).is_empty()
    }

    /// Checks whether an AppWrapper may be charged to the leaves that it names.
    ///
    /// # Errors
    /// Where it may not, and why.
    pub(crate) fn check_leaves(
        &self,
        world: &World,
        wrapper: &AppWrapper,
        settings: &Settings,
    ) -> Result<(), Box<LeafForbidden>> {
        quota_leaf::check_leaves(world, wrapper, self.forest_cache.bindings(), settings)
    }

    /// Charges an AppWrapper, and preempts others only if they are not exempt.
    ///
    /// # Errors
    /// Fails with what is missing, and where.
    pub(crate) fn charge(
        &mut self,
        wrapper: &AppWrapper,
        spares: impl Fn(&Key) -> bool,
        settings: &Settings,
    ) -> Result<Allocation, String> {
        let forest = self.forest_cache.forest_mut();
        let consumer = consumer(wrapper, settings);
        let charged = forest.try_allocate_with_exemptions(&consumer, &|it| spares(it.key()));
        charged.map_err(|it| it.to_string())
    }

    /// Undoes the last charge.
    pub(crate) fn undo(&mut self, allocation: Allocation) {
        let undone = self.forest_cache.forest_mut().undo(allocation);
        debug_assert!(undone.is_ok(), "nothing was charged since");
    }

    /// Keeps a charge until the end of the cycle.
    pub(crate) fn commit(&mut self, allocation: Allocation) {
        self.allocations.push(allocation);
    }

    /// Returns the cached forest as it was before anything was charged.
    pub(crate) fn into_cache(mut self) -> ForestCache {
        while let Some(allocation) = self.allocations.pop() {
            self.undo(allocation);
        }
        self.forest_cache
    }

    /// Returns what will be free that still looks used to an AppWrapper of this priority: those
    /// being preempted count as gone, unless they count as free for it anyway.
    pub(crate) fn freed_by_preemption<'a>(
        &'a self,
        priority: i32,
        victims: impl Iterator<Item = &'a (i32, Amounts)>,
    ) -> Amounts {
        let mut spared = Amounts::default();
        for (of, amounts) in self.preempted_amounts.iter().chain(victims) {
            if *of >= priority {
                spared.add(amounts);
            }
        }
        spared
    }
}

/// Returns what an AppWrapper uses, or will.
pub(crate) fn charged_amounts(wrapper: &AppWrapper, settings: &Settings) -> Amounts {
    wrapper.demand().for_inference(settings.inference).clone()
}

/// Returns an AppWrapper as a quota consumer.
pub(crate) fn consumer(wrapper: &AppWrapper, settings: &Settings) -> Consumer {
    Consumer {
        id: ConsumerId::from(wrapper.metadata.key()),
        priority: wrapper.spec.priority,
        preemptable: settings.preempts(),
        preempt_first: false,
        request: amounts_by_name(&charged_amounts(wrapper, settings)),
        labels: wrapper.metadata.labels.clone(),
    }
}
