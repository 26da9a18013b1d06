//! Durations in Go's format: `15s`, `1m30s`, `1.5h`.

use std::time::Duration;

/// The units; of two with the same prefix the longer one comes first.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Parses what Go's `time.ParseDuration` parses, if it is not negative.
///
/// Digits below a nanosecond are cut off, as Go does.
#[must_use]
pub fn parse(text: &str) -> Option<Duration> {
    let text = text.strip_prefix('+').unwrap_or(text);
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut nanoseconds: u64 = 0;
    loop {
        let (whole, after) = digits(rest);
        let (fraction, after) = after.strip_prefix('.').map_or(("", after), digits);
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let (unit, length) = UNITS.iter().find_map(|(name, length)| {
            let after = after.strip_prefix(name)?;
            // `m` is also a prefix of `ms`: the unit ends where the next number begins.
            let ends = after.chars().next().is_none_or(|c| c.is_ascii_digit() || c == '.');
            ends.then_some((*name, *length))
        })?;
        let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        nanoseconds = nanoseconds.checked_add(whole.checked_mul(length)?)?;
        nanoseconds = nanoseconds.checked_add(part(fraction, length))?;
        rest = &after[unit.len()..];
        if rest.is_empty() {
            // Go uses signed 64-bit integers.
            return i64::try_from(nanoseconds).ok().map(|_| Duration::from_nanos(nanoseconds));
        }
    }
}

/// Returns `fraction` tenths, hundredths and so on of a unit.
fn part(fraction: &str, length: u64) -> u64 {
    let (mut sum, mut length) = (0, u128::from(length) * 1_000_000_000_000_000_000);
    for digit in fraction.bytes().take(18) {
        length /= 10;
        sum += length * u128::from(digit - b'0');
    }
    u64::try_from(sum / 1_000_000_000_000_000_000).unwrap_or(u64::MAX)
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

/// Renders what Go's `Duration.String` renders.
#[must_use]
pub fn write(duration: Duration) -> String {
    let (seconds, nanoseconds) = (duration.as_secs(), duration.subsec_nanos());
    if seconds == 0 && nanoseconds > 0 {
        let (unit, places) = match nanoseconds {
            1_000_000.. => ("ms", 6),
            1_000.. => ("µs", 3),
            _ => ("ns", 0),
        };
        return decimal(u64::from(nanoseconds), places) + unit;
    }
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let last = decimal((seconds % 60) * 1_000_000_000 + u64::from(nanoseconds), 9);
    match (hours, minutes) {
        (0, 0) => format!("{last}s"),
        (0, _) => format!("{minutes}m{last}s"),
        _ => format!("{hours}h{minutes}m{last}s"),
    }
}

/// Renders a number with its last `places` digits after the point, without trailing zeros.
fn decimal(number: u64, places: usize) -> String {
    let mut text = format!("{number:0>width$}", width = places + 1);
    if places > 0 {
        text.insert(text.len() - places, '.');
        text.truncate(text.trim_end_matches('0').trim_end_matches('.').len());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        let table = [
            ("0", Some(0)),
            ("0s", Some(0)),
            ("15s", Some(15_000_000_000)),
            ("+5s", Some(5_000_000_000)),
            ("1m30s", Some(90_000_000_000)),
            ("1.5h", Some(5_400_000_000_000)),
            (".5s", Some(500_000_000)),
            ("1.s", Some(1_000_000_000)),
            ("100ms", Some(100_000_000)),
            ("1h1m1s1ms1us1ns", Some(3_661_001_001_001)),
            ("1µs", Some(1_000)),
            ("1μs", Some(1_000)),
            ("0.0000000001s", Some(0)),
            ("2562047h47m16.854775807s", Some(9_223_372_036_854_775_807)),
            ("2562047h47m16.854775808s", None),
            ("99999999999999999999s", None),
            ("", None),
            ("15", None),
            ("-15s", None),
            ("s", None),
            (".s", None),
            ("15 s", None),
            ("15S", None),
            ("1d", None),
            ("1m30", None),
        ];
        for (text, expected) in table {
            assert_eq!(parse(text), expected.map(Duration::from_nanos), "{text:?}");
        }
    }

    #[test]
    fn durations_are_written_as_go_writes_them() {
        let table = [
            (0, "0s"),
            (1, "1ns"),
            (1_100, "1.1µs"),
            (2_200_000, "2.2ms"),
            (3_300_000_000, "3.3s"),
            (245_000_000_000, "4m5s"),
            (245_001_000_000, "4m5.001s"),
            (18_367_001_000_000, "5h6m7.001s"),
            (480_000_000_001, "8m0.000000001s"),
            (1_200_000_000_000, "20m0s"),
        ];
        for (nanoseconds, expected) in table {
            assert_eq!(write(Duration::from_nanos(nanoseconds)), expected);
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(nanoseconds in 0..i64::MAX as u64) {
            let duration = Duration::from_nanos(nanoseconds);
            prop_assert_eq!(parse(&write(duration)), Some(duration));
        }

        #[test]
        fn no_text_is_too_odd(text in "[0-9.+smhnuµ-]{0,24}") {
            let _ = parse(&text);
        }
    }
}
