//! Stopping: a signal asks, the tasks get a bounded time to finish, a second signal insists.
//!
//! Nothing here ends the process. [`run`] returns an [`Ending`] that says what happened, and the
//! binary turns it into words and an exit code.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use tokio::signal::unix::{self, SignalKind};
use tokio::sync::mpsc;

use crate::tasks::{Lost, Tasks};

/// Runs `tasks` until they end, a signal arrives, their token is cancelled or one is lost that
/// they need; then cancels the token and joins them for at most `grace`.
///
/// Tasks that are still running when it returns are aborted by dropping `tasks`.
pub async fn run(tasks: &mut Tasks, signals: &mut Signals, grace: Duration) -> Ending {
    let stop = tasks.token().clone();
    let clock = tasks.clock().clone();
    let mut lost = Vec::new();
    let asked = tokio::select! {
        biased;
        // Each may be dropped: joining forgets nothing, and the other two only wait.
        joined = tasks.join() => {
            lost.extend(joined.err());
            None
        }
        signal = signals.next() => Some(signal),
        () = stop.cancelled() => None,
    };
    if let Some(signal) = asked {
        let (signal, grace) = (signal.to_string(), format!("{grace:?}"));
        tracing::info!(signal, grace, "stopping, a second signal ends it at once");
    }
    stop.cancel();
    let rest = tokio::select! {
        biased;
        // As above; the grace period is over for good when this ends.
        () = join_all(tasks, &mut lost) => Rest::Joined,
        signal = signals.next() => Rest::Insisted { signal, running: tasks.names() },
        () = clock.sleep(grace) => Rest::OutOfTime { running: tasks.names() },
    };
    Ending { asked, lost, rest }
}

async fn join_all(tasks: &mut Tasks, lost: &mut Vec<Lost>) {
    while let Err(loss) = tasks.join().await {
        lost.push(loss);
    }
}

/// How a process came to its end.
#[derive(Debug)]
#[must_use = "the exit code depends on it"]
pub struct Ending {
    /// The signal that asked for it; none when the tasks ended or were cancelled by themselves.
    pub asked: Option<Signal>,
    /// The tasks that were needed and lost, in the order it was noticed.
    pub lost: Vec<Lost>,
    /// What became of the rest.
    pub rest: Rest,
}

impl Ending {
    /// Whether everything stopped as it should.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.lost.is_empty() && matches!(self.rest, Rest::Joined)
    }
}

/// What became of the tasks that were asked to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rest {
    /// All of them ended.
    Joined,
    /// The grace period was not enough.
    OutOfTime {
        /// The names of the tasks that were still running.
        running: Vec<Arc<str>>,
    },
    /// A second signal arrived first; the caller should end at once.
    Insisted {
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

/// Where the signals come from.
#[derive(Debug)]
pub struct Signals(Source);

#[derive(Debug)]
enum Source {
    System { interrupt: unix::Signal, terminate: unix::Signal },
    Script(mpsc::Receiver<Signal>),
}

impl Signals {
    /// Takes over SIGINT and SIGTERM. From here on they no longer end the process by themselves,
    /// not even after this is dropped, so somebody must wait in [`run`].
    ///
    /// # Errors
    /// The system refused the handlers.
    pub fn listen() -> Result<Self, ListenError> {
        let interrupt = unix::signal(SignalKind::interrupt()).map_err(ListenError)?;
        let terminate = unix::signal(SignalKind::terminate()).map_err(ListenError)?;
        Ok(Self(Source::System { interrupt, terminate }))
    }

    /// Signals sent by the caller, for tests and for processes that live inside another. Two may
    /// wait: no more than two mean anything.
    #[must_use]
    pub fn script() -> (mpsc::Sender<Signal>, Self) {
        let (sender, receiver) = mpsc::channel(2);
        (sender, Self(Source::Script(receiver)))
    }

    /// The next signal. Dropping the future loses none.
    pub async fn next(&mut self) -> Signal {
        let received = match &mut self.0 {
            Source::System { interrupt, terminate } => tokio::select! {
                // Each may be dropped: an unseen signal stays pending in its stream.
                got = interrupt.recv() => got.map(|()| Signal::Interrupt),
                got = terminate.recv() => got.map(|()| Signal::Terminate),
            },
            Source::Script(script) => script.recv().await,
        };
        match received {
            Some(signal) => signal,
            // Nobody is left who could send one.
            None => pending().await,
        }
    }
}

/// The process would not be told when it is asked to stop.
#[derive(Debug, thiserror::Error)]
#[error("could not listen for SIGINT and SIGTERM")]
pub struct ListenError(#[source] io::Error);

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::clock::Hand;
    use crate::metrics::{Build, Metrics};
    use crate::tasks::{Counters, OnLoss};

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
    async fn endings() {
        use Work::{Fails, FailsWhenStopped, Hangs, Returns, StopsAfter};
        let running = || vec![Arc::from("work")];
        let second = Rest::Insisted { signal: Signal::Terminate, running: running() };
        let late = Rest::OutOfTime { running: running() };
        let term = Some(Signal::Terminate);
        let table = [
            // why                                  work          signals  asked lost rest
            ("done by itself", Returns, 0, None, 0, Rest::Joined),
            ("asked and obeyed", StopsAfter(0), 1, term, 0, Rest::Joined),
            ("the grace period is for this", StopsAfter(9), 1, term, 0, Rest::Joined),
            ("but it has an end", StopsAfter(11), 1, term, 0, late.clone()),
            ("which a stuck task does not move", Hangs, 1, term, 0, late),
            ("asked twice", Hangs, 2, term, 0, second),
            ("lost", Fails, 0, None, 1, Rest::Joined),
            ("lost on the way out", FailsWhenStopped, 1, term, 1, Rest::Joined),
        ];
        for (why, work, sent, asked, lost, rest) in table {
            let hand = Hand::at(Timestamp::UNIX_EPOCH);
            let counters = Counters::register(&Metrics::new(&Build::default())).unwrap();
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
            assert_eq!(ending.asked, asked, "{why}");
            assert_eq!(ending.lost.len(), lost, "{why}");
            assert_eq!(ending.is_clean(), lost == 0 && rest == Rest::Joined, "{why}");
            assert_eq!(ending.rest, rest, "{why}");
        }
    }

    #[tokio::test]
    async fn cancelling_the_root_stops_without_a_signal() {
        let hand = Hand::at(Timestamp::UNIX_EPOCH);
        let counters = Counters::register(&Metrics::new(&Build::default())).unwrap();
        let root = CancellationToken::new();
        let mut tasks = Tasks::new(hand.clock(), counters, fastrand::Rng::with_seed(1), &root);
        tasks.spawn("work", OnLoss::EndOwner, |stop| async move {
            stop.cancelled().await;
            Ok(())
        });
        let (_sender, mut signals) = Signals::script();
        root.cancel();
        let ending = run(&mut tasks, &mut signals, GRACE).await;
        assert!(ending.is_clean() && ending.asked.is_none(), "{ending:?}");
    }
}
