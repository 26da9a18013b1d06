//! Parses cron schedules and computes their times.

use jiff::civil::Date;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp, ToSpan};

/// A schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Schedule {
    /// The times at which the local time matches these fields.
    Cron(CronFields),
    /// Times at a constant interval.
    Every(SignedDuration),
}

/// The local times that match; a bit for each value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CronFields {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Whether both the day of the month and the day of the week must match, because one of them is
    /// `*`. Otherwise either is enough.
    both_days: bool,
}

/// Why a schedule is invalid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ScheduleError {
    /// The schedule has too few or too many fields.
    #[error("expected exactly 5 fields, found {found}: [{text}]")]
    Fields {
        /// The number of fields.
        found: usize,
        /// The schedule.
        text: String,
    },
    /// An unknown descriptor such as `@never`.
    #[error("unrecognized descriptor: {0}")]
    Descriptor(String),
    /// A duration that cannot be parsed.
    #[error("failed to parse duration {0}")]
    Duration(String),
    /// A field that cannot be parsed.
    #[error("{why}: {text}")]
    Field {
        /// The reason.
        why: &'static str,
        /// The part of the field.
        text: String,
    },
}

/// How many years ahead are searched. Leap days can be eight years apart, but such a schedule is
/// not worth the search.
const MAX_YEARS_AHEAD: i16 = 5;

impl Schedule {
    /// Parses five fields, a descriptor such as `@daily`, or `@every 90m`.
    pub(super) fn parse(text: &str) -> Result<Self, ScheduleError> {
        if let Some(word) = text.strip_prefix('@') {
            return parse_descriptor(word, text);
        }
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields.as_slice() else {
            return Err(ScheduleError::Fields { found: fields.len(), text: text.to_owned() });
        };
        let (days, any_day) = MONTH_DAY.parse(day)?;
        let (weekdays, any_weekday) = WEEKDAY.parse(weekday)?;
        Ok(Self::Cron(CronFields {
            minutes: MINUTE.parse(minute)?.0,
            hours: HOUR.parse(hour)?.0,
            days,
            months: MONTH.parse(month)?.0,
            weekdays,
            both_days: any_day || any_weekday,
        }))
    }

    /// Returns the first scheduled time after `from`; `None` where there is none.
    pub(super) fn next(&self, from: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        match self {
            Self::Every(wait) => {
                let whole = Timestamp::from_second(from.as_second()).ok()?;
                whole.checked_add(*wait).ok()
            }
            Self::Cron(clock) => clock.next(from, zone),
        }
    }
}

impl CronFields {
    fn next(&self, from: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let today = zone.to_datetime(from).date();
        // When clocks are set back over midnight, part of yesterday is still to come.
        let mut date = today.yesterday().unwrap_or(today);
        let last = date.year().saturating_add(MAX_YEARS_AHEAD);
        while date.year() <= last {
            let tomorrow = date.checked_add(1.day()).ok()?;
            if !has_bit(self.months, date.month()) {
                date = date.last_of_month().checked_add(1.day()).ok()?;
                continue;
            }
            // For the same reason tomorrow may begin before today ends.
            let soonest = self.next_on_day(date, from, zone);
            if let Some(soonest) = soonest {
                return Some(
                    self.next_on_day(tomorrow, from, zone).map_or(soonest, |it| it.min(soonest)),
                );
            }
            date = tomorrow;
        }
        None
    }

    /// Returns the first scheduled time after `from` on a day. A local time that is skipped by a
    /// clock change is left out, and one that occurs twice is returned twice.
    fn next_on_day(&self, date: Date, from: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        if !self.matches_date(date) {
            return None;
        }
        let mut soonest: Option<Timestamp> = None;
        for hour in (0..24_i8).filter(|it| has_bit(self.hours, *it)) {
            for minute in (0..60_i8).filter(|it| has_bit(self.minutes, *it)) {
                let shown = date.at(hour, minute, 0, 0);
                let offsets = match zone.to_ambiguous_timestamp(shown).offset() {
                    AmbiguousOffset::Unambiguous { offset } => [Some(offset), None],
                    AmbiguousOffset::Gap { .. } => [None, None],
                    AmbiguousOffset::Fold { before, after } => [Some(before), Some(after)],
                };
                for offset in offsets.into_iter().flatten() {
                    let Ok(at) = offset.to_timestamp(shown) else { continue };
                    if at > from && soonest.is_none_or(|it| at < it) {
                        soonest = Some(at);
                    }
                }
            }
        }
        soonest
    }

    fn matches_date(&self, date: Date) -> bool {
        let day = has_bit(self.days, date.day());
        let weekday = has_bit(self.weekdays, date.weekday().to_sunday_zero_offset());
        let fits = if self.both_days { day && weekday } else { day || weekday };
        fits && has_bit(self.months, date.month())
    }
}

