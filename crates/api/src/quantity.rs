//! Amounts of a resource, as Kubernetes writes them: `500m`, `1.5Gi`, `12e6`.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

pub use gantry_quantity::Format;
use gantry_quantity::{NANOS_PER_UNIT, QuantityText, Scale};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

#[cfg(test)]
mod tests;

/// An exact amount of a resource, and the family of suffixes it was written in.
///
/// The amount is a whole number of nano-units; no operation here uses floating point. Two
/// quantities are equal, ordered and hashed by amount alone. The text a user wrote is not kept:
/// [`Display`](fmt::Display) and serialization give the canonical form, which is Kubernetes' own
/// (the largest suffix of the family that leaves no fraction).
///
/// ```
/// use gantry_api::quantity::Quantity;
///
/// let asked: Quantity = "0.3Gi".parse()?;
/// let block: Quantity = "256Mi".parse()?;
/// assert_eq!(asked.round_up_to(block)?.to_string(), "512Mi");
/// assert_eq!(Quantity::parse("1Gi")?, Quantity::parse("1024Mi")?);
/// assert_eq!(Quantity::parse("1.5")?.to_string(), "1500m");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Guarantees
/// The magnitude is below 2^63 units. Parsing what was displayed gives the same amount.
///
/// # Differences from Kubernetes
/// Kubernetes clamps a binary amount that is too large, lets a decimal one grow and reads a lone
/// sign or suffix as zero; here each is an error, because each is a mistake.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

/// Why a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// There are no digits where the number belongs.
    #[error("cannot read {text:?} as a quantity: start with a number, as in 2, 500m or 1.5Gi")]
    NoNumber {
        /// The whole text.
        text: String,
    },
    /// The number is followed by an unknown suffix.
    #[error(
        "cannot read {text:?} as a quantity: {suffix:?} is not a suffix; use one of n, u, m, k, \
         M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei or a whole exponent such as e3"
    )]
    UnknownSuffix {
        /// The whole text.
        text: String,
        /// What follows the number.
        suffix: String,
    },
    /// The amount is too large to hold.
    #[error("cannot hold {text:?} as a quantity: write an amount between -2^63 and 2^63")]
    OutOfRange {
        /// The whole text.
        text: String,
    },
}

/// Why a quantity could not be computed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArithmeticError {
    /// The result is too large to hold.
    #[error("cannot {attempted}: the result must stay between -2^63 and 2^63; use smaller amounts")]
    OutOfRange {
        /// The operation and its operands, such as `add 8E and 2E`.
        attempted: String,
    },
    /// A block size of zero or less.
    #[error("cannot round {value} to blocks of {block}: give a block size above 0")]
    BlockNotPositive {
        /// The amount to round.
        value: Quantity,
        /// The rejected block size.
        block: Quantity,
    },
}

/// The magnitude every quantity stays below, in nano-units: 2^63 units.
const LIMIT: i128 = (1 << 63) * NANOS_PER_UNIT;

/// Kubernetes' published pattern. It is wider than any parser, Kubernetes' own included: it allows
/// a fraction in an exponent.
const PATTERN: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

impl Quantity {
    /// Zero, in the decimal family.
    pub const ZERO: Self = Self { nanos: 0, format: Format::DecimalSi };

