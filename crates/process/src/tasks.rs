//! Tasks with an owner: each is named, cancelled, joined, and its failure is handled.
//!
//! A panic in one controller must not end the others, and a panic in the store must end everything.
//! Which of the two applies is a property of the task, so it is stated where the task is started.

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

/// The error that a task fails with. The owner logs it and does not inspect it.
pub type TaskError = Box<dyn std::error::Error + Send + Sync>;

/// Owns tasks and threads until each of them has been joined. They are started inside a runtime.
///
/// Dropping it cancels the token, aborts the tasks and detaches the threads, which end when they
/// next check the token. Poll [`Tasks::join`] for as long as tasks are added: joining is also what
/// frees the record of a finished task.
#[derive(Debug)]
pub struct Tasks {
    clock: Clock,
    counters: TaskMetrics,
    jitter: fastrand::Rng,
    stop: CancellationToken,
    running: JoinSet<Result<(), TaskFailure>>,
    names: BTreeMap<Id, Arc<str>>,
}

/// What losing a task means to its owner. A lost task is always counted and logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLoss {
    /// The owner cannot continue: its token is cancelled at once and [`Tasks::join`] reports the
    /// loss.
    EndOwner,
    /// The owner continues: the work was worth one attempt, such as one connection of many.
    CarryOn,
}

/// Why a task was lost.
#[derive(Debug, thiserror::Error)]
pub enum TaskFailure {
    /// It panicked.
    #[error("panicked: {message}")]
    Panicked {
        /// The message of the panic.
        message: String,
    },
    /// It returned an error.
    #[error("returned an error")]
    Failed(#[source] TaskError),
}

/// An essential task that was lost.
#[derive(Debug, thiserror::Error)]
#[error("lost task {task}")]
pub struct LostTask {
    /// The name it was started under.
    pub task: Arc<str>,
    /// Why it was lost.
    #[source]
    pub cause: TaskFailure,
}

impl Tasks {
    /// An owner whose tasks stop with `stop`, or earlier when an essential one is lost.
    ///
    /// The jitter is an argument so that a simulation with one seed is reproducible.
    #[must_use]
    pub fn new(
        clock: Clock,
        counters: TaskMetrics,
        jitter: fastrand::Rng,
        stop: &CancellationToken,
    ) -> Self {
        let (stop, running, names) = (stop.child_token(), JoinSet::new(), BTreeMap::new());
        Self { clock, counters, jitter, stop, running, names }
    }

    /// A separate owner for the parts of one task; it stops with this one, and its losses are
    /// reported to the caller that joins it.
    #[must_use]
    pub fn child(&mut self) -> Self {
        Self::new(self.clock.clone(), self.counters.clone(), self.jitter.fork(), &self.stop)
    }

    /// The token that stops these tasks when it is cancelled.
    #[must_use]
    pub fn token(&self) -> &CancellationToken {
        &self.stop
    }

    /// The clock of the tasks.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Starts a task that cannot be restarted, for example because it owns a socket.
    ///
    /// It is given the token and must end soon after that is cancelled. Returning `Ok` before that
    /// means its work is done, which is not a loss.
    pub fn spawn<Run>(
        &mut self,
        name: impl Into<Arc<str>>,
        on_loss: OnLoss,
        work: impl FnOnce(CancellationToken) -> Run + Send + 'static,
    ) where
        Run: Future<Output = Result<(), TaskError>> + Send + 'static,
    {
        let post = self.supervisor(name);
        let stop = self.stop.clone();
        self.track(Arc::clone(&post.name), async move {
            // The closure is called inside the task, so that its panic is the task's.
            let end = post.attempt(async move { work(stop).await }).await;
            post.finish(on_loss, end)
        });
    }