fn has_bit(bits: u64, value: i8) -> bool {
    u32::try_from(value).is_ok_and(|value| bits & (1 << value) != 0)
}

fn parse_descriptor(word: &str, text: &str) -> Result<Schedule, ScheduleError> {
    let fields = match word {
        "yearly" | "annually" => "0 0 1 1 *",
        "monthly" => "0 0 1 * *",
        "weekly" => "0 0 * * 0",
        "daily" | "midnight" => "0 0 * * *",
        "hourly" => "0 * * * *",
        other => {
            let Some(wait) = other.strip_prefix("every ") else {
                return Err(ScheduleError::Descriptor(text.to_owned()));
            };
            let seconds = parse_duration_seconds(wait)
                .ok_or_else(|| ScheduleError::Duration(text.to_owned()))?;
            return Ok(Schedule::Every(SignedDuration::from_secs(seconds.max(1))));
        }
    };
    Schedule::parse(fields)
}

/// Parses a duration such as `1h30m` and returns its whole seconds.
fn parse_duration_seconds(text: &str) -> Option<i64> {
    let mut rest = text.trim();
    let mut nanos: i128 = 0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|it: char| !it.is_ascii_digit() && it != '.')?;
        let (number, tail) = rest.split_at(digits);
        let unit = tail.find(|it: char| it.is_ascii_digit() || it == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit);
        let scale: i128 = match unit {
            "ns" => 1,
            "us" | "µs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        nanos = nanos.checked_add(whole.checked_mul(scale)?)?;
        if !part.is_empty() {
            let part = &part[..part.len().min(15)];
            let digits = u32::try_from(part.len()).ok()?;
            nanos += part.parse::<i128>().ok()?.checked_mul(scale)? / 10_i128.pow(digits);
        }
        rest = tail;
    }
    i64::try_from(nanos / 1_000_000_000).ok()
}

/// One of the five cron fields.
struct Field {
    min: u32,
    max: u32,
    /// The names of the values, from the least on.
    names: &'static [&'static str],
}

const MINUTE: Field = Field { min: 0, max: 59, names: &[] };
const HOUR: Field = Field { min: 0, max: 23, names: &[] };
const MONTH_DAY: Field = Field { min: 1, max: 31, names: &[] };
const MONTH: Field = Field {
    min: 1,
    max: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
const WEEKDAY: Field =
    Field { min: 0, max: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] };

