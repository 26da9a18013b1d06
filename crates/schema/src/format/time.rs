//! Dates, times and spans.

/// A day, as in `2006-01-02`.
pub(super) fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    if bytes.len() != 10 || bytes[4] != b'-' || bytes[7] != b'-' {
        return false;
    }
    let number = |from: usize, to: usize| -> Option<u32> {
        let part = &bytes[from..to];
        part.iter()
            .all(u8::is_ascii_digit)
            .then(|| part.iter().fold(0, |number, byte| number * 10 + u32::from(byte - b'0')))
    };
    let (Some(year), Some(month), Some(day)) = (number(0, 4), number(5, 7), number(8, 10)) else {
        return false;
    };
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return false,
    };
    (1..=days).contains(&day)
}

/// A moment: a day, `T`, a time, and `Z` or an offset.
pub(super) fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    is_date(date) && is_time(time)
}

fn is_time(text: &str) -> bool {
    let pair = |text: &str, most: &str| {
        text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit()) && text <= most
    };
    let (Some(hour), Some(minute), Some(second)) = (text.get(..2), text.get(3..5), text.get(6..8))
    else {
        return false;
    };
    let bytes = text.as_bytes();
    if bytes[2] != b':' || bytes[5] != b':' {
        return false;
    }
    if !(pair(hour, "23") && pair(minute, "59") && pair(second, "59")) {
        return false;
    }
    is_zone(&text[8..]) || fraction_then_zone(&text[8..])
}

/// Any one letter and digits may stand before the zone; the letter is a point in practice.
fn fraction_then_zone(text: &str) -> bool {
    let mut letters = text.chars();
    if letters.next().is_none() {
        return false;
    }
    let rest = letters.as_str();
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    digits > 0 && is_zone(&rest[digits..])
}

fn is_zone(text: &str) -> bool {
    let bytes = text.as_bytes();
    text == "z"
        || (bytes.len() == 6
            && matches!(bytes[0], b'+' | b'-')
            && bytes[3] == b':'
            && [1, 2, 4, 5].iter().all(|place| bytes[*place].is_ascii_digit()))
}

/// A span in Go's spelling, or one that begins with a number and a unit somewhere.
pub(super) fn is_duration(text: &str) -> bool {
    is_go_duration(text) || has_counted_unit(text)
}

fn is_go_duration(text: &str) -> bool {
    let text = text.strip_prefix(['-', '+']).unwrap_or(text);
    if text == "0" {
        return true;
    }
    if text.is_empty() {
        return false;
    }
    let mut rest = text;
    let mut total = 0.0_f64;
    while !rest.is_empty() {
        let end = rest.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        let has_digit = number.bytes().any(|byte| byte.is_ascii_digit());
        if !has_digit || number.matches('.').count() > 1 {
            return false;
        }
        let end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let nanoseconds = match unit {
            "ns" => 1.0,
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3600e9,
            _ => return false,
        };
        total += number.parse::<f64>().unwrap_or(f64::INFINITY) * nanoseconds;
        rest = after;
    }
    total < 9.223_372_036_854_776e18
}

/// The units of the longer spelling; the last of each row also stands for what begins with it.
const UNITS: [&[&str]; 8] = [
    &["ns", "nano"],
    &["us", "µs", "micro"],
    &["ms", "milli"],
    &["s", "sec"],
    &["m", "min"],
    &["h", "hr", "hour"],
    &["d", "day"],
    &["w", "wk", "week"],
];

fn has_counted_unit(text: &str) -> bool {
    let mut rest = text;
    let mut found = false;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        rest = &rest[start..];
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (digits, after) = rest.split_at(end);
        let after = after.trim_start_matches(['\t', '\n', '\x0c', '\r', ' ']);
        let is_unit = |c: char| c.is_ascii_alphabetic() || c == 'µ';
        let end = after.find(|c: char| !is_unit(c)).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        rest = after;
        if unit.is_empty() {
            continue;
        }
        if digits.parse::<i64>().is_err() {
            return false;
        }
        let unit = unit.to_lowercase();
        found |= UNITS.iter().any(|names| {
            names.contains(&unit.as_str())
                || names.last().is_some_and(|name| unit.starts_with(name))
        });
    }
    found
}