    /// Parses a quantity. Digits finer than 10^-9 are rounded away from zero.
    ///
    /// # Errors
    /// If the text is not a number with at most one suffix, or is 2^63 or more in magnitude.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let read = QuantityText::split(text);
        if !read.has_digits() {
            return Err(ParseError::NoNumber { text: text.to_owned() });
        }
        let Some(scale) = Scale::parse(read.suffix) else {
            let (text, suffix) = (text.to_owned(), read.suffix.to_owned());
            return Err(ParseError::UnknownSuffix { text, suffix });
        };
        let Some(magnitude) = read.magnitude(scale).filter(|it| *it < LIMIT) else {
            return Err(ParseError::OutOfRange { text: text.to_owned() });
        };
        // As Kubernetes does: less than one unit has no binary form, so it changes family for good.
        let format = match scale.format {
            Format::BinarySi if 0 < magnitude && magnitude < NANOS_PER_UNIT => Format::DecimalSi,
            format => format,
        };
        Ok(Self { nanos: if read.negative { -magnitude } else { magnitude }, format })
    }

    /// A whole number of units.
    ///
    /// # Errors
    /// For `i64::MIN` alone, whose magnitude is 2^63.
    pub fn from_int(units: i64, format: Format) -> Result<Self, ArithmeticError> {
        Self::within_range(i128::from(units) * NANOS_PER_UNIT, format, || format!("hold {units}"))
    }

    /// The exact amount, in 10^-9 units.
    #[must_use]
    pub const fn nanos(self) -> i128 {
        self.nanos
    }

    /// The family of suffixes it is displayed in.
    #[must_use]
    pub const fn format(self) -> Format {
        self.format
    }

    /// The same amount, displayed in another family of suffixes.
    #[must_use]
    pub const fn with_format(self, format: Format) -> Self {
        Self { nanos: self.nanos, format }
    }

    /// Returns whether it is zero.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// Whether it is below zero.
    #[must_use]
    pub const fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// 1 above zero, 0 at zero, -1 below.
    #[must_use]
    pub fn sign(self) -> i8 {
        self.nanos.cmp(&0) as i8
    }

    /// The amount as an integer, if it is a whole number of units.
    #[must_use]
    pub fn to_int(self) -> Option<i64> {
        if self.nanos % NANOS_PER_UNIT == 0 {
            i64::try_from(self.nanos / NANOS_PER_UNIT).ok()
        } else {
            None
        }
    }

    /// Whole units, rounded away from zero; Kubernetes' `Value()`.
    ///
    /// An amount between 2^63 - 1 and 2^63, which has no integer above it, gives `i64::MAX`.
    #[must_use]
    pub fn value_rounded_up(self) -> i64 {
        i64::try_from(divide_away_from_zero(self.nanos, NANOS_PER_UNIT)).unwrap_or(i64::MAX)
    }

    /// Thousandths of a unit, rounded away from zero; Kubernetes' `MilliValue()`.
    ///
    /// Kubernetes answers in 64 bits and silently overflows from 2^63 / 1000 units on.
    #[must_use]
    pub const fn milli_rounded_up(self) -> i128 {
        divide_away_from_zero(self.nanos, NANOS_PER_UNIT / 1000)
    }

    /// The sum, in this quantity's family; in the other's if this one is zero, as in Kubernetes.
    ///
    /// # Errors
    /// If the sum is out of range.
    pub fn checked_add(self, other: Self) -> Result<Self, ArithmeticError> {
        let format = if self.is_zero() { other.format } else { self.format };
        Self::within_range(self.nanos + other.nanos, format, || format!("add {self} and {other}"))
    }

    /// The difference, in this quantity's family; in the other's if this one is zero, as in
    /// Kubernetes. It may be negative.
    ///
    /// # Errors
    /// If the difference is out of range.
    pub fn checked_sub(self, other: Self) -> Result<Self, ArithmeticError> {
        let format = if self.is_zero() { other.format } else { self.format };
        Self::within_range(self.nanos - other.nanos, format, || format!("take {other} from {self}"))
    }

    /// The smallest multiple of `block` that is not below this quantity, in its family.
    ///
    /// # Errors
    /// If the block is not above zero, or the multiple is out of range.
    pub fn round_up_to(self, block: Self) -> Result<Self, ArithmeticError> {
        self.check_block(block)?;
        let over = self.nanos.rem_euclid(block.nanos);
        let nanos = if over == 0 { self.nanos } else { self.nanos - over + block.nanos };
        Self::within_range(nanos, self.format, || format!("round {self} up to blocks of {block}"))
    }

    /// The largest multiple of `block` that is not above this quantity, in its family.
    ///
    /// # Errors
    /// If the block is not above zero, or the multiple is out of range (below -2^63).
    pub fn round_down_to(self, block: Self) -> Result<Self, ArithmeticError> {
        self.check_block(block)?;
        let nanos = self.nanos - self.nanos.rem_euclid(block.nanos);
        Self::within_range(nanos, self.format, || format!("round {self} down to blocks of {block}"))
    }

    fn check_block(self, block: Self) -> Result<(), ArithmeticError> {
        if block.nanos > 0 {
            Ok(())
        } else {
            Err(ArithmeticError::BlockNotPositive { value: self, block })
        }
    }

    fn within_range(
        nanos: i128,
        format: Format,
        attempted: impl FnOnce() -> String,
    ) -> Result<Self, ArithmeticError> {
        if -LIMIT < nanos && nanos < LIMIT {
            Ok(Self { nanos, format })
        } else {
            Err(ArithmeticError::OutOfRange { attempted: attempted() })
        }
    }
}

const fn divide_away_from_zero(nanos: i128, divisor: i128) -> i128 {
    nanos / divisor + (nanos % divisor).signum()
}

impl FromStr for Quantity {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Self::parse(text)
    }
}

impl From<u32> for Quantity {
    /// A count of units, in the decimal family.
    fn from(units: u32) -> Self {
        Self { nanos: i128::from(units) * NANOS_PER_UNIT, format: Format::DecimalSi }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        gantry_quantity::Quantity::from_nanos(self.nanos, self.format).fmt(f)
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

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Visitor)
    }
}

/// Reads a string or a number. A number is turned to its shortest text and parsed as such, so that
/// `0.1` is a tenth and not the binary fraction next to it.
struct Visitor;

impl de::Visitor<'_> for Visitor {
    type Value = Quantity;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a quantity: a number, or a string such as \"500m\" or \"1.5Gi\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
        Quantity::parse(text).map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Quantity, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Quantity, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Quantity, E> {
        self.visit_str(&number.to_string())
    }
}

impl JsonSchema for Quantity {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Quantity".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": PATTERN,
            "x-kubernetes-int-or-string": true,
        })
    }
}