    /// Starts a task that is restarted, after a delay, whenever it panics or fails. It is therefore
    /// never lost; it is done when it returns `Ok` or when it fails after the token was cancelled.
    pub fn spawn_restarting<Run>(
        &mut self,
        name: impl Into<Arc<str>>,
        backoff: Backoff,
        work: impl Fn(CancellationToken) -> Run + Send + Sync + 'static,
    ) where
        Run: Future<Output = Result<(), TaskError>> + Send + 'static,
    {
        let post = self.supervisor(name);
        let mut jitter = self.jitter.fork();
        self.track(Arc::clone(&post.name), async move {
            let work = Arc::new(work);
            let mut failures = 0_u32;
            loop {
                let (begun, work, stop) =
                    (post.clock.moment(), Arc::clone(&work), post.stop.clone());
                let Err(failure) = post.attempt(async move { work(stop).await }).await else {
                    return Ok(());
                };
                if backoff.should_reset(post.clock.moment() - begun) {
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
    /// A runtime's shared blocking threads are for short calls: a loop there would occupy one
    /// forever, and without a name. The work must check the token between steps.
    ///
    /// # Errors
    /// The system refused another thread.
    pub fn spawn_thread(
        &mut self,
        name: impl Into<Arc<str>>,
        work: impl FnOnce(CancellationToken) -> Result<(), TaskError> + Send + 'static,
    ) -> io::Result<()> {
        let post = self.supervisor(name);
        let stop = self.stop.clone();
        let (alive, ended) = oneshot::channel::<Infallible>();
        let thread = thread::Builder::new().name(post.name.to_string()).spawn(move || {
            // Dropped on return and on panic alike: that is the signal of its end.
            let _alive = alive;
            work(stop)
        })?;
        self.track(Arc::clone(&post.name), async move {
            let running = post.counters.task_started(&post.name);
            let _ = ended.await;
            // Does not block: the thread has left the work.
            let end = match thread.join() {
                Ok(end) => end.map_err(TaskFailure::Failed),
                Err(payload) => Err(TaskFailure::from_panic(&*payload)),
            };
            running.ended(&end);
            post.finish(OnLoss::EndOwner, end)
        });
        Ok(())
    }

    /// Waits until every task has ended, or an essential one is lost.
    ///
    /// After a loss the token is cancelled and the remaining tasks are stopping; call again to join
    /// them. The future is cancel-safe.
    ///
    /// # Errors
    /// Which task was lost, and why.
    pub async fn join(&mut self) -> Result<(), LostTask> {
        while let Some(ended) = self.running.join_next_with_id().await {
            let (id, end) = match ended {
                Ok(ended) => ended,
                Err(error) => (error.id(), TaskFailure::from_join(error)),
            };
            let name = self.names.remove(&id);
            if let Err(cause) = end {
                let task = name.unwrap_or_else(|| Arc::from("unnamed"));
                return Err(LostTask { task, cause });
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

    fn supervisor(&self, name: impl Into<Arc<str>>) -> TaskSupervisor {
        TaskSupervisor {
            name: name.into(),
            clock: self.clock.clone(),
            counters: self.counters.clone(),
            stop: self.stop.clone(),
        }
    }

    fn track(
        &mut self,
        name: Arc<str>,
        supervisor: impl Future<Output = Result<(), TaskFailure>> + Send + 'static,
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

/// What the supervisor of one task needs.
struct TaskSupervisor {
    name: Arc<str>,
    clock: Clock,
    counters: TaskMetrics,
    stop: CancellationToken,
}

impl TaskSupervisor {
    /// Runs once, in a task of its own so that a panic ends in the join. Aborted when dropped.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that spawns tasks")]
    async fn attempt(
        &self,
        run: impl Future<Output = Result<(), TaskError>> + Send + 'static,
    ) -> Result<(), TaskFailure> {
        let running = self.counters.task_started(&self.name);
        let end = match AbortOnDropHandle::new(tokio::spawn(run)).await {
            Ok(end) => end.map_err(TaskFailure::Failed),
            Err(error) => TaskFailure::from_join(error),
        };
        running.ended(&end);
        end
    }

    fn finish(&self, on_loss: OnLoss, end: Result<(), TaskFailure>) -> Result<(), TaskFailure> {
        let Err(failure) = end else { return Ok(()) };
        let (task, error) = (&*self.name, &failure as &dyn std::error::Error);
        match on_loss {
            OnLoss::EndOwner => {
                tracing::error!(task, error, "lost an essential task, stopping");
                self.stop.cancel();
                Err(failure)
            }
            OnLoss::CarryOn => {
                tracing::warn!(task, error, "lost a task, continuing");
                Ok(())
            }
        }
    }

    /// Waits for the restart delay. Returns whether the task is to be restarted.
    async fn wait_to_restart(&self, wait: Duration, failure: &TaskFailure) -> bool {
        self.log_restart(wait, failure);
        let again = tokio::select! {
            biased;
            // Either is cancel-safe: both only wait.
            () = self.stop.cancelled() => false,
            () = self.clock.sleep(wait) => true,
        };
        if again {
            let label = TaskLabel { task: self.name.to_string() };
            self.counters.restarts.get_or_create(&label).inc();
        }
        again
    }

    fn log_restart(&self, wait: Duration, failure: &TaskFailure) {
        let (task, error) = (&*self.name, failure as &dyn std::error::Error);
        if self.stop.is_cancelled() {
            tracing::warn!(task, error, "task failed while stopping");
        } else {
            tracing::warn!(task, error, wait = ?wait, "task failed, restarting it");
        }
    }
}

impl TaskFailure {
    fn from_join(error: JoinError) -> Result<(), Self> {
        match error.try_into_panic() {
            Ok(payload) => Err(Self::from_panic(&*payload)),
            // Only the end of the runtime aborts a task, and that is not a failure of the task.
            Err(_aborted) => Ok(()),
        }
    }

    fn from_panic(payload: &(dyn Any + Send)) -> Self {
        let words = payload.downcast_ref::<&str>().copied();
        let words = words.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        Self::Panicked { message: words.unwrap_or("without words").to_owned() }
    }
}

/// Counts how tasks run and end. Register once per process and give every owner a clone.
#[derive(Clone, Debug)]
pub struct TaskMetrics {
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

impl TaskMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// They are already registered.
    pub fn register(metrics: &Metrics) -> Result<Self, RegisterError> {
        Ok(Self {
            running: metrics.gauges("tasks_running", "Tasks that are running, by name")?,
            ends: metrics.counters("task_ends", "Tasks that ended, by name and result")?,
            restarts: metrics.counters("task_restarts", "Restarts of tasks, by name")?,
        })
    }

    fn task_started(&self, name: &str) -> RunningGuard<'_> {
        let gauge = self.running.get_or_create_owned(&TaskLabel { task: name.to_owned() });
        gauge.inc();
        RunningGuard { counters: self, name: name.to_owned(), gauge }
    }
}

/// One task in the gauge; removed when dropped, so that an aborted task does not stay in it.
struct RunningGuard<'counters> {
    counters: &'counters TaskMetrics,
    name: String,
    gauge: Gauge,
}

impl RunningGuard<'_> {
    fn ended(self, end: &Result<(), TaskFailure>) {
        let how = match end {
            Ok(()) => "finished",
            Err(TaskFailure::Failed(_)) => "failed",
            Err(TaskFailure::Panicked { .. }) => "panicked",
        };
        self.counters.ends.get_or_create(&EndLabels { task: self.name.clone(), how }).inc();
    }
}

impl Drop for RunningGuard<'_> {
    fn drop(&mut self) {
        self.gauge.dec();
    }
}

#[cfg(test)]
mod tests;
