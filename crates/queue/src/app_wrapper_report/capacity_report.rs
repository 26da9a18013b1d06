//! Reports the capacity for a pending AppWrapper, and which AppWrappers use the rest.

use std::collections::BTreeMap;

use gantry_pods::Requests;
use gantry_pods::view::Node;
use gantry_reconcile::World;
use serde::Serialize;

use super::format_amounts;
use crate::amounts::{Amounts, InsufficientResource, OtherResources};
use crate::app_wrapper::AppWrapper;
use crate::order::SchedulingClass;
use crate::queue_cache::QueueCache;
use crate::settings::{Inference, Settings};

/// The capacity for a pending AppWrapper.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CapacityReport {
    /// What all nodes have, whether they accept its pods or not.
    pub total: BTreeMap<String, String>,
    /// What is free on nodes that accept its pods.
    pub free: BTreeMap<String, String>,
    /// The part of that which others have reserved and do not use yet.
    pub reserved: BTreeMap<String, String>,
    /// The AppWrappers that reserved it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reserved_by: Vec<CapacityShare>,
    /// What AppWrappers of lower priority use, where that counts as free.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub reclaimable: BTreeMap<String, String>,
    /// The AppWrappers that use it: the scheduler evicts their pods when it must.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reclaimable_from: Vec<CapacityShare>,
    /// What is available to it.
    pub available: BTreeMap<String, String>,
    /// What is missing, if it were alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lacking: Vec<String>,
    /// Whether all nodes together have too little for it.
    pub exceeds_cluster: bool,
}

/// What an AppWrapper has of something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CapacityShare {
    /// The AppWrapper: namespace and name.
    pub who: String,
    /// The amounts.
    pub amounts: BTreeMap<String, String>,
}

/// Returns the capacity for a pending AppWrapper, beside all that was given to others before.
pub(super) fn of(world: &World, wrapper: &AppWrapper, settings: &Settings) -> CapacityReport {
    let cache = QueueCache::of(world, settings);
    let QueueCache { capacity, holdings, .. } = &cache;
    let class = SchedulingClass::of(wrapper, settings, cache.pending.trees());
    let target = settings.preempts().then_some(wrapper.spec.priority);
    let free = capacity.free(&class.reach, &class.node_labels);
    let against = holdings.adjustment_for(target, &class.reach, capacity);
    let available = against.available(&free);
    let total = total(world, settings);
    let (mut reserved_by, mut reclaimable_from) = (Vec::new(), Vec::new());
    for other in world.store::<AppWrapper>().list() {
        let key = other.metadata.key();
        if key == wrapper.metadata.key() {
            continue;
        }
        let none = Default::default();
        let usage = capacity.usage(&key).unwrap_or(&none);
        let who = key.to_string();
        let gives_way = target.is_some_and(|target| other.spec.priority < target);
        if gives_way {
            let on = usage
                .by_group
                .iter()
                .filter(|(barrier, _)| capacity.is_tolerated(barrier, &class.reach));
            let taken = on.fold(Amounts::default(), |mut sum, (_, amounts)| {
                sum.add(amounts);
                sum
            });
            if !taken.is_zero() {
                reclaimable_from.push(CapacityShare { who, amounts: format_amounts(&taken) });
            }
        } else if other.status.can_run {
            let rest = other.demand().for_inference(settings.inference).saturating_sub(&usage.used);
            if !rest.is_zero() {
                reserved_by.push(CapacityShare { who, amounts: format_amounts(&rest) });
            }
        }
    }
    CapacityReport {
        free: format_amounts(&free),
        reserved: format_amounts(&against.reserved),
        reserved_by,
        reclaimable: format_amounts(&against.reclaimable),
        reclaimable_from,
        available: format_amounts(&available),
        lacking: class
            .demand
            .insufficient(&available)
            .iter()
            .map(InsufficientResource::to_string)
            .collect(),
        exceeds_cluster: !class.demand.fits_in(&total),
        total: format_amounts(&total),
    }
}

fn total(world: &World, settings: &Settings) -> Amounts {
    let rest = match settings.inference {
        Inference::Compat => OtherResources::Ignored,
        Inference::Full => OtherResources::Counted,
    };
    let mut total = Amounts::default();
    for node in world.store::<Node>().list() {
        total.add(&Amounts::of(&Requests::from_allocatable(&node.status.allocatable), rest));
    }
    total
}
