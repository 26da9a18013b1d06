//! Amounts of resources, as in `1500Mi`; and the comparisons they share with versions.

use std::cmp::Ordering;

use gantry_quantity::{NANOS_PER_UNIT, QuantityText, Scale};

use super::{EvalResult, LibraryFunction, no_overload};
use crate::cost::CostRule;
use crate::error::EvalError;
use crate::eval_context::EvalContext;
use crate::value::Value;

const QUANTITY_COMPARISON: &str = "kubernetes.Quantity.(kubernetes.Quantity) bool";
const SEMVER_COMPARISON: &str = "kubernetes.Semver.(kubernetes.Semver) bool";

pub(super) const FUNCTIONS: &[LibraryFunction] = &[
    LibraryFunction {
        name: "quantity",
        signatures: &["(string) kubernetes.Quantity"],
        charge: CostRule::Text,
        run: quantity,
    },
    LibraryFunction {
        name: "isQuantity",
        signatures: &["(string) bool"],
        charge: CostRule::Text,
        run: is_quantity,
    },
    LibraryFunction {
        name: "sign",
        signatures: &["(kubernetes.Quantity) int", "kubernetes.Quantity.() int"],
        charge: CostRule::Nominal,
        run: sign,
    },
    LibraryFunction {
        name: "isInteger",
        signatures: &["kubernetes.Quantity.() bool"],
        charge: CostRule::Nominal,
        run: is_integer,
    },
    LibraryFunction {
        name: "asInteger",
        signatures: &["kubernetes.Quantity.() int"],
        charge: CostRule::Nominal,
        run: as_integer,
    },
    LibraryFunction {
        name: "asApproximateFloat",
        signatures: &["kubernetes.Quantity.() double"],
        charge: CostRule::Nominal,
        run: as_float,
    },
    LibraryFunction {
        name: "add",
        signatures: &[
            "kubernetes.Quantity.(kubernetes.Quantity) kubernetes.Quantity",
            "kubernetes.Quantity.(int) kubernetes.Quantity",
        ],
        charge: CostRule::Nominal,
        run: add,
    },
    LibraryFunction {
        name: "sub",
        signatures: &[
            "kubernetes.Quantity.(kubernetes.Quantity) kubernetes.Quantity",
            "kubernetes.Quantity.(int) kubernetes.Quantity",
        ],
        charge: CostRule::Nominal,
        run: sub,
    },
    LibraryFunction {
        name: "isGreaterThan",
        signatures: &[QUANTITY_COMPARISON, SEMVER_COMPARISON],
        charge: CostRule::Nominal,
        run: is_greater,
    },
    LibraryFunction {
        name: "isLessThan",
        signatures: &[QUANTITY_COMPARISON, SEMVER_COMPARISON],
        charge: CostRule::Nominal,
        run: is_less,
    },
    LibraryFunction {
        name: "compareTo",
        signatures: &[
            "kubernetes.Quantity.(kubernetes.Quantity) int",
            "kubernetes.Semver.(kubernetes.Semver) int",
        ],
        charge: CostRule::Nominal,
        run: compare_to,
    },
];

/// An exact amount in whole billionths.
///
/// Amounts that 128 bits do not hold stay at their end, which is beyond anything that is counted.
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
        let text = QuantityText::split(text);
        if !text.has_suffix_form() {
            return Err(FORMAT);
        }
        let scale = Scale::parse(text.suffix).filter(|it| it.is_known_upstream()).ok_or(SUFFIX)?;
        let QuantityText { negative, whole, fraction, .. } = text;
        let amount = text.magnitude(scale).unwrap_or(i128::MAX);
        let nanos = if negative { -amount } else { amount };
        // Only a number without a fraction, of a size that is kept as one, is an integer.
        let plain = scale.exponent >= 0
            && fraction.is_empty()
            && whole.trim_start_matches('0').len() < 19
            && i64::try_from(nanos / NANOS_PER_UNIT).is_ok();
        Ok(Self { nanos, plain })
    }

    /// Which amount is the smaller one.
    pub(super) fn order(self, other: Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }

    pub(super) fn whole(number: i64) -> Self {
        Self { nanos: i128::from(number) * NANOS_PER_UNIT, plain: true }
    }

    fn integer(self) -> Option<i64> {
        i64::try_from(self.nanos / NANOS_PER_UNIT).ok().filter(|_| self.plain)
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
        let whole = (self.nanos / NANOS_PER_UNIT) as f64;
        if self.nanos % NANOS_PER_UNIT == 0 {
            whole
        } else {
            self.nanos as f64 / NANOS_PER_UNIT as f64
        }
    }
}

fn quantity<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [Value::String(text)] = args else { return no_overload() };
    Quantity::parse(text).map(Value::Quantity).map_err(EvalError::failed)
}

fn is_quantity<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [Value::String(text)] = args else { return no_overload() };
    Ok(Value::Bool(Quantity::parse(text).is_ok()))
}

fn sign<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [Value::Quantity(amount)] = args else { return no_overload() };
    Ok(Value::Int(i64::try_from(amount.nanos.signum()).unwrap_or(0)))
}

fn is_integer<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [Value::Quantity(amount)] = args else { return no_overload() };
    Ok(Value::Bool(amount.integer().is_some()))
}

fn as_integer<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [Value::Quantity(amount)] = args else { return no_overload() };
    let whole = amount.integer();
    whole.map(Value::Int).ok_or_else(|| EvalError::failed("cannot convert value to integer"))
}

fn as_float<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
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

fn add<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [Value::Quantity(one), two] = args else { return no_overload() };
    Ok(Value::Quantity(one.plus(other_amount(two)?)))
}

fn sub<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
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

fn is_greater<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    Ok(Value::Bool(order(args)?.is_gt()))
}

fn is_less<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    Ok(Value::Bool(order(args)?.is_lt()))
}

fn compare_to<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    Ok(Value::Int(match order(args)? {
        Ordering::Less => -1,
        Ordering::Equal => 0,
        Ordering::Greater => 1,
    }))
}
