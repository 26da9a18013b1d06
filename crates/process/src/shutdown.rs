//! Shutdown: a signal starts it, the tasks get a bounded time to finish, a second signal forces it.
//!
//! Nothing here ends the process. [`run`] returns a [`ShutdownResult`] that says what happened, and
//! the binary turns it into a message and an exit code.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use tokio::signal::unix::{self, SignalKind};
use tokio::sync::mpsc;

use crate::tasks::{LostTask, Tasks};

/// Runs `tasks` until they end, a signal arrives, their token is cancelled or an essential one is
/// lost; then cancels the token and joins them for at most `grace`.
///
/// Tasks that are still running when it returns are aborted by dropping `tasks`.
pub async fn run(tasks: &mut Tasks, signals: &mut Signals, grace: Duration) -> ShutdownResult {
    let stop = tasks.token().clone();
    let clock = tasks.clock().clone();
    let mut lost = Vec::new();
    let asked = tokio::select! {
        biased;
        // Each is cancel-safe: joining loses nothing, and the other two only wait.
        joined = tasks.join() => {
            lost.extend(joined.err());
            None
        }
        signal = signals.next() => Some(signal),
        () = stop.cancelled() => None,
    };
    if let Some(signal) = asked {
        let (signal, grace) = (signal.to_string(), format!("{grace:?}"));
        tracing::info!(signal, grace, "shutting down, a second signal ends it at once");
    }
    stop.cancel();
    let rest = tokio::select! {
        biased;
        // As above; the grace period is over for good when this ends.
        () = join_all(tasks, &mut lost) => RemainingTasks::Joined,
        signal = signals.next() => RemainingTasks::SecondSignal { signal, running: tasks.names() },
        () = clock.sleep(grace) => RemainingTasks::TimedOut { running: tasks.names() },
    };
    ShutdownResult { signal: asked, lost, remaining: rest }
}

async fn join_all(tasks: &mut Tasks, lost: &mut Vec<LostTask>) {
    while let Err(loss) = tasks.join().await {
        lost.push(loss);
    }
}

/// How a process was shut down.
#[derive(Debug)]
#[must_use = "the exit code depends on it"]
pub struct ShutdownResult {
    /// The signal that asked for it; none when the tasks ended or were cancelled by themselves.
    pub signal: Option<Signal>,
    /// The essential tasks that were lost, in the order it was noticed.
    pub lost: Vec<LostTask>,
    /// What happened to the other tasks.
    pub remaining: RemainingTasks,
}

impl ShutdownResult {
    /// Whether everything stopped in time and no essential task was lost.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.lost.is_empty() && matches!(self.remaining, RemainingTasks::Joined)
    }
}

/// What happened to the tasks that were asked to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemainingTasks {
    /// All of them ended.
    Joined,
    /// The grace period was not enough.
    TimedOut {
        /// The names of the tasks that were still running.
        running: Vec<Arc<str>>,
    },
    /// A second signal arrived first; the caller should end at once.
    SecondSignal {
        /// The second signal.
        signal: Signal,
        /// The names of the tasks that were still running.
        running: Vec<Arc<str>>,
    },
}

/// A signal that asks the process to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGINT, usually Ctrl-C.
    Interrupt,
    /// SIGTERM, from a service manager or a kubelet.
    Terminate,
}

impl fmt::Display for Signal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
        })
    }
}

/// The source of signals.
#[derive(Debug)]
pub struct Signals(Source);

#[derive(Debug)]
enum Source {
    System { interrupt: unix::Signal, terminate: unix::Signal },
    Script(mpsc::Receiver<Signal>),
}

impl Signals {
    /// Takes over SIGINT and SIGTERM. From here on they no longer end the process by themselves,
    /// not even after this is dropped, so the caller must wait in [`run`].
    ///
    /// # Errors
    /// The system refused the handlers.
    pub fn listen() -> Result<Self, ListenError> {
        let interrupt = unix::signal(SignalKind::interrupt()).map_err(ListenError)?;
        let terminate = unix::signal(SignalKind::terminate()).map_err(ListenError)?;
        Ok(Self(Source::System { interrupt, terminate }))
    }

    /// Signals sent by the caller, for tests and for processes that run inside another. Two may be
    /// queued: more than two have no meaning.
    #[must_use]
    pub fn script() -> (mpsc::Sender<Signal>, Self) {
        let (sender, receiver) = mpsc::channel(2);
        (sender, Self(Source::Script(receiver)))
    }

