//! The one retry policy: how long to wait after failures.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use gantry_process::tasks::Backoff;

/// The wait of a key after its first failure, and the longest.
///
/// Five milliseconds let a plan that was made from an old copy see the new one; a quarter of an hour
/// is what a person takes to mend what does not mend itself. Any change wakes the key before that.
pub const KEY: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1000));

/// The wait before a server is asked again for a list or a watch.
pub const CONNECTION: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));

/// A doubling wait between these two, with jitter.
#[must_use]
pub fn between((first, cap): (Duration, Duration)) -> Backoff {
    Backoff::new(first, cap)
}

/// How often each key has failed in a row, and how long it waits for that.
#[derive(Debug)]
pub struct Retries<K> {
    backoff: Backoff,
    jitter: fastrand::Rng,
    failures: HashMap<K, u32>,
}

impl<K: Eq + Hash + Clone> Retries<K> {
    /// Nobody has failed yet.
    #[must_use]
    pub fn new(backoff: Backoff, jitter: fastrand::Rng) -> Self {
        Self { backoff, jitter, failures: HashMap::new() }
    }

    /// Counts a failure and says how long to wait.
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

    /// How many keys have failures.
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
        let mut retries = Retries::new(between(KEY), fastrand::Rng::with_seed(7));
        let within = |wait: Duration, ceiling: Duration| wait >= ceiling / 2 && wait <= ceiling;
        for doubled in 0..18 {
            let ceiling = KEY.0 * (1 << doubled);
            let wait = retries.failed(&"a");
            assert!(within(wait, ceiling.min(KEY.1)), "failure {doubled}: {wait:?}");
        }
        assert!(within(retries.failed(&"a"), KEY.1), "up to the longest");
        assert!(within(retries.failed(&"b"), KEY.0), "each key has its own");
        retries.succeeded(&"a");
        assert_eq!(retries.failing(), 1);
        assert!(within(retries.failed(&"a"), KEY.0), "success is a new start");
    }

    #[test]
    fn one_seed_gives_the_same_waits() {
        let waits = |seed| {
            let mut retries = Retries::new(between(KEY), fastrand::Rng::with_seed(seed));
            (0..20).map(|_| retries.failed(&())).collect::<Vec<_>>()
        };
        assert_eq!(waits(1), waits(1));
        assert_ne!(waits(1), waits(2));
    }
}
