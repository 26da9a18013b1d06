//! Times as Kubernetes reads and writes them, with Go's messages for invalid ones.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

/// The precision of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimePrecision {
    /// Whole seconds, truncated.
    Seconds,
    /// Six digits, truncated.
    Micros,
}

/// Go's zero time, which is written as `null`: 0001-01-01T00:00:00Z.
const ZERO_SECONDS: i64 = -62_135_596_800;

/// Parses a time and writes it in UTC; `None` is the zero time.
///
/// # Errors
/// If it is not an RFC 3339 time, with Go's messages.
pub(crate) fn canonical(text: &str, grain: TimePrecision) -> Result<Option<String>, String> {
    let layout = match grain {
        TimePrecision::Seconds => "2006-01-02T15:04:05Z07:00",
        TimePrecision::Micros => "2006-01-02T15:04:05.000000Z07:00",
    };
    match parse(text, grain) {
        Ok(moment) => Ok(write(moment, grain)),
        Err(TimeParseError::Element { rest, element }) => Err(format!(
            "parsing time {} as {}: cannot parse {} as {}",
            quote(text),
            quote(layout),
            quote(rest),
            quote(element)
        )),
        Err(TimeParseError::Range(what)) => {
            Err(format!("parsing time {}: {what} out of range", quote(text)))
        }
        Err(TimeParseError::Extra(rest)) => {
            Err(format!("parsing time {}: extra text: {}", quote(text), quote(rest)))
        }
    }
}

/// Parses a time, truncated to whole seconds, as Kubernetes reads one that is a parameter. An empty
/// text is the zero time.
///
/// # Errors
/// If it is not an RFC 3339 time, with Go's messages.
pub fn whole_seconds(text: &str) -> Result<Timestamp, String> {
    let zero = Timestamp::constant(ZERO_SECONDS, 0);
    match text {
        "" | "null" => Ok(zero),
        _ => match canonical(text, TimePrecision::Seconds)? {
            Some(canonical) => canonical.parse().map_err(|fault: jiff::Error| fault.to_string()),
            None => Ok(zero),
        },
    }
}

/// Formats the time that many seconds and nanoseconds after 1970; `None` is the zero time.
///
/// # Errors
/// If it is out of the range of the calendar.
pub(crate) fn from_unix(
    seconds: i64,
    nanos: i32,
    grain: TimePrecision,
) -> Result<Option<String>, String> {
    let nanos = if grain == TimePrecision::Seconds { 0 } else { nanos };
    match Timestamp::new(seconds, nanos) {
        Ok(moment) => Ok(write(moment, grain)),
        Err(_) => Err("Time.MarshalJSON: year outside of range [0,9999]".to_owned()),
    }
}

fn write(moment: Timestamp, grain: TimePrecision) -> Option<String> {
    let at = Offset::UTC.to_datetime(moment);
    if moment.as_second() == ZERO_SECONDS && at.subsec_nanosecond() == 0 {
        return None;
    }
    let (year, month, day) = (at.year(), at.month(), at.day());
    let (hour, minute, second) = (at.hour(), at.minute(), at.second());
    let date = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}");
    Some(match grain {
        TimePrecision::Seconds => format!("{date}Z"),
        TimePrecision::Micros => format!("{date}.{:06}Z", at.subsec_nanosecond() / 1000),
    })
}

enum TimeParseError<'a> {
    /// `rest` does not begin with `element` of the layout.
    Element {
        rest: &'a str,
        element: &'static str,
    },
    Range(&'static str),
    Extra(&'a str),
}

fn parse(text: &str, grain: TimePrecision) -> Result<Timestamp, TimeParseError<'_>> {
    let mut rest = text;
    let year = year(&mut rest)?;
    literal(&mut rest, "-")?;
    let month = number(&mut rest, "01", Digits::Two)?;
    in_range(month, 1..=12, "month")?;
    literal(&mut rest, "-")?;
    let day = number(&mut rest, "02", Digits::Two)?;
    literal(&mut rest, "T")?;
    let hour = number(&mut rest, "15", Digits::OneOrTwo)?;
    in_range(hour, 0..=23, "hour")?;
    literal(&mut rest, ":")?;
    let minute = number(&mut rest, "04", Digits::Two)?;
    in_range(minute, 0..=59, "minute")?;
    literal(&mut rest, ":")?;
    let second = number(&mut rest, "05", Digits::Two)?;
    in_range(second, 0..=59, "second")?;
    let nanos = fraction(&mut rest, grain)?;
    let offset = offset(&mut rest)?;
    if !rest.is_empty() {
        return Err(TimeParseError::Extra(rest));
    }
    let date = DateTime::new(year, month, day, hour, minute, second, nanos);
    let date = date.map_err(|_| TimeParseError::Range("day"))?;
    let utc = Offset::UTC.to_timestamp(date).map_err(|_| TimeParseError::Range("year"))?;
    Timestamp::new(utc.as_second() - i64::from(offset), utc.subsec_nanosecond())
        .map_err(|_| TimeParseError::Range("year"))
}

