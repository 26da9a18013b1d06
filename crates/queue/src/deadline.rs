//! The run time limit of an AppWrapper.

use std::time::Duration;

use jiff::Timestamp;

use crate::app_wrapper::AppWrapper;

/// Returns when the run time of an AppWrapper is used up. It is counted from when a pod of it first
/// ran; an eviction in between does not restart it.
#[must_use]
pub fn at(wrapper: &AppWrapper) -> Option<Timestamp> {
    let limit = u64::try_from(wrapper.dispatch_limit_seconds()).ok().filter(|it| *it > 0)?;
    let first = wrapper.status.first_dispatched.as_ref()?.0;
    first.checked_add(Duration::from_secs(limit)).ok()
}

/// Returns whether the deadline has passed.
#[must_use]
pub fn is_exceeded(wrapper: &AppWrapper, now: Timestamp) -> bool {
    at(wrapper).is_some_and(|end| end < now)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rq_8_the_limit_counts_from_the_first_pod_that_ran() {
        let first = "2026-01-01T00:00:00.000000Z";
        let table = [
            ("no limit", json!({}), Some(first), 99, false),
            ("zero is none", json!({"limit": 0}), Some(first), 99, false),
            ("below zero is none", json!({"limit": -1}), Some(first), 99, false),
            ("nothing ran yet", json!({"limit": 10}), None, 99, false),
            ("not over", json!({"limit": 10}), Some(first), 10, false),
            ("over", json!({"limit": 10}), Some(first), 11, true),
        ];
        let begin: Timestamp = first.parse().unwrap();
        for (why, duration, first, passed, expected) in table {
            let wrapper: AppWrapper = serde_json::from_value(json!({
                "spec": {"schedulingSpec": {"dispatchDuration": duration}},
                "status": {"controllerfirstdispatchtimestamp": first},
            }))
            .unwrap();
            let now = begin.checked_add(Duration::from_secs(passed)).unwrap();
            assert_eq!(is_exceeded(&wrapper, now), expected, "{why}");
        }
    }
}
