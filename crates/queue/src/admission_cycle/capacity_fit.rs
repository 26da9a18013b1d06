//! Checks whether there is free capacity for one AppWrapper, and which others to preempt for it.

use std::collections::BTreeSet;
use std::sync::Arc;

use gantry_api::devices::DevicePool;
use gantry_api::queue::AppWrapperState;
use gantry_devices::constraint::Constraints;
use gantry_pods::devices::DeviceObject;
use gantry_pods::view::Pod;
use gantry_reconcile::{Key, View as _, World};
use jiff::Timestamp;

use super::{AdmissionCycle, Verdict, Victim};
use crate::amounts::{Amounts, InsufficientResource};
use crate::app_wrapper::AppWrapper;
use crate::charge;
use crate::condition::{self, BackoffReason, kind};
use crate::order::SchedulingClass;
use crate::packing::{AddedNodes, AssumedGone, Fit, NodePacking};
use crate::preemption::{self, Candidate};
use crate::progress::pods_tag;
use crate::queue_cache::QueueCache;
use crate::settings::Settings;
use crate::state;

/// Whether there is enough free capacity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CapacityFit {
    /// There is.
    Fits,
    /// The sum suffices; whether every pod fits on a node was not determined in time.
    FitsInTotal,
    /// There is not; this is missing.
    Insufficient(String),
}

impl<'a> AdmissionCycle<'a> {
    /// Checks whether there is free capacity for an AppWrapper when this much is freed for it and
    /// these others are gone.
    pub(super) fn capacity_fit(
        &mut self,
        wrapper: &AppWrapper,
        class: &SchedulingClass,
        spared: &Amounts,
        gone: BTreeSet<Key>,
    ) -> CapacityFit {
        let below = self.preemptible_below(wrapper);
        if let Some(lacks) = self.missing_in_total(class, spared, below) {
            return CapacityFit::Insufficient(lacks);
        }
        let Some(gang) = &class.gang else { return CapacityFit::Fits };
        let gone = AssumedGone { wrappers: gone, below };
        match self.node_packing().fit(gang, &class.node_labels, &gone) {
            Fit::Yes => CapacityFit::Fits,
            Fit::Unknown => CapacityFit::FitsInTotal,
            Fit::No(why) => CapacityFit::Insufficient(why),
        }
    }

