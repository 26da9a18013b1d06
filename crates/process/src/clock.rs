//! The one source of time: the system clock, or a fake one that a test advances.
//!
//! All code that waits or reads the time takes a [`Clock`]. A test gives it the clock of a
//! [`FakeClock`] and decides when an hour has passed, so no test sleeps and none depends on load.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::ops::{Add, Sub};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

mod hyper;

pub use hyper::HyperTimer;

/// Reads the time and waits for it. Clones are cheap and show the same time.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    /// Tokio's instant, not the standard library's: reading and sleeping must agree when a runtime
    /// pauses its time.
    System {
        origin: tokio::time::Instant,
    },
    Manual(Arc<Mutex<FakeClockState>>),
}

impl Clock {
    /// The clock of the machine.
    #[must_use]
    pub fn system() -> Self {
        Self(Source::System { origin: tokio::time::Instant::now() })
    }

    /// The date and time, for users and for the API. It can jump either way when the machine's
    /// clock is set; measure durations with [`Clock::moment`].
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the clock the others are given")]
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::System { .. } => Timestamp::now(),
            Source::Manual(manual) => {
                let manual = lock(manual);
                let passed =
                    SignedDuration::try_from(manual.moment.0).unwrap_or(SignedDuration::MAX);
                manual.start.checked_add(passed).unwrap_or(Timestamp::MAX)
            }
        }
    }

    /// A point in time that never goes back, for durations and deadlines.
    #[must_use]
    pub fn moment(&self) -> Moment {
        match &self.0 {
            Source::System { origin } => Moment(origin.elapsed()),
            Source::Manual(manual) => lock(manual).moment,
        }
    }

    /// This clock in the form hyper's connection builders take.
    #[must_use]
    pub fn hyper_timer(&self) -> HyperTimer {
        let origin = match &self.0 {
            Source::System { origin } => *origin,
            Source::Manual(manual) => lock(manual).origin,
        };
        HyperTimer { clock: self.clone(), origin: origin.into_std() }
    }

    /// Waits until `deadline`; returns at once if it has passed. Dropping the future forgets the
    /// wait.
    pub async fn sleep_until(&self, deadline: Moment) {
        match &self.0 {
            // Through a duration, because the sum of origin and deadline may not be representable.
            Source::System { .. } => tokio::time::sleep(deadline - self.moment()).await,
            Source::Manual(manual) => {
                let mut wait = FakeSleep { manual, deadline, ticket: None };
                poll_fn(|context| wait.poll(context.waker())).await;
            }
        }
    }

    /// Waits for `duration`, counted from the call.
    pub fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + '_ {
        self.sleep_until(self.moment() + duration)
    }

    /// Runs `work` for at most `limit` and drops it at the timeout.
    ///
    /// Work that is ready never times out, even when the limit has passed as well.
    ///
    /// # Errors
    /// [`TimedOut`] when the limit passed first.
    pub async fn timeout<Work: Future>(
        &self,
        limit: Duration,
        work: Work,
    ) -> Result<Work::Output, TimedOut> {
        tokio::select! {
            biased;
            // Dropped by the other branch: that is what a timeout means.
            output = work => Ok(output),
            // Dropped when the work is done: the timeout is not needed any more.
            () = self.sleep(limit) => Err(TimedOut { limit }),
        }
    }
}

/// A point on one clock's monotonic scale; only differences mean anything.
///
/// Moments of different clocks must not be compared; a process has one clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Duration);

impl Add<Duration> for Moment {
    type Output = Self;

    /// Stops at the last moment there is, so that "never" can be written as a very long time.
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}

impl Sub for Moment {
    type Output = Duration;

