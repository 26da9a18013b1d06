//! Evicts a dispatched AppWrapper whose pods did not come up in time.

use std::time::Duration;

use gantry_api::queue::AppWrapperStatus;
use jiff::Timestamp;

use crate::app_wrapper::AppWrapper;
use crate::condition::{self, kind, since};
use crate::settings::Settings;

/// For how long after its due time a check is still made. A check looks at one moment: pods that
/// disappear between two checks, and are back before the next, are ignored.
const CHECK_GRACE_PERIOD: Duration = Duration::from_secs(5);

/// When the pods of an AppWrapper are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodCheck {
    /// They are checked now, and next at this time.
    Now(Timestamp),
    /// They are checked at this time.
    At(Timestamp),
}

impl PodCheck {
    /// Returns when they are checked next.
    #[must_use]
    pub fn next(self) -> Timestamp {
        match self {
            Self::Now(next) | Self::At(next) => next,
        }
    }
}

/// Returns when the pods of a dispatched AppWrapper are checked, or `None` where it was never
/// dispatched.
#[must_use]
pub fn next_check(wrapper: &AppWrapper, settings: &Settings, now: Timestamp) -> Option<PodCheck> {
    let base = wait_start(&wrapper.status)?;
    let interval =
        i128::try_from(settings.requeue_interval.as_micros()).unwrap_or(i128::MAX).max(1);
    let wait = i128::from(wait_seconds(wrapper, settings)) * 1_000_000;
    let first = wait.div_euclid(interval) + i128::from(wait.rem_euclid(interval) != 0);
    let first = first.max(1);
    let passed = i128::from(now.as_microsecond()) - i128::from(base.as_microsecond());
    let ticks = passed.div_euclid(interval);
    let at = |tick: i128| {
        let when = i128::from(base.as_microsecond()).saturating_add(tick.saturating_mul(interval));
        let when = i64::try_from(when).ok().and_then(|it| Timestamp::from_microsecond(it).ok());
        when.unwrap_or(Timestamp::MAX)
    };
    if ticks < first {
        return Some(PodCheck::At(at(first)));
    }
    let late =
        i128::try_from(CHECK_GRACE_PERIOD.as_micros()).unwrap_or(i128::MAX).min(interval / 2);
    let next = at(ticks + 1);
    Some(if passed - ticks * interval <= late { PodCheck::Now(next) } else { PodCheck::At(next) })
}

/// Returns when the wait begins: at the last event, or at the dispatch if that is newer.
#[must_use]
pub fn wait_start(status: &AppWrapperStatus) -> Option<Timestamp> {
    let last = status.conditions.last().and_then(since);
    last.max(condition::newest_since(status, kind::DISPATCHED))
}

/// Returns how many seconds the pods have to come up.
#[must_use]
pub fn wait_seconds(wrapper: &AppWrapper, settings: &Settings) -> i64 {
    let grown = wrapper.status.requeuing_time_in_seconds;
    let usual = i64::try_from(settings.requeue_default.as_secs()).unwrap_or(i64::MAX);
    let said = wrapper.requeuing().map_or(usual, |it| match it.initial_time_in_seconds {
        initial if initial > 0 => initial,
        _ => it.time_in_seconds.max(0),
    });
    if grown > 0 { grown } else { said }
}

/// Returns the wait after another requeuing.
#[must_use]
pub fn next_wait_seconds(wrapper: &AppWrapper) -> i64 {
    let before = wrapper.status.requeuing_time_in_seconds.max(0);
    let Some(rule) = wrapper.requeuing() else { return before };
    let time = rule.time_in_seconds.max(0);
    let initial =
        if rule.initial_time_in_seconds > 0 { rule.initial_time_in_seconds } else { time };
    let after = match rule.growth_type.as_str() {
        "exponential" if before == 0 => time,
        "exponential" => before.saturating_mul(2),
        "linear" => before.saturating_add(initial),
        // Any other growth type keeps the wait.
        _ => before,
    };
    match rule.max_time_in_seconds {
        most if most > 0 => after.min(most),
        _ => after,
    }
}

