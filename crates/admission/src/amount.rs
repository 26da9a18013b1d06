//! Amounts of resources that are added, compared and written back.

use std::fmt;

use serde_json::Value;

/// An exact amount and the suffixes it is written with. What is finer than a billionth is rounded
/// up, what is beyond the range stays at its end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Amount {
    nanos: i128,
    family: Family,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Family {
    #[default]
    Decimal,
    Binary,
    Exponent,
}

const NANO: i128 = 1_000_000_000;
const DECIMAL: [(&str, i32); 10] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];
const BINARY: [(&str, u32); 6] =
    [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

impl Amount {
    /// So many, counted.
    #[must_use]
    pub fn count(number: usize) -> Self {
        let nanos = i128::try_from(number).unwrap_or(i128::MAX).saturating_mul(NANO);
        Self { nanos, family: Family::Decimal }
    }

    /// The amount in a tree; nothing if it is none.
    #[must_use]
    pub fn of(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Self::parse(text),
            Value::Number(number) => Self::parse(&number.to_string()),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let end = text.find(|it: char| !matches!(it, '0'..='9' | '.' | '+' | '-'));
        let (number, suffix) = text.split_at(end.unwrap_or(text.len()));
        let negative = number.starts_with('-');
        let (whole, fraction) = number
            .trim_start_matches(['-', '+'])
            .split_once('.')
            .unwrap_or_else(|| (number.trim_start_matches(['-', '+']), ""));
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let fraction = &fraction[..fraction.len().min(18)];
        let joined: i128 = format!("0{whole}{fraction}").parse().ok()?;
        let below = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        let (family, up, down) = if let Some((_, bits)) = BINARY.iter().find(|it| it.0 == suffix) {
            (Family::Binary, 1_i128 << bits, 1)
        } else {
            let decimal = DECIMAL.iter().find(|it| it.0 == suffix).map(|it| it.1);
            let (family, power) = match decimal {
                Some(power) => (Family::Decimal, power),
                None => (Family::Exponent, suffix.strip_prefix(['e', 'E'])?.parse().ok()?),
            };
            let factor = 10_i128.checked_pow(power.unsigned_abs())?;
            if power < 0 { (family, 1, factor) } else { (family, factor, 1) }
        };
        let nanos = joined.saturating_mul(NANO).saturating_mul(up);
        let divisor = below.saturating_mul(down);
        let nanos = nanos / divisor + i128::from(nanos % divisor != 0);
        Some(Self { nanos: if negative { -nanos } else { nanos }, family })
    }

    /// Both together. Nothing takes the form of what is added to it.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let family = if self.nanos == 0 { other.family } else { self.family };
        Self { nanos: self.nanos.saturating_add(other.nanos), family }
    }

    /// What is left when the other is taken away, and at least nothing.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self { nanos: self.nanos.saturating_sub(other.nanos).max(0), family: self.family }
    }

    /// Whether it is nothing.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// How many times the other it is.
    #[expect(clippy::cast_precision_loss, reason = "a ratio for people to read")]
    pub(crate) fn ratio(self, other: Self) -> f64 {
        self.nanos as f64 / other.nanos as f64
    }

    /// Whether this many times the other is less than it.
    pub(crate) fn exceeds_times(self, other: Self, times: Self) -> bool {
        self.nanos.saturating_mul(NANO) > other.nanos.saturating_mul(times.nanos)
    }
}

impl PartialEq for Amount {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Amount {}

impl PartialOrd for Amount {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Amount {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl fmt::Display for Amount {
    /// The shortest form in its own suffixes, as a server writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        // Small amounts are never written in binary suffixes: they would be rounded.
        if self.family == Family::Binary && self.nanos.abs() >= 1024 * NANO {
            let mut units = self.nanos.div_euclid(NANO) + i128::from(self.nanos % NANO != 0);
            let mut suffix = "";
            for (larger, _) in BINARY {
                if units % 1024 != 0 {
                    break;
                }
                (units, suffix) = (units / 1024, larger);
            }
            return write!(f, "{units}{suffix}");
        }
        let (mut units, mut place) = (self.nanos, 0);
        while place + 1 < DECIMAL.len() && units % 1000 == 0 {
            (units, place) = (units / 1000, place + 1);
        }
        match (self.family, DECIMAL[place]) {
            (Family::Exponent, (_, power)) if power != 0 => write!(f, "{units}e{power}"),
            (Family::Decimal | Family::Binary | Family::Exponent, (suffix, _)) => {
                write!(f, "{units}{suffix}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_added_and_written_as_a_server_does() {
        let table = [
            ("1", "1", "2"),
            ("500m", "500m", "1"),
            ("1500m", "0", "1500m"),
            ("0", "1Gi", "1Gi"),
            ("512Mi", "512Mi", "1Gi"),
            ("1Gi", "1", "1073741825"),
            ("1k", "1k", "2k"),
            ("1e3", "1", "1001"),
            ("1e3", "1e3", "2e3"),
            ("100", "900", "1k"),
            ("1Ki", "0", "1Ki"),
            ("0.5Ki", "0", "512"),
        ];
        for (one, other, expected) in table {
            let sum = Amount::parse(one).unwrap().plus(Amount::parse(other).unwrap());
            assert_eq!(sum.to_string(), expected, "{one} + {other}");
        }
        for text in ["", "x", "1x", "-", "."] {
            assert_eq!(Amount::parse(text), None, "{text}");
        }
    }
}
