//! One cache per kind for the whole process, kept as the server shows it.
//!
//! A kind is listed once, in pages, and watched from there. A watch that ends is begun again where it
//! stopped; only when the server no longer knows that place is the kind listed again. Whatever goes
//! wrong is waited out with jitter: a cache never gives up, and meanwhile it shows what it knew.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_process::error_chain;
use gantry_process::tasks::{Backoff, TaskError};
use gantry_reconcile::world::Unreadable;
use gantry_reconcile::{ApiPath, InvalidPath, Key, Parameter, Place, Revision};
use http::StatusCode;
use kube::Client;
use prometheus_client::metrics::gauge::Gauge;
use tokio_util::sync::CancellationToken;

use crate::ask::NoAnswer;
use crate::audience::Audience;
use crate::meters::Meters;
use crate::rate::Limiter;

mod lines;
mod list;
mod watch;

/// Which objects of a kind are wanted.
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
    /// Says in few words which objects are wanted; nothing for all of them.
    pub(crate) fn words(&self) -> String {
        let Self { labels, fields, namespace } = self;
        let words = [labels, fields, namespace].into_iter().filter(|it| !it.is_empty());
        let words: Vec<&str> = words.map(String::as_str).collect();
        words.join(" ")
    }
}

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long one page of a list may take.
    pub page: Duration,
    /// How long a watch is asked to last.
    pub watch: Duration,
    /// How long a watch may be silent. Servers show about once a minute how far they have come, and
    /// beginning again costs nothing: a peer that is gone must not freeze the cache.
    pub silence: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            page: Duration::from_secs(60),
            watch: Duration::from_secs(290),
            silence: Duration::from_secs(90),
        }
    }
}

/// Keeps one shelf as the server shows it.
pub(crate) struct Reflector {
    pub(crate) client: Client,
    pub(crate) place: Place,
    /// What logs and metrics call it.
    pub(crate) name: String,
    pub(crate) filter: Filter,
    pub(crate) audience: Arc<Audience>,
    pub(crate) limiter: Arc<Limiter>,
    pub(crate) clock: Clock,
    pub(crate) timing: Timing,
    pub(crate) meters: Meters,
    pub(crate) backoff: Backoff,
    pub(crate) trouble: Trouble,
}

/// Why a cache is not as new as it could be; nothing when it is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trouble(Arc<Mutex<Option<String>>>);

