//! Points in time and lengths of time.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};

use super::{Answer, Entry, no_overload};
use crate::cost::Charge;
use crate::eval::Work;
use crate::fault::EvalError;
use crate::value::Value;

const OF_TIME: &[&str] = &["timestamp.() int", "timestamp.(string) int"];
const OF_BOTH: &[&str] = &["timestamp.() int", "timestamp.(string) int", "duration.() int"];

pub(super) const FUNCTIONS: &[Entry] = &[
    Entry { name: "getFullYear", signatures: OF_TIME, charge: Charge::Nominal, run: full_year },
    Entry { name: "getMonth", signatures: OF_TIME, charge: Charge::Nominal, run: month },
    Entry { name: "getDate", signatures: OF_TIME, charge: Charge::Nominal, run: date },
    Entry {
        name: "getDayOfMonth",
        signatures: OF_TIME,
        charge: Charge::Nominal,
        run: day_of_month,
    },
    Entry { name: "getDayOfWeek", signatures: OF_TIME, charge: Charge::Nominal, run: day_of_week },
    Entry { name: "getDayOfYear", signatures: OF_TIME, charge: Charge::Nominal, run: day_of_year },
    Entry { name: "getHours", signatures: OF_BOTH, charge: Charge::Nominal, run: hours },
    Entry { name: "getMinutes", signatures: OF_BOTH, charge: Charge::Nominal, run: minutes },
    Entry { name: "getSeconds", signatures: OF_BOTH, charge: Charge::Nominal, run: seconds },
    Entry { name: "getMilliseconds", signatures: OF_BOTH, charge: Charge::Nominal, run: millis },
];

const SECOND: i64 = 1_000_000_000;
/// The first second of the year 1, the earliest there is.
const FIRST: i64 = -62_135_596_800;
/// The last second of the year 9999.
const LAST: i64 = 253_402_300_799;

fn in_range(at: Timestamp) -> Result<Timestamp, EvalError> {
    let seconds = at.as_second();
    // Before the epoch a fraction counts towards zero.
    let before = seconds == FIRST && at.subsec_nanosecond() < 0;
    if (FIRST..=LAST).contains(&seconds) && !before { Ok(at) } else { Err(overflow()) }
}

fn overflow() -> EvalError {
    EvalError::failed("timestamp overflow")
}

pub(crate) fn shift(at: Timestamp, nanos: i128) -> Result<Timestamp, EvalError> {
    let moved = at.as_nanosecond().checked_add(nanos).ok_or_else(overflow)?;
    in_range(Timestamp::from_nanosecond(moved).map_err(|_| overflow())?)
}

pub(crate) fn from_seconds(seconds: i64) -> Result<Timestamp, EvalError> {
    in_range(Timestamp::from_second(seconds).map_err(|_| overflow())?)
}

/// A point in time exactly as RFC 3339 has it, with capital letters.
pub(crate) fn parse_rfc3339(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    let shape = b"dddd-dd-ddTdd:dd:dd";
    let (head, mut tail) = bytes.split_at_checked(shape.len())?;
    let fits = head.iter().zip(shape).all(|(byte, wanted)| match wanted {
        b'd' => byte.is_ascii_digit(),
        other => byte == other,
    });
    if !fits || &head[17..] == b"60" {
        return None;
    }
    if let [b'.', fraction @ ..] = tail {
        let digits = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return None;
        }
        tail = &fraction[digits..];
    }
    let zone = match tail {
        b"Z" => true,
        [b'+' | b'-', h1, h2, b':', m1, m2] => {
            [h1, h2, m1, m2].iter().all(|byte| byte.is_ascii_digit())
        }
        _ => false,
    };
    if !zone {
        return None;
    }
    in_range(text.parse().ok()?).ok()
}

/// A point in time as a `date-time` field may spell it: a space for the `T`, small letters, and no
/// zone are taken too.
pub(crate) fn parse_date_time(text: &str) -> Option<Timestamp> {
    parse_rfc3339(text).or_else(|| {
        let strict = text.to_ascii_uppercase().replacen(' ', "T", 1);
        parse_rfc3339(&strict).or_else(|| parse_rfc3339(&format!("{strict}Z")))
    })
}

/// The first instant of a day.
pub(crate) fn parse_date(text: &str) -> Option<Timestamp> {
    parse_rfc3339(&format!("{text}T00:00:00Z"))
}

/// A length of time as `1h30m`, in nanoseconds.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    let (negative, rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    let nanos = parse_parts(rest, |unit| {
        Some(match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => SECOND,
            "m" => 60 * SECOND,
            "h" => 3_600 * SECOND,
            _ => return None,
        })
    })?;
    i64::try_from(if negative { -nanos } else { nanos }).ok()
}

/// A length of time as a `duration` field may spell it: also `3 days`.
pub(crate) fn parse_loose_duration(text: &str) -> Option<i64> {
    parse_duration(text).or_else(|| {
        let compact: String = text.chars().filter(|letter| !letter.is_whitespace()).collect();
        let nanos = parse_parts(&compact.to_lowercase(), |unit| {
            Some(match unit {
                "ns" | "nano" | "nanos" | "nanosecond" | "nanoseconds" => 1,
                "us" | "µs" | "micro" | "micros" | "microsecond" | "microseconds" => 1_000,
                "ms" | "milli" | "millis" | "millisecond" | "milliseconds" => 1_000_000,
                "s" | "sec" | "secs" | "second" | "seconds" => SECOND,
                "m" | "min" | "mins" | "minute" | "minutes" => 60 * SECOND,
                "h" | "hr" | "hrs" | "hour" | "hours" => 3_600 * SECOND,
                "d" | "day" | "days" => 86_400 * SECOND,
                "w" | "wk" | "wks" | "week" | "weeks" => 604_800 * SECOND,
                _ => return None,
            })
        })?;
        i64::try_from(nanos).ok()
    })
}

