//! An exact amount that is added, compared and written.

use std::cmp::Ordering;
use std::fmt;

use serde_json::Value;

use crate::text::{BINARY_SUFFIXES, DECIMAL_SUFFIXES, Format, NANOS_PER_UNIT, QuantityText, Scale};

/// An exact amount and the family of suffixes it is written in.
///
/// What is finer than a billionth is rounded away from zero, what is beyond the range stays at its
/// end. Amounts are equal and ordered whatever suffixes they have.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

impl Quantity {
    /// So many, counted.
    #[must_use]
    pub fn from_count(number: usize) -> Self {
        let nanos = i128::try_from(number).unwrap_or(i128::MAX).saturating_mul(NANOS_PER_UNIT);
        Self { nanos, format: Format::DecimalSi }
    }

    /// The amount in a tree; nothing if it is none.
    #[must_use]
    pub fn from_json(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Self::parse(text),
            Value::Number(number) => Self::parse(&number.to_string()),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        }
    }

    /// Reads an amount; nothing if the text is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = QuantityText::split(text);
        let scale = Scale::parse(text.suffix).filter(|_| text.has_digits())?;
        let magnitude = text.magnitude(scale).unwrap_or(i128::MAX);
        // As in Kubernetes: less than one unit has no binary form, so it changes family for good.
        let format = match scale.format {
            Format::BinarySi if 0 < magnitude && magnitude < NANOS_PER_UNIT => Format::DecimalSi,
            format => format,
        };
        Some(Self::from_nanos(if text.negative { -magnitude } else { magnitude }, format))
    }

    /// An amount of nano-units.
    #[must_use]
    pub const fn from_nanos(nanos: i128, format: Format) -> Self {
        Self { nanos, format }
    }

    /// The amount in nano-units.
    #[must_use]
    pub const fn nanos(self) -> i128 {
        self.nanos
    }

    /// How it compares with nothing.
    #[must_use]
    pub fn sign(self) -> Ordering {
        self.nanos.cmp(&0)
    }

    /// Whether it has no fraction of a unit.
    #[must_use]
    pub const fn is_whole(self) -> bool {
        self.nanos % NANOS_PER_UNIT == 0
    }

    /// Both together. Nothing takes the form of what is added to it.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let family = if self.nanos == 0 { other.format } else { self.format };
        Self { nanos: self.nanos.saturating_add(other.nanos), format: family }
    }

    /// What is left when the other is taken away, and at least nothing.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self { nanos: self.nanos.saturating_sub(other.nanos).max(0), format: self.format }
    }

    /// Whether it is nothing.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// How many times the other it is.
    #[expect(clippy::cast_precision_loss, reason = "a ratio for people to read")]
    #[must_use]
    pub fn ratio(self, other: Self) -> f64 {
        self.nanos as f64 / other.nanos as f64
    }

    /// Whether this many times the other is less than it.
    #[must_use]
    pub fn exceeds_times(self, other: Self, times: Self) -> bool {
        self.nanos.saturating_mul(NANOS_PER_UNIT) > other.nanos.saturating_mul(times.nanos)
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl fmt::Display for Quantity {
    /// The canonical form: the largest suffix of its family that leaves no fraction.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        // Small amounts and fractions are never written in binary suffixes: they would be rounded.
        let binary = self.is_whole() && self.nanos.abs() >= 1024 * NANOS_PER_UNIT;
        if self.format == Format::BinarySi && binary {
            let (mut units, mut suffix) = (self.nanos / NANOS_PER_UNIT, "");
            for (larger, _) in BINARY_SUFFIXES {
                if units % 1024 != 0 {
                    break;
                }
                (units, suffix) = (units / 1024, larger);
            }
            text += &format!("{units}{suffix}");
        } else if self.nanos == 0 {
            text += "0";
        } else {
            let (mut number, mut at) = (self.nanos, 0);
            while at + 1 < DECIMAL_SUFFIXES.len() && number % 1000 == 0 {
                (number, at) = (number / 1000, at + 1);
            }
            let (suffix, power) = DECIMAL_SUFFIXES[at];
            text += &match self.format {
                Format::DecimalExponent if power != 0 => format!("{number}e{power}"),
                Format::DecimalSi | Format::BinarySi | Format::DecimalExponent => {
                    format!("{number}{suffix}")
                }
            };
        }
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_behave_like_upstream() {
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
            // A fraction of a byte is shown, not rounded up.
            ("2Ki", "500m", "2048500m"),
        ];
        for (one, other, expected) in table {
            let sum = Quantity::parse(one).unwrap().plus(Quantity::parse(other).unwrap());
            assert_eq!(sum.to_string(), expected, "{one} + {other}");
        }
        for text in ["", "x", "1x", "-", "."] {
            assert_eq!(Quantity::parse(text), None, "{text}");
        }
    }
}
