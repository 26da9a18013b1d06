//! Collects latencies of requests, and summarises them.

use std::time::Duration;

use serde::Serialize;

/// The latency of each request, and how many failed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples {
    times: Vec<Duration>,
    errors: u64,
}

/// The summary of many latencies. Failed requests are counted, not timed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Summary {
    /// Requests that succeeded.
    pub(crate) count: u64,
    /// Requests that did not.
    pub(crate) errors: u64,
    /// Half of the requests took at most this many milliseconds.
    pub(crate) p50_ms: f64,
    /// All but one in a hundred took at most this.
    pub(crate) p99_ms: f64,
    /// The longest request, in milliseconds.
    pub(crate) max_ms: f64,
}

impl Samples {
    /// Adds a request that took `time`.
    pub(crate) fn add(&mut self, time: Duration) {
        self.times.push(time);
    }

    /// Adds a request that failed.
    pub(crate) fn fail(&mut self) {
        self.errors += 1;
    }

    /// Adds all of `other`.
    pub(crate) fn merge(&mut self, other: Self) {
        self.times.extend(other.times);
        self.errors += other.errors;
    }

    /// Returns the summary.
    pub(crate) fn summary(mut self) -> Summary {
        self.times.sort_unstable();
        let milliseconds = |time: Option<&Duration>| time.map_or(0.0, |t| t.as_secs_f64() * 1000.0);
        Summary {
            count: self.times.len() as u64,
            errors: self.errors,
            p50_ms: milliseconds(self.quantile(50)),
            p99_ms: milliseconds(self.quantile(99)),
            max_ms: milliseconds(self.times.last()),
        }
    }

    /// Returns the smallest time that at least `percent` of a hundred requests did not exceed. The
    /// times must be sorted.
    fn quantile(&self, percent: usize) -> Option<&Duration> {
        let rank = (self.times.len() * percent).div_ceil(100);
        self.times.get(rank.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn samples(times: &[u64]) -> Samples {
        Samples { times: times.iter().map(|t| Duration::from_millis(*t)).collect(), errors: 0 }
    }

    #[test]
    fn quantiles_are_the_nearest_ranks() {
        let table: [(&[u64], f64, f64, f64); 4] = [
            (&[], 0.0, 0.0, 0.0),
            (&[7], 7.0, 7.0, 7.0),
            (&[4, 1, 3, 2], 2.0, 4.0, 4.0),
            (&(1..=200).collect::<Vec<_>>(), 100.0, 198.0, 200.0),
        ];
        for (times, p50, p99, max) in table {
            let summary = samples(times).summary();
            assert_eq!((summary.p50_ms, summary.p99_ms, summary.max_ms), (p50, p99, max));
        }
    }

    proptest! {
        #[test]
        fn at_least_the_share_is_not_exceeded(times in prop::collection::vec(0_u64..1000, 1..300)) {
            let summary = samples(&times).summary();
            let within = |bound: f64| times.iter().filter(|t| **t as f64 <= bound).count() * 100;
            prop_assert!(within(summary.p50_ms) >= times.len() * 50);
            prop_assert!(within(summary.p99_ms) >= times.len() * 99);
            prop_assert!(summary.p50_ms <= summary.p99_ms && summary.p99_ms <= summary.max_ms);
        }
    }
}
