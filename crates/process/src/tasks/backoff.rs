//! Exponential backoff with jitter.

use std::time::Duration;

/// The shortest first delay: a task that fails at once must not keep a core busy.
const MIN_FIRST_DELAY: Duration = Duration::from_millis(1);

/// Delays that double from `first` up to `cap`, each shortened at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    cap: Duration,
}

impl Backoff {
    /// Delays from `first`, but at least a millisecond, to `cap`, but at least `first`.
    #[must_use]
    pub fn new(first: Duration, cap: Duration) -> Self {
        let first = first.max(MIN_FIRST_DELAY);
        Self { first, cap: cap.max(first) }
    }

    /// The delay after this many earlier failures: anything from half of its ceiling to all of it.
    ///
    /// Half is random so that tasks that failed together do not restart together; the other half is
    /// not, so that a restart is never immediate.
    #[must_use]
    pub fn delay(&self, failures: u32, jitter: &mut fastrand::Rng) -> Duration {
        let half = self.ceiling(failures) / 2;
        // Beyond five hundred years the random part is a smaller one, which makes no difference.
        let nanoseconds = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX);
        half + Duration::from_nanos(jitter.u64(0..=nanoseconds))
    }

    /// Whether a run was long enough for earlier failures not to count any more.
    #[must_use]
    pub fn should_reset(&self, lasted: Duration) -> bool {
        lasted > self.cap
    }

    fn ceiling(&self, failures: u32) -> Duration {
        let doubled = 2_u32.checked_pow(failures).and_then(|times| self.first.checked_mul(times));
        doubled.unwrap_or(self.cap).min(self.cap)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ceilings_double_up_to_the_cap() {
        let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
        let table = [
            // why                              failures ceiling
            ("the first wait", 0, 1),
            ("doubles", 1, 2),
            ("and doubles", 4, 16),
            ("up to the cap", 5, 30),
            ("for good", 31, 30),
            ("also where doubling overflows", u32::MAX, 30),
        ];
        for (why, failures, ceiling) in table {
            assert_eq!(backoff.ceiling(failures), Duration::from_secs(ceiling), "{why}");
        }
        let hasty = Backoff::new(Duration::ZERO, Duration::ZERO);
        assert_eq!(hasty.ceiling(9), MIN_FIRST_DELAY, "no settings make a busy loop");
        assert!(!backoff.should_reset(Duration::from_secs(30)));
        assert!(backoff.should_reset(Duration::from_secs(31)));
    }

    proptest! {
        /// No settings and no random number give a delay of zero, a delay beyond the cap, or a
        /// delay that the next failure could undercut by more than the jitter.
        #[test]
        fn waits_are_bounded(
            first in any::<Duration>(), cap in any::<Duration>(), failures: u32, seed: u64,
        ) {
            let backoff = Backoff::new(first, cap);
            let mut jitter = fastrand::Rng::with_seed(seed);
            let delay = backoff.delay(failures, &mut jitter);
            prop_assert!(delay <= backoff.cap);
            prop_assert!(delay >= backoff.first / 2);
            prop_assert!(delay >= MIN_FIRST_DELAY / 2);
            let next = backoff.delay(failures.saturating_add(1), &mut jitter);
            prop_assert!(next >= delay / 2);
        }
    }
}
