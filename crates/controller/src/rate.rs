//! How fast the whole process may ask.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gantry_process::clock::{Clock, Moment};

/// Requests per second, and how many may come at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Requests per second, in the long run.
    pub per_second: f64,
    /// How many may come at once after a pause.
    pub burst: u32,
}

/// One of so many requests is there for what can wait, however many others there are.
const SHARE: u32 = 10;

/// Lets requests through at a rate, in the order they come.
#[derive(Debug)]
pub struct Limiter {
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    spacing: Option<Spacing>,
    /// When everything that was let through has used up its time.
    booked: Moment,
    /// When the next of those that can wait has its turn whatever the others do.
    told: Moment,
}

/// What a rate comes to.
#[derive(Clone, Copy, Debug)]
struct Spacing {
    /// The time one request takes up.
    each: Duration,
    /// How far ahead of its time one may go.
    ahead: Duration,
}

impl Spacing {
    /// A rate that is absent or not above zero is no limit.
    fn of(rate: Option<Rate>) -> Option<Self> {
        let rate = rate.filter(|rate| rate.per_second > 0.0)?;
        let each = Duration::try_from_secs_f64(1.0 / rate.per_second);
        let each = each.unwrap_or(Duration::from_secs(3600));
        Some(Self { each, ahead: each.saturating_mul(rate.burst.max(1) - 1) })
    }
}

impl Limiter {
    /// A limiter; a rate that is absent or not above zero is no limit.
    #[must_use]
    pub fn new(clock: Clock, rate: Option<Rate>) -> Self {
        let (booked, told) = (Moment::default(), Moment::default());
        let state = State { spacing: Spacing::of(rate), booked, told };
        Self { clock, state: Mutex::new(state) }
    }

    /// Goes on at another rate. Whoever has a turn keeps it, and what has been booked at the old rate
    /// is worth no more than the new one lets anyone wait for: a queue of hours that a low rate has
    /// made does not outlive it.
    pub fn set(&self, rate: Option<Rate>) {
        let now = self.clock.moment();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.spacing = Spacing::of(rate);
        let most = state.spacing.map_or(now, |spacing| now + spacing.ahead);
        state.booked = state.booked.min(most);
        state.told = state.told.min(now);
    }

    /// Whether there is a turn to spare for a request that can wait. There is while half of what may come at
    /// once is left, so that those that cannot wait never do for the others, and one in ten belongs to those
    /// that can.
    #[must_use]
    pub fn has_spare(&self) -> bool {
        self.spare(self.clock.moment())
    }

    fn spare(&self, now: Moment) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Spacing { each, ahead }) = state.spacing else { return true };
        if state.booked.max(now) - now <= ahead / 2 {
            return true;
        }
        let is_due = state.told <= now;
        if is_due {
            state.told = now + each.saturating_mul(SHARE);
        }
        is_due
    }

    /// Waits for its turn. A turn that is given up while waiting is not given to others: that would
    /// take a queue, and costs one request's time.
    pub async fn turn(&self) {
        let wait = self.book(self.clock.moment());
        if !wait.is_zero() {
            self.clock.sleep(wait).await;
        }
    }

    /// Books the time of one request and says how long it has to wait.
    fn book(&self, now: Moment) -> Duration {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Spacing { each, ahead }) = state.spacing else { return Duration::ZERO };
        let from = state.booked.max(now);
        state.booked = from + each;
        (from - now).saturating_sub(ahead)
    }
}

#[cfg(test)]
mod tests {
    use gantry_process::clock::Hand;
    use jiff::Timestamp;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_burst_passes_and_the_rest_is_spaced() {
        let hand = Hand::at(Timestamp::UNIX_EPOCH);
        let limiter = Limiter::new(hand.clock(), Some(Rate { per_second: 2.0, burst: 3 }));
        let now = hand.clock().moment();
        let waits: Vec<u128> = (0..5).map(|_| limiter.book(now).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 500, 1000]);
        let later = now + Duration::from_secs(10);
        assert_eq!(limiter.book(later), Duration::ZERO, "a pause gives the burst back");
        for none in [None, Some(Rate { per_second: 0.0, burst: 1 })] {
            let limiter = Limiter::new(hand.clock(), none);
            assert!((0..1000).all(|_| limiter.book(now).is_zero()));
        }
    }

    #[test]
    fn another_rate_counts_from_the_next_request_on() {
        let hand = Hand::at(Timestamp::UNIX_EPOCH);
        let limiter = Limiter::new(hand.clock(), Some(Rate { per_second: 0.001, burst: 1 }));
        let now = hand.clock().moment();
        let wait = || limiter.book(now).as_millis();
        assert_eq!([wait(), wait(), wait()], [0, 1_000_000, 2_000_000]);
        limiter.set(Some(Rate { per_second: 10.0, burst: 2 }));
        assert_eq!([wait(), wait(), wait()], [0, 100, 200], "nobody waits for the old rate");
        limiter.set(None);
        assert_eq!([wait(), wait()], [0, 0]);
        limiter.set(Some(Rate { per_second: 2.0, burst: 1 }));
        assert_eq!([wait(), wait()], [0, 500], "a burst is not given anew");
    }

    #[test]
    fn what_can_wait_has_what_others_leave_and_one_in_ten() {
        let hand = Hand::at(Timestamp::UNIX_EPOCH);
        let limiter = Limiter::new(hand.clock(), Some(Rate { per_second: 10.0, burst: 5 }));
        let now = hand.clock().moment();
        assert!(limiter.spare(now), "nobody asks");
        assert_eq!((0..2).map(|_| limiter.book(now)).sum::<Duration>(), Duration::ZERO);
        assert!(limiter.spare(now), "half of them are left");
        limiter.book(now);
        assert_eq!([limiter.spare(now), limiter.spare(now)], [true, false], "its share, once");
        let at = |millis| now + Duration::from_millis(millis);
        // Others take all there is.
        let mut let_through = 0;
        for tenth in 1..=100 {
            limiter.book(at(tenth * 100));
            let_through += usize::from(limiter.spare(at(tenth * 100)));
        }
        assert_eq!(let_through, 10, "in ten seconds, at ten a second");
        limiter.set(Some(Rate { per_second: 0.1, burst: 1 }));
        limiter.book(at(10_000));
        assert!(limiter.spare(at(10_000)), "another rate, another share");
        limiter.book(at(109_000));
        assert!(!limiter.spare(at(109_000)));
        limiter.set(None);
        assert!((0..100).all(|_| limiter.spare(at(109_000))), "no limit");
    }

    proptest! {
        /// In no stretch of time do more pass than the burst and what the rate allows.
        #[test]
        fn no_more_than_the_rate_passes(
            gaps in prop::collection::vec(0_u64..400, 1..80),
            per_second in 1_u32..50, burst in 1_u32..10,
        ) {
            let hand = Hand::at(Timestamp::UNIX_EPOCH);
            let rate = Rate { per_second: f64::from(per_second), burst };
            let limiter = Limiter::new(hand.clock(), Some(rate));
            let mut at = Duration::ZERO;
            let mut passed = Vec::new();
            for gap in gaps {
                at += Duration::from_millis(gap);
                passed.push(at + limiter.book(Moment::default() + at));
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