/// A sequence of numbers with units, at least one.
fn parse_parts(text: &str, unit: impl Fn(&str) -> Option<i64>) -> Option<i128> {
    let mut rest = text;
    let mut total: i128 = 0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let length = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let (number, tail) = rest.split_at(length);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return None;
        }
        let end = tail.find(|letter: char| letter.is_ascii_digit() || letter == '.');
        let (name, tail) = tail.split_at(end.unwrap_or(tail.len()));
        let unit = i128::from(unit(name)?);
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        total = total.checked_add(whole.checked_mul(unit)?)?;
        let mut scale = unit;
        for digit in fraction.bytes() {
            // Digits below a nanosecond are dropped.
            scale /= 10;
            total = total.checked_add(scale.checked_mul(i128::from(digit - b'0'))?)?;
        }
        rest = tail;
    }
    Some(total)
}

/// RFC 3339 with as many digits as the fraction needs.
pub(crate) fn show_timestamp(at: Timestamp) -> String {
    at.to_string()
}

/// Seconds with as many digits as the fraction needs, as in `1.5s`.
pub(crate) fn show_duration(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let size = nanos.unsigned_abs();
    let (whole, fraction) = (size / SECOND.unsigned_abs(), size % SECOND.unsigned_abs());
    if fraction == 0 {
        return format!("{sign}{whole}s");
    }
    let digits = format!("{fraction:09}");
    format!("{sign}{whole}.{}s", digits.trim_end_matches('0'))
}

/// The clock on the wall at a point in time, where the zone says, else in UTC.
fn wall(args: &[Value<'_>]) -> Result<DateTime, EvalError> {
    match args {
        [Value::Timestamp(at)] => Ok(Offset::UTC.to_datetime(*at)),
        [Value::Timestamp(at), Value::String(zone)] => Ok(time_zone(zone)?.to_datetime(*at)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn time_zone(name: &str) -> Result<TimeZone, EvalError> {
    let unknown = || EvalError::failed(format!("unknown time zone {name}"));
    if name.is_empty() || name == "UTC" {
        return Ok(TimeZone::UTC);
    }
    let Some((hours, minutes)) = name.split_once(':') else {
        return TimeZone::get(name).map_err(|_| unknown());
    };
    let hours_value: i32 = hours.parse().map_err(|_| unknown())?;
    let minutes: i32 = minutes.parse().map_err(|_| unknown())?;
    if !(0..60).contains(&minutes) || !(-23..=23).contains(&hours_value) {
        return Err(unknown());
    }
    let sign = if hours.starts_with('-') { -1 } else { 1 };
    let seconds = sign * (hours_value.abs() * 3_600 + minutes * 60);
    Ok(TimeZone::fixed(Offset::from_seconds(seconds).map_err(|_| unknown())?))
}

fn number<'v>(number: impl Into<i64>) -> Answer<'v> {
    Ok(Value::Int(number.into()))
}

fn full_year<'v>(_: &mut Work<'_>, args: &[Value<'v>]) -> Answer<'v> {
    number(wall(args)?.year())
}

fn month<'v>(_: &mut Work<'_>, args: &[Value<'v>]) -> Answer<'v> {
    number(wall(args)?.month() - 1)
}

fn date<'v>(_: &mut Work<'_>, args: &[Value<'v>]) -> Answer<'v> {
    number(wall(args)?.day())
}

fn day_of_month<'v>(_: &mut Work<'_>, args: &[Value<'v>]) -> Answer<'v> {
    number(wall(args)?.day() - 1)
}

fn day_of_week<'v>(_: &mut Work<'_>, args: &[Value<'v>]) -> Answer<'v> {
    number(wall(args)?.weekday().to_sunday_zero_offset())
}

fn day_of_year<'v>(_: &mut Work<'_>, args: &[Value<'v>]) -> Answer<'v> {
    number(wall(args)?.day_of_year() - 1)
}

/// A part of the wall clock, or all of a length of time in one unit.
fn clock<'v>(args: &[Value<'v>], unit: i64, part: fn(DateTime) -> i64) -> Answer<'v> {
    match args {
        [Value::Duration(nanos)] => number(nanos / unit),
        [Value::Timestamp(_), ..] => number(part(wall(args)?)),
        _ => no_overload(),
    }
}

fn hours<'v>(_: &mut Work<'_>, args: &[Value<'v>]) -> Answer<'v> {
    clock(args, 3_600 * SECOND, |at| at.hour().into())
}

fn minutes<'v>(_: &mut Work<'_>, args: &[Value<'v>]) -> Answer<'v> {
    clock(args, 60 * SECOND, |at| at.minute().into())
}

fn seconds<'v>(_: &mut Work<'_>, args: &[Value<'v>]) -> Answer<'v> {
    clock(args, SECOND, |at| at.second().into())
}

fn millis<'v>(_: &mut Work<'_>, args: &[Value<'v>]) -> Answer<'v> {
    clock(args, 1_000_000, |at| at.millisecond().into())
}
