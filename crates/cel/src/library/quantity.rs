//! Amounts of resources, as in `1500Mi`; and the comparisons they share with versions.

use std::cmp::Ordering;

use super::{Answer, Entry, no_overload};
use crate::cost::Charge;
use crate::fault::EvalError;
use crate::value::Value;
use crate::work::Work;

const COMPARED: &str = "kubernetes.Quantity.(kubernetes.Quantity) bool";
const VERSIONS: &str = "kubernetes.Semver.(kubernetes.Semver) bool";

pub(super) const FUNCTIONS: &[Entry] = &[
    Entry {
        name: "quantity",
        signatures: &["(string) kubernetes.Quantity"],
        charge: Charge::Text,
        run: quantity,
    },
    Entry {
        name: "isQuantity",
        signatures: &["(string) bool"],
        charge: Charge::Text,
        run: is_quantity,
    },
    Entry {
        name: "sign",
        signatures: &["(kubernetes.Quantity) int", "kubernetes.Quantity.() int"],
        charge: Charge::Nominal,
        run: sign,
    },
    Entry {
        name: "isInteger",
        signatures: &["kubernetes.Quantity.() bool"],
        charge: Charge::Nominal,
        run: is_integer,
    },
    Entry {
        name: "asInteger",
        signatures: &["kubernetes.Quantity.() int"],
        charge: Charge::Nominal,
        run: as_integer,
    },
    Entry {
        name: "asApproximateFloat",
        signatures: &["kubernetes.Quantity.() double"],
        charge: Charge::Nominal,
        run: as_float,
    },
    Entry {
        name: "add",
        signatures: &[
            "kubernetes.Quantity.(kubernetes.Quantity) kubernetes.Quantity",
            "kubernetes.Quantity.(int) kubernetes.Quantity",
        ],
        charge: Charge::Nominal,
        run: add,
    },
    Entry {
        name: "sub",
        signatures: &[
            "kubernetes.Quantity.(kubernetes.Quantity) kubernetes.Quantity",
            "kubernetes.Quantity.(int) kubernetes.Quantity",
        ],
        charge: Charge::Nominal,
        run: sub,
    },
    Entry {
        name: "isGreaterThan",
        signatures: &[COMPARED, VERSIONS],
        charge: Charge::Nominal,
        run: is_greater,
    },
    Entry {
        name: "isLessThan",
        signatures: &[COMPARED, VERSIONS],
        charge: Charge::Nominal,
        run: is_less,
    },
    Entry {
        name: "compareTo",
        signatures: &[
            "kubernetes.Quantity.(kubernetes.Quantity) int",
            "kubernetes.Semver.(kubernetes.Semver) int",
        ],
        charge: Charge::Nominal,
        run: compare_to,
    },
];

/// An exact amount in whole billionths.
///
/// Amounts of more than 10^29 are held at that, which is beyond anything that is counted.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    nanos: i128,
    /// Whether it was written without a fraction: `1000m` is one, and yet not an integer to a
    /// server, which looks at how the amount is kept.
    plain: bool,
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

const UNIT: i128 = 1_000_000_000;

/// The words of a server for text that is no quantity.
const FORMAT: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const SUFFIX: &str = "unable to parse quantity's suffix";

impl Quantity {
    /// The amount that `text` spells.
    ///
    /// # Errors
    /// In the words of a server when it spells none.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if text.is_empty() {
            return Err(FORMAT);
        }
        let (negative, rest) = match text.as_bytes() {
            [b'-', ..] => (true, &text[1..]),
            [b'+', ..] => (false, &text[1..]),
            _ => (false, text),
        };
        let (whole, rest) = digits(rest);
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => digits(rest),
            None => ("", rest),
        };
        let letters = suffix.trim_start_matches(|letter| "eEinumkKMGTP".contains(letter));
        let number = letters.strip_prefix(['+', '-']).unwrap_or(letters);
        if !digits(number).1.is_empty() {
            return Err(FORMAT);
        }
        let (base, power) = scale(suffix).ok_or(SUFFIX)?;
        let amount = amount(whole, fraction, base, power);
        let nanos = if negative { -amount } else { amount };
        // Only a number without a fraction, of a size that is kept as one, is an integer.
        let plain = power >= 0
            && fraction.is_empty()
            && whole.trim_start_matches('0').len() < 19
            && i64::try_from(nanos / UNIT).is_ok();
        Ok(Self { nanos, plain })
    }

    /// Which amount is the smaller one.
    pub(super) fn order(self, other: Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }

    pub(super) fn whole(number: i64) -> Self {
        Self { nanos: i128::from(number) * UNIT, plain: true }
    }

    fn integer(self) -> Option<i64> {
        i64::try_from(self.nanos / UNIT).ok().filter(|_| self.plain)
    }

    fn plus(self, other: Self) -> Self {
        let nanos = self.nanos.saturating_add(other.nanos);
        let plain = match (self.nanos, other.nanos) {
            (0, _) => other.plain,
            (_, 0) => self.plain,
            _ => self.plain && other.plain,
        };
        Self { nanos, plain }
    }

    fn negated(self) -> Self {
        Self { nanos: self.nanos.saturating_neg(), ..self }
    }

    #[expect(clippy::cast_precision_loss, reason = "an approximation is what is asked for")]
    fn approximate(self) -> f64 {
        let whole = (self.nanos / UNIT) as f64;
        if self.nanos % UNIT == 0 { whole } else { self.nanos as f64 / UNIT as f64 }
    }
}

