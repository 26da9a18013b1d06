//! How long to wait before the next attempt.

use std::time::Duration;

/// The shortest first wait: a task that breaks at once must not keep a core busy.
const LEAST: Duration = Duration::from_millis(1);

/// Waits that double from `first` up to `cap`, each shortened by chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    cap: Duration,
}

impl Backoff {
    /// Waits from `first`, but at least a millisecond, to `cap`, but at least `first`.
    #[must_use]
    pub fn new(first: Duration, cap: Duration) -> Self {
        let first = first.max(LEAST);
        Self { first, cap: cap.max(first) }
    }

    /// The wait after this many earlier failures: anything from half of its ceiling to all of it.
    ///
    /// Half is random so that tasks that broke together do not come back together; the other half
    /// is not, so that chance alone never makes a restart immediate.
    #[must_use]
    pub fn delay(&self, failures: u32, jitter: &mut fastrand::Rng) -> Duration {
        let half = self.ceiling(failures) / 2;
        // Beyond five hundred years the random part is a smaller one; nobody will notice.
        let nanoseconds = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX);
        half + Duration::from_nanos(jitter.u64(0..=nanoseconds))
    }

    /// Whether a run was long enough for earlier failures not to count any more.
    #[must_use]
    pub fn forgives(&self, lasted: Duration) -> bool {
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
        assert_eq!(hasty.ceiling(9), LEAST, "no settings make a busy loop");
        assert!(!backoff.forgives(Duration::from_secs(30)));
        assert!(backoff.forgives(Duration::from_secs(31)));
    }

    proptest! {
        /// No settings and no chance give a wait of nothing, a wait beyond the cap, or a wait that
        /// the next failure could undercut by more than the jitter.
        #[test]
        fn waits_are_bounded(
            first in any::<Duration>(), cap in any::<Duration>(), failures: u32, seed: u64,
        ) {
            let backoff = Backoff::new(first, cap);
            let mut jitter = fastrand::Rng::with_seed(seed);
            let delay = backoff.delay(failures, &mut jitter);
            prop_assert!(delay <= backoff.cap);
            prop_assert!(delay >= backoff.first / 2);
            prop_assert!(delay >= LEAST / 2);
            let next = backoff.delay(failures.saturating_add(1), &mut jitter);
            prop_assert!(next >= delay / 2);
        }
    }
}
