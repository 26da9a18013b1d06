//! Points in time and lengths of time.

use jiff::tz::TimeZone;

use super::{EvalResult, LibraryFunction, no_overload};
use crate::cost::CostRule;
use crate::error::EvalError;
use crate::eval_context::EvalContext;
use crate::value::Value;

const OF_TIME: &[&str] = &["timestamp.() int", "timestamp.(string) int"];
const OF_BOTH: &[&str] = &["timestamp.() int", "timestamp.(string) int", "duration.() int"];

pub(super) const FUNCTIONS: &[LibraryFunction] = &[
    LibraryFunction {
        name: "getFullYear",
        signatures: OF_TIME,
        charge: CostRule::Nominal,
        run: full_year,
    },
    LibraryFunction {
        name: "getMonth",
        signatures: OF_TIME,
        charge: CostRule::Nominal,
        run: month,
    },
    LibraryFunction { name: "getDate", signatures: OF_TIME, charge: CostRule::Nominal, run: date },
    LibraryFunction {
        name: "getDayOfMonth",
        signatures: OF_TIME,
        charge: CostRule::Nominal,
        run: day_of_month,
    },
    LibraryFunction {
        name: "getDayOfWeek",
        signatures: OF_TIME,
        charge: CostRule::Nominal,
        run: day_of_week,
    },
    LibraryFunction {
        name: "getDayOfYear",
        signatures: OF_TIME,
        charge: CostRule::Nominal,
        run: day_of_year,
    },
    LibraryFunction {
        name: "getHours",
        signatures: OF_BOTH,
        charge: CostRule::Nominal,
        run: hours,
    },
    LibraryFunction {
        name: "getMinutes",
        signatures: OF_BOTH,
        charge: CostRule::Nominal,
        run: minutes,
    },
    LibraryFunction {
        name: "getSeconds",
        signatures: OF_BOTH,
        charge: CostRule::Nominal,
        run: seconds,
    },
    LibraryFunction {
        name: "getMilliseconds",
        signatures: OF_BOTH,
        charge: CostRule::Nominal,
        run: millis,
    },
];

const SECOND: i64 = 1_000_000_000;
const DAY: i64 = 86_400;
/// The first second of the year 1, the earliest there is.
const MIN_SECONDS: i64 = -62_135_596_800;
/// The last second of the year 9999.
const MAX_SECONDS: i64 = 253_402_300_799;

/// A point in time, from the first instant of the year 1 to the last of the year 9999.
///
/// The last day of that range is used for "never", and is outside of what a general time library
/// allows for, since local time there may be in the year 10000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Since 1970, rounded down.
    seconds: i64,
    nanos: i64,
}

impl Timestamp {
    /// The point in time so many seconds and nanoseconds after 1970 began, if it is in range.
    #[must_use]
    pub fn new(seconds: i64, nanos: i64) -> Option<Self> {
        let seconds = seconds.checked_add(nanos.div_euclid(SECOND))?;
        let nanos = nanos.rem_euclid(SECOND);
        (MIN_SECONDS..=MAX_SECONDS).contains(&seconds).then_some(Self { seconds, nanos })
    }

    /// Whole seconds since 1970 began, rounded down.
    #[must_use]
    pub fn seconds(self) -> i64 {
        self.seconds
    }

    /// The nanoseconds from another point in time to this one, if that many can be counted.
    pub(crate) fn since(self, other: Self) -> Option<i64> {
        let seconds = self.seconds.checked_sub(other.seconds)?.checked_mul(SECOND)?;
        seconds.checked_add(self.nanos - other.nanos)
    }

    /// The point in time so many nanoseconds later, if it is in range.
    pub(crate) fn after(self, nanos: i64) -> Result<Self, EvalError> {
        let seconds = self.seconds + nanos.div_euclid(SECOND);
        Self::new(seconds, self.nanos + nanos.rem_euclid(SECOND)).ok_or_else(overflow)
    }

    /// The point in time so many nanoseconds earlier, if it is in range.
    pub(crate) fn before(self, nanos: i64) -> Result<Self, EvalError> {
        let seconds = self.seconds - nanos.div_euclid(SECOND);
        Self::new(seconds, self.nanos - nanos.rem_euclid(SECOND)).ok_or_else(overflow)
    }
}

/// What a calendar and a clock show.
#[derive(Clone, Copy, Debug)]
struct CivilTime {
    year: i64,
    month: i64,
    day: i64,
    /// Since 1970.
    days: i64,
    second: i64,
    nanos: i64,
}

impl CivilTime {
    fn at(moment: Timestamp, offset: i64) -> Self {
        let local = moment.seconds + offset;
        let days = local.div_euclid(DAY);
        // Years that begin in March end with the leap day, which makes all months regular; 400 of
        // them have 146,097 days.
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let of_era = shifted.rem_euclid(146_097);
        let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * of_year + 2) / 153;
        let day = of_year - (153 * from_march + 2) / 5 + 1;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        Self { year, month, day, days, second: local.rem_euclid(DAY), nanos: moment.nanos }
    }
}

