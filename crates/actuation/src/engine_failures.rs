//! How often engines have failed, as launchers record it, and how long the next one waits for that.
//!
//! The record is an annotation of the launcher in which an engine failed, written with the update
//! that begins the end of its binding. It survives the requester, which is deleted, and the process
//! that wrote it. A launcher with a record that matters is kept as long as it does.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::canonical_json::canonical_text;
use crate::digest::hex_sha256;
use crate::instance::InstanceConfig;
use crate::labels::ENGINE_FAILURES_ANNOTATION;
use crate::view::ActuationPod;

/// How long the start after the second failure in a row waits. Each further one doubles it.
const FIRST_BACKOFF: Duration = Duration::from_secs(10);
/// The longest wait.
const MAX_BACKOFF: Duration = Duration::from_secs(300);
/// After how long since the end of its wait a failure is no longer counted.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);
/// How long a launcher is kept for its record after the end of the wait: until the next start is
/// bound to a launcher.
const KEPT_AFTER_WAIT: Duration = Duration::from_secs(60);
/// How many failures a launcher records at most, the last ones.
const MAX_RECORDED: usize = 32;
/// How much of the reason is recorded.
const MAX_REASON_CHARS: usize = 600;

/// How often the engine of one InferenceServerConfig has failed in a row on a set of accelerators.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineFailure {
    /// How often.
    pub count: u32,
    /// When the last time.
    pub last: Timestamp,
    /// Why the last time.
    pub reason: String,
}

impl EngineFailure {
    /// The failure that follows on what is recorded.
    #[must_use]
    pub fn after(recorded: Option<&Self>, reason: &str, now: Timestamp) -> Self {
        let counted = recorded.filter(|it| now < later(it.retry_at(), FORGOTTEN_AFTER));
        let count = counted.map_or(0, |it| it.count).saturating_add(1);
        // The end says most: it is the end of a log.
        let cut = reason.chars().count().saturating_sub(MAX_REASON_CHARS);
        Self { count, last: now, reason: reason.chars().skip(cut).collect() }
    }

    /// How long the next start waits: not at all after the first failure, which may be chance.
    #[must_use]
    pub fn backoff(&self) -> Duration {
        let Some(doublings) = self.count.checked_sub(2) else { return Duration::ZERO };
        let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
        FIRST_BACKOFF.checked_mul(factor).map_or(MAX_BACKOFF, |it| it.min(MAX_BACKOFF))
    }

    /// When the next start may be made.
    #[must_use]
    pub fn retry_at(&self) -> Timestamp {
        later(self.last, self.backoff())
    }
}

/// The failures that a launcher records, by what failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineFailures(BTreeMap<String, EngineFailure>);

impl EngineFailures {
    /// What failures are counted by: an InferenceServerConfig, as the engine was started with it,
    /// and a set of accelerators. An engine that is configured in another way does not wait.
    #[must_use]
    pub fn subject(config: &InstanceConfig) -> String {
        let mut config = config.clone();
        config.gpu_uuids.sort();
        hex_sha256(&[&canonical_text(&json!(config))])[..16].to_owned()
    }

    /// Reads the record of a launcher. One that cannot be read is empty: the next failure writes a
    /// new one.
    #[must_use]
    pub fn read(launcher: &ActuationPod) -> Self {
        let text = launcher.annotation(ENGINE_FAILURES_ANNOTATION).unwrap_or("{}");
        Self(serde_json::from_str(text).unwrap_or_default())
    }

