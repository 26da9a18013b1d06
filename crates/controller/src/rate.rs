//! The rate limit of all requests of the process.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gantry_process::clock::{Clock, Moment};

/// A request rate and its burst.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Requests per second, in the long run.
    pub per_second: f64,
    /// How many requests may be sent at once after a pause.
    pub burst: u32,
}

/// One of this many requests is reserved for deferrable writes, however many others there are.
const DEFERRABLE_SHARE: u32 = 10;

/// Limits the rate of requests, in the order they arrive.
#[derive(Debug)]
pub struct RateLimiter {
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    spacing: Option<Spacing>,
    /// The end of the time that is reserved by requests so far.
    reserved_until: Moment,
    /// When the next deferrable request is allowed whatever the others do.
    next_deferrable_at: Moment,
}

/// The spacing of requests that follows from a rate.
#[derive(Clone, Copy, Debug)]
struct Spacing {
    /// The time one request takes up.
    interval: Duration,
    /// How far ahead of the rate a burst may go.
    burst_window: Duration,
}

impl Spacing {
    /// The spacing of a rate; a rate that is absent or not above zero is no limit.
    fn of(rate: Option<Rate>) -> Option<Self> {
        let rate = rate.filter(|rate| rate.per_second > 0.0)?;
        let each = Duration::try_from_secs_f64(1.0 / rate.per_second);
        let each = each.unwrap_or(Duration::from_secs(3600));
        Some(Self { interval: each, burst_window: each.saturating_mul(rate.burst.max(1) - 1) })
    }
}

impl RateLimiter {
    /// A limiter; a rate that is absent or not above zero is no limit.
    #[must_use]
    pub fn new(clock: Clock, rate: Option<Rate>) -> Self {
        let (reserved_until, next_deferrable_at) = (Moment::default(), Moment::default());
        let state = State { spacing: Spacing::of(rate), reserved_until, next_deferrable_at };
        Self { clock, state: Mutex::new(state) }
    }

    /// Changes the rate. Reservations that were made stay, but the time reserved at the old rate is
    /// capped at the longest wait at the new rate: a queue of hours that a low rate has caused does
    /// not outlive it.
    pub fn set_rate(&self, rate: Option<Rate>) {
        let now = self.clock.moment();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.spacing = Spacing::of(rate);
        let most = state.spacing.map_or(now, |spacing| now + spacing.burst_window);
        state.reserved_until = state.reserved_until.min(most);
        state.next_deferrable_at = state.next_deferrable_at.min(now);
    }

    /// Whether a deferrable request may be sent now. It may while half of the burst is left, so
    /// that other requests never wait because of deferrable ones; in addition one request in ten is
    /// reserved for deferrable ones.
    #[must_use]
    pub fn has_spare_capacity(&self) -> bool {
        self.take_spare_capacity(self.clock.moment())
    }

    fn take_spare_capacity(&self, now: Moment) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Spacing { interval: each, burst_window: ahead }) = state.spacing else {
            return true;
        };
        if state.reserved_until.max(now) - now <= ahead / 2 {
            return true;
        }
        let is_due = state.next_deferrable_at <= now;
        if is_due {
            state.next_deferrable_at = now + each.saturating_mul(DEFERRABLE_SHARE);
        }
        is_due
    }

    /// Waits until the request may be sent. A reservation that is dropped while waiting is not
    /// given to others: that would take a queue, and costs one request's time.
    pub async fn wait(&self) {
        let wait = self.reserve(self.clock.moment());
        if !wait.is_zero() {
            self.clock.sleep(wait).await;
        }
    }

    /// Reserves the time of one request and returns how long it has to wait.
    fn reserve(&self, now: Moment) -> Duration {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Spacing { interval: each, burst_window: ahead }) = state.spacing else {
            return Duration::ZERO;
        };
        let from = state.reserved_until.max(now);
        state.reserved_until = from + each;
        (from - now).saturating_sub(ahead)
    }
}

