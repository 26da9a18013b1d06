//! Tasks with an owner: each is named, told to stop, joined, and answered for when it breaks.
//!
//! A panic in one controller must not end the others, and a panic in the store must end everything.
//! Which of the two it is belongs to the task, so it is said where the task is started.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use std::{any::Any, convert::Infallible, io, thread};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::{counter::Counter, family::Family, gauge::Gauge};
use tokio::sync::oneshot;
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::clock::Clock;
use crate::metrics::{Metrics, RegisterError};

mod backoff;

pub use backoff::Backoff;

/// What a task gives up with. The owner logs it whole and does not look inside.
pub type TaskError = Box<dyn std::error::Error + Send + Sync>;

/// Owns tasks and threads until each of them has been joined. They are started inside a runtime.
///
/// Dropping it cancels the token, aborts the tasks and lets go of the threads, which end when they
/// next look at the token. Poll [`Tasks::join`] for as long as tasks are added: joining is also
/// what frees the record of a finished task.
#[derive(Debug)]
pub struct Tasks {
    clock: Clock,
    counters: Counters,
    jitter: fastrand::Rng,
    stop: CancellationToken,
    running: JoinSet<Result<(), Failure>>,
    names: BTreeMap<Id, Arc<str>>,
}

/// What losing a task means to its owner. A lost task is always counted and logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLoss {
    /// The owner cannot go on: its token is cancelled at once and [`Tasks::join`] reports the loss.
    EndOwner,
    /// The work was worth one attempt, such as one connection of many.
    CarryOn,
}

/// Why a task was lost.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// It hit a bug.
    #[error("panicked: {message}")]
    Panicked {
        /// The panic's own words.
        message: String,
    },
    /// It gave up by itself.
    #[error("returned an error")]
    Failed(#[source] TaskError),
}

/// A task the owner needed and no longer has.
#[derive(Debug, thiserror::Error)]
#[error("lost task {task}")]
pub struct Lost {
    /// The name it was started under.
    pub task: Arc<str>,
    /// How it went.
    #[source]
    pub cause: Failure,
}

impl Tasks {
    /// An owner whose tasks stop with `stop`, or earlier when one is lost that it needs.
    ///
    /// The jitter comes from outside so that a simulation with one seed repeats itself exactly.
    #[must_use]
    pub fn new(
        clock: Clock,
        counters: Counters,
        jitter: fastrand::Rng,
        stop: &CancellationToken,
    ) -> Self {
        let (stop, running, names) = (stop.child_token(), JoinSet::new(), BTreeMap::new());
        Self { clock, counters, jitter, stop, running, names }
    }

    /// An owner of its own for the parts of one task; it stops with this one, and its losses are
    /// reported to whoever joins it.
    #[must_use]
    pub fn child(&mut self) -> Self {
        Self::new(self.clock.clone(), self.counters.clone(), self.jitter.fork(), &self.stop)
    }

    /// Cancelled when these tasks shall stop. Cancelling it is how they are told.
    #[must_use]
    pub fn token(&self) -> &CancellationToken {
        &self.stop
    }

    /// The clock the tasks live by.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Starts a task that cannot begin twice, for example because it owns a socket.
    ///
    /// It is given the token and must end soon after it is cancelled. Returning `Ok` before that
    /// means its work is done, which is no loss.
    pub fn spawn<Run>(
        &mut self,
        name: impl Into<Arc<str>>,
        on_loss: OnLoss,
        work: impl FnOnce(CancellationToken) -> Run + Send + 'static,
    ) where
        Run: Future<Output = Result<(), TaskError>> + Send + 'static,
    {
        let post = self.post(name);
        let stop = self.stop.clone();
        self.adopt(Arc::clone(&post.name), async move {
            // The closure is called inside the task, so that its panic is the task's.
            let end = post.attempt(async move { work(stop).await }).await;
            post.answer(on_loss, end)
        });
    }

