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

/// Lets requests through at a rate, in the order they come.
#[derive(Debug)]
pub struct Limiter {
    clock: Clock,
    /// The time one request takes up, and how far ahead of its time one may go; absent for no limit.
    spacing: Option<(Duration, Duration)>,
    /// When everything that was let through has used up its time.
    booked: Mutex<Moment>,
}

impl Limiter {
    /// A limiter; a rate that is absent or not above zero is no limit.
    #[must_use]
    pub fn new(clock: Clock, rate: Option<Rate>) -> Self {
        let spacing = rate.filter(|rate| rate.per_second > 0.0).map(|rate| {
            let each = Duration::try_from_secs_f64(1.0 / rate.per_second);
            let each = each.unwrap_or(Duration::from_secs(3600));
            (each, each.saturating_mul(rate.burst.max(1) - 1))
        });
        Self { clock, spacing, booked: Mutex::new(Moment::default()) }
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
        let Some((each, ahead)) = self.spacing else { return Duration::ZERO };
        let mut booked = self.booked.lock().unwrap_or_else(PoisonError::into_inner);
        let from = (*booked).max(now);
        *booked = from + each;
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