    /// Returns the nodes one by one, built on first use.
    pub(super) fn node_packing(&mut self) -> &mut NodePacking<'a> {
        let (world, cache, constraints) = (self.world, self.cache, self.device_constraints());
        self.node_packing.get_or_insert_with(|| NodePacking::new(world, cache, constraints))
    }

    /// Returns the constraints to read claims with, where devices are enabled.
    fn device_constraints(&self) -> Option<&'a Arc<Constraints>> {
        // Settings may change while the kinds of the world cannot: kinds it does not have are not
        // considered.
        let pools =
            self.world.store_for::<DeviceObject<DevicePool>>(&DeviceObject::<DevicePool>::RESOURCE);
        (self.settings.devices && pools.is_some()).then_some(self.constraints)
    }

    /// Returns the priority below which used resources count as free, if any.
    fn preemptible_below(&self, wrapper: &AppWrapper) -> Option<i32> {
        let counts = self.settings.preempts() && !self.settings.evicts();
        counts.then_some(wrapper.spec.priority)
    }

    /// Returns what an AppWrapper lacks in sum when this much is freed for it, and resources used
    /// below a priority count as free.
    fn missing_in_total(
        &self,
        class: &SchedulingClass,
        spared: &Amounts,
        target: Option<i32>,
    ) -> Option<String> {
        let QueueCache { capacity, holdings, .. } = self.cache;
        let free = capacity.free(&class.reach, &class.node_labels);
        let mut against = holdings.adjustment_for(target, &class.reach, capacity);
        against.reclaimable.add(spared);
        match target {
            None => against.reserved.add(&self.admitted_amounts.all),
            Some(target) => {
                let above = self.admitted_amounts.by_priority.range(target..);
                above.for_each(|(_, amounts)| against.reserved.add(amounts));
            }
        }
        let available = against.available(&free);
        let lacks: Vec<String> = class
            .demand
            .insufficient(&available)
            .iter()
            .map(InsufficientResource::to_string)
            .collect();
        (!lacks.is_empty()).then(|| lacks.join("; "))
    }

    /// Chooses AppWrappers to preempt for one that does not fit, where the settings say so: those
    /// that lose their quota to it, those that are going anyway, and as few as suffice of those
    /// with a lower priority.
    pub(super) fn preempt_for(
        &mut self,
        wrapper: &AppWrapper,
        class: &SchedulingClass,
        reclaimed: &[Arc<AppWrapper>],
        lacks: String,
    ) -> Verdict {
        let store = self.world.store::<AppWrapper>();
        let mut base: BTreeSet<Key> = reclaimed.iter().map(|it| it.metadata.key()).collect();
        base.extend(self.pending_preemptions.iter().cloned());
        let mut given = Amounts::default();
        base.iter().for_each(|key| given.add(&self.freed_by(key, class)));
        // Most do not fit even without all lower priorities, and that is known without choosing
        // victims.
        let below = Some(wrapper.spec.priority);
        let first = self.preempted_first(&base);
        let most: BTreeSet<Key> = base.iter().chain(&first).cloned().collect();
        let mut most_given = given.clone();
        first.iter().for_each(|key| most_given.add(&self.freed_by(key, class)));
        let alone = AssumedGone { wrappers: most, below };
        let gang = class.gang.as_deref();
        if self.missing_in_total(class, &most_given, below).is_some()
            || gang.is_some_and(|it| self.node_packing().never_fits(it, &class.node_labels, &alone))
        {
            return Verdict::does_not_fit(BackoffReason::Resources, lacks);
        }
        let lower = self.cache.holdings.admitted().filter(|key| !base.contains(key));
        let lower = lower.filter(|key| !self.exemption.exempts(key));
        let lower = lower.filter_map(|key| store.get(key));
        let is_first = |it: &AppWrapper| first.contains(&it.metadata.key());
        let is_lower = |it: &AppWrapper| it.spec.priority < wrapper.spec.priority || is_first(it);
        let mut lower: Vec<Arc<AppWrapper>> =
            lower.filter(|it| is_lower(it) && is_preemptible(it)).collect();
        lower.sort_by_key(|it| it.metadata.key());
        let candidates: Vec<Candidate> = lower
            .iter()
            .map(|it| Candidate {
                priority: if is_first(it) { i32::MIN } else { it.spec.priority },
                since: condition::newest_since(&it.status, kind::HEAD_OF_LINE)
                    .unwrap_or_else(|| it.first_seen()),
            })
            .collect();
        let gives: Vec<Amounts> =
            lower.iter().map(|it| self.freed_by(&it.metadata.key(), class)).collect();
        let chosen = preemption::choose_victims(&candidates, |gone| {
            let (mut keys, mut spared) = (base.clone(), given.clone());
            for at in gone {
                keys.insert(lower[*at].metadata.key());
                spared.add(&gives[*at]);
            }
            // No AppWrapper is preempted for one that may not fit even then.
            self.capacity_fit(wrapper, class, &spared, keys) == CapacityFit::Fits
        });
        let Some(chosen) = chosen else {
            return Verdict::does_not_fit(BackoffReason::Resources, lacks);
        };
        let reclaimed = reclaimed.iter().cloned().map(Victim::Quota);
        let evicted = chosen.into_iter().map(|at| Victim::Priority(Arc::clone(&lower[at])));
        let victims: Vec<Victim> = reclaimed.chain(evicted).collect();
        if victims.is_empty() {
            Verdict::AwaitingPreemption
        } else {
            Verdict::Fits { victims, packing_verified: true }
        }
    }

    /// Returns those that are preempted before all others, whatever their priority: their pods
    /// request more than was admitted.
    fn preempted_first(&self, but: &BTreeSet<Key>) -> BTreeSet<Key> {
        let store = self.world.store::<AppWrapper>();
        let exceeds = |key: &&Key| {
            let usage = self.cache.capacity.usage(key);
            let wrapper = usage.and_then(|usage| Some((usage, store.get(key)?)));
            wrapper.is_some_and(|(usage, it)| {
                is_preemptible(&it)
                    && charge::usage_over_admitted(&it, &self.settings, &usage.running).is_some()
            })
        };
        let holders = self.cache.holdings.admitted().filter(|key| !but.contains(*key));
        holders.filter(exceeds).cloned().collect()
    }

    /// Returns what is freed when another AppWrapper is gone.
    fn freed_by(&self, key: &Key, class: &SchedulingClass) -> Amounts {
        let QueueCache { capacity, .. } = self.cache;
        let mut given = match class.node_labels.is_empty() {
            true => capacity.freed_by_wrapper(key, &class.reach),
            false => {
                let pods = self.world.store::<Pod>().by_index(&pods_tag(key));
                let pods = pods.iter().map(|it| it.metadata.key());
                capacity.freed_by_pods(pods, &class.reach, &class.node_labels)
            }
        };
        if let Some(reserved) = self.cache.holdings.reserved(key) {
            given.add(reserved);
        }
        given
    }
}

/// Returns what is missing for an AppWrapper that is evaluated first, with nodes added that only
/// the cache has, and with these others gone; `None` if it fits.
pub(crate) fn missing_capacity(
    world: &World,
    cache: &QueueCache,
    settings: &Settings,
    constraints: &Arc<Constraints>,
    added: &AddedNodes,
    gone: BTreeSet<Key>,
    (wrapper, class): (&AppWrapper, &SchedulingClass),
) -> Option<String> {
    // Free capacity does not depend on the time.
    let mut cycle =
        AdmissionCycle::new(world, cache, *settings, constraints, Timestamp::UNIX_EPOCH);
    cycle.node_packing =
        Some(NodePacking::with_added_nodes(world, cache, cycle.device_constraints(), added));
    let mut spared = Amounts::default();
    gone.iter().for_each(|key| spared.add(&cycle.freed_by(key, class)));
    match cycle.capacity_fit(wrapper, class, &spared, gone) {
        CapacityFit::Fits | CapacityFit::FitsInTotal => None,
        CapacityFit::Insufficient(lacks) => Some(lacks),
    }
}

/// Returns the AppWrappers that are being preempted.
pub(super) fn pending_preemptions(world: &World, cache: &QueueCache) -> BTreeSet<Key> {
    let store = world.store::<AppWrapper>();
    let holders = cache.holdings.admitted();
    let yields = |key: &&Key| store.get(key).is_some_and(|it| charge::is_being_preempted(&it));
    holders.filter(yields).cloned().collect()
}

/// Returns whether an admitted AppWrapper may be preempted: it is not being removed, and is not
/// complete.
fn is_preemptible(wrapper: &AppWrapper) -> bool {
    let busy = matches!(wrapper.state(), Some(AppWrapperState::Pending | AppWrapperState::Running));
    busy && !wrapper.metadata.is_terminating() && state::removal_outcome(wrapper).is_none()
}
