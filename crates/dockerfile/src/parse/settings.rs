//! Health checks and durations.

use crate::instruction::{Command, Flags, Healthcheck};

/// Flags of a health check, with their names in an image's configuration.
const DURATIONS: [(&str, &str); 4] = [
    ("interval", "Interval"),
    ("timeout", "Timeout"),
    ("start-period", "StartPeriod"),
    ("start-interval", "StartInterval"),
];

pub(super) fn parse_healthcheck(text: &str, flags: &mut Flags) -> Result<Healthcheck, String> {
    let text = text.trim();
    let (kind, command) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    if kind.eq_ignore_ascii_case("none") && command.is_empty() {
        return Ok(Healthcheck::None);
    }
    if !kind.eq_ignore_ascii_case("cmd") || command.trim().is_empty() {
        return Err("write HEALTHCHECK CMD command, or HEALTHCHECK NONE".to_owned());
    }
    let command = super::parse_command(command)?;
    if command == Command::Exec(Vec::new()) {
        return Err("the health check has no command; write HEALTHCHECK CMD command".to_owned());
    }
    let mut settings = Vec::new();
    for (flag, key) in DURATIONS {
        if let Some(value) = flags.value(flag)? {
            let nanoseconds = parse_duration(&value).ok_or_else(|| {
                format!("cannot use --{flag}={value} as a duration; write for instance 1m30s")
            })?;
            settings.push((key, nanoseconds));
        }
    }
    if let Some(value) = flags.value("retries")? {
        let retries: u32 = value
            .parse()
            .map_err(|_| format!("cannot use --retries={value}; write a number, such as 3"))?;
        settings.push(("Retries", retries.into()));
    }
    Ok(Healthcheck::Test { command, settings })
}

/// Reads a duration such as `1m30s` or `1.5s` in nanoseconds.
pub(super) fn parse_duration(text: &str) -> Option<u64> {
    if text == "0" {
        return Some(0);
    }
    let mut rest = text;
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|it: char| !it.is_ascii_digit() && it != '.')?;
        let (number, after) = rest.split_at(digits);
        let units = after.find(|it: char| it.is_ascii_digit() || it == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(units);
        let unit: u64 = match unit {
            "ns" => 1,
            "us" | "µs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
            return None;
        }
        let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        total = total.checked_add(whole.checked_mul(unit)?)?;
        let mut share = unit;
        for digit in fraction.bytes() {
            share /= 10;
            total = total.checked_add(share.checked_mul(u64::from(digit - b'0'))?)?;
        }
        rest = after;
    }
    (!text.is_empty()).then_some(total)
}
