//! The permission of this process to write, checked before each write.

use std::fmt;

use gantry_process::clock::{Clock, Moment};
use tokio::sync::watch;

/// The permission to write. Clones share it.
#[derive(Clone)]
pub struct Permit {
    clock: Clock,
    term: watch::Receiver<Term>,
}

/// Grants and revokes a permit. Dropping it revokes the permit.
#[derive(Debug)]
pub struct Grant(watch::Sender<Term>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Term {
    /// No other process ever writes.
    Always,
    /// Another process may write from then on.
    Until(Moment),
    /// Another process may be writing.
    Never,
}

/// This process may not write, because another one may be the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not leading")]
pub struct NotLeading;

impl Permit {
    /// A permit without leader election.
    #[must_use]
    pub fn always(clock: Clock) -> Self {
        Self { clock, term: watch::channel(Term::Always).1 }
    }

    /// A permit that is not granted yet.
    #[must_use]
    pub fn on_grant(clock: Clock) -> (Grant, Self) {
        let (grant, term) = watch::channel(Term::Never);
        (Grant(grant), Self { clock, term })
    }

    /// Whether this process may write now.
    ///
    /// # Errors
    /// [`NotLeading`] when another process may be writing.
    pub fn check(&self) -> Result<(), NotLeading> {
        let term = *self.term.borrow();
        match term {
            Term::Always => Ok(()),
            Term::Until(end) if self.clock.moment() < end => Ok(()),
            Term::Until(_) | Term::Never => Err(NotLeading),
        }
    }

    /// Returns when this process may write.
    ///
    /// # Errors
    /// [`NotLeading`] when the [`Grant`] is gone.
    pub async fn granted(&self) -> Result<(), NotLeading> {
        let mut term = self.term.clone();
        loop {
            // Marked as seen before it is checked, so that no change in between is missed.
            let _ = term.borrow_and_update();
            if self.check().is_ok() {
                return Ok(());
            }
            if term.changed().await.is_err() {
                return Err(NotLeading);
            }
        }
    }

    /// Returns when this process may no longer write; an extension in the meantime is taken into
    /// account.
    pub async fn lapsed(&self) {
        let mut term = self.term.clone();
        loop {
            let end = *term.borrow_and_update();
            match end {
                Term::Never => return,
                // It is never revoked.
                Term::Always => std::future::pending().await,
                Term::Until(end) => {
                    if self.clock.moment() >= end {
                        return;
                    }
                    tokio::select! {
                        // Either is cancel-safe: both only wait, and the term is read again.
                        () = self.clock.sleep_until(end) => {}
                        changed = term.changed() => if changed.is_err() {
                            return self.clock.sleep_until(end).await;
                        },
                    }
                }
            }
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.term.borrow(), to)
    }
}

impl Grant {
    /// Allows writes until `end`, and not after.
    pub fn until(&self, end: Moment) {
        self.0.send_replace(Term::Until(end));
    }

    /// Forbids writes from now on.
    pub fn revoke(&self) {
        self.0.send_replace(Term::Never);
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.revoke();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gantry_process::clock::FakeClock;
    use jiff::Timestamp;

    use super::*;

    #[tokio::test]
    async fn a_permit_lasts_until_its_end_and_no_longer() {
        let hand = FakeClock::at(Timestamp::UNIX_EPOCH);
        let clock = hand.clock();
        let (grant, permit) = Permit::on_grant(clock.clone());
        assert_eq!(permit.check(), Err(NotLeading), "no write before the first grant");
        let second = Duration::from_secs(1);
        grant.until(clock.moment() + second);
        assert_eq!(permit.granted().await, Ok(()));
        hand.advance(second - Duration::from_nanos(1)).await;
        assert_eq!(permit.check(), Ok(()));
        hand.advance(Duration::from_nanos(1)).await;
        assert_eq!(permit.check(), Err(NotLeading), "the end is outside");
        permit.lapsed().await;
        grant.until(clock.moment() + second);
        let (moment, ()) = tokio::join!(
            async {
                permit.lapsed().await;
                clock.moment()
            },
            async {
                hand.advance(second / 2).await;
                grant.until(clock.moment() + second);
                hand.advance(second * 5).await;
            },
        );
        assert_eq!(moment - Moment::default(), second * 2 + second / 2, "prolonged in between");
        grant.until(clock.moment() + second);
        drop(grant);
        assert_eq!(permit.check(), Err(NotLeading), "no permit outlives its grant");
        assert_eq!(permit.granted().await, Err(NotLeading));
        assert_eq!(Permit::always(clock).check(), Ok(()));
    }
}