fn literal<'a>(rest: &mut &'a str, element: &'static str) -> Result<(), TimeParseError<'a>> {
    *rest = rest.strip_prefix(element).ok_or(TimeParseError::Element { rest, element })?;
    Ok(())
}

fn year<'a>(rest: &mut &'a str) -> Result<i16, TimeParseError<'a>> {
    let digits = rest.get(..4).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    let year = digits.and_then(|digits| digits.parse().ok());
    let year = year.ok_or(TimeParseError::Element { rest, element: "2006" })?;
    *rest = &rest[4..];
    Ok(year)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Digits {
    OneOrTwo,
    Two,
}

fn number<'a>(
    rest: &mut &'a str,
    element: &'static str,
    digits: Digits,
) -> Result<i8, TimeParseError<'a>> {
    let count = rest.bytes().take(2).take_while(u8::is_ascii_digit).count();
    if count == 0 || (digits == Digits::Two && count < 2) {
        return Err(TimeParseError::Element { rest, element });
    }
    let (number, after) = rest.split_at(count);
    let number = number.parse().map_err(|_| TimeParseError::Element { rest, element })?;
    *rest = after;
    Ok(number)
}

fn in_range<'a>(
    number: i8,
    range: std::ops::RangeInclusive<i8>,
    what: &'static str,
) -> Result<(), TimeParseError<'a>> {
    if range.contains(&number) { Ok(()) } else { Err(TimeParseError::Range(what)) }
}

fn fraction<'a>(rest: &mut &'a str, grain: TimePrecision) -> Result<i32, TimeParseError<'a>> {
    let fault = TimeParseError::Element { rest, element: ".000000" };
    let point = rest.starts_with(['.', ',']);
    let count = rest.bytes().skip(1).take_while(u8::is_ascii_digit).count();
    let count = match grain {
        TimePrecision::Seconds if !point || count == 0 => return Ok(0),
        TimePrecision::Seconds => count,
        TimePrecision::Micros if !point || count < 6 => return Err(fault),
        TimePrecision::Micros => 6,
    };
    let digits = rest[1..=count].bytes().map(|byte| i32::from(byte - b'0'));
    let nanos = digits.chain(std::iter::repeat(0)).take(9).fold(0, |sum, digit| sum * 10 + digit);
    *rest = &rest[count + 1..];
    Ok(nanos)
}

/// Seconds east of Greenwich.
fn offset<'a>(rest: &mut &'a str) -> Result<i32, TimeParseError<'a>> {
    if let Some(after) = rest.strip_prefix('Z') {
        *rest = after;
        return Ok(0);
    }
    let fault = || TimeParseError::Element { rest, element: "Z07:00" };
    let zone = rest.get(..6).ok_or_else(fault)?;
    let two = |at: usize| {
        let digits = zone.get(at..at + 2)?;
        let all = digits.bytes().all(|byte| byte.is_ascii_digit());
        if all { digits.parse::<i32>().ok() } else { None }
    };
    let (Some(hours), Some(minutes), b':') = (two(1), two(4), zone.as_bytes()[3]) else {
        return Err(fault());
    };
    if hours > 24 {
        return Err(TimeParseError::Range("time zone offset hour"));
    }
    if minutes > 60 {
        return Err(TimeParseError::Range("time zone offset minute"));
    }
    let seconds = (hours * 60 + minutes) * 60;
    let seconds = match zone.as_bytes()[0] {
        b'+' => seconds,
        b'-' => -seconds,
        _ => return Err(fault()),
    };
    *rest = &rest[6..];
    Ok(seconds)
}

fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', char::from(byte)]),
            b' '..=b'\x7f' => quoted.push(char::from(byte)),
            _ => quoted.push_str(&format!("\\x{byte:02x}")),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn timestamps_are_written_in_utc() {
        let table = [
            // read                           seconds                        micros
            ("2024-02-29T23:59:59Z", Some("2024-02-29T23:59:59Z"), None),
            (
                "2024-02-29T23:59:59.999999Z",
                Some("2024-02-29T23:59:59Z"),
                Some("2024-02-29T23:59:59.999999Z"),
            ),
            ("2024-02-29T01:00:00.5+02:30", Some("2024-02-28T22:30:00Z"), None),
            (
                "2024-02-29T01:00:00.500000+02:30",
                Some("2024-02-28T22:30:00Z"),
                Some("2024-02-28T22:30:00.500000Z"),
            ),
            ("2024-02-29T1:00:00Z", Some("2024-02-29T01:00:00Z"), None),
            ("0001-01-01T00:00:00Z", None, None),
            ("0000-01-01T00:00:00Z", Some("0000-01-01T00:00:00Z"), None),
        ];
        for (text, seconds, micros) in table {
            assert_eq!(
                canonical(text, TimePrecision::Seconds),
                Ok(seconds.map(str::to_owned)),
                "{text}"
            );
            if micros.is_some() {
                assert_eq!(
                    canonical(text, TimePrecision::Micros),
                    Ok(micros.map(str::to_owned)),
                    "{text}"
                );
            }
        }
        assert_eq!(
            from_unix(0, 5, TimePrecision::Seconds),
            Ok(Some("1970-01-01T00:00:00Z".to_owned()))
        );
        assert_eq!(
            from_unix(-1, 5000, TimePrecision::Micros),
            Ok(Some("1969-12-31T23:59:59.000005Z".to_owned()))
        );
        assert_eq!(from_unix(ZERO_SECONDS, 0, TimePrecision::Seconds), Ok(None));
        assert!(from_unix(i64::MAX, 0, TimePrecision::Seconds).is_err());
    }

    #[test]
    fn parse_errors_match_go() {
        let table = [
            ("abc", r#" as "2006-01-02T15:04:05Z07:00": cannot parse "abc" as "2006""#),
            ("2024", r#" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "-""#),
            ("2024-13-01T00:00:00Z", ": month out of range"),
            ("2024-02-30T00:00:00Z", ": day out of range"),
            (
                "2024-02-28 00:00:00Z",
                r#" as "2006-01-02T15:04:05Z07:00": cannot parse " 00:00:00Z" as "T""#,
            ),
            ("2024-02-28T24:00:00Z", ": hour out of range"),
            (
                "2024-02-28T00:00:00",
                r#" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "Z07:00""#,
            ),
            ("2024-02-28T00:00:00Zx", r#": extra text: "x""#),
            ("2024-02-28T00:00:00+99:00", ": time zone offset hour out of range"),
        ];
        for (text, expected) in table {
            let expected = format!("parsing time \"{text}\"{expected}");
            assert_eq!(canonical(text, TimePrecision::Seconds), Err(expected));
        }
        let micros = r#"parsing time "2024-02-28T00:00:00Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000""#;
        assert_eq!(
            canonical("2024-02-28T00:00:00Z", TimePrecision::Micros),
            Err(micros.to_owned())
        );
        let quoted = r#"parsing time "\"\\\xc3\xa4" as "2006-01-02T15:04:05Z07:00": cannot parse "\"\\\xc3\xa4" as "2006""#;
        assert_eq!(canonical("\"\\ä", TimePrecision::Seconds), Err(quoted.to_owned()));
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(text in "\\PC{0,30}|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.,]{0,20}(Z|[+-][0-9:]{0,6}|ä)") {
            for grain in [TimePrecision::Seconds, TimePrecision::Micros] {
                if let Ok(Some(once)) = canonical(&text, grain) {
                    prop_assert_eq!(canonical(&once, grain), Ok(Some(once.clone())));
                }
            }
        }
    }
}
