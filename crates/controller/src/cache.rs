//! Reflectors: one cache per kind for the whole process, kept in sync with the server.
//!
//! A kind is listed once, in pages, and watched from there. A watch that ends is restarted at the
//! revision it reached; only when that revision has expired is the kind listed again. Every failure
//! is retried with jittered backoff: a cache never gives up, and meanwhile it keeps its last state.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_process::error_chain;
use gantry_process::tasks::{Backoff, TaskError};
use gantry_reconcile::world::Unreadable;
use gantry_reconcile::{ApiPath, InvalidPath, Key, Parameter, Revision, StoreId};
use http::StatusCode;
use kube::Client;
use prometheus_client::metrics::gauge::Gauge;
use tokio_util::sync::CancellationToken;

use crate::api_request::NoResponse;
use crate::metrics::ControllerMetrics;
use crate::rate::RateLimiter;
use crate::subscribers::Subscribers;

mod lines;
mod list;
mod watch;

/// Selects the objects of a kind that are cached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// A label selector; empty for all.
    pub labels: String,
    /// A field selector; empty for all.
    pub fields: String,
    /// One namespace; empty for all.
    pub namespace: String,
}

impl Filter {
    /// A short description of the filter; empty for all objects.
    pub(crate) fn describe(&self) -> String {
        let Self { labels, fields, namespace } = self;
        let words = [labels, fields, namespace].into_iter().filter(|it| !it.is_empty());
        let words: Vec<&str> = words.map(String::as_str).collect();
        words.join(" ")
    }
}

/// Timeouts of lists and watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReflectorTimeouts {
    /// The timeout of one page of a list.
    pub page: Duration,
    /// The requested duration of a watch.
    pub watch: Duration,
    /// The longest silence of a watch. Servers send bookmarks about once a minute, and a restart
    /// costs nothing: a peer that is gone must not freeze the cache.
    pub watch_idle: Duration,
}

impl Default for ReflectorTimeouts {
    fn default() -> Self {
        Self {
            page: Duration::from_secs(60),
            watch: Duration::from_secs(290),
            watch_idle: Duration::from_secs(90),
        }
    }
}

/// Keeps one store in sync with the server.
pub(crate) struct Reflector {
    pub(crate) client: Client,
    pub(crate) store_id: StoreId,
    /// Its name in logs and metrics.
    pub(crate) name: String,
    pub(crate) filter: Filter,
    pub(crate) subscribers: Arc<Subscribers>,
    pub(crate) limiter: Arc<RateLimiter>,
    pub(crate) clock: Clock,
    pub(crate) timeouts: ReflectorTimeouts,
    pub(crate) metrics: ControllerMetrics,
    pub(crate) backoff: Backoff,
    pub(crate) last_error: LastError,
}

/// Why a cache is not up to date; absent when it is.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastError(Arc<Mutex<Option<String>>>);