    /// The next signal. Dropping the future loses none.
    pub async fn next(&mut self) -> Signal {
        let received = match &mut self.0 {
            Source::System { interrupt, terminate } => tokio::select! {
                // Each is cancel-safe: an unread signal stays pending in its stream.
                got = interrupt.recv() => got.map(|()| Signal::Interrupt),
                got = terminate.recv() => got.map(|()| Signal::Terminate),
            },
            Source::Script(script) => script.recv().await,
        };
        match received {
            Some(signal) => signal,
            // No sender is left.
            None => pending().await,
        }
    }
}

/// The signal handlers could not be installed, so the process would miss a request to stop.
#[derive(Debug, thiserror::Error)]
#[error("could not listen for SIGINT and SIGTERM")]
pub struct ListenError(#[source] io::Error);

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::clock::FakeClock;
    use crate::metrics::{BuildInfo, Metrics};
    use crate::tasks::{OnLoss, TaskMetrics};

    const GRACE: Duration = Duration::from_secs(10);

    /// What the one task of a row does.
    #[derive(Clone, Copy)]
    enum Work {
        Returns,
        StopsAfter(u64),
        Hangs,
        Fails,
        FailsWhenStopped,
    }

    #[tokio::test]
    async fn shutdown_results() {
        use Work::{Fails, FailsWhenStopped, Hangs, Returns, StopsAfter};
        let running = || vec![Arc::from("work")];
        let second = RemainingTasks::SecondSignal { signal: Signal::Terminate, running: running() };
        let late = RemainingTasks::TimedOut { running: running() };
        let term = Some(Signal::Terminate);
        let table = [
            // why                                  work          signals  asked lost rest
            ("done by itself", Returns, 0, None, 0, RemainingTasks::Joined),
            ("asked and obeyed", StopsAfter(0), 1, term, 0, RemainingTasks::Joined),
            ("the grace period is for this", StopsAfter(9), 1, term, 0, RemainingTasks::Joined),
            ("but it has an end", StopsAfter(11), 1, term, 0, late.clone()),
            ("which a stuck task does not move", Hangs, 1, term, 0, late),
            ("asked twice", Hangs, 2, term, 0, second),
            ("lost", Fails, 0, None, 1, RemainingTasks::Joined),
            ("lost on the way out", FailsWhenStopped, 1, term, 1, RemainingTasks::Joined),
        ];
        for (why, work, sent, asked, lost, rest) in table {
            let hand = FakeClock::at(Timestamp::UNIX_EPOCH);
            let counters = TaskMetrics::register(&Metrics::new(&BuildInfo::default())).unwrap();
            let jitter = fastrand::Rng::with_seed(1);
            let root = CancellationToken::new();
            let mut tasks = Tasks::new(hand.clock(), counters, jitter, &root);
            let clock = hand.clock();
            tasks.spawn("work", OnLoss::EndOwner, move |stop| async move {
                match work {
                    Returns => {}
                    StopsAfter(seconds) => {
                        stop.cancelled().await;
                        clock.sleep(Duration::from_secs(seconds)).await;
                    }
                    Hangs => pending().await,
                    Fails => return Err("no".into()),
                    FailsWhenStopped => {
                        stop.cancelled().await;
                        return Err("no".into());
                    }
                }
                Ok(())
            });
            let (sender, mut signals) = Signals::script();
            for _ in 0..sent {
                sender.send(Signal::Terminate).await.unwrap();
            }
            let (ending, ()) =
                tokio::join!(run(&mut tasks, &mut signals, GRACE), hand.advance(GRACE));
            assert_eq!(ending.signal, asked, "{why}");
            assert_eq!(ending.lost.len(), lost, "{why}");
            assert_eq!(ending.is_clean(), lost == 0 && rest == RemainingTasks::Joined, "{why}");
            assert_eq!(ending.remaining, rest, "{why}");
        }
    }

    #[tokio::test]
    async fn cancelling_the_root_stops_without_a_signal() {
        let hand = FakeClock::at(Timestamp::UNIX_EPOCH);
        let counters = TaskMetrics::register(&Metrics::new(&BuildInfo::default())).unwrap();
        let root = CancellationToken::new();
        let mut tasks = Tasks::new(hand.clock(), counters, fastrand::Rng::with_seed(1), &root);
        tasks.spawn("work", OnLoss::EndOwner, |stop| async move {
            stop.cancelled().await;
            Ok(())
        });
        let (_sender, mut signals) = Signals::script();
        root.cancel();
        let ending = run(&mut tasks, &mut signals, GRACE).await;
        assert!(ending.is_clean() && ending.signal.is_none(), "{ending:?}");
    }
}