    /// The time from `earlier` to this moment; zero when it is not earlier.
    fn sub(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// The work did not end within its limit and was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("took longer than {limit:?}")]
pub struct TimedOut {
    /// The limit that was set.
    pub limit: Duration,
}

/// Controls a fake clock. Time stands still until it is advanced.
#[derive(Clone, Debug)]
pub struct FakeClock(Arc<Mutex<FakeClockState>>);

/// How often [`FakeClock::advance`] yields after each wake-up.
///
/// A woken task may wake another and so on; every hop needs one poll of a single-threaded runtime.
/// Thirty-two is far above the longest chain we have and still costs microseconds.
const YIELDS_PER_WAKEUP: usize = 32;

impl FakeClock {
    /// A fake clock that shows `start`.
    #[must_use]
    pub fn at(start: Timestamp) -> Self {
        Self(Arc::new(Mutex::new(FakeClockState {
            start,
            origin: tokio::time::Instant::now(),
            moment: Moment::default(),
            tickets: 0,
            waiting: BTreeMap::new(),
        })))
    }

    /// The clock that this controls.
    #[must_use]
    pub fn clock(&self) -> Clock {
        Clock(Source::Manual(Arc::clone(&self.0)))
    }

    /// The earliest deadline of any sleeper.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Moment> {
        lock(&self.0).waiting.keys().next().map(|(deadline, _)| *deadline)
    }

    /// The number of sleepers.
    #[must_use]
    pub fn waiting(&self) -> usize {
        lock(&self.0).waiting.len()
    }

    /// Sets the time to `moment` at once and wakes, in order of deadline, all sleepers whose
    /// deadline has passed. They read the new time, not their own deadline; [`FakeClock::advance`]
    /// is finer. Time never goes back.
    pub fn jump_to(&self, moment: Moment) {
        let woken = {
            let mut manual = lock(&self.0);
            manual.moment = manual.moment.max(moment);
            let due = (manual.moment, u64::MAX);
            let later = manual.waiting.split_off(&due);
            std::mem::replace(&mut manual.waiting, later)
        };
        // Woken outside the lock, because a waker may run its task on the spot.
        woken.into_values().for_each(Waker::wake);
    }

    /// Advances the time by `duration`, deadline by deadline: each sleeper wakes at its own moment
    /// and may sleep again within the same advance before time moves on.
    ///
    /// Sleepers wake in order of deadline, those of one deadline in the order they began to wait.
    /// On a single-threaded runtime they also run in that order; on several threads only the order
    /// of waking is certain.
    pub async fn advance(&self, duration: Duration) {
        settle().await;
        let target = lock(&self.0).moment + duration;
        while let Some(deadline) = self.next_deadline().filter(|deadline| *deadline <= target) {
            self.jump_to(deadline);
            settle().await;
        }
        self.jump_to(target);
        settle().await;
    }
}

async fn settle() {
    for _ in 0..YIELDS_PER_WAKEUP {
        tokio::task::yield_now().await;
    }
}

#[derive(Debug)]
struct FakeClockState {
    start: Timestamp,
    /// An arbitrary instant, for APIs that require one.
    origin: tokio::time::Instant,
    moment: Moment,
    /// Assigned in order, so that equal deadlines wake first come, first served.
    tickets: u64,
    waiting: BTreeMap<(Moment, u64), Waker>,
}

struct FakeSleep<'clock> {
    manual: &'clock Mutex<FakeClockState>,
    deadline: Moment,
    ticket: Option<u64>,
}

impl FakeSleep<'_> {
    fn poll(&mut self, waker: &Waker) -> Poll<()> {
        let mut manual = lock(self.manual);
        if manual.moment >= self.deadline {
            return Poll::Ready(());
        }
        let ticket = *self.ticket.get_or_insert_with(|| {
            manual.tickets += 1;
            manual.tickets
        });
        manual.waiting.insert((self.deadline, ticket), waker.clone());
        Poll::Pending
    }
}

impl Drop for FakeSleep<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            lock(self.manual).waiting.remove(&(self.deadline, ticket));
        }
    }
}

