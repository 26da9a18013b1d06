//! Whether an engine serves, and how many requests it has. Shared by its requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::watch;

/// Whether requests are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Serving {
    /// They are.
    Awake,
    /// New ones wait, those under way go on: it is about to sleep.
    Draining,
    /// All wait.
    Asleep,
}

/// What happens to requests that are under way when an engine is put to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SleepMode {
    /// They end at once.
    Abort,
    /// They are waited for.
    Wait,
    /// They stop, and go on after the wake.
    Keep,
}

impl SleepMode {
    /// Reads the parameter `mode`.
    pub(super) fn parse(text: Option<&str>) -> Result<Self, String> {
        match text {
            None | Some("abort") => Ok(Self::Abort),
            Some("wait") => Ok(Self::Wait),
            Some("keep") => Ok(Self::Keep),
            Some(other) => Err(format!("mode {other:?} is not one of abort, wait, keep")),
        }
    }
}

/// The gate that requests pass.
pub(super) struct Gate {
    serving: watch::Sender<(Serving, SleepMode)>,
    under_way: Arc<AtomicUsize>,
    /// Changes whenever a request ends.
    ended: watch::Sender<u64>,
}

/// A request under way.
pub(super) struct Passage<'a>(&'a Gate);

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl Gate {
    pub(super) fn new() -> Self {
        Self {
            serving: watch::Sender::new((Serving::Awake, SleepMode::Abort)),
            under_way: Arc::default(),
            ended: watch::Sender::new(0),
        }
    }

    pub(super) fn set(&self, serving: Serving, mode: SleepMode) {
        self.serving.send_replace((serving, mode));
    }

    /// Counts a request as under way until [`Self::leave`]: for one that outlives a borrow.
    pub(super) async fn enter_owned(&self) {
        let passage = self.enter().await;
        self.under_way.fetch_add(1, Ordering::SeqCst);
        drop(passage);
    }

    pub(super) fn leave(&self) {
        self.under_way.fetch_sub(1, Ordering::SeqCst);
        self.ended.send_modify(|it| *it = it.wrapping_add(1));
    }

    pub(super) fn under_way(&self) -> usize {
        self.under_way.load(Ordering::SeqCst)
    }

    /// Waits until requests are served, and lets one in.
    pub(super) async fn enter(&self) -> Passage<'_> {
        let mut serving = self.serving.subscribe();
        loop {
            // Never closed: the sender is in this gate.
            let _ = serving.wait_for(|it| it.0 == Serving::Awake).await;
            self.under_way.fetch_add(1, Ordering::SeqCst);
            let passage = Passage(self);
            // It may have fallen asleep in between.
            if self.serving.borrow().0 == Serving::Awake {
                return passage;
            }
        }
    }

    /// Called before each token of a request; returns whether the request goes on.
    pub(super) async fn go_on(&self) -> bool {
        let mut serving = self.serving.subscribe();
        loop {
            let (now, mode) = *serving.borrow_and_update();
            match (now, mode) {
                (Serving::Awake | Serving::Draining, _) => return true,
                (Serving::Asleep, SleepMode::Abort) => return false,
                (Serving::Asleep, SleepMode::Wait | SleepMode::Keep) => {
                    let _ = serving.changed().await;
                }
            }
        }
    }

    /// Waits until no request is under way, or until another sleep does not wait for that.
    pub(super) async fn drain(&self) {
        let (mut ended, mut serving) = (self.ended.subscribe(), self.serving.subscribe());
        while self.under_way() > 0 && serving.borrow_and_update().0 == Serving::Draining {
            tokio::select! {
                // Either may be dropped: both only wait.
                _ = ended.changed() => {}
                _ = serving.changed() => {}
            }
        }
    }

    /// Ends a drain that has begun: requests under way are treated as `mode` says.
    pub(super) fn end_drain(&self, mode: SleepMode) {
        self.serving.send_if_modified(|it| {
            let drains = it.0 == Serving::Draining;
            if drains {
                *it = (Serving::Asleep, mode);
            }
            drains
        });
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Poll;

    use futures_util::poll;

    use super::*;

    #[tokio::test]
    async fn a_drain_ends_with_its_requests_or_with_a_sleep_that_does_not_wait() {
        let gate = Gate::new();
        let passage = gate.enter().await;
        gate.set(Serving::Draining, SleepMode::Wait);
        {
            let mut drain = pin!(gate.drain());
            assert_eq!(poll!(drain.as_mut()), Poll::Pending);
            gate.end_drain(SleepMode::Abort);
            assert_eq!(poll!(drain.as_mut()), Poll::Ready(()));
        }
        assert!(!gate.go_on().await, "its request was aborted");
        // It changes nothing where nobody drains.
        gate.set(Serving::Awake, SleepMode::Abort);
        gate.end_drain(SleepMode::Abort);
        assert!(gate.go_on().await);
        gate.set(Serving::Draining, SleepMode::Wait);
        let mut drain = pin!(gate.drain());
        assert_eq!(poll!(drain.as_mut()), Poll::Pending);
        drop(passage);
        assert_eq!(poll!(drain.as_mut()), Poll::Ready(()));
    }
}
