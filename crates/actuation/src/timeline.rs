//! The time line of a requester: what happened between its creation and its readiness.

use std::time::Duration;

use gantry_pods::view::ConditionStatus;
use jiff::Timestamp;

use crate::actuation_record::ActuationRecord;
use crate::view::ActuationPod;

/// A part of a time line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelinePart {
    /// What had happened at its end.
    pub event: &'static str,
    /// When.
    pub at: Timestamp,
    /// How long it took since the previous part.
    pub took: Duration,
}

/// The parts of a requester's life from its creation to its readiness, or to the last thing that is
/// known to have happened.
///
/// Parts add up: each begins where the previous one ended. Times of the API have whole seconds and
/// come from several clocks, so a time before the previous one counts as equal to it, and one after
/// the readiness as equal to that.
#[must_use]
pub fn timeline(requester: &ActuationPod, record: Option<&ActuationRecord>) -> Vec<TimelinePart> {
    let Some(created) = requester.metadata.creation_timestamp else { return Vec::new() };
    let since = |kind: &str| {
        let condition = requester.condition(kind).filter(|it| it.status == ConditionStatus::True);
        condition.and_then(|it| it.last_transition_time)
    };
    let ready = since("Ready");
    let recorded = |read: fn(&ActuationRecord) -> Option<Timestamp>| record.and_then(read);
    let points = [
        ("scheduled", since("PodScheduled")),
        ("container started", requester.server.started_at),
        ("accelerators known", recorded(|it| it.accelerators_known)),
        ("bound", recorded(|it| it.bound)),
        ("instance created", recorded(|it| it.created)),
        ("engine answered", recorded(|it| it.answered)),
        ("engine woken", recorded(|it| it.woken)),
        ("routed", recorded(|it| it.routed)),
        ("ready", ready),
    ];
    let mut last = created;
    let mut parts = Vec::new();
    for (event, at) in points {
        let Some(at) = at else { continue };
        let at = ready.map_or(at, |ready| at.min(ready)).max(last);
        let took = Duration::try_from(at.duration_since(last)).unwrap_or_default();
        parts.push(TimelinePart { event, at, took });
        last = at;
    }
    parts
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(second: &str) -> Timestamp {
        format!("2027-01-01T00:00:{second}Z").parse().unwrap()
    }

    #[test]
    fn as_83_parts_add_up_from_creation_to_ready() {
        let requester: ActuationPod = serde_json::from_value(json!({
            "metadata": {"name": "r", "creationTimestamp": "2027-01-01T00:00:01Z"},
            "status": {
                "conditions": [
                    {"type": "PodScheduled", "status": "True",
                     "lastTransitionTime": "2027-01-01T00:00:01Z"},
                    {"type": "Ready", "status": "True",
                     "lastTransitionTime": "2027-01-01T00:00:09Z"},
                ],
                "containerStatuses": [{
                    "name": "inference-server", "ready": true,
                    "state": {"running": {"startedAt": "2027-01-01T00:00:03Z"}},
                }],
            },
        }))
        .unwrap();
        let record = ActuationRecord {
            // Another clock: before the container had started.
            accelerators_known: Some(at("02.9")),
            bound: Some(at("03.5")),
            answered: Some(at("08")),
            routed: Some(at("09.3")),
            ..ActuationRecord::default()
        };
        let parts = timeline(&requester, Some(&record));
        let shown: Vec<(&str, u128)> =
            parts.iter().map(|it| (it.event, it.took.as_millis())).collect();
        let expected = [
            ("scheduled", 0),
            ("container started", 2000),
            ("accelerators known", 0),
            ("bound", 500),
            ("engine answered", 4500),
            ("routed", 1000),
            ("ready", 0),
        ];
        assert_eq!(shown, expected);
        let sum: Duration = parts.iter().map(|it| it.took).sum();
        assert_eq!(sum, Duration::from_secs(8));
    }

    #[test]
    fn a_requester_that_waits_has_the_parts_that_are_known() {
        let requester: ActuationPod = serde_json::from_value(json!({
            "metadata": {"name": "r", "creationTimestamp": "2027-01-01T00:00:01Z"},
            "status": {"conditions": [
                {"type": "PodScheduled", "status": "True",
                 "lastTransitionTime": "2027-01-01T00:00:04Z"},
                {"type": "Ready", "status": "False",
                 "lastTransitionTime": "2027-01-01T00:00:02Z"},
            ]},
        }))
        .unwrap();
        let parts = timeline(&requester, None);
        assert_eq!(parts.len(), 1);
        assert_eq!((parts[0].event, parts[0].took), ("scheduled", Duration::from_secs(3)));
    }
}