impl Field {
    /// Parses a list of ranges; returns the values, and whether the field is `*`.
    fn parse(&self, text: &str) -> Result<(u64, bool), ScheduleError> {
        let (mut bits, mut any) = (0, false);
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (values, is_any) = self.range(part)?;
            bits |= values;
            any |= is_any;
        }
        Ok((bits, any))
    }

    /// Parses `*`, `3` or `3-7`, each optionally with `/2`.
    fn range(&self, part: &str) -> Result<(u64, bool), ScheduleError> {
        let wrong = |why: &'static str| ScheduleError::Field { why, text: part.to_owned() };
        let mut pieces = part.split('/');
        let span = pieces.next().unwrap_or_default();
        let step = pieces.next();
        if pieces.next().is_some() {
            return Err(wrong("too many slashes"));
        }
        let stride = match step {
            None => 1,
            Some(text) => text.parse().map_err(|_| wrong("failed to parse int from"))?,
        };
        let mut limits = span.split('-');
        let first = limits.next().unwrap_or_default();
        let second = limits.next();
        if limits.next().is_some() {
            return Err(wrong("too many hyphens"));
        }
        let is_star = matches!(first, "*" | "?");
        let (from, to) = match second {
            _ if is_star => (self.min, self.max),
            Some(second) => (self.value(first, part)?, self.value(second, part)?),
            // `3/5` means from three up to the maximum.
            None if step.is_some() => (self.value(first, part)?, self.max),
            None => (self.value(first, part)?, self.value(first, part)?),
        };
        if from < self.min {
            return Err(wrong("beginning of range below minimum"));
        }
        if to > self.max {
            return Err(wrong("end of range above maximum"));
        }
        if from > to {
            return Err(wrong("beginning of range beyond end of range"));
        }
        if stride == 0 {
            return Err(wrong("step of range should be a positive number"));
        }
        let mut bits = 0;
        let mut value = from;
        while value <= to {
            bits |= 1 << value;
            value = value.saturating_add(stride);
        }
        Ok((bits, is_star && stride == 1))
    }

    fn value(&self, text: &str, part: &str) -> Result<u32, ScheduleError> {
        let lower = text.to_ascii_lowercase();
        if let Some(place) = self.names.iter().position(|name| *name == lower) {
            return Ok(self.min + u32::try_from(place).unwrap_or(0));
        }
        let why = "failed to parse int from";
        text.parse().map_err(|_| ScheduleError::Field { why, text: part.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn the_next_time_is_found() {
        let utc = TimeZone::UTC;
        // Clocks jump from two to three on 10 March 2024 and back on 3 November.
        let new_york = TimeZone::posix("EST5EDT,M3.2.0,M11.1.0").unwrap();
        // Clocks are set back from one minute past midnight to the evening before.
        let st_johns = TimeZone::posix("NST3:30NDT,M3.2.0/0:01,M11.1.0/0:01").unwrap();
        let table = [
            ("*/15 * * * *", &utc, "2024-07-09T14:45:00Z", Some("2024-07-09T15:00:00Z")),
            ("*/15 * * * *", &utc, "2024-07-09T14:59:59Z", Some("2024-07-09T15:00:00Z")),
            ("20-35/15 * * * *", &utc, "2024-07-09T14:46:00Z", Some("2024-07-09T15:20:00Z")),
            ("5/20 3 * * *", &utc, "2024-07-09T03:06:00Z", Some("2024-07-09T03:25:00Z")),
            ("0 0 1 jan,Jul *", &utc, "2024-01-01T00:00:00Z", Some("2024-07-01T00:00:00Z")),
            ("0 9 * * MON-fri", &utc, "2024-07-05T09:00:00Z", Some("2024-07-08T09:00:00Z")),
            ("0 0 13 * 5", &utc, "2024-09-01T00:00:00Z", Some("2024-09-06T00:00:00Z")),
            ("0 0 */2 * 5", &utc, "2024-09-01T00:00:00Z", Some("2024-09-03T00:00:00Z")),
            ("0 0 13 * */1", &utc, "2024-09-01T00:00:00Z", Some("2024-09-13T00:00:00Z")),
            ("0 0 29 2 ?", &utc, "2024-03-01T00:00:00Z", Some("2028-02-29T00:00:00Z")),
            ("0 0 31 2 *", &utc, "2024-03-01T00:00:00Z", None),
            ("@daily", &utc, "2024-03-01T00:00:00Z", Some("2024-03-02T00:00:00Z")),
            ("@hourly", &utc, "2024-12-31T23:30:00Z", Some("2025-01-01T00:00:00Z")),
            ("@weekly", &utc, "2024-07-09T00:00:00Z", Some("2024-07-14T00:00:00Z")),
            ("@monthly", &utc, "2024-07-09T00:00:00Z", Some("2024-08-01T00:00:00Z")),
            ("@yearly", &utc, "2024-07-09T00:00:00Z", Some("2025-01-01T00:00:00Z")),
            ("@every 1h30m", &utc, "2024-07-09T00:00:00.5Z", Some("2024-07-09T01:30:00Z")),
            ("@every 100ms", &utc, "2024-07-09T00:00:00Z", Some("2024-07-09T00:00:01Z")),
            // A local time that is skipped is left out.
            ("30 2 * * *", &new_york, "2024-03-10T05:00:00Z", Some("2024-03-11T06:30:00Z")),
            ("0 * * * *", &new_york, "2024-03-10T06:00:00Z", Some("2024-03-10T07:00:00Z")),
            // A local time that occurs twice is scheduled twice.
            ("30 1 * * *", &new_york, "2024-11-03T05:00:00Z", Some("2024-11-03T05:30:00Z")),
            ("30 1 * * *", &new_york, "2024-11-03T05:30:00Z", Some("2024-11-03T06:30:00Z")),
            ("30 1 * * *", &new_york, "2024-11-03T06:30:00Z", Some("2024-11-04T06:30:00Z")),
            ("0 0 * * *", &new_york, "2024-07-09T12:00:00Z", Some("2024-07-10T04:00:00Z")),
            // Midnight comes before the evening is over.
            ("0 0,23 * * *", &st_johns, "2024-11-03T02:00:00Z", Some("2024-11-03T02:30:00Z")),
            ("30 0,23 * * *", &st_johns, "2024-11-03T02:30:00Z", Some("2024-11-03T03:00:00Z")),
        ];
        for (text, zone, from, expected) in table {
            let next = Schedule::parse(text).unwrap().next(at(from), zone);
            assert_eq!(next, expected.map(at), "{text} after {from}");
        }
    }

    #[test]
    fn invalid_schedules_are_rejected() {
        let table = [
            ("", "expected exactly 5 fields, found 0: []"),
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("60 * * * *", "end of range above maximum: 60"),
            ("* * 0 * *", "beginning of range below minimum: 0"),
            ("* * * * 7", "end of range above maximum: 7"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("5-3 * * * *", "beginning of range beyond end of range: 5-3"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            ("x * * * *", "failed to parse int from: x"),
            ("@often", "unrecognized descriptor: @often"),
            ("@every soon", "failed to parse duration @every soon"),
        ];
        for (text, expected) in table {
            assert_eq!(Schedule::parse(text).unwrap_err().to_string(), expected, "{text}");
        }
    }
}