    /// Starts a task that is begun again, after a wait, whenever it panics or fails. It therefore
    /// is never lost; it is done when it returns `Ok` or when it breaks after the token was
    /// cancelled.
    pub fn spawn_restarting<Run>(
        &mut self,
        name: impl Into<Arc<str>>,
        backoff: Backoff,
        work: impl Fn(CancellationToken) -> Run + Send + Sync + 'static,
    ) where
        Run: Future<Output = Result<(), TaskError>> + Send + 'static,
    {
        let post = self.post(name);
        let mut jitter = self.jitter.fork();
        self.adopt(Arc::clone(&post.name), async move {
            let work = Arc::new(work);
            let mut failures = 0_u32;
            loop {
                let (begun, work, stop) =
                    (post.clock.moment(), Arc::clone(&work), post.stop.clone());
                let Err(failure) = post.attempt(async move { work(stop).await }).await else {
                    return Ok(());
                };
                if backoff.forgives(post.clock.moment() - begun) {
                    failures = 0;
                }
                let wait = backoff.delay(failures, &mut jitter);
                failures = failures.saturating_add(1);
                if !post.wait_to_restart(wait, &failure).await {
                    return Ok(());
                }
            }
        });
    }

    /// Starts blocking work on a thread of its own; losing it ends the owner.
    ///
    /// A runtime's shared blocking threads are for short calls: a loop there would hold one for
    /// good, and nobody could name it. The work must look at the token between steps.
    ///
    /// # Errors
    /// The system refused another thread.
    pub fn spawn_thread(
        &mut self,
        name: impl Into<Arc<str>>,
        work: impl FnOnce(CancellationToken) -> Result<(), TaskError> + Send + 'static,
    ) -> io::Result<()> {
        let post = self.post(name);
        let stop = self.stop.clone();
        let (alive, ended) = oneshot::channel::<Infallible>();
        let thread = thread::Builder::new().name(post.name.to_string()).spawn(move || {
            // Dropped on return and on panic alike: its end is the signal.
            let _alive = alive;
            work(stop)
        })?;
        self.adopt(Arc::clone(&post.name), async move {
            let running = post.counters.begun(&post.name);
            let _ = ended.await;
            // Does not block: the thread has left the work.
            let end = match thread.join() {
                Ok(end) => end.map_err(Failure::Failed),
                Err(payload) => Err(Failure::from_panic(&*payload)),
            };
            running.ended(&end);
            post.answer(OnLoss::EndOwner, end)
        });
        Ok(())
    }

    /// Waits until every task has ended, or one is lost that the owner needed.
    ///
    /// After a loss the token is cancelled and the remaining tasks are stopping; call again to
    /// join them. The future may be dropped at any time, nothing is forgotten.
    ///
    /// # Errors
    /// Which task was lost, and why.
    pub async fn join(&mut self) -> Result<(), Lost> {
        while let Some(ended) = self.running.join_next_with_id().await {
            let (id, end) = match ended {
                Ok(ended) => ended,
                Err(error) => (error.id(), Failure::from_join(error)),
            };
            let name = self.names.remove(&id);
            if let Err(cause) = end {
                let task = name.unwrap_or_else(|| Arc::from("unnamed"));
                return Err(Lost { task, cause });
            }
        }
        Ok(())
    }

    /// Whether there is nothing to join.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// The names of the tasks that have not been joined, sorted.
    #[must_use]
    pub fn names(&self) -> Vec<Arc<str>> {
        let mut names: Vec<_> = self.names.values().cloned().collect();
        names.sort_unstable();
        names
    }

    fn post(&self, name: impl Into<Arc<str>>) -> Post {
        Post {
            name: name.into(),
            clock: self.clock.clone(),
            counters: self.counters.clone(),
            stop: self.stop.clone(),
        }
    }