impl Trouble {
    fn set(&self, why: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    pub(crate) fn get(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Why a list or a watch ended before its time.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    /// The server no longer knows the place to go on from.
    #[error("the server no longer knows revision {0}")]
    Expired(Revision),
    /// The server said no.
    #[error("the server answered {code}: {message}")]
    Refused {
        /// The HTTP status.
        code: StatusCode,
        /// The server's words.
        message: String,
        /// The wait it asked for.
        wait: Option<Duration>,
    },
    /// The server did not answer, or not to the end.
    #[error(transparent)]
    NoAnswer(#[from] NoAnswer),
    /// The connection broke.
    #[error("could not go on reading")]
    Interrupted(#[source] Box<kube::Error>),
    /// Nothing was heard for too long.
    #[error("nothing was heard for {0:?}")]
    Silent(Duration),
    /// What came was no list and no event.
    #[error("cannot understand what the server says")]
    Garbled(#[source] serde_json::Error),
    /// A line of a watch was longer than any object.
    #[error("cannot read an event of more than {0} bytes")]
    TooLong(usize),
    /// The watch was over as soon as it began.
    #[error("the watch ended at once")]
    Short,
    /// The kind cannot be addressed.
    #[error(transparent)]
    Unaddressable(#[from] InvalidPath),
}

impl Broken {
    /// Whether this happens to every watch now and then.
    fn is_usual(&self) -> bool {
        match self {
            Self::Expired(_) | Self::Short | Self::Silent(_) => true,
            Self::Refused { .. }
            | Self::NoAnswer(_)
            | Self::Interrupted(_)
            | Self::Garbled(_)
            | Self::TooLong(_)
            | Self::Unaddressable(_) => false,
        }
    }

    /// The wait the server asked for.
    fn wait(&self) -> Duration {
        if let Self::Refused { wait: Some(wait), .. } = self { *wait } else { Duration::ZERO }
    }
}

/// What a cache remembers between lists and watches.
struct Progress {
    /// Where to go on watching; nothing when the kind is to be listed.
    from: Option<Revision>,
    /// Whether the next list is to be in one piece, because the pages of the last did not hold.
    whole: bool,
    /// Objects that could not be read and were reported. Each is reported once.
    unreadable: BTreeSet<Key>,
    objects: Gauge,
}

impl Progress {
    /// What follows from a failure for the next attempt.
    fn settle(&mut self, broken: &Broken) {
        if let Broken::Expired(_) = broken {
            self.whole = self.from.is_none();
            self.from = None;
        }
    }
}

/// How many unreadable objects are remembered. Beyond that they are counted and not named.
const REPORTED: usize = 1000;

/// A watch shorter than this that showed nothing is a failure, or a server that ends every watch at
/// once would be asked without a pause.
const SHORTEST: Duration = Duration::from_secs(1);

impl Reflector {
    /// Keeps the shelf until told to stop.
    pub(crate) async fn run(
        self,
        mut jitter: fastrand::Rng,
        stop: CancellationToken,
    ) -> Result<(), TaskError> {
        let objects = self.meters.objects(&self.name);
        let unreadable = BTreeSet::new();
        let mut progress = Progress { from: None, whole: false, unreadable, objects };
        let mut failures = 0_u32;
        loop {
            let began = self.clock.moment();
            let ended = tokio::select! {
                biased;
                // Either may be dropped: what was shown is on the shelf, and nobody needs the rest.
                () = stop.cancelled() => return Ok(()),
                ended = self.round(&mut progress, &mut jitter) => ended,
            };
            let wait = match ended {
                Ok(()) => {
                    self.trouble.set(None);
                    failures = 0;
                    continue;
                }
                Err(broken) => {
                    if self.clock.moment() - began > SHORTEST.max(self.timing.silence / 2) {
                        failures = 0;
                    }
                    progress.settle(&broken);
                    let wait = self.backoff.delay(failures, &mut jitter).max(broken.wait());
                    failures = failures.saturating_add(1);
                    self.report(&broken, wait);
                    wait
                }
            };
            tokio::select! {
                biased;
                // Either may be dropped: both only wait.
                () = stop.cancelled() => return Ok(()),
                () = self.clock.sleep(wait) => {}
            }
        }
    }

    /// A list, or a watch to its end.
    async fn round(
        &self,
        progress: &mut Progress,
        jitter: &mut fastrand::Rng,
    ) -> Result<(), Broken> {
        match progress.from {
            None => self.list(progress).await,
            Some(from) => self.watch(progress, from, jitter).await,
        }
    }

    fn report(&self, broken: &Broken, wait: Duration) {
        let (kind, error) = (&self.name, error_chain(broken));
        self.meters.broke(kind);
        if broken.is_usual() {
            tracing::debug!(kind, error, wait = ?wait, "watch ended");
        } else {
            self.trouble.set(Some(error.clone()));
            tracing::warn!(kind, error, wait = ?wait, "could not follow a kind, trying again");
        }
    }

    /// An object that does not fit its view is left out, and said so once.
    fn leave_out(&self, progress: &mut Progress, unreadable: &Unreadable) {
        let kind = &self.name;
        self.meters.unreadable(kind);
        let known = &mut progress.unreadable;
        if known.len() < REPORTED && known.insert(unreadable.key.clone()) {
            let (object, error) = (unreadable.key.to_string(), error_chain(unreadable));
            tracing::warn!(kind, object, error, "object cannot be read and is left out");
        }
    }

    /// The path of the kind with these parameters and the filter.
    fn path(&self, parameters: &[Parameter<'_>]) -> Result<ApiPath, Broken> {
        let Filter { labels, fields, namespace } = &self.filter;
        let mut path = self.place.resource().collection(namespace)?;
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
