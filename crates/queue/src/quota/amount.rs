//! Quota amounts: cpu in thousandths, everything else in whole units.

use gantry_api::quantity::{Format, Quantity};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Processors, counted in thousandths.
const CPU: &str = "cpu";
/// Memory, counted in bytes.
const MEMORY: &str = "memory";

/// The resources every tree counts, whether or not a node lists them: a node that does not list one
/// has a quota of zero.
pub const TRACKED_RESOURCES: [&str; 3] = [CPU, MEMORY, "nvidia.com/gpu"];

/// Returns the nano-units in one counted unit of a resource.
fn unit(resource: &str) -> i128 {
    if resource == CPU { 1_000_000 } else { 1_000_000_000 }
}

/// Returns what is charged for a demand: thousandths of cpus, else whole units, rounded down.
#[must_use]
pub fn requested(resource: &str, amount: Quantity) -> i64 {
    clamp(amount.nanos() / unit(resource))
}

/// Returns a quota in the same units, rounded up as Kubernetes does.
pub(super) fn quota_units(resource: &str, amount: Quantity) -> i64 {
    let nanos = amount.nanos();
    let whole = nanos / unit(resource);
    clamp(if nanos % unit(resource) > 0 { whole + 1 } else { whole })
}

/// Returns counted units as a quantity, for statuses and messages. What is too large becomes the
/// largest quantity.
#[must_use]
pub fn quantity(resource: &str, units: i128) -> Quantity {
    let format = if resource == MEMORY { Format::BinarySi } else { Format::DecimalSi };
    let text = if resource == CPU { format!("{units}m") } else { units.to_string() };
    let amount = Quantity::parse(&text).or_else(|_| Quantity::from_int(i64::MAX, format));
    amount.unwrap_or(Quantity::ZERO).with_format(format)
}

fn clamp(units: i128) -> i64 {
    i64::try_from(units).unwrap_or(if units < 0 { i64::MIN } else { i64::MAX })
}

/// An amount in a QuotaSubtree, which may be invalid without harm to the rest of the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Amount {
    /// A quantity.
    Parsed(Quantity),
    /// It is not a quantity: the text as written, and what is wrong with it.
    Unreadable {
        /// As written.
        text: String,
        /// What is wrong.
        why: String,
    },
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(from)?;
        Ok(match Quantity::deserialize(&value) {
            Ok(amount) => Self::Parsed(amount),
            Err(error) => Self::Unreadable { text: value.to_string(), why: error.to_string() },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Quantity {
        Quantity::parse(text).unwrap()
    }

    /// QU-4 rounds demands down, and quotas are rounded as `Quantity::MilliValue` and `Value`
    /// round.
    #[test]
    fn qu_4_amounts_are_whole_numbers() {
        let table = [
            // resource      amount        requested             granted
            ("cpu", "1", 1000, 1000),
            ("cpu", "1075m", 1075, 1075),
            ("cpu", "1500u", 1, 2),
            ("cpu", "0.1m", 0, 1),
            ("memory", "450Mi", 450 << 20, 450 << 20),
            ("memory", "1500m", 1, 2),
            ("nvidia.com/gpu", "8", 8, 8),
            ("nvidia.com/gpu", "500m", 0, 1),
            ("example.com/disk", "2k", 2000, 2000),
            ("cpu", "9E", i64::MAX, i64::MAX),
            ("memory", "-3", -3, -3),
            ("cpu", "-9E", i64::MIN, i64::MIN),
        ];
        for (resource, amount, wanted, given) in table {
            let amount = parse(amount);
            assert_eq!(requested(resource, amount), wanted, "{resource} {amount} requested");
            assert_eq!(quota_units(resource, amount), given, "{resource} {amount} granted");
        }
    }

    #[test]
    fn amounts_are_shown_as_people_write_them() {
        let table = [
            ("cpu", 1075, "1075m"),
            ("cpu", 2000, "2"),
            ("cpu", 0, "0"),
            ("memory", 450 << 20, "450Mi"),
            ("memory", 1000, "1k"),
            ("nvidia.com/gpu", 16, "16"),
            ("memory", i128::from(i64::MAX) * 3, "9223372036854775807"),
        ];
        for (resource, units, expected) in table {
            assert_eq!(quantity(resource, units).to_string(), expected, "{resource} {units}");
        }
    }
}
