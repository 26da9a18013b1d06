//! Bounds of numbers. Whole numbers are compared as whole numbers, which cuts fractions off bounds.

use serde_json::Number;

use super::values::NumberError;
use crate::checks::{Bound, Checks};
use crate::go;

/// The number as a whole one. Beyond what fits in 64 bits with a sign, numbers are floats.
fn as_integer(number: &Number) -> Option<i64> {
    number.as_i64()
}

#[expect(clippy::cast_possible_truncation, reason = "cutting off and saturating is the rule here")]
fn cut(number: f64) -> i64 {
    number as i64
}

/// What is wrong with a number: the value to show and the words after the path.
pub(super) fn number_errors(checks: &Checks, number: &Number) -> Vec<NumberError> {
    let mut found = Vec::new();
    if let Some(factor) = checks.multiple_of {
        found.extend(multiple(number, factor));
    }
    if let Some(bound) = checks.minimum {
        found.extend(minimum(number, bound));
    }
    if let Some(bound) = checks.maximum {
        found.extend(maximum(number, bound));
    }
    found
}

fn multiple(number: &Number, factor: f64) -> Option<NumberError> {
    let (factor, is_positive, is_multiple) = match as_integer(number) {
        Some(value) => {
            let factor = cut(factor);
            let is_multiple = factor > 0 && value % factor == 0;
            (factor.to_string(), factor > 0, is_multiple)
        }
        None => {
            let value = number.as_f64()?;
            let count = if factor < 1.0 { 1.0 / factor * value } else { value / factor };
            (go::float(factor), factor > 0.0, is_whole(count))
        }
    };
    if !is_positive {
        return Some(NumberError::Factor { factor });
    }
    (!is_multiple).then(|| NumberError::After(format!("should be a multiple of {factor}")))
}

fn minimum(number: &Number, bound: Bound) -> Option<NumberError> {
    let (is_below, bound_text) = match as_integer(number) {
        Some(value) => {
            let least = cut(bound.value);
            (value < least || (bound.exclusive && value == least), least.to_string())
        }
        None => {
            let (value, least) = (number.as_f64()?, bound.value);
            (value < least || (bound.exclusive && value <= least), go::float(least))
        }
    };
    let words = if bound.exclusive { "greater than" } else { "greater than or equal to" };
    is_below.then(|| NumberError::After(format!("should be {words} {bound_text}")))
}

fn maximum(number: &Number, bound: Bound) -> Option<NumberError> {
    let (is_above, bound_text) = match as_integer(number) {
        Some(value) => {
            let most = cut(bound.value);
            (value > most || (bound.exclusive && value == most), most.to_string())
        }
        None => {
            let (value, most) = (number.as_f64()?, bound.value);
            (value > most || (bound.exclusive && value >= most), go::float(most))
        }
    };
    let words = if bound.exclusive { "less than" } else { "less than or equal to" };
    is_above.then(|| NumberError::After(format!("should be {words} {bound_text}")))
}

/// The largest number up to which all whole numbers have a float of their own.
const MAX_SAFE_INTEGER: f64 = 9_007_199_254_740_991.0;

/// Whether a float is near enough to a whole number to be taken for one.
pub(super) fn is_whole(number: f64) -> bool {
    if !(-MAX_SAFE_INTEGER..=MAX_SAFE_INTEGER).contains(&number) {
        return false;
    }
    if number.fract() == 0.0 {
        return true;
    }
    // Cut, not rounded: 2.9999999999 is not three.
    let near = number.trunc().max(0.0);
    if near == 0.0 {
        return false;
    }
    (number - near).abs() / (number.abs() + near) < 1e-9
}
