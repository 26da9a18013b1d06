//! When there will be room because others have run for as long as they may.

use std::sync::Arc;

use gantry_reconcile::World;
use jiff::Timestamp;

use super::{Expected, Happens, Reason, Row, runs};
use crate::amounts::Amounts;
use crate::app_wrapper::AppWrapper;
use crate::books::Books;
use crate::deadline;
use crate::listing::Entry;
use crate::order::Class;
use crate::settings::Settings;

/// For how many of those that wait it is foretold. Behind more of them nothing is known anyway.
const FORESEEN: usize = 64;

/// Adds what can be foretold to the first of those that wait for room.
///
/// Where quota or preemption decide, others than those that end make room; where pods are placed one by
/// one, sums do not tell. Nothing is foretold then, nor from the first on that claims devices.
pub(super) fn add(
    rows: &mut [Row],
    order: &[Entry],
    world: &World,
    settings: &Settings,
    now: Timestamp,
) {
    if settings.quota || settings.preempts() || settings.packs() {
        return;
    }
    let books = Books::of(world, settings);
    let shelf = world.shelf::<AppWrapper>();
    let ending = ending(&shelf.all(), now);
    if ending.is_empty() {
        return;
    }
    let mut ahead = Amounts::default();
    for (row, entry) in rows.iter_mut().zip(order).take(FORESEEN) {
        let Some(wrapper) = shelf.get(&entry.key) else { continue };
        if settings.devices && wrapper.claims_devices() {
            return;
        }
        let class = Class::of(&wrapper, settings, books.lines.trees());
        ahead.add(&class.demand);
        let lacks = row.waits_for.as_ref().is_some_and(|it| matches!(it.reason, Reason::Resources));
        if lacks && row.expected.is_none() {
            let at = room_at(&books, &class, &ahead, &ending, settings);
            row.expected = at.map(|at| Expected { what: Happens::StartsAfterDeadlines, at });
        }
    }
}

/// Those that must end, by when that is.
fn ending(wrappers: &[Arc<AppWrapper>], now: Timestamp) -> Vec<(Timestamp, Arc<AppWrapper>)> {
    let running = wrappers.iter().filter(|it| runs(it));
    let ending = running.filter_map(|it| Some((deadline::at(it)?.max(now), Arc::clone(it))));
    let mut ending: Vec<_> = ending.collect();
    ending.sort_by_cached_key(|(at, wrapper)| (*at, wrapper.metadata.key()));
    ending
}

/// When all that was wanted before and with one of a class fits.
fn room_at(
    books: &Books,
    class: &Class,
    wanted: &Amounts,
    ending: &[(Timestamp, Arc<AppWrapper>)],
    settings: &Settings,
) -> Option<Timestamp> {
    if !class.node_labels.is_empty() {
        // What the others take is known by taints, and not by labels.
        return None;
    }
    let Books { capacity, holdings, .. } = books;
    let free = capacity.free(&class.reach, &class.node_labels);
    let mut room = holdings.against(None, &class.reach, capacity).available(&free);
    for (at, wrapper) in ending {
        let none = Default::default();
        let usage = capacity.usage(&wrapper.metadata.key()).unwrap_or(&none);
        let demand = wrapper.demand();
        room.add(&demand.by(settings.inference).without(&usage.used));
        for (barrier, amounts) in &usage.on {
            if capacity.lets(barrier, &class.reach) {
                room.add(amounts);
            }
        }
        if wanted.fit(&room) {
            return Some(*at);
        }
    }
    None
}
