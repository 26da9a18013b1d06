//! The phases of launchers.

use std::time::Duration;

use gantry_pods::view::ConditionStatus;
use jiff::{SignedDuration, Timestamp};

use crate::labels::{REQUESTER_ANNOTATION, TEMPLATE_HASH_ANNOTATION};
use crate::settings::Settings;
use crate::view::ActuationPod;

/// The phase of a launcher, as metrics and events name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LauncherPhase {
    /// It is bound to a requester.
    Bound,
    /// Its template is not the current one.
    Stale,
    /// It is idle, or has time left to become ready.
    Unbound,
    /// It was scheduled and has not become ready in time.
    StuckStarting,
    /// It was not scheduled in time.
    StuckScheduling,
}

impl LauncherPhase {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Bound, Self::Stale, Self::Unbound, Self::StuckStarting, Self::StuckScheduling];

    /// The name in metrics and events.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bound => "bound",
            Self::Stale => "stale",
            Self::Unbound => "unbound",
            Self::StuckStarting => "stuck_starting",
            Self::StuckScheduling => "stuck_scheduling",
        }
    }

    /// Whether it does not become ready.
    #[must_use]
    pub fn is_stuck(self) -> bool {
        matches!(self, Self::StuckStarting | Self::StuckScheduling)
    }
}

/// After how long launchers count as stuck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Without being scheduled.
    pub scheduling: Duration,
    /// Without becoming ready after that.
    pub starting: Duration,
}

impl Thresholds {
    /// Those of the settings.
    #[must_use]
    pub fn of(settings: &Settings) -> Self {
        Self { scheduling: settings.stuck_scheduling, starting: settings.stuck_starting }
    }
}

/// The phase of a launcher, and when that may change by time alone.
#[must_use]
pub fn launcher_phase(
    launcher: &ActuationPod,
    hash: Option<&str>,
    thresholds: Thresholds,
    now: Timestamp,
) -> (LauncherPhase, Option<Timestamp>) {
    if launcher.annotation(REQUESTER_ANNOTATION).is_some() {
        return (LauncherPhase::Bound, None);
    }
    if hash.is_none() || launcher.annotation(TEMPLATE_HASH_ANNOTATION) != hash {
        return (LauncherPhase::Stale, None);
    }
    if launcher.is_ready() {
        return (LauncherPhase::Unbound, None);
    }
    let scheduled = launcher.condition("PodScheduled");
    let scheduled = scheduled.filter(|it| it.status == ConditionStatus::True);
    let created = launcher.metadata.creation_timestamp.unwrap_or(now);
    let (since, threshold, stuck) = match scheduled {
        Some(it) => {
            let since = it.last_transition_time.unwrap_or(created);
            (since, thresholds.starting, LauncherPhase::StuckStarting)
        }
        None => (created, thresholds.scheduling, LauncherPhase::StuckScheduling),
    };
    let threshold = SignedDuration::try_from(threshold).unwrap_or(SignedDuration::MAX);
    let due = since.checked_add(threshold).unwrap_or(Timestamp::MAX);
    match now >= due {
        true => (stuck, None),
        false => (LauncherPhase::Unbound, (!launcher.metadata.is_terminating()).then_some(due)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn as_52_phases_and_exact_thresholds() {
        let start: Timestamp = "2027-01-01T00:00:00Z".parse().unwrap();
        let thresholds =
            Thresholds { scheduling: Duration::from_secs(120), starting: Duration::from_secs(450) };
        let phase = |bound: bool, hash: Option<&str>, ready: bool, scheduled: bool, at: i64| {
            let launcher: ActuationPod = serde_json::from_value(json!({
                "metadata": {
                    "creationTimestamp": start.to_string(),
                    "annotations": {
                        "dual-pods.llm-d.ai/requester": if bound { "u r" } else { "" },
                        "dual-pods.llm-d.ai/launcher-populator-template-hash": "h",
                    },
                },
                "status": {"conditions": [
                    {"type": "Ready", "status": if ready { "True" } else { "False" }},
                    {"type": "PodScheduled", "status": if scheduled { "True" } else { "False" },
                     "lastTransitionTime": "2027-01-01T00:00:10Z"},
                ]},
            }))
            .unwrap();
            let now = start + SignedDuration::from_secs(at);
            let (phase, due) = launcher_phase(&launcher, hash, thresholds, now);
            (phase.as_str(), due.map(|it| it.duration_since(start).as_secs()))
        };
        for at in [0, 119, 120, 459, 460] {
            for (ready, scheduled) in [(false, false), (false, true), (true, false), (true, true)] {
                for hash in [None, Some("h"), Some("i")] {
                    assert_eq!(phase(true, hash, ready, scheduled, at), ("bound", None));
                }
                for hash in [None, Some("i")] {
                    assert_eq!(phase(false, hash, ready, scheduled, at), ("stale", None));
                }
            }
            for scheduled in [false, true] {
                assert_eq!(phase(false, Some("h"), true, scheduled, at), ("unbound", None));
            }
        }
        let table = [
            (false, 0, "unbound", Some(120)),
            (false, 119, "unbound", Some(120)),
            (false, 120, "stuck_scheduling", None),
            (true, 119, "unbound", Some(460)),
            (true, 459, "unbound", Some(460)),
            (true, 460, "stuck_starting", None),
        ];
        for (scheduled, at, expected, due) in table {
            assert_eq!(phase(false, Some("h"), false, scheduled, at), (expected, due), "{at}");
        }
    }
}