/// Returns whether an AppWrapper has reached its requeue limit.
#[must_use]
pub fn is_limit_reached(wrapper: &AppWrapper) -> bool {
    let Some(rule) = wrapper.requeuing() else { return false };
    let so_far = wrapper.status.number_of_requeuings.max(rule.num_requeuings);
    rule.max_num_requeuings > 0 && so_far >= rule.max_num_requeuings
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::condition::QueueCondition;

    fn wrapper(requeuing: &Value, grown: i64, count: i64) -> AppWrapper {
        serde_json::from_value(json!({
            "spec": {"schedulingSpec": {"requeuing": requeuing}},
            "status": {"requeueingTimeInSeconds": grown, "numberOfRequeueings": count},
        }))
        .unwrap()
    }

    #[test]
    fn rq_4_and_c_5_waits_grow_as_the_rule_says() {
        let table = [
            (json!({"timeInSeconds": 60}), vec![60, 60, 120, 240, 480]),
            (json!({"timeInSeconds": 60, "growthType": "linear"}), vec![60, 60, 120, 180, 240]),
            (json!({"timeInSeconds": 60, "growthType": "none"}), vec![60, 60, 60, 60]),
            (json!({"timeInSeconds": 60, "growthType": "Exponential"}), vec![60, 60, 60, 60]),
            (json!({"timeInSeconds": 60, "maxTimeInSeconds": 100}), vec![60, 60, 100, 100]),
            (
                json!({"timeInSeconds": 60, "initialTimeInSeconds": 10, "growthType": "linear"}),
                vec![10, 10, 20, 30],
            ),
            (json!({"timeInSeconds": 60, "initialTimeInSeconds": 10}), vec![10, 60, 120]),
            (json!({"timeInSeconds": 0}), vec![0, 0, 0]),
        ];
        for (rule, expected) in table {
            let (mut now, mut waits) = (0, Vec::new());
            for _ in &expected {
                let wrapper = wrapper(&rule, now, 0);
                waits.push(wait_seconds(&wrapper, &Settings::default()));
                now = next_wait_seconds(&wrapper);
            }
            assert_eq!(waits, expected, "{rule}");
        }
    }

    #[test]
    fn rq_2_the_default_time_applies_without_requeuing_settings() {
        let silent = AppWrapper::default();
        assert_eq!(wait_seconds(&silent, &Settings::default()), 300);
        assert_eq!(next_wait_seconds(&silent), 0);
    }

    #[test]
    fn rq_2_time_counts_from_the_last_entry_or_the_newest_dispatch() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut status = AppWrapperStatus::default();
        assert_eq!(wait_start(&status), None);
        QueueCondition::Dispatched.upsert(&mut status.conditions, at(10));
        QueueCondition::Running.upsert(&mut status.conditions, at(20));
        assert_eq!(wait_start(&status), Some(at(20)), "the last of the list");
        QueueCondition::Dispatched.upsert(&mut status.conditions, at(30));
        assert_eq!(wait_start(&status), Some(at(30)), "the dispatch, though it is not the last");
        condition::refresh(&mut status, at(99));
        assert_eq!(wait_start(&status), Some(at(30)), "counting pods is no news");
    }

    #[test]
    fn rq_1_checks_are_made_at_whole_intervals_and_not_between() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let table = [
            ("at least one interval", 1, 1059, PodCheck::At(at(1060))),
            ("then it is looked at", 1, 1060, PodCheck::Now(at(1120))),
            ("a little late is in time", 1, 1065, PodCheck::Now(at(1120))),
            ("later is too late", 1, 1066, PodCheck::At(at(1120))),
            ("and again and again", 1, 1120, PodCheck::Now(at(1180))),
            ("waits are rounded up", 61, 1060, PodCheck::At(at(1120))),
            ("whole ones are kept", 120, 1119, PodCheck::At(at(1120))),
        ];
        for (why, seconds, now, expected) in table {
            let mut wrapper = wrapper(&json!({"timeInSeconds": seconds}), 0, 0);
            QueueCondition::Dispatched.upsert(&mut wrapper.status.conditions, at(1000));
            assert_eq!(
                next_check(&wrapper, &Settings::default(), at(now)),
                Some(expected),
                "{why}"
            );
        }
    }

    #[test]
    fn rq_5_the_limit_is_compared_with_what_was_counted() {
        let table = [
            ("no limit", json!({"maxNumRequeuings": 0}), 99, false),
            ("not yet", json!({"maxNumRequeuings": 3}), 2, false),
            ("reached", json!({"maxNumRequeuings": 3}), 3, true),
            (
                "the legacy counter counts too",
                json!({"maxNumRequeuings": 3, "numRequeuings": 3}),
                0,
                true,
            ),
        ];
        for (why, rule, count, expected) in table {
            assert_eq!(is_limit_reached(&wrapper(&rule, 0, count)), expected, "{why}");
        }
        assert!(!is_limit_reached(&AppWrapper::default()));
    }
}