#[cfg(test)]
mod tests {
    use gantry_process::clock::FakeClock;
    use jiff::Timestamp;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_burst_is_allowed_and_the_rest_spaced() {
        let hand = FakeClock::at(Timestamp::UNIX_EPOCH);
        let limiter = RateLimiter::new(hand.clock(), Some(Rate { per_second: 2.0, burst: 3 }));
        let now = hand.clock().moment();
        let waits: Vec<u128> = (0..5).map(|_| limiter.reserve(now).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 500, 1000]);
        let later = now + Duration::from_secs(10);
        assert_eq!(limiter.reserve(later), Duration::ZERO, "a pause restores the burst");
        for none in [None, Some(Rate { per_second: 0.0, burst: 1 })] {
            let limiter = RateLimiter::new(hand.clock(), none);
            assert!((0..1000).all(|_| limiter.reserve(now).is_zero()));
        }
    }

    #[test]
    fn another_rate_counts_from_the_next_request_on() {
        let hand = FakeClock::at(Timestamp::UNIX_EPOCH);
        let limiter = RateLimiter::new(hand.clock(), Some(Rate { per_second: 0.001, burst: 1 }));
        let now = hand.clock().moment();
        let wait = || limiter.reserve(now).as_millis();
        assert_eq!([wait(), wait(), wait()], [0, 1_000_000, 2_000_000]);
        limiter.set_rate(Some(Rate { per_second: 10.0, burst: 2 }));
        assert_eq!([wait(), wait(), wait()], [0, 100, 200], "no request waits for the old rate");
        limiter.set_rate(None);
        assert_eq!([wait(), wait()], [0, 0]);
        limiter.set_rate(Some(Rate { per_second: 2.0, burst: 1 }));
        assert_eq!([wait(), wait()], [0, 500], "the burst is not restored");
    }

    #[test]
    fn deferrable_requests_get_spare_and_a_tenth() {
        let hand = FakeClock::at(Timestamp::UNIX_EPOCH);
        let limiter = RateLimiter::new(hand.clock(), Some(Rate { per_second: 10.0, burst: 5 }));
        let now = hand.clock().moment();
        assert!(limiter.take_spare_capacity(now), "there are no other requests");
        assert_eq!((0..2).map(|_| limiter.reserve(now)).sum::<Duration>(), Duration::ZERO);
        assert!(limiter.take_spare_capacity(now), "half of them are left");
        limiter.reserve(now);
        assert_eq!(
            [limiter.take_spare_capacity(now), limiter.take_spare_capacity(now)],
            [true, false],
            "the reserved share, once"
        );
        let at = |millis| now + Duration::from_millis(millis);
        // Other requests use up the rate.
        let mut let_through = 0;
        for tenth in 1..=100 {
            limiter.reserve(at(tenth * 100));
            let_through += usize::from(limiter.take_spare_capacity(at(tenth * 100)));
        }
        assert_eq!(let_through, 10, "in ten seconds, at ten a second");
        limiter.set_rate(Some(Rate { per_second: 0.1, burst: 1 }));
        limiter.reserve(at(10_000));
        assert!(limiter.take_spare_capacity(at(10_000)), "another rate, another share");
        limiter.reserve(at(109_000));
        assert!(!limiter.take_spare_capacity(at(109_000)));
        limiter.set_rate(None);
        assert!((0..100).all(|_| limiter.take_spare_capacity(at(109_000))), "no limit");
    }

    proptest! {
        /// In no interval of time are more requests sent than the burst and the rate allow.
        #[test]
        fn no_more_than_the_rate_passes(
            gaps in prop::collection::vec(0_u64..400, 1..80),
            per_second in 1_u32..50, burst in 1_u32..10,
        ) {
            let hand = FakeClock::at(Timestamp::UNIX_EPOCH);
            let rate = Rate { per_second: f64::from(per_second), burst };
            let limiter = RateLimiter::new(hand.clock(), Some(rate));
            let mut at = Duration::ZERO;
            let mut passed = Vec::new();
            for gap in gaps {
                at += Duration::from_millis(gap);
                passed.push(at + limiter.reserve(Moment::default() + at));
            }
            prop_assert!(passed.is_sorted(), "first come, first served");
            for (first, from) in passed.iter().enumerate() {
                for (last, to) in passed.iter().enumerate().skip(first) {
                    let allowed = f64::from(burst) + (*to - *from).as_secs_f64() * rate.per_second;
                    prop_assert!((last - first + 1) as f64 <= allowed + 1.001);
                }
            }
        }
    }
}
