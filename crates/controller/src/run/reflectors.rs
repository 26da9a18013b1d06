//! Starts the reflectors of a manager.

use std::sync::Arc;

use gantry_process::clock::Clock;
use gantry_process::tasks::{OnLoss, Tasks};
use gantry_reconcile::StoreId;
use kube::Client;

use super::ManagerHandle;
use crate::cache::{Filter, Reflector, ReflectorTimeouts};
use crate::metrics::ControllerMetrics;
use crate::rate::RateLimiter;
use crate::retry;

/// Keeps stores in sync with the server.
pub(super) struct Reflectors {
    pub(super) reader: Client,
    pub(super) limiter: Arc<RateLimiter>,
    pub(super) clock: Clock,
    pub(super) timeouts: ReflectorTimeouts,
    pub(super) metrics: ControllerMetrics,
    pub(super) handle: ManagerHandle,
    pub(super) jitter: fastrand::Rng,
}

impl Reflectors {
    /// Starts the reflector of one store.
    pub(super) fn start(&mut self, place: &StoreId, filter: Filter, caches: &mut Tasks) {
        let resource = place.resource();
        // The name of a reflector with a filter contains the filter, so that logs and metrics tell
        // them apart.
        let name =
            match (self.handle.world().stores_for_resource(resource).len(), filter.describe()) {
                (..=1, _) => resource.to_string(),
                (_, words) if words.is_empty() => resource.to_string(),
                (_, words) => format!("{resource} ({words})"),
            };
        let reflector = Reflector {
            client: self.reader.clone(),
            store_id: place.clone(),
            name: name.clone(),
            filter,
            subscribers: Arc::clone(self.handle.subscribers()),
            limiter: Arc::clone(&self.limiter),
            clock: self.clock.clone(),
            timeouts: self.timeouts,
            metrics: self.metrics.clone(),
            backoff: retry::backoff_between(retry::WATCH_RETRY_DELAYS),
            last_error: self.handle.last_error(place),
        };
        let jitter = self.jitter.fork();
        let task = format!("cache {name}");
        caches.spawn(task, OnLoss::EndOwner, move |stop| reflector.run(jitter, stop));
    }
}
