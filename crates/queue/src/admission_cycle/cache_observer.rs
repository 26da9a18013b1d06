//! Keeps the cache of the queue up to date with the cluster.

use std::sync::Mutex;
use std::sync::atomic::Ordering;

use gantry_pods::view::{Node, Pod};
use gantry_reconcile::{Change, Kind, Observer, World};

use super::{CycleDue, lock_cache};
use crate::app_wrapper::AppWrapper;
use crate::claims;
use crate::queue_cache::QueueCache;
use crate::quota::Subtree;
use crate::settings::{LiveSettings, Settings};

/// Keeps the cache of the queue up to date.
#[derive(Clone, Debug)]
pub(super) struct CacheObserver(pub(super) LiveSettings);

impl CacheObserver {
    pub(super) fn kinds_by(settings: &LiveSettings) -> Vec<Kind> {
        let Settings { quota, devices, .. } = settings.get();
        let quota = quota.then(Kind::of::<Subtree>);
        let others = [Kind::of::<AppWrapper>(), Kind::of::<Pod>(), Kind::of::<Node>()];
        let devices = devices.then(claims::kinds).into_iter().flatten();
        others.into_iter().chain(quota).chain(devices).collect()
    }
}

impl Observer for CacheObserver {
    fn name(&self) -> &'static str {
        "queue-cache"
    }

    fn kinds(&self) -> Vec<Kind> {
        Self::kinds_by(&self.0)
    }

    fn observe(&self, world: &World, change: &Change) {
        let kept = world.derived::<Mutex<QueueCache>>();
        let mut cache = lock_cache(&kept);
        let settings = self.0.get();
        if cache.rebuild_if_changed(world, &settings) || cache.observe(world, change, &settings) {
            world.derived::<CycleDue>().0.store(true, Ordering::Release);
        }
    }
}
