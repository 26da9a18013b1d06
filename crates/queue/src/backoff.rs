//! Pauses: after an evaluation that found no room, and after an AppWrapper was taken back.
//!
//! A pause is a time in the status and no sleeping worker. Who was taken back pauses to its end: its
//! own departure made the room that it would take again at once. Who found no room is tried again as
//! soon as some is released, if the settings say so.

use std::time::Duration;

use gantry_api::queue::{AppWrapperStatus, QueueState};
use jiff::Timestamp;

use crate::app_wrapper::AppWrapper;
use crate::condition::{self, kind, reason};
use crate::settings::Settings;

/// When the pause of a waiting AppWrapper ends; nothing where it has none.
#[must_use]
pub fn ends(wrapper: &AppWrapper, settings: &Settings) -> Option<Timestamp> {
    let status = &wrapper.status;
    if status.queue_state != Some(QueueState::Backoff) {
        return None;
    }
    let since = condition::newest_since(status, kind::BACKOFF)?;
    let said = wrapper.requeuing().map_or(0, |it| it.pause_time_in_seconds);
    let said = u64::try_from(said).ok().filter(|it| *it > 0 && is_recalled(status));
    let pause = said.map_or(settings.backoff, Duration::from_secs);
    Some(since.checked_add(pause).unwrap_or(Timestamp::MAX))
}

/// Whether a waiting AppWrapper pauses because it was taken back.
fn is_recalled(status: &AppWrapperStatus) -> bool {
    let pause = condition::newest(status, kind::BACKOFF);
    pause.is_some_and(|it| it.reason.as_deref() == Some(reason::PREEMPTION))
}

/// Until when a waiting AppWrapper is not even looked at.
#[must_use]
pub fn rests(wrapper: &AppWrapper, settings: &Settings) -> Option<Timestamp> {
    let to_its_end = is_recalled(&wrapper.status) || !settings.wake_on_release;
    ends(wrapper, settings).filter(|_| to_its_end)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::condition::{Entry, Pause};

    #[test]
    fn only_the_present_step_pauses() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let none = Pause::Resources;
        let back = Pause::Recalled("why".to_owned());
        let table = [
            ("who found no room is looked at", QueueState::Backoff, &none, true, Some(30), None),
            ("unless nobody wakes it", QueueState::Backoff, &none, false, Some(30), Some(30)),
            ("who was taken back rests", QueueState::Backoff, &back, true, Some(30), Some(30)),
            ("an old pause is over", QueueState::HeadOfLine, &back, true, None, None),
        ];
        for (why, step, pause, wake_on_release, ends_at, rests_until) in table {
            let mut wrapper = AppWrapper::default();
            wrapper.status.queue_state = Some(step);
            Entry::Backoff(pause.clone()).put(&mut wrapper.status.conditions, at(10));
            let settings = Settings {
                backoff: Duration::from_secs(20),
                wake_on_release,
                ..Settings::default()
            };
            let found = (ends(&wrapper, &settings), rests(&wrapper, &settings));
            assert_eq!(found, (ends_at.map(at), rests_until.map(at)), "{why}");
        }
    }

    #[test]
    fn rq_9_who_was_taken_back_pauses_for_as_long_as_it_says() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let back = || Pause::Recalled("why".to_owned());
        let table = [
            ("its own pause", 90, back(), 100),
            ("none of its own", 0, back(), 30),
            ("less than none is none", -5, back(), 30),
            ("who found no room was not taken back", 90, Pause::Resources, 30),
        ];
        for (why, pause, reason, end) in table {
            let mut wrapper: AppWrapper = serde_json::from_value(json!({
                "spec": {"schedulingSpec": {"requeuing": {"pauseTimeInSeconds": pause}}},
            }))
            .unwrap();
            wrapper.status.queue_state = Some(QueueState::Backoff);
            Entry::Backoff(reason).put(&mut wrapper.status.conditions, at(10));
            let settings = Settings { backoff: Duration::from_secs(20), ..Settings::default() };
            assert_eq!(ends(&wrapper, &settings), Some(at(end)), "{why}");
        }
        let mut wrapper: AppWrapper = serde_json::from_value(json!({
            "spec": {"schedulingSpec": {"requeuing": {"pauseTimeInSeconds": i64::MAX}}},
        }))
        .unwrap();
        wrapper.status.queue_state = Some(QueueState::Backoff);
        Entry::Backoff(back()).put(&mut wrapper.status.conditions, at(10));
        assert_eq!(ends(&wrapper, &Settings::default()), Some(Timestamp::MAX), "for ever");
    }
}