impl LastError {
    fn set(&self, why: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    pub(crate) fn get(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Why a list or a watch failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListWatchError {
    /// The revision to continue from has expired.
    #[error("revision {0} has expired on the server")]
    Expired(Revision),
    /// The server refused.
    #[error("the server answered {code}: {message}")]
    Refused {
        /// The HTTP status.
        code: StatusCode,
        /// The server's message.
        message: String,
        /// The delay it asked for.
        retry_after: Option<Duration>,
    },
    /// The server did not respond, or not completely.
    #[error(transparent)]
    NoResponse(#[from] NoResponse),
    /// The connection broke.
    #[error("the connection broke")]
    Interrupted(#[source] Box<kube::Error>),
    /// No data arrived for too long.
    #[error("the watch was idle for {0:?}")]
    Idle(Duration),
    /// The response is neither a list nor a watch event.
    #[error("cannot decode the list or watch event")]
    Malformed(#[source] serde_json::Error),
    /// A line of a watch is longer than any object.
    #[error("cannot read a watch event of more than {0} bytes")]
    EventTooLong(usize),
    /// The watch ended as soon as it began.
    #[error("the watch ended at once")]
    EndedAtOnce,
    /// The path of the resource is invalid.
    #[error(transparent)]
    InvalidPath(#[from] InvalidPath),
}

impl ListWatchError {
    /// Whether this happens to every watch now and then.
    fn is_expected(&self) -> bool {
        match self {
            Self::Expired(_) | Self::EndedAtOnce | Self::Idle(_) => true,
            Self::Refused { .. }
            | Self::NoResponse(_)
            | Self::Interrupted(_)
            | Self::Malformed(_)
            | Self::EventTooLong(_)
            | Self::InvalidPath(_) => false,
        }
    }

    /// The delay the server asked for.
    fn retry_after(&self) -> Duration {
        if let Self::Refused { retry_after: Some(wait), .. } = self {
            *wait
        } else {
            Duration::ZERO
        }
    }
}

/// The state of a reflector between lists and watches.
struct ReflectorState {
    /// The revision to watch from; absent when the kind is to be listed.
    from: Option<Revision>,
    /// Whether the next list is to be unpaged, because the pages of the last one expired.
    unpaged: bool,
    /// Unreadable objects that were reported. Each is reported once.
    unreadable: BTreeSet<Key>,
    objects: Gauge,
}

impl ReflectorState {
    /// Updates the state for the next attempt after a failure.
    fn record_failure(&mut self, broken: &ListWatchError) {
        if let ListWatchError::Expired(_) = broken {
            self.unpaged = self.from.is_none();
            self.from = None;
        }
    }
}

/// How many reported unreadable objects are remembered. Beyond that they are counted and not
/// logged.
const MAX_REPORTED_UNREADABLE: usize = 1000;

/// A watch shorter than this that delivered nothing is a failure, or a server that ends every watch
/// at once would be asked without a delay.
const MIN_WATCH_DURATION: Duration = Duration::from_secs(1);

impl Reflector {
    /// Keeps the store in sync until `stop` is cancelled.
    pub(crate) async fn run(
        self,
        mut jitter: fastrand::Rng,
        stop: CancellationToken,
    ) -> Result<(), TaskError> {
        let objects = self.metrics.objects(&self.name);
        let unreadable = BTreeSet::new();
        let mut progress = ReflectorState { from: None, unpaged: false, unreadable, objects };
        let mut failures = 0_u32;
        loop {
            let began = self.clock.moment();
            let ended = tokio::select! {
                biased;
                // Either is cancel-safe: what was delivered is in the store, and the rest is not
                // needed.
                () = stop.cancelled() => return Ok(()),
                ended = self.list_or_watch(&mut progress, &mut jitter) => ended,
            };
            let wait = match ended {
                Ok(()) => {
                    self.last_error.set(None);
                    failures = 0;
                    continue;
                }
                Err(broken) => {
                    if self.clock.moment() - began
                        > MIN_WATCH_DURATION.max(self.timeouts.watch_idle / 2)
                    {
                        failures = 0;
                    }
                    progress.record_failure(&broken);
                    let wait = self.backoff.delay(failures, &mut jitter).max(broken.retry_after());
                    failures = failures.saturating_add(1);
                    self.report(&broken, wait);
                    wait
                }
            };
            tokio::select! {
                biased;
                // Either is cancel-safe: both only wait.
                () = stop.cancelled() => return Ok(()),
                () = self.clock.sleep(wait) => {}
            }
        }
    }

    /// A list, or a watch until it ends.
    async fn list_or_watch(
        &self,
        progress: &mut ReflectorState,
        jitter: &mut fastrand::Rng,
    ) -> Result<(), ListWatchError> {
        match progress.from {
            None => self.list(progress).await,
            Some(from) => self.watch(progress, from, jitter).await,
        }
    }

    fn report(&self, broken: &ListWatchError, wait: Duration) {
        let (kind, error) = (&self.name, error_chain(broken));
        self.metrics.list_watch_failed(kind);
        if broken.is_expected() {
            tracing::debug!(kind, error, wait = ?wait, "watch ended");
        } else {
            self.last_error.set(Some(error.clone()));
            tracing::warn!(kind, error, wait = ?wait, "could not list or watch a kind, retrying");
        }
    }

    /// Reports once that an object cannot be decoded into its view and is skipped.
    fn report_unreadable(&self, progress: &mut ReflectorState, unreadable: &Unreadable) {
        let kind = &self.name;
        self.metrics.unreadable(kind);
        let known = &mut progress.unreadable;
        if known.len() < MAX_REPORTED_UNREADABLE && known.insert(unreadable.key.clone()) {
            let (object, error) = (unreadable.key.to_string(), error_chain(unreadable));
            tracing::warn!(kind, object, error, "object cannot be decoded, skipping it");
        }
    }

    /// The path of the kind with these parameters and the filter.
    fn path(&self, parameters: &[Parameter<'_>]) -> Result<ApiPath, ListWatchError> {
        let Filter { labels, fields, namespace } = &self.filter;
        let mut path = self.store_id.resource().collection(namespace)?;
        for parameter in parameters {
            path = path.with(*parameter);
        }
        if !labels.is_empty() {
            path = path.with(Parameter::LabelSelector(labels));
        }
        if !fields.is_empty() {
            path = path.with(Parameter::FieldSelector(fields));
        }
        Ok(path)
    }
}

#[cfg(test)]
mod tests;