fn digits(text: &str) -> (&str, &str) {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

/// What a suffix multiplies with: a power of ten or two.
fn scale(suffix: &str) -> Option<(i128, i32)> {
    Some(match suffix {
        "n" => (10, -9),
        "u" => (10, -6),
        "m" => (10, -3),
        "" => (10, 0),
        "k" => (10, 3),
        "M" => (10, 6),
        "G" => (10, 9),
        "T" => (10, 12),
        "P" => (10, 15),
        "E" => (10, 18),
        "Ki" => (2, 10),
        "Mi" => (2, 20),
        "Gi" => (2, 30),
        "Ti" => (2, 40),
        "Pi" => (2, 50),
        "Ei" => (2, 60),
        _ => (10, suffix.strip_prefix(['e', 'E'])?.parse().ok()?),
    })
}

/// Billionths of an amount without its sign; finer ones are rounded up.
fn amount(whole: &str, fraction: &str, base: i128, power: i32) -> i128 {
    let mut value: i128 = 0;
    let mut places: i32 = 0;
    let mut rest = false;
    for (place, digit) in whole.bytes().chain(fraction.bytes()).enumerate() {
        let digit = i128::from(digit - b'0');
        match value.checked_mul(10).and_then(|value| value.checked_add(digit)) {
            // Digits that no amount of this size can show only matter for rounding.
            Some(longer) if places < 27 => {
                value = longer;
                places += i32::from(place >= whole.len());
            }
            Some(_) => rest |= digit > 0,
            None if place >= whole.len() => rest |= digit > 0,
            None => return i128::MAX,
        }
    }
    if value == 0 && !rest {
        return 0;
    }
    let mut tens = 9 - places;
    if base == 10 {
        tens = tens.saturating_add(power);
    } else {
        let Some(scaled) = u32::try_from(power).ok().and_then(|p| value.checked_mul(1 << p)) else {
            return i128::MAX;
        };
        value = scaled;
    }
    while tens > 0 {
        let Some(longer) = value.checked_mul(10) else { return i128::MAX };
        value = longer;
        tens -= 1;
    }
    while tens < 0 && value > 0 {
        rest |= value % 10 > 0;
        value /= 10;
        tens += 1;
    }
    value.saturating_add(i128::from(rest))
}

fn quantity<'v>(_: &mut Work<'_>, args: &[Value<'v>]) -> Answer<'v> {
    let [Value::String(text)] = args else { return no_overload() };
    Quantity::parse(text).map(Value::Quantity).map_err(EvalError::failed)
}

fn is_quantity<'v>(_: &mut Work<'_>, args: &[Value<'v>]) -> Answer<'v> {
    let [Value::String(text)] = args else { return no_overload() };
    Ok(Value::Bool(Quantity::parse(text).is_ok()))
}

fn sign<'v>(_: &mut Work<'_>, args: &[Value<'v>]) -> Answer<'v> {
    let [Value::Quantity(amount)] = args else { return no_overload() };
    Ok(Value::Int(i64::try_from(amount.nanos.signum()).unwrap_or(0)))
}

fn is_integer<'v>(_: &mut Work<'_>, args: &[Value<'v>]) -> Answer<'v> {
    let [Value::Quantity(amount)] = args else { return no_overload() };
    Ok(Value::Bool(amount.integer().is_some()))
}

fn as_integer<'v>(_: &mut Work<'_>, args: &[Value<'v>]) -> Answer<'v> {
    let [Value::Quantity(amount)] = args else { return no_overload() };
    let whole = amount.integer();
    whole.map(Value::Int).ok_or_else(|| EvalError::failed("cannot convert value to integer"))
}

fn as_float<'v>(_: &mut Work<'_>, args: &[Value<'v>]) -> Answer<'v> {
    let [Value::Quantity(amount)] = args else { return no_overload() };
    Ok(Value::Double(amount.approximate()))
}

fn other_amount(value: &Value<'_>) -> Result<Quantity, EvalError> {
    match value {
        Value::Quantity(amount) => Ok(*amount),
        Value::Int(number) => Ok(Quantity::whole(*number)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn add<'v>(_: &mut Work<'_>, args: &[Value<'v>]) -> Answer<'v> {
    let [Value::Quantity(one), two] = args else { return no_overload() };
    Ok(Value::Quantity(one.plus(other_amount(two)?)))
}

fn sub<'v>(_: &mut Work<'_>, args: &[Value<'v>]) -> Answer<'v> {
    let [Value::Quantity(one), two] = args else { return no_overload() };
    Ok(Value::Quantity(one.plus(other_amount(two)?.negated())))
}

fn order(args: &[Value<'_>]) -> Result<Ordering, EvalError> {
    match args {
        [Value::Quantity(one), Value::Quantity(two)] => Ok(one.order(*two)),
        [Value::Semver(one), Value::Semver(two)] => Ok(one.precedence(two)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn is_greater<'v>(_: &mut Work<'_>, args: &[Value<'v>]) -> Answer<'v> {
    Ok(Value::Bool(order(args)?.is_gt()))
}

fn is_less<'v>(_: &mut Work<'_>, args: &[Value<'v>]) -> Answer<'v> {
    Ok(Value::Bool(order(args)?.is_lt()))
}

fn compare_to<'v>(_: &mut Work<'_>, args: &[Value<'v>]) -> Answer<'v> {
    Ok(Value::Int(match order(args)? {
        Ordering::Less => -1,
        Ordering::Equal => 0,
        Ordering::Greater => 1,
    }))
}
