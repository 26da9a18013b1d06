//! Converts numbers to Go's types.

use serde_json::Number;

use crate::types::ValueType;

/// Returns the number as a field of that type keeps it; `None` if it does not fit.
pub(super) fn fit(make: &ValueType, number: &Number) -> Option<Number> {
    match make {
        ValueType::Int32 => {
            let whole = number.as_i64()?;
            i32::try_from(whole).is_ok().then(|| Number::from(whole))
        }
        ValueType::Float => Some(float(number.as_f64()?)),
        _ => number.as_i64().map(Number::from),
    }
}

/// Formats a float as Go writes it: without a fraction if there is none.
pub(crate) fn float(float: f64) -> Number {
    /// Below this magnitude every whole number has a float of its own.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if float.fract() == 0.0 && float.abs() < EXACT {
        #[expect(clippy::cast_possible_truncation, reason = "it is whole and within 53 bits")]
        return Number::from(float as i64);
    }
    Number::from_f64(float).unwrap_or_else(|| Number::from(0))
}

pub(super) fn is_zero(number: &Number) -> bool {
    number.as_f64() == Some(0.0)
}
