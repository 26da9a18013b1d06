//! How long an AppWrapper may run.

use std::time::Duration;

use jiff::Timestamp;

use crate::app_wrapper::AppWrapper;

/// When an AppWrapper has run for as long as it may: so long after a pod of it first ran. Taking it
/// back in between does not begin anew.
#[must_use]
pub fn at(wrapper: &AppWrapper) -> Option<Timestamp> {
    let limit = u64::try_from(wrapper.limit()).ok().filter(|it| *it > 0)?;
    let first = wrapper.status.first_dispatched.as_ref()?.0;
    first.checked_add(Duration::from_secs(limit)).ok()
}

/// Whether that time is over.
#[must_use]
pub fn is_over(wrapper: &AppWrapper, now: Timestamp) -> bool {
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
            assert_eq!(is_over(&wrapper, now), expected, "{why}");
        }
    }
}
