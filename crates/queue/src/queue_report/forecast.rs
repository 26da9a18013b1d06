//! Forecasts when capacity becomes free because others reach their deadlines.

use std::sync::Arc;

use gantry_reconcile::World;
use jiff::Timestamp;

use super::{ExpectedEvent, ExpectedTime, QueueRow, WaitReason, is_running};
use crate::amounts::Amounts;
use crate::app_wrapper::AppWrapper;
use crate::deadline;
use crate::listing::PendingAppWrapper;
use crate::order::SchedulingClass;
use crate::queue_cache::QueueCache;
use crate::settings::Settings;

/// How many pending AppWrappers get a forecast. Behind more of them nothing is known anyway.
const MAX_FORECASTS: usize = 64;

/// Adds forecasts to the first AppWrappers that wait for capacity.
///
/// Where quota or preemption decide, capacity is freed by others than those that end; where pods
/// are placed on nodes, sums are not enough. Then there is no forecast, nor from the first
/// AppWrapper on that claims devices.
pub(super) fn add_forecasts(
    rows: &mut [QueueRow],
    order: &[PendingAppWrapper],
    world: &World,
    settings: &Settings,
    now: Timestamp,
) {
    if settings.quota || settings.preempts() || settings.packs() {
        return;
    }
    let cache = QueueCache::of(world, settings);
    let store = world.store::<AppWrapper>();
    let ending = ending(&store.list(), now);
    if ending.is_empty() {
        return;
    }
    let mut ahead = Amounts::default();
    for (row, entry) in rows.iter_mut().zip(order).take(MAX_FORECASTS) {
        let Some(wrapper) = store.get(&entry.key) else { continue };
        if settings.devices && wrapper.claims_devices() {
            return;
        }
        let class = SchedulingClass::of(&wrapper, settings, cache.pending.trees());
        ahead.add(&class.demand);
        let lacks =
            row.waits_for.as_ref().is_some_and(|it| matches!(it.reason, WaitReason::Resources));
        if lacks && row.expected.is_none() {
            let at = fits_at(&cache, &class, &ahead, &ending, settings);
            row.expected =
                at.map(|at| ExpectedTime { what: ExpectedEvent::StartsAfterDeadlines, at });
        }
    }
}

/// Returns the AppWrappers with a deadline, by time.
fn ending(wrappers: &[Arc<AppWrapper>], now: Timestamp) -> Vec<(Timestamp, Arc<AppWrapper>)> {
    let running = wrappers.iter().filter(|it| is_running(it));
    let ending = running.filter_map(|it| Some((deadline::at(it)?.max(now), Arc::clone(it))));
    let mut ending: Vec<_> = ending.collect();
    ending.sort_by_cached_key(|(at, wrapper)| (*at, wrapper.metadata.key()));
    ending
}

/// Returns when everything that was requested before and with one of a class fits.
fn fits_at(
    cache: &QueueCache,
    class: &SchedulingClass,
    wanted: &Amounts,
    ending: &[(Timestamp, Arc<AppWrapper>)],
    settings: &Settings,
) -> Option<Timestamp> {
    if !class.node_labels.is_empty() {
        // What the others use is known by taints, and not by labels.
        return None;
    }
    let QueueCache { capacity, holdings, .. } = cache;
    let free = capacity.free(&class.reach, &class.node_labels);
    let mut room = holdings.adjustment_for(None, &class.reach, capacity).available(&free);
    for (at, wrapper) in ending {
        let none = Default::default();
        let usage = capacity.usage(&wrapper.metadata.key()).unwrap_or(&none);
        let demand = wrapper.demand();
        room.add(&demand.for_inference(settings.inference).saturating_sub(&usage.used));
        for (barrier, amounts) in &usage.by_group {
            if capacity.is_tolerated(barrier, &class.reach) {
                room.add(amounts);
            }
        }
        if wanted.fits_in(&room) {
            return Some(*at);
        }
    }
    None
}
