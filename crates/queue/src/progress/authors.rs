//! What the rights of its author mean to one AppWrapper.

use gantry_reconcile::{Change, Key, World};
use jiff::Timestamp;

use super::{ItemSeen, Standing, failure};
use crate::access::{self, KeptBack, Right};
use crate::app_wrapper::AppWrapper;
use crate::state;

/// Why the author of an AppWrapper may not have it, where that matters: it waits, or items of it are still
/// to be made and could be.
pub(super) fn kept_back(
    world: &World,
    wrapper: &AppWrapper,
    items: &[ItemSeen],
    now: Timestamp,
) -> Option<KeptBack> {
    if wrapper.is_queued() {
        return access::may_pass(world, wrapper, now).err();
    }
    let arrives = wrapper.is_pending() && state::leaving(wrapper).is_none();
    let whole = items.iter().all(|it| it.made.is_ok());
    let missing = items.iter().any(|it| it.standing != Standing::Ours);
    let asks = arrives && whole && missing;
    asks.then(|| access::may_create(world, wrapper, now).err()).flatten()
}

/// Why one that waits has failed, where its author may not have it. Nothing was given to it yet, so there is
/// nothing to take back.
pub(super) fn barred(wrapper: &AppWrapper, kept_back: Option<&KeptBack>) -> Option<String> {
    let denied = matches!(kept_back, Some(KeptBack::Denied { .. })) && wrapper.is_queued();
    kept_back.filter(|_| denied).map(|it| failure(wrapper, it))
}

/// Those whom a change of what is known about authors concerns.
pub(super) fn whose(world: &World, change: &Change) -> Vec<Key> {
    if !access::is_news(change) {
        return Vec::new();
    }
    let shelf = world.shelf::<AppWrapper>();
    let wrappers = match change.after::<Right>() {
        Some(right) => shelf.tagged(&AppWrapper::made_by(&right.author)),
        // Since when authors are recorded concerns everybody.
        None => shelf.all(),
    };
    let undecided = wrappers.iter().filter(|it| it.is_queued() || it.is_pending());
    let keys = undecided.map(|it| it.metadata.key());
    let about = change.after::<Right>().map(|_| change.key.namespace());
    keys.filter(|key| about.is_none_or(|it| it == key.namespace())).collect()
}