    /// The last failure that any of these launchers records.
    pub fn last_of<'a>(
        launchers: impl IntoIterator<Item = &'a ActuationPod>,
        subject: &str,
    ) -> Option<EngineFailure> {
        let recorded = launchers.into_iter().filter_map(|it| Self::read(it).0.remove(subject));
        recorded.max_by_key(|it| (it.last, it.count))
    }

    /// The text of the annotation after a failure.
    #[must_use]
    pub fn with(mut self, subject: String, failure: EngineFailure) -> String {
        let now = failure.last;
        self.0.retain(|_, it| now < later(it.retry_at(), FORGOTTEN_AFTER));
        self.0.insert(subject, failure);
        while self.0.len() > MAX_RECORDED {
            let Some(oldest) = self.0.iter().min_by_key(|(_, it)| it.last) else { break };
            let oldest = oldest.0.clone();
            self.0.remove(&oldest);
        }
        // Texts, numbers and times always have a JSON form.
        serde_json::to_string(&self.0).unwrap_or_default()
    }

    /// Until when its launcher is kept for the record; `None` if there is none.
    #[must_use]
    pub fn kept_until(&self) -> Option<Timestamp> {
        self.0.values().map(|it| later(it.retry_at(), KEPT_AFTER_WAIT)).max()
    }
}

fn later(start: Timestamp, wait: Duration) -> Timestamp {
    let wait = SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX);
    start.checked_add(wait).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn launcher(record: &str) -> ActuationPod {
        let annotations = json!({ ENGINE_FAILURES_ANNOTATION: record });
        serde_json::from_value(json!({"metadata": {"name": "l", "annotations": annotations}}))
            .unwrap()
    }

    #[test]
    fn g_8_waits_double_from_the_second_failure_in_a_row() {
        let (mut last, mut now, mut waits) = (None, at(0), Vec::new());
        for _ in 0..9 {
            let failure = EngineFailure::after(last.as_ref(), "it ended", now);
            waits.push(failure.backoff().as_secs());
            now = failure.retry_at();
            last = Some(failure);
        }
        assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300, 300, 300]);
        let last = last.unwrap();
        let much_later = later(last.retry_at(), FORGOTTEN_AFTER);
        assert_eq!(EngineFailure::after(Some(&last), "", much_later).count, 1);
        assert_eq!(EngineFailure::after(Some(&last), &"x".repeat(900), now).reason.len(), 600);
    }

    #[test]
    fn g_8_failures_are_counted_by_config_and_set_of_accelerators() {
        let config = |options: &str, uuids: &[&str]| InstanceConfig {
            options: options.to_owned(),
            gpu_uuids: uuids.iter().map(|it| (*it).to_owned()).collect(),
            ..InstanceConfig::default()
        };
        let subject = EngineFailures::subject(&config("-a", &["g0", "g1"]));
        assert_eq!(EngineFailures::subject(&config("-a", &["g1", "g0"])), subject, "one set");
        assert_ne!(EngineFailures::subject(&config("-b", &["g0", "g1"])), subject);
        assert_ne!(EngineFailures::subject(&config("-a", &["g0"])), subject);
    }

    #[test]
    fn g_8_the_last_failure_counts_wherever_it_is_recorded() {
        let failure = |count, second| EngineFailure { count, last: at(second), reason: "r".into() };
        let one = launcher(&EngineFailures::default().with("s".to_owned(), failure(1, 10)));
        let other = EngineFailures::default().with("s".to_owned(), failure(2, 20));
        let other = launcher(&other);
        let unreadable = launcher("[");
        let last = EngineFailures::last_of([&one, &other, &unreadable], "s");
        assert_eq!(last, Some(failure(2, 20)));
        assert_eq!(EngineFailures::last_of([&one], "t"), None);
        assert_eq!(EngineFailures::read(&other).kept_until(), Some(at(20 + 10 + 60)));
        assert_eq!(EngineFailures::read(&unreadable).kept_until(), None);
        let text = EngineFailures::read(&other).with("t".to_owned(), failure(1, 5000));
        assert_eq!(EngineFailures::read(&launcher(&text)).0.len(), 1, "old ones are left out");
        let many = (0..40).fold(EngineFailures::default(), |all, nth| {
            let text = all.with(format!("s{nth}"), failure(1, 100 + nth));
            EngineFailures::read(&launcher(&text))
        });
        assert_eq!(many.0.len(), MAX_RECORDED);
        assert!(many.0.contains_key("s39") && !many.0.contains_key("s7"));
    }
}
