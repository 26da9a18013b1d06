//! Renders the queue, and one AppWrapper of it, as text.

mod page;

use gantry_columns::{TABLE_GAP, align};
use gantry_queue::queue_report::{ExpectedEvent, ExpectedTime, QueueRow};
use jiff::{SignedDuration, Timestamp};

pub use page::page;

/// The state of an AppWrapper that the queue has not processed yet.
pub const UNSEEN: &str = "Unseen";

/// Renders a table with one line per AppWrapper.
#[must_use]
pub fn table(rows: &[QueueRow], wide: bool, now: Timestamp) -> String {
    let mut head = vec!["POS", "NAMESPACE", "NAME", "PRIORITY", "STATE"];
    head.extend(wide.then_some("STEP"));
    head.extend(["SINCE", "EXPECTED"]);
    head.extend(wide.then_some("UNTIL"));
    head.push("WAITS FOR");
    let mut lines = vec![head.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    for row in rows {
        let wait = row.waits_for.as_ref();
        let mut line = vec![
            row.position.map_or_else(nothing, |it| it.to_string()),
            row.namespace.clone(),
            row.name.clone(),
            priority(row.priority),
            state(row).to_owned(),
        ];
        line.extend(wide.then(|| or_nothing(&row.step)));
        line.push(row.since.map_or_else(nothing, |it| format_duration(now.duration_since(it))));
        line.push(row.expected.map_or_else(nothing, |it| expected(it, now)));
        line.extend(wide.then(|| {
            let until = wait.and_then(|it| it.until).filter(|it| *it > now);
            until.map_or_else(nothing, format_timestamp)
        }));
        line.push(match wait {
            Some(wait) => format!("{}: {}", wait.reason.as_str(), wait.message),
            None => or_nothing(row.message.as_deref().unwrap_or_default()),
        });
        lines.push(line);
    }
    align(&lines, TABLE_GAP)
}

/// Renders the position in the queue.
fn state(row: &QueueRow) -> &str {
    if row.state.is_empty() { UNSEEN } else { &row.state }
}

fn nothing() -> String {
    "-".to_owned()
}

fn or_nothing(text: &str) -> String {
    if text.is_empty() { nothing() } else { text.to_owned() }
}

/// Renders a priority without needless digits.
fn priority(priority: f64) -> String {
    let text = format!("{priority:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Renders when something is expected, relative to now.
fn expected(expected: ExpectedTime, now: Timestamp) -> String {
    let left = format_duration(expected.at.duration_since(now));
    match expected.what {
        ExpectedEvent::Starts => "now".to_owned(),
        ExpectedEvent::StartsNotBefore => format!("after {left}"),
        ExpectedEvent::StartsAfterDeadlines => format!("~{left}"),
        ExpectedEvent::EndsAtLatest => format!("ends by {left}"),
    }
}

/// Renders a duration in its largest unit that is precise enough; the past is zero.
fn format_duration(time: SignedDuration) -> String {
    let seconds = time.as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86400),
    }
}

/// Renders a time to the second.
fn format_timestamp(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second()).unwrap_or(at).to_string()
}

#[cfg(test)]
mod tests;
