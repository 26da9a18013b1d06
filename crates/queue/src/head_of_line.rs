//! Head-of-line holding: for a while no AppWrapper is admitted ahead of the first of the queue.
//!
//! Small jobs that always fit would keep a large one waiting for ever. While it holds the head of
//! the line, nothing else is dispatched, and the capacity of jobs that end is kept for it.

use std::time::Duration;

use gantry_api::queue::{AppWrapperStatus, QueueState};
use jiff::Timestamp;

use crate::app_wrapper::AppWrapper;
use crate::backoff;
use crate::condition::{self, kind};
use crate::settings::Settings;

/// How often the head of the line is retried, even if nothing seems to have changed.
pub const HEAD_OF_LINE_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// What an AppWrapper that does not fit means to those behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldState {
    /// It becomes the head of the line, and holds it.
    Begins,
    /// It holds the head of the line until this time.
    Held(Timestamp),
    /// Others may be admitted ahead of it: it has held the line long enough, backs off, or holding
    /// is disabled.
    NotHeld,
}

/// Decides whether an AppWrapper that does not fit holds the head of the line.
#[must_use]
pub fn hold_state(wrapper: &AppWrapper, settings: &Settings, now: Timestamp) -> HoldState {
    if settings.holding.is_zero() {
        return HoldState::NotHeld;
    }
    if let Some(until) = held_until(&wrapper.status, settings) {
        return if now < until { HoldState::Held(until) } else { HoldState::NotHeld };
    }
    match backoff::ends_at(wrapper, settings) {
        Some(end) if now < end => HoldState::NotHeld,
        Some(_) | None => HoldState::Begins,
    }
}

/// Returns until when an AppWrapper that became the head of the line holds it.
#[must_use]
pub fn held_until(status: &AppWrapperStatus, settings: &Settings) -> Option<Timestamp> {
    if settings.holding.is_zero() || status.queue_state != Some(QueueState::HeadOfLine) {
        return None;
    }
    let since = condition::newest_since(status, kind::HEAD_OF_LINE)?;
    since.checked_add(settings.holding).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::{BackoffReason, QueueCondition};

    #[test]
    fn the_head_of_line_is_held_for_the_configured_time() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let wrapper = |entry: QueueCondition, step| {
            let mut wrapper = AppWrapper::default();
            wrapper.status.queue_state = Some(step);
            entry.upsert(&mut wrapper.status.conditions, at(100));
            wrapper
        };
        let fresh = wrapper(QueueCondition::Queueing, QueueState::Queueing);
        let head = wrapper(QueueCondition::HeadOfLine, QueueState::HeadOfLine);
        let parked =
            wrapper(QueueCondition::Backoff(BackoffReason::Resources), QueueState::Backoff);
        let table = [
            ("the line is not held by default", &head, 0, 101, HoldState::NotHeld),
            ("the first one begins", &fresh, 60, 101, HoldState::Begins),
            ("and holds", &head, 60, 159, HoldState::Held(at(160))),
            ("until its time is over", &head, 60, 160, HoldState::NotHeld),
            ("in its backoff it does not hold", &parked, 60, 119, HoldState::NotHeld),
            ("after that it holds again", &parked, 60, 120, HoldState::Begins),
        ];
        for (why, wrapper, holding, now, expected) in table {
            let settings =
                Settings { holding: Duration::from_secs(holding), ..Settings::default() };
            assert_eq!(hold_state(wrapper, &settings, at(now)), expected, "{why}");
        }
    }
}
