//! Formats durations in the short form of table columns.

use jiff::Timestamp;
use serde_json::Value;

/// Formats how long before `now` a time was, to two or three figures; `None` is `<unknown>`.
///
/// ```
/// # use gantry_kinds::print::age;
/// let at = |text: &str| text.parse().unwrap();
/// assert_eq!(age(Some(at("2026-01-01T00:00:00Z")), at("2026-01-01T00:03:20Z")), "3m20s");
/// ```
#[must_use]
pub fn age(time: Option<Timestamp>, now: Timestamp) -> String {
    time.map_or_else(|| "<unknown>".to_owned(), |time| between(time, now))
}

/// Formats the age of a field that holds a time.
pub(super) fn age_of(time: &Value, now: Timestamp) -> String {
    age(time_of(time), now)
}

/// Returns the time in a field; the zero time and an invalid one both count as not set.
pub(super) fn time_of(time: &Value) -> Option<Timestamp> {
    parse(time.as_str()?).ok().filter(|time| time.as_second() != ZERO_SECOND)
}

/// 0001-01-01T00:00:00Z, which Go does not distinguish from a time that is not set.
const ZERO_SECOND: i64 = -62_135_596_800;

/// The text is not an RFC 3339 time.
pub(super) struct InvalidTime;

/// Parses RFC 3339 strictly: the underlying parser would also take spaces, lower case and leap
/// seconds, which kube-apiserver rejects.
pub(super) fn parse(text: &str) -> Result<Timestamp, InvalidTime> {
    const SHAPE: &[u8] = b"0000-00-00T00:00:00";
    let (head, tail) = text.as_bytes().split_at_checked(SHAPE.len()).ok_or(InvalidTime)?;
    let fits = |(byte, shape): (&u8, &u8)| match shape {
        b'0' => byte.is_ascii_digit(),
        _ => byte == shape,
    };
    if !head.iter().zip(SHAPE).all(fits) || head.ends_with(b"60") {
        return Err(InvalidTime);
    }
    let zone = match tail.strip_prefix(b".") {
        Some(fraction) => match fraction.iter().position(|it| !it.is_ascii_digit()) {
            Some(end) if end > 0 => &fraction[end..],
            _ => return Err(InvalidTime),
        },
        None => tail,
    };
    let whole = match zone {
        b"Z" => true,
        [b'+' | b'-', a, b, b':', c, d] => [a, b, c, d].iter().all(|it| it.is_ascii_digit()),
        _ => false,
    };
    if !whole {
        return Err(InvalidTime);
    }
    text.parse().map_err(|_| InvalidTime)
}

/// Formats the time from `start` to `end` like an age.
pub(super) fn between(start: Timestamp, end: Timestamp) -> String {
    let seconds = end.duration_since(start).as_secs();
    // A Go duration holds no more than that, and saturates.
    duration(seconds.min(i64::MAX / 1_000_000_000))
}

/// Formats whole seconds like an age.
///
/// A clock that is up to two seconds ahead is treated as correct.
pub(super) fn duration(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let years = days / 365;
    let pair = |large: i64, unit: &str, small: i64, part: &str| match small {
        0 => format!("{large}{unit}"),
        _ => format!("{large}{unit}{small}{part}"),
    };
    if seconds < -1 {
        "<invalid>".to_owned()
    } else if seconds < 0 {
        "0s".to_owned()
    } else if seconds < 120 {
        format!("{seconds}s")
    } else if minutes < 10 {
        pair(minutes, "m", seconds % 60, "s")
    } else if minutes < 180 {
        format!("{minutes}m")
    } else if hours < 8 {
        pair(hours, "h", minutes % 60, "m")
    } else if hours < 48 {
        format!("{hours}h")
    } else if days < 8 {
        pair(days, "d", hours % 24, "h")
    } else if years < 2 {
        format!("{days}d")
    } else if years < 8 {
        pair(years, "y", days % 365, "d")
    } else {
        format!("{years}y")
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use serde_json::json;

    use super::*;

    #[test]
    fn ages_have_two_or_three_figures() {
        const MINUTE: i64 = 60;
        const HOUR: i64 = 60 * MINUTE;
        const DAY: i64 = 24 * HOUR;
        const YEAR: i64 = 365 * DAY;
        let table = [
            (-3, "<invalid>"),
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (121, "2m1s"),
            (10 * MINUTE - 1, "9m59s"),
            (10 * MINUTE, "10m"),
            (3 * HOUR - 1, "179m"),
            (3 * HOUR, "3h"),
            (3 * HOUR + MINUTE, "3h1m"),
            (8 * HOUR - 1, "7h59m"),
            (8 * HOUR, "8h"),
            (2 * DAY - 1, "47h"),
            (2 * DAY, "2d"),
            (2 * DAY + HOUR, "2d1h"),
            (8 * DAY - 1, "7d23h"),
            (8 * DAY, "8d"),
            (2 * YEAR - 1, "729d"),
            (2 * YEAR, "2y"),
            (2 * YEAR + DAY, "2y1d"),
            (8 * YEAR - 1, "7y364d"),
            (8 * YEAR, "8y"),
            (300 * YEAR, "292y"),
        ];
        let now: Timestamp = "2026-05-01T00:00:00Z".parse().unwrap();
        for (seconds, expected) in table {
            let time = now - SignedDuration::from_secs(seconds);
            assert_eq!(age(Some(time), now), expected, "{seconds} s");
        }
        assert_eq!(age(None, now), "<unknown>");
    }

    #[test]
    fn less_than_two_seconds_ahead_is_now() {
        let now: Timestamp = "2026-05-01T00:00:00Z".parse().unwrap();
        let ahead = |millis| age(Some(now + SignedDuration::from_millis(millis)), now);
        assert_eq!(ahead(1999), "0s");
        assert_eq!(ahead(2000), "<invalid>");
    }

    #[test]
    fn only_rfc_3339_is_a_time() {
        let good =
            ["2026-05-01T00:00:00Z", "2026-05-01T00:00:00.000001Z", "2026-05-01T02:00:00+02:00"];
        for text in good {
            assert!(time_of(&json!(text)).is_some(), "{text}");
        }
        let bad = [
            json!(null),
            json!(1),
            json!(""),
            json!("2026-05-01"),
            json!("2026-05-01 00:00:00Z"),
            json!("2026-05-01T00:00:00z"),
            json!("2026-05-01T00:00:00"),
            json!("2026-05-01T00:00:00.Z"),
            json!("2026-05-01T23:59:60Z"),
            json!("2026-13-01T00:00:00Z"),
            json!("0001-01-01T00:00:00Z"),
            json!("é026-05-01T00:00:00Z"),
        ];
        for time in bad {
            assert_eq!(time_of(&time), None, "{time}");
        }
    }
}
