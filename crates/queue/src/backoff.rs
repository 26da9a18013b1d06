//! Backoff of AppWrappers: after an evaluation that found too little free capacity, and after an
//! eviction.
//!
//! A backoff is a time in the status and no sleeping worker. An evicted AppWrapper waits to the end
//! of its backoff: its own departure freed the capacity that it would take again at once. An
//! AppWrapper that did not fit is evaluated again as soon as capacity is released, if the settings
//! say so.

use std::time::Duration;

use gantry_api::queue::{AppWrapperStatus, QueueState};
use jiff::Timestamp;

use crate::app_wrapper::AppWrapper;
use crate::condition::{self, kind, reason};
use crate::settings::Settings;

/// Returns when the backoff of a pending AppWrapper ends, or `None` where it has none.
#[must_use]
pub fn ends_at(wrapper: &AppWrapper, settings: &Settings) -> Option<Timestamp> {
    let status = &wrapper.status;
    if status.queue_state != Some(QueueState::Backoff) {
        return None;
    }
    let since = condition::newest_since(status, kind::BACKOFF)?;
    let said = wrapper.requeuing().map_or(0, |it| it.pause_time_in_seconds);
    let said = u64::try_from(said).ok().filter(|it| *it > 0 && was_evicted(status));
    let pause = said.map_or(settings.backoff, Duration::from_secs);
    Some(since.checked_add(pause).unwrap_or(Timestamp::MAX))
}

/// Returns whether a pending AppWrapper backs off because it was evicted.
fn was_evicted(status: &AppWrapperStatus) -> bool {
    let pause = condition::newest(status, kind::BACKOFF);
    pause.is_some_and(|it| it.reason.as_deref() == Some(reason::PREEMPTION))
}

/// Returns until when a pending AppWrapper is not evaluated at all.
#[must_use]
pub fn skipped_until(wrapper: &AppWrapper, settings: &Settings) -> Option<Timestamp> {
    let to_its_end = was_evicted(&wrapper.status) || !settings.wake_on_release;
    ends_at(wrapper, settings).filter(|_| to_its_end)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::condition::{BackoffReason, QueueCondition};

    #[test]
    fn only_the_current_step_backs_off() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let none = BackoffReason::Resources;
        let back = BackoffReason::Evicted("why".to_owned());
        let table = [
            ("one that did not fit is evaluated", QueueState::Backoff, &none, true, Some(30), None),
            (
                "unless releases do not wake it",
                QueueState::Backoff,
                &none,
                false,
                Some(30),
                Some(30),
            ),
            ("an evicted one backs off", QueueState::Backoff, &back, true, Some(30), Some(30)),
            ("an old pause is over", QueueState::HeadOfLine, &back, true, None, None),
        ];
        for (why, step, pause, wake_on_release, end, rests_until) in table {
            let mut wrapper = AppWrapper::default();
            wrapper.status.queue_state = Some(step);
            QueueCondition::Backoff(pause.clone()).upsert(&mut wrapper.status.conditions, at(10));
            let settings = Settings {
                backoff: Duration::from_secs(20),
                wake_on_release,
                ..Settings::default()
            };
            let found = (ends_at(&wrapper, &settings), skipped_until(&wrapper, &settings));
            assert_eq!(found, (end.map(at), rests_until.map(at)), "{why}");
        }
    }

    #[test]
    fn rq_9_an_evicted_app_wrapper_backs_off_for_its_own_time() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let back = || BackoffReason::Evicted("why".to_owned());
        let table = [
            ("its own pause", 90, back(), 100),
            ("none of its own", 0, back(), 30),
            ("less than none is none", -5, back(), 30),
            ("did not fit, was not evicted", 90, BackoffReason::Resources, 30),
        ];
        for (why, pause, reason, end) in table {
            let mut wrapper: AppWrapper = serde_json::from_value(json!({
                "spec": {"schedulingSpec": {"requeuing": {"pauseTimeInSeconds": pause}}},
            }))
            .unwrap();
            wrapper.status.queue_state = Some(QueueState::Backoff);
            QueueCondition::Backoff(reason).upsert(&mut wrapper.status.conditions, at(10));
            let settings = Settings { backoff: Duration::from_secs(20), ..Settings::default() };
            assert_eq!(ends_at(&wrapper, &settings), Some(at(end)), "{why}");
        }
        let mut wrapper: AppWrapper = serde_json::from_value(json!({
            "spec": {"schedulingSpec": {"requeuing": {"pauseTimeInSeconds": i64::MAX}}},
        }))
        .unwrap();
        wrapper.status.queue_state = Some(QueueState::Backoff);
        QueueCondition::Backoff(back()).upsert(&mut wrapper.status.conditions, at(10));
        assert_eq!(ends_at(&wrapper, &Settings::default()), Some(Timestamp::MAX), "for ever");
    }
}
