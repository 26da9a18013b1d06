//! Amounts of resources: `100m`, `1Gi`, `2e3`.

use std::cmp::Ordering;
use std::fmt;

use serde_json::Value;

/// An amount, exact down to one billionth. What is beyond the range stays at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Quantity {
    nanos: i128,
}

const NANO: i128 = 1_000_000_000;

impl Quantity {
    /// Reads an amount; `None` for what is none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let start = text.find(|it: char| !matches!(it, '0'..='9' | '.' | '+' | '-'));
        let (number, suffix) = text.split_at(start.unwrap_or(text.len()));
        let (numerator, denominator) = scale(suffix)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let negative = whole.starts_with('-');
        let digits = whole.trim_start_matches(['-', '+']);
        if digits.is_empty() && fraction.is_empty() {
            return None;
        }
        // More digits than these are below the precision, or beyond the range.
        let fraction = &fraction[..fraction.len().min(18)];
        let joined: i128 = format!("0{digits}{fraction}").parse().ok()?;
        let below = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        let nanos = joined.saturating_mul(NANO).saturating_mul(numerator);
        let divisor = below.saturating_mul(denominator);
        let nanos = nanos / divisor + i128::from(nanos % divisor != 0);
        Some(Self { nanos: if negative { -nanos } else { nanos } })
    }

    /// The amount in a tree, if it is one.
    pub(crate) fn of(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Self::parse(text),
            Value::Number(number) => Self::parse(&number.to_string()),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        }
    }

    pub(crate) fn sign(self) -> Ordering {
        self.nanos.cmp(&0)
    }

    pub(crate) fn is_whole(self) -> bool {
        self.nanos % NANO == 0
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self { nanos: self.nanos.saturating_add(other.nanos) }
    }
}

/// The factor of a suffix, as a fraction.
fn scale(suffix: &str) -> Option<(i128, i128)> {
    let decimal = |power: u32| Some((10_i128.checked_pow(power)?, 1));
    match suffix {
        "" => Some((1, 1)),
        "n" => Some((1, NANO)),
        "u" => Some((1, 1_000_000)),
        "m" => Some((1, 1000)),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => Some((1 << 10, 1)),
        "Mi" => Some((1 << 20, 1)),
        "Gi" => Some((1 << 30, 1)),
        "Ti" => Some((1 << 40, 1)),
        "Pi" => Some((1 << 50, 1)),
        "Ei" => Some((1 << 60, 1)),
        other => {
            let power: i32 = other.strip_prefix(['e', 'E'])?.parse().ok()?;
            let factor = 10_i128.checked_pow(power.unsigned_abs())?;
            Some(if power < 0 { (1, factor) } else { (factor, 1) })
        }
    }
}

impl fmt::Display for Quantity {
    /// The canonical decimal form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = [(NANO, ""), (1_000_000, "m"), (1000, "u"), (1, "n")];
        let found = steps.into_iter().find(|(unit, _)| self.nanos % unit == 0);
        let (unit, suffix) = found.unwrap_or((1, "n"));
        write!(f, "{}{suffix}", self.nanos / unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_compare_across_their_spellings() {
        let table = [
            ("1", "1000m", Ordering::Equal),
            ("1Ki", "1024", Ordering::Equal),
            ("1.5", "1500m", Ordering::Equal),
            ("2e3", "2k", Ordering::Equal),
            ("1E", "1Ei", Ordering::Less),
            ("-1", "0", Ordering::Less),
            ("0.0000000001", "1n", Ordering::Equal),
        ];
        for (one, other, expected) in table {
            let (a, b) = (Quantity::parse(one), Quantity::parse(other));
            assert!(a.is_some() && b.is_some());
            assert_eq!(a.cmp(&b), expected, "{one} {other}");
        }
        for text in ["", "x", "1x", "-", "."] {
            assert_eq!(Quantity::parse(text), None, "{text}");
        }
    }

    #[test]
    fn sums_are_written_as_short_as_they_go() {
        for (text, expected) in [("1500m", "1500m"), ("2000m", "2"), ("1u", "1u"), ("0", "0")] {
            assert_eq!(Quantity::parse(text).map(|it| it.to_string()).as_deref(), Some(expected));
        }
    }
}
