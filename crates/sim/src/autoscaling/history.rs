//! What was recommended and changed lately.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// Where an autoscaler keeps it.
pub(super) const ANNOTATION: &str = "gantry.dev/autoscaler-history";

/// The longest time anything counts, which is what the API allows at most.
const LONGEST: SignedDuration = SignedDuration::from_secs(3600);
/// The most entries of either kind that are kept. One is added in each cycle at most, and only when the
/// number changes.
const MOST: usize = 256;

/// What was recommended and changed lately.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct History {
    /// Since when which number was recommended; each until the next.
    recommendations: Vec<(Timestamp, i64)>,
    /// When how much was added, or taken away if negative.
    changes: Vec<(Timestamp, i64)>,
}

impl History {
    /// What the annotations of an autoscaler say. What cannot be read counts as nothing: users may
    /// write annotations, and the worst that comes of it is that a window begins anew.
    pub(super) fn read(annotations: &BTreeMap<String, String>) -> Self {
        let text = annotations.get(ANNOTATION);
        text.and_then(|it| serde_json::from_str(it).ok()).unwrap_or_default()
    }

    pub(super) fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Whether the annotations say the same.
    pub(super) fn is_in(&self, annotations: &BTreeMap<String, String>) -> bool {
        Self::read(annotations) == *self
    }

    /// Counts what there is when it begins as recommended.
    pub(super) fn begin(&mut self, replicas: i64, now: Timestamp) {
        if self.recommendations.is_empty() {
            self.recommendations.push((now, replicas));
        }
    }

    /// Takes note of what is recommended now.
    pub(super) fn recommend(&mut self, replicas: i64, now: Timestamp) {
        if self.recommendations.last().is_none_or(|(_, last)| *last != replicas) {
            self.recommendations.push((now, replicas));
        }
        let cutoff = now.checked_sub(LONGEST).unwrap_or(now);
        // An entry counts until the next begins.
        let ended = self.recommendations.windows(2).take_while(|it| it[1].0 <= cutoff).count();
        let surplus = self.recommendations.len().saturating_sub(MOST);
        self.recommendations.drain(..ended.max(surplus));
    }

    /// What was recommended within a window that ends now; nothing in a window without a length.
    pub(super) fn within(&self, seconds: i64, now: Timestamp) -> impl Iterator<Item = i64> {
        let cutoff = before(now, seconds);
        let ends = self.recommendations.iter().skip(1).map(|it| it.0).chain([Timestamp::MAX]);
        let all = self.recommendations.iter().zip(ends);
        let counts = all.filter(move |(_, end)| seconds > 0 && *end > cutoff);
        counts.map(|((_, replicas), _)| *replicas)
    }

    /// Takes note of a change.
    pub(super) fn changed(&mut self, by: i64, now: Timestamp) {
        self.changes.push((now, by));
        let cutoff = now.checked_sub(LONGEST).unwrap_or(now);
        self.changes.retain(|(at, _)| *at > cutoff);
        let surplus = self.changes.len().saturating_sub(MOST);
        self.changes.drain(..surplus);
    }

    /// How many there were when a period began that ends now.
    pub(super) fn at_start_of(&self, seconds: i64, current: i64, now: Timestamp) -> i64 {
        let cutoff = before(now, seconds);
        let since = self.changes.iter().filter(|(at, _)| *at > cutoff);
        current - since.map(|it| it.1).sum::<i64>()
    }
}

fn before(now: Timestamp, seconds: i64) -> Timestamp {
    now.checked_sub(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MIN)
}