/// The days from 1970 to a date.
fn days_to(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let from_march = (month + 9) % 12;
    let of_year = (153 * from_march + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn overflow() -> EvalError {
    EvalError::failed("timestamp overflow")
}

pub(crate) fn from_seconds(seconds: i64) -> Result<Timestamp, EvalError> {
    Timestamp::new(seconds, 0).ok_or_else(overflow)
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
    if !fits {
        return None;
    }
    let number = |range: std::ops::Range<usize>| text.get(range)?.parse::<i64>().ok();
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    if !(1..=12).contains(&month) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let days = days_to(year, month, day);
    let next = if month == 12 { days_to(year + 1, 1, 1) } else { days_to(year, month + 1, 1) };
    if day == 0 || days >= next {
        return None;
    }
    let mut nanos = 0;
    if let [b'.', fraction @ ..] = tail {
        let count = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if count == 0 {
            return None;
        }
        let mut scale = SECOND;
        for digit in &fraction[..count] {
            scale /= 10;
            nanos += i64::from(digit - b'0') * scale;
        }
        tail = &fraction[count..];
    }
    let offset = match tail {
        b"Z" => 0,
        [sign @ (b'+' | b'-'), zone @ ..] => {
            let zone = parse_offset(std::str::from_utf8(zone).ok()?)?;
            if *sign == b'-' { -zone } else { zone }
        }
        _ => return None,
    };
    Timestamp::new(days * DAY + hour * 3_600 + minute * 60 + second - offset, nanos)
}

/// Seconds of `hh:mm`.
fn parse_offset(text: &str) -> Option<i64> {
    let (hours, minutes) = text.split_once(':')?;
    let number = |text: &str| {
        let digits = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<i64>().ok().filter(|_| digits)
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    (hours < 24 && minutes < 60).then_some(hours * 3_600 + minutes * 60)
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
    let CivilTime { year, month, day, second, nanos, .. } = CivilTime::at(at, 0);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    let head = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}");
    if nanos == 0 {
        return format!("{head}Z");
    }
    format!("{head}.{}Z", format!("{nanos:09}").trim_end_matches('0'))
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

/// What calendar and clock show at a point in time, where the zone says, else in UTC.
fn civil_time(args: &[Value<'_>]) -> Result<CivilTime, EvalError> {
    match args {
        [Value::Timestamp(at)] => Ok(CivilTime::at(*at, 0)),
        [Value::Timestamp(at), Value::String(zone)] => Ok(CivilTime::at(*at, offset(zone, *at)?)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

/// Seconds east of Greenwich at a point in time.
fn offset(name: &str, at: Timestamp) -> Result<i64, EvalError> {
    let unknown = || EvalError::failed(format!("unknown time zone {name}"));
    if name.is_empty() || name == "UTC" {
        return Ok(0);
    }
    if name.contains(':') {
        let (sign, rest) = match name.as_bytes().first() {
            Some(b'-') => (-1, &name[1..]),
            Some(b'+') => (1, &name[1..]),
            _ => (1, name),
        };
        return parse_offset(rest).map(|offset| sign * offset).ok_or_else(unknown);
    }
    let zone = TimeZone::get(name).map_err(|_| unknown())?;
    let at = jiff::Timestamp::from_second(at.seconds).map_err(|_| unknown())?;
    Ok(zone.to_offset(at).seconds().into())
}

fn full_year<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    Ok(Value::Int(civil_time(args)?.year))
}

fn month<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    Ok(Value::Int(civil_time(args)?.month - 1))
}

fn date<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    Ok(Value::Int(civil_time(args)?.day))
}

fn day_of_month<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    Ok(Value::Int(civil_time(args)?.day - 1))
}

fn day_of_week<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    // 1970 began on a Thursday, and weeks begin on Sunday.
    Ok(Value::Int((civil_time(args)?.days + 4).rem_euclid(7)))
}

fn day_of_year<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let wall = civil_time(args)?;
    Ok(Value::Int(wall.days - days_to(wall.year, 1, 1)))
}

/// A part of what the clock shows, or all of a length of time in one unit.
fn clock<'v>(args: &[Value<'v>], unit: i64, part: fn(CivilTime) -> i64) -> EvalResult<'v> {
    match args {
        [Value::Duration(nanos)] => Ok(Value::Int(nanos / unit)),
        [Value::Timestamp(_), ..] => Ok(Value::Int(part(civil_time(args)?))),
        _ => no_overload(),
    }
}

fn hours<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    clock(args, 3_600 * SECOND, |at| at.second / 3_600)
}

fn minutes<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    clock(args, 60 * SECOND, |at| at.second / 60 % 60)
}

fn seconds<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    clock(args, SECOND, |at| at.second % 60)
}

fn millis<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    clock(args, 1_000_000, |at| at.nanos / 1_000_000)
}
