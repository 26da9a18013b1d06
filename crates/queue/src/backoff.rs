//! Pauses: after an evaluation that found no room, and after an AppWrapper was taken back.
//!
//! A pause is a time in the status and no sleeping worker. Who was taken back pauses to its end: its
//! own departure made the room that it would take again at once. Who found no room is tried again as
//! soon as some is released, if the settings say so.

use gantry_api::queue::{AppWrapperStatus, QueueState};
use jiff::Timestamp;

use crate::condition::{self, kind, reason};
use crate::settings::Settings;

/// When the pause of a waiting AppWrapper ends; nothing where it has none.
#[must_use]
pub fn ends(status: &AppWrapperStatus, settings: &Settings) -> Option<Timestamp> {
    if status.queue_state != Some(QueueState::Backoff) {
        return None;
    }
    let since = condition::newest_since(status, kind::BACKOFF)?;
    since.checked_add(settings.backoff).ok()
}

/// Until when a waiting AppWrapper is not even looked at.
#[must_use]
pub fn rests(status: &AppWrapperStatus, settings: &Settings) -> Option<Timestamp> {
    let recalled = condition::newest(status, kind::BACKOFF)
        .is_some_and(|it| it.reason.as_deref() == Some(reason::PREEMPTION));
    ends(status, settings).filter(|_| recalled || !settings.wake_on_release)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
            let mut status =
                AppWrapperStatus { queue_state: Some(step), ..AppWrapperStatus::default() };
            Entry::Backoff(pause.clone()).put(&mut status.conditions, at(10));
            let settings = Settings {
                backoff: Duration::from_secs(20),
                wake_on_release,
                ..Settings::default()
            };
            let found = (ends(&status, &settings), rests(&status, &settings));
            assert_eq!(found, (ends_at.map(at), rests_until.map(at)), "{why}");
        }
    }
}