/// The state is consistent after every statement that changes it, so a poisoned lock is still
/// usable.
fn lock(manual: &Mutex<FakeClockState>) -> MutexGuard<'_, FakeClockState> {
    manual.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Context;

    use proptest::prelude::*;

    use super::*;

    fn second(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn time_stands_still_until_moved() {
        let hand = FakeClock::at("2026-11-15T19:53:02Z".parse().unwrap());
        let clock = hand.clock();
        let before = clock.moment();
        assert_eq!(clock.now().to_string(), "2026-11-15T19:53:02Z");
        hand.jump_to(before + second(58));
        assert_eq!(clock.now().to_string(), "2026-11-15T19:54:00Z");
        assert_eq!(clock.moment() - before, second(58));
        hand.jump_to(before);
        assert_eq!(clock.moment() - before, second(58), "time never goes back");
        assert_eq!(before - clock.moment(), Duration::ZERO, "a difference is never negative");
        hand.jump_to(before + Duration::MAX);
        assert_eq!(clock.now(), Timestamp::MAX, "the end of time is not a panic");
        assert_eq!(clock.moment() + second(1), clock.moment(), "and there is nothing after it");
    }

    #[test]
    fn a_dropped_sleep_is_forgotten() {
        let hand = FakeClock::at(Timestamp::UNIX_EPOCH);
        let clock = hand.clock();
        {
            let mut sleep = pin!(clock.sleep(second(1)));
            let mut context = Context::from_waker(Waker::noop());
            assert!(sleep.as_mut().poll(&mut context).is_pending());
            assert!(sleep.as_mut().poll(&mut context).is_pending());
            assert_eq!(hand.waiting(), 1, "polling twice is waiting once");
        }
        assert_eq!(hand.next_deadline(), None);
    }

    #[tokio::test]
    async fn a_timeout_never_drops_finished_work() {
        let hand = FakeClock::at(Timestamp::UNIX_EPOCH);
        let clock = hand.clock();
        let late = clock.timeout(second(5), std::future::pending::<()>());
        let (late, ()) = tokio::join!(late, hand.advance(second(5)));
        assert_eq!(late, Err(TimedOut { limit: second(5) }));
        let (kept, ()) =
            tokio::join!(clock.timeout(second(5), clock.sleep(second(4))), hand.advance(second(4)));
        assert_eq!(kept, Ok(()));
        assert_eq!(clock.timeout(Duration::ZERO, async { 7 }).await, Ok(7), "ready is never late");
    }

    #[tokio::test]
    async fn the_system_clock_moves_forward() {
        let clock = Clock::system();
        let before = clock.moment();
        clock.sleep(Duration::from_nanos(1)).await;
        assert!(clock.moment() > before);
        assert!(clock.now() > "2020-01-01T00:00:00Z".parse().unwrap());
        assert!(clock.timeout(Duration::MAX, async {}).await.is_ok());
    }

    proptest! {
        /// For any delays, each sleeper wakes at exactly its own moment, in order of deadline and
        /// then of arrival, and no sleeper wakes before its deadline.
        #[test]
        fn sleepers_wake_in_order_and_on_time(
            naps in prop::collection::vec(0_u64..50, 0..20),
            again in 0_u64..50,
            passed in 0_u64..60,
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let (woken, waiting) = runtime.block_on(async {
                let hand = FakeClock::at(Timestamp::UNIX_EPOCH);
                let woken = Arc::new(Mutex::new(Vec::new()));
                let mut sleepers = tokio::task::JoinSet::new();
                for (who, nap) in naps.iter().copied().enumerate() {
                    let (clock, woken) = (hand.clock(), Arc::clone(&woken));
                    sleepers.spawn(async move {
                        for round in 0..2 {
                            clock.sleep(second([nap, again][round])).await;
                            woken.lock().unwrap().push((clock.moment(), round, who));
                        }
                    });
                }
                hand.advance(second(passed)).await;
                let woken = woken.lock().unwrap().clone();
                (woken, hand.waiting())
            });
            let mut expected = Vec::new();
            for (who, nap) in naps.iter().copied().enumerate() {
                expected.push((Moment(second(nap)), 0, who));
                expected.push((Moment(second(nap + again)), 1, who));
            }
            expected.retain(|(deadline, _, _)| *deadline <= Moment(second(passed)));
            let asleep = naps.iter().filter(|nap| **nap + again > passed).count();
            prop_assert!(woken.is_sorted_by_key(|(deadline, _, _)| *deadline));
            let first: Vec<_> = woken.iter().filter(|(_, round, _)| *round == 0).collect();
            prop_assert!(first.is_sorted(), "equal deadlines wake in order of arrival");
            let mut sorted = woken.clone();
            sorted.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(sorted, expected);
            prop_assert_eq!(waiting, asleep);
        }
    }
}