    fn adopt(
        &mut self,
        name: Arc<str>,
        supervisor: impl Future<Output = Result<(), Failure>> + Send + 'static,
    ) {
        let id = self.running.spawn(supervisor).id();
        self.names.insert(id, name);
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Where one task stands: what its supervisor needs to answer for it.
struct Post {
    name: Arc<str>,
    clock: Clock,
    counters: Counters,
    stop: CancellationToken,
}

impl Post {
    /// Runs once, in a task of its own so that a panic ends in the join. Aborted when dropped.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that spawns tasks")]
    async fn attempt(
        &self,
        run: impl Future<Output = Result<(), TaskError>> + Send + 'static,
    ) -> Result<(), Failure> {
        let running = self.counters.begun(&self.name);
        let end = match AbortOnDropHandle::new(tokio::spawn(run)).await {
            Ok(end) => end.map_err(Failure::Failed),
            Err(error) => Failure::from_join(error),
        };
        running.ended(&end);
        end
    }

    fn answer(&self, on_loss: OnLoss, end: Result<(), Failure>) -> Result<(), Failure> {
        let Err(failure) = end else { return Ok(()) };
        let (task, error) = (&*self.name, &failure as &dyn std::error::Error);
        match on_loss {
            OnLoss::EndOwner => {
                tracing::error!(task, error, "lost a task that cannot be spared, stopping");
                self.stop.cancel();
                Err(failure)
            }
            OnLoss::CarryOn => {
                tracing::warn!(task, error, "lost a task, carrying on");
                Ok(())
            }
        }
    }

    /// Whether the task shall begin again, answered when it is time.
    async fn wait_to_restart(&self, wait: Duration, failure: &Failure) -> bool {
        self.log_break(wait, failure);
        let again = tokio::select! {
            biased;
            // Either may be dropped: both only wait.
            () = self.stop.cancelled() => false,
            () = self.clock.sleep(wait) => true,
        };
        if again {
            let label = TaskLabel { task: self.name.to_string() };
            self.counters.restarts.get_or_create(&label).inc();
        }
        again
    }

    fn log_break(&self, wait: Duration, failure: &Failure) {
        let (task, error) = (&*self.name, failure as &dyn std::error::Error);
        if self.stop.is_cancelled() {
            tracing::warn!(task, error, "task broke while stopping");
        } else {
            tracing::warn!(task, error, wait = ?wait, "task broke, it will be restarted");
        }
    }
}

impl Failure {
    fn from_join(error: JoinError) -> Result<(), Self> {
        match error.try_into_panic() {
            Ok(payload) => Err(Self::from_panic(&*payload)),
            // Only the end of the runtime aborts a task, and that is no fault of the task.
            Err(_aborted) => Ok(()),
        }
    }

    fn from_panic(payload: &(dyn Any + Send)) -> Self {
        let words = payload.downcast_ref::<&str>().copied();
        let words = words.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        Self::Panicked { message: words.unwrap_or("without words").to_owned() }
    }
}

/// Counts how tasks fare. Register once per process and give every owner a clone.
#[derive(Clone, Debug)]
pub struct Counters {
    running: Family<TaskLabel, Gauge>,
    ends: Family<EndLabels, Counter>,
    restarts: Family<TaskLabel, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TaskLabel {
    task: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndLabels {
    task: String,
    how: &'static str,
}

impl Counters {
    /// Registers the counters.
    ///
    /// # Errors
    /// They were registered before.
    pub fn register(metrics: &Metrics) -> Result<Self, RegisterError> {
        Ok(Self {
            running: metrics.gauges("tasks_running", "Tasks that are running, by name")?,
            ends: metrics.counters("task_ends", "Tasks that ended, by name and how")?,
            restarts: metrics.counters("task_restarts", "Tasks that were begun again")?,
        })
    }

    fn begun(&self, name: &str) -> Running<'_> {
        let gauge = self.running.get_or_create_owned(&TaskLabel { task: name.to_owned() });
        gauge.inc();
        Running { counters: self, name: name.to_owned(), gauge }
    }
}

/// One task in the gauge; leaves it when dropped, so that an aborted task does not stay in it.
struct Running<'counters> {
    counters: &'counters Counters,
    name: String,
    gauge: Gauge,
}

impl Running<'_> {
    fn ended(self, end: &Result<(), Failure>) {
        let how = match end {
            Ok(()) => "finished",
            Err(Failure::Failed(_)) => "failed",
            Err(Failure::Panicked { .. }) => "panicked",
        };
        self.counters.ends.get_or_create(&EndLabels { task: self.name.clone(), how }).inc();
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.gauge.dec();
    }
}

#[cfg(test)]
mod tests;
