//! Taking a dispatched AppWrapper back because its pods did not come up in time.

use std::time::Duration;

use gantry_api::queue::AppWrapperStatus;
use jiff::Timestamp;

use crate::app_wrapper::AppWrapper;
use crate::condition::{self, kind, since};
use crate::settings::Settings;

/// For how long after a check is due it is still made. A check looks at one moment: pods that are gone
/// between two of them, and back before the next, are nobody's business.
const LATE: Duration = Duration::from_secs(5);

/// Whether the pods of an AppWrapper are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// They are looked at now, and next then.
    Now(Timestamp),
    /// They are looked at then.
    At(Timestamp),
}

impl Check {
    /// When they are looked at next.
    #[must_use]
    pub fn next(self) -> Timestamp {
        match self {
            Self::Now(next) | Self::At(next) => next,
        }
    }
}

/// When the pods of a dispatched AppWrapper are looked at; nothing where it was never dispatched.
#[must_use]
pub fn check(wrapper: &AppWrapper, settings: &Settings, now: Timestamp) -> Option<Check> {
    let base = base(&wrapper.status)?;
    let interval =
        i128::try_from(settings.requeue_interval.as_micros()).unwrap_or(i128::MAX).max(1);
    let wait = i128::from(wait(wrapper, settings)) * 1_000_000;
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
        return Some(Check::At(at(first)));
    }
    let late = i128::try_from(LATE.as_micros()).unwrap_or(i128::MAX).min(interval / 2);
    let next = at(ticks + 1);
    Some(if passed - ticks * interval <= late { Check::Now(next) } else { Check::At(next) })
}

/// From when on the wait counts: the last thing that happened, or the dispatch if that is newer.
#[must_use]
pub fn base(status: &AppWrapperStatus) -> Option<Timestamp> {
    let last = status.conditions.last().and_then(since);
    last.max(condition::newest_since(status, kind::DISPATCHED))
}

/// How many seconds the pods have to come up.
#[must_use]
pub fn wait(wrapper: &AppWrapper, settings: &Settings) -> i64 {
    let grown = wrapper.status.requeuing_time_in_seconds;
    let usual = i64::try_from(settings.requeue_default.as_secs()).unwrap_or(i64::MAX);
    let said = wrapper.requeuing().map_or(usual, |it| match it.initial_time_in_seconds {
        initial if initial > 0 => initial,
        _ => it.time_in_seconds.max(0),
    });
    if grown > 0 { grown } else { said }
}

/// The wait after another requeuing.
#[must_use]
pub fn grown(wrapper: &AppWrapper) -> i64 {
    let before = wrapper.status.requeuing_time_in_seconds.max(0);
    let Some(rule) = wrapper.requeuing() else { return before };
    let time = rule.time_in_seconds.max(0);
    let initial =
        if rule.initial_time_in_seconds > 0 { rule.initial_time_in_seconds } else { time };
    let after = match rule.growth_type.as_str() {
        "exponential" if before == 0 => time,
        "exponential" => before.saturating_mul(2),
        "linear" => before.saturating_add(initial),
        // Anything else is no growth.
        _ => before,
    };
    match rule.max_time_in_seconds {
        most if most > 0 => after.min(most),
        _ => after,
    }
}

/// Whether an AppWrapper may be requeued no more.
#[must_use]
pub fn is_spent(wrapper: &AppWrapper) -> bool {
    let Some(rule) = wrapper.requeuing() else { return false };
    let so_far = wrapper.status.number_of_requeuings.max(rule.num_requeuings);
    rule.max_num_requeuings > 0 && so_far >= rule.max_num_requeuings
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::condition::Entry;

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
                waits.push(wait(&wrapper, &Settings::default()));
                now = grown(&wrapper);
            }
            assert_eq!(waits, expected, "{rule}");
        }
    }

    #[test]
    fn rq_2_who_says_nothing_has_the_usual_time() {
        let silent = AppWrapper::default();
        assert_eq!(wait(&silent, &Settings::default()), 300);
        assert_eq!(grown(&silent), 0);
    }

    #[test]
    fn rq_2_time_counts_from_the_last_entry_or_the_newest_dispatch() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut status = AppWrapperStatus::default();
        assert_eq!(base(&status), None);
        Entry::Dispatched.put(&mut status.conditions, at(10));
        Entry::Running.put(&mut status.conditions, at(20));
        assert_eq!(base(&status), Some(at(20)), "the last of the list");
        Entry::Dispatched.put(&mut status.conditions, at(30));
        assert_eq!(base(&status), Some(at(30)), "the dispatch, though it is not the last");
        condition::refresh(&mut status, at(99));
        assert_eq!(base(&status), Some(at(30)), "counting pods is no news");
    }

    #[test]
    fn rq_1_checks_are_made_at_whole_intervals_and_not_between() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let table = [
            ("at least one interval", 1, 1059, Check::At(at(1060))),
            ("then it is looked at", 1, 1060, Check::Now(at(1120))),
            ("a little late is in time", 1, 1065, Check::Now(at(1120))),
            ("later is too late", 1, 1066, Check::At(at(1120))),
            ("and again and again", 1, 1120, Check::Now(at(1180))),
            ("waits are rounded up", 61, 1060, Check::At(at(1120))),
            ("whole ones are kept", 120, 1119, Check::At(at(1120))),
        ];
        for (why, seconds, now, expected) in table {
            let mut wrapper = wrapper(&json!({"timeInSeconds": seconds}), 0, 0);
            Entry::Dispatched.put(&mut wrapper.status.conditions, at(1000));
            assert_eq!(check(&wrapper, &Settings::default(), at(now)), Some(expected), "{why}");
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
            assert_eq!(is_spent(&wrapper(&rule, 0, count)), expected, "{why}");
        }
        assert!(!is_spent(&AppWrapper::default()));
    }
}
