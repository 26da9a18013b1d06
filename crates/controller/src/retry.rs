//! The retry policy: how long to wait after failures.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use gantry_process::tasks::Backoff;

/// The delay of a key after its first failure, and the longest.
///
/// Five milliseconds let a plan that was made from an old copy see the new one; a quarter of an
/// hour is what a person takes to fix what does not recover by itself. Any change enqueues the key
/// before that.
pub const KEY_RETRY_DELAYS: (Duration, Duration) =
    (Duration::from_millis(5), Duration::from_secs(1000));

/// The delay before a list or a watch is retried.
pub const WATCH_RETRY_DELAYS: (Duration, Duration) =
    (Duration::from_millis(100), Duration::from_secs(30));

/// An exponential backoff between these two, with jitter.
#[must_use]
pub fn backoff_between((first, cap): (Duration, Duration)) -> Backoff {
    Backoff::new(first, cap)
}

/// Counts the consecutive failures of each key, and the delay that follows from them.
#[derive(Debug)]
pub struct KeyBackoff<K> {
    backoff: Backoff,
    jitter: fastrand::Rng,
    failures: HashMap<K, u32>,
}

impl<K: Eq + Hash + Clone> KeyBackoff<K> {
    /// A backoff without failures.
    #[must_use]
    pub fn new(backoff: Backoff, jitter: fastrand::Rng) -> Self {
        Self { backoff, jitter, failures: HashMap::new() }
    }

    /// Counts a failure and returns the delay.
    pub fn failed(&mut self, key: &K) -> Duration {
        let failures = self.failures.entry(key.clone()).or_default();
        let wait = self.backoff.delay(*failures, &mut self.jitter);
        *failures = failures.saturating_add(1);
        wait
    }

    /// Forgets the failures of a key.
    pub fn succeeded(&mut self, key: &K) {
        self.failures.remove(key);
    }

    /// The number of keys with failures.
    #[must_use]
    pub fn failing(&self) -> usize {
        self.failures.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_with_failures_and_are_forgotten_with_success() {
        let mut retries =
            KeyBackoff::new(backoff_between(KEY_RETRY_DELAYS), fastrand::Rng::with_seed(7));
        let within = |wait: Duration, ceiling: Duration| wait >= ceiling / 2 && wait <= ceiling;
        for doubled in 0..18 {
            let ceiling = KEY_RETRY_DELAYS.0 * (1 << doubled);
            let wait = retries.failed(&"a");
            assert!(within(wait, ceiling.min(KEY_RETRY_DELAYS.1)), "failure {doubled}: {wait:?}");
        }
        assert!(within(retries.failed(&"a"), KEY_RETRY_DELAYS.1), "up to the longest");
        assert!(within(retries.failed(&"b"), KEY_RETRY_DELAYS.0), "each key has its own");
        retries.succeeded(&"a");
        assert_eq!(retries.failing(), 1);
        assert!(within(retries.failed(&"a"), KEY_RETRY_DELAYS.0), "success is a new start");
    }

    #[test]
    fn one_seed_gives_the_same_waits() {
        let waits = |seed| {
            let mut retries =
                KeyBackoff::new(backoff_between(KEY_RETRY_DELAYS), fastrand::Rng::with_seed(seed));
            (0..20).map(|_| retries.failed(&())).collect::<Vec<_>>()
        };
        assert_eq!(waits(1), waits(1));
        assert_ne!(waits(1), waits(2));
    }
}
