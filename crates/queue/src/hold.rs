//! Holding the line: for a while nobody passes the first of the queue.
//!
//! Small jobs that always fit would keep a large one waiting for ever. While it holds the line, nothing
//! else is dispatched, and what ends makes room for it.

use std::time::Duration;

use gantry_api::queue::{AppWrapperStatus, QueueState};
use jiff::Timestamp;

use crate::app_wrapper::AppWrapper;
use crate::backoff;
use crate::condition::{self, kind};
use crate::settings::Settings;

/// How often who holds the line is tried again, even if nothing seems to have changed.
pub const AGAIN: Duration = Duration::from_secs(1);

/// What an AppWrapper that does not fit means to those behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// It is now the head of the line, and holds it.
    Begins,
    /// It holds the line until then.
    Held(Timestamp),
    /// It may be passed. It has held the line long enough, pauses, or nobody ever holds it.
    Open,
}

/// Decides whether an AppWrapper that does not fit holds the line.
#[must_use]
pub fn line(wrapper: &AppWrapper, settings: &Settings, now: Timestamp) -> Line {
    if settings.holding.is_zero() {
        return Line::Open;
    }
    if let Some(until) = held_until(&wrapper.status, settings) {
        return if now < until { Line::Held(until) } else { Line::Open };
    }
    match backoff::ends(wrapper, settings) {
        Some(end) if now < end => Line::Open,
        Some(_) | None => Line::Begins,
    }
}

/// Until when an AppWrapper that became the head of the line holds it.
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
    use crate::condition::{Entry, Pause};

    #[test]
    fn a_line_is_held_for_as_long_as_the_settings_say() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let wrapper = |entry: Entry, step| {
            let mut wrapper = AppWrapper::default();
            wrapper.status.queue_state = Some(step);
            entry.put(&mut wrapper.status.conditions, at(100));
            wrapper
        };
        let fresh = wrapper(Entry::Queueing, QueueState::Queueing);
        let head = wrapper(Entry::HeadOfLine, QueueState::HeadOfLine);
        let parked = wrapper(Entry::Backoff(Pause::Resources), QueueState::Backoff);
        let table = [
            ("nobody holds by default", &head, 0, 101, Line::Open),
            ("who comes first begins", &fresh, 60, 101, Line::Begins),
            ("and holds", &head, 60, 159, Line::Held(at(160))),
            ("until its time is over", &head, 60, 160, Line::Open),
            ("in its pause it may be passed", &parked, 60, 119, Line::Open),
            ("after that it holds again", &parked, 60, 120, Line::Begins),
        ];
        for (why, wrapper, holding, now, expected) in table {
            let settings =
                Settings { holding: Duration::from_secs(holding), ..Settings::default() };
            assert_eq!(line(wrapper, &settings, at(now)), expected, "{why}");
        }
    }
}
