//! The recent recommendations and changes of an autoscaler.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// The annotation in which an autoscaler keeps its history.
pub(super) const ANNOTATION: &str = "gantry.dev/autoscaler-history";

/// The longest time an entry counts, which is the longest window the API allows.
const MAX_AGE: SignedDuration = SignedDuration::from_secs(3600);
/// The most entries of either kind that are kept. Each cycle adds at most one, and only when the
/// number changes.
const MAX_ENTRIES: usize = 256;

/// The recent recommendations and changes of an autoscaler.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct History {
    /// Recommended numbers and since when; each counts until the next.
    recommendations: Vec<(Timestamp, i64)>,
    /// Added replicas (removed ones are negative) and when they changed.
    changes: Vec<(Timestamp, i64)>,
}

impl History {
    /// Reads the history from the annotations of an autoscaler. An unreadable history counts as
    /// empty: users may write annotations, and the worst consequence is that a window starts again.
    pub(super) fn read(annotations: &BTreeMap<String, String>) -> Self {
        let text = annotations.get(ANNOTATION);
        text.and_then(|it| serde_json::from_str(it).ok()).unwrap_or_default()
    }

    pub(super) fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns whether the annotations have the same history.
    pub(super) fn is_recorded_in(&self, annotations: &BTreeMap<String, String>) -> bool {
        Self::read(annotations) == *self
    }

    /// Records the initial number of replicas as the first recommendation.
    pub(super) fn record_initial(&mut self, replicas: i64, now: Timestamp) {
        if self.recommendations.is_empty() {
            self.recommendations.push((now, replicas));
        }
    }

    /// Records the current recommendation.
    pub(super) fn record_recommendation(&mut self, replicas: i64, now: Timestamp) {
        if self.recommendations.last().is_none_or(|(_, last)| *last != replicas) {
            self.recommendations.push((now, replicas));
        }
        let cutoff = now.checked_sub(MAX_AGE).unwrap_or(now);
        // An entry counts until the next begins.
        let ended = self.recommendations.windows(2).take_while(|it| it[1].0 <= cutoff).count();
        let surplus = self.recommendations.len().saturating_sub(MAX_ENTRIES);
        self.recommendations.drain(..ended.max(surplus));
    }

    /// Returns the recommendations within a window that ends now; none for a window without a
    /// length.
    pub(super) fn recommendations_within(
        &self,
        seconds: i64,
        now: Timestamp,
    ) -> impl Iterator<Item = i64> {
        let cutoff = before(now, seconds);
        let ends = self.recommendations.iter().skip(1).map(|it| it.0).chain([Timestamp::MAX]);
        let all = self.recommendations.iter().zip(ends);
        let counts = all.filter(move |(_, end)| seconds > 0 && *end > cutoff);
        counts.map(|((_, replicas), _)| *replicas)
    }

    /// Records a change.
    pub(super) fn record_change(&mut self, by: i64, now: Timestamp) {
        self.changes.push((now, by));
        let cutoff = now.checked_sub(MAX_AGE).unwrap_or(now);
        self.changes.retain(|(at, _)| *at > cutoff);
        let surplus = self.changes.len().saturating_sub(MAX_ENTRIES);
        self.changes.drain(..surplus);
    }

    /// Returns the number of replicas at the start of a period that ends now.
    pub(super) fn replicas_at_start_of(&self, seconds: i64, current: i64, now: Timestamp) -> i64 {
        let cutoff = before(now, seconds);
        let since = self.changes.iter().filter(|(at, _)| *at > cutoff);
        current - since.map(|it| it.1).sum::<i64>()
    }
}

fn before(now: Timestamp, seconds: i64) -> Timestamp {
    now.checked_sub(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MIN)
}
