//! What a scalar of an inventory means: YAML 1.1 as Python reads it.
//!
//! Inventories were written for Python's reader, which differs from that of kubectl: `y` is text,
//! `1e3` is text, and `1:30` is ninety.

use serde_json::Number;

use crate::value::Value;

/// Why a plain scalar has no value here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScalarError {
    /// A number that is not finite.
    NotFinite,
    /// An integer of more than 64 bits.
    TooLarge,
}

/// Returns the value of a scalar without quotes.
pub(crate) fn plain(text: &str) -> Result<Value, ScalarError> {
    if let Some(flag) = boolean(text) {
        return Ok(Value::Bool(flag));
    }
    if matches!(text, "" | "~" | "null" | "Null" | "NULL") {
        return Ok(Value::Null);
    }
    if let Some(number) = integer(text) {
        return number.map(Value::Number);
    }
    if let Some(number) = float(text) {
        return Number::from_f64(number).map(Value::Number).ok_or(ScalarError::NotFinite);
    }
    Ok(Value::Text(text.to_owned()))
}

/// Returns the value of a scalar without quotes in a text that is JSON.
pub(crate) fn json(text: &str) -> Result<Value, ScalarError> {
    let is_number = text.starts_with(|c: char| c == '-' || c.is_ascii_digit());
    if !is_number {
        return plain(text);
    }
    if let Ok(number) = text.parse::<i64>() {
        return Ok(Value::Number(number.into()));
    }
    if let Ok(number) = text.parse::<u64>() {
        return Ok(Value::Number(number.into()));
    }
    if !text.contains(['.', 'e', 'E']) {
        return Err(ScalarError::TooLarge);
    }
    let number = text.parse().ok().and_then(Number::from_f64);
    number.map(Value::Number).ok_or(ScalarError::NotFinite)
}

fn boolean(text: &str) -> Option<bool> {
    let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
    let is = |word: &str| text == word || text == capital(word) || text == word.to_uppercase();
    let all = [("yes", true), ("no", false), ("true", true), ("false", false)];
    let more = [("on", true), ("off", false)];
    all.iter().chain(&more).find(|(word, _)| is(word)).map(|(_, flag)| *flag)
}

fn integer(text: &str) -> Option<Result<Number, ScalarError>> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let all = |rest: &str, is: fn(char) -> bool| {
        !rest.is_empty() && rest.chars().all(|c| c == '_' || is(c))
    };
    let (radix, body) = if let Some(rest) = digits.strip_prefix("0b") {
        (2, rest)
    } else if let Some(rest) = digits.strip_prefix("0x") {
        (16, rest)
    } else if digits == "0" {
        (10, digits)
    } else if let Some(rest) = digits.strip_prefix('0') {
        (8, rest)
    } else if digits.contains(':') {
        return sexagesimal(digits).map(|amount| number(negative, amount.ok()));
    } else if digits.starts_with(|c: char| c.is_ascii_digit()) {
        (10, digits)
    } else {
        return None;
    };
    let is_digit: fn(char) -> bool = match radix {
        2 => |c| matches!(c, '0' | '1'),
        8 => |c| ('0'..='7').contains(&c),
        16 => |c| c.is_ascii_hexdigit(),
        _ => |c| c.is_ascii_digit(),
    };
    if !all(body, is_digit) {
        return None;
    }
    let plain = body.replace('_', "");
    if plain.is_empty() && radix != 8 {
        // Python stops with an error at `0x_`; nobody means a number with it.
        return None;
    }
    Some(number(negative, u128::from_str_radix(&format!("0{plain}"), radix).ok()))
}

/// `1:30:00`, in units of the last part.
fn sexagesimal(digits: &str) -> Option<Result<u128, ScalarError>> {
    let mut parts = digits.split(':');
    let first = parts.next()?;
    let is_first = first.starts_with(|c: char| ('1'..='9').contains(&c))
        && first.chars().all(|c| c == '_' || c.is_ascii_digit());
    if !is_first {
        return None;
    }
    let mut sum = first.replace('_', "").parse::<u128>().ok();
    for part in parts {
        let digit = |c: u8| c.is_ascii_digit();
        let fits = match part.as_bytes() {
            [one] => digit(*one),
            [ten, one] => (b'0'..=b'5').contains(ten) && digit(*one),
            _ => false,
        };
        if !fits {
            return None;
        }
        let part = part.parse::<u128>().ok()?;
        sum = sum.and_then(|sum| sum.checked_mul(60)?.checked_add(part));
    }
    Some(sum.ok_or(ScalarError::TooLarge))
}

pub(crate) fn number(negative: bool, amount: Option<u128>) -> Result<Number, ScalarError> {
    let amount = amount.ok_or(ScalarError::TooLarge)?;
    if negative {
        let amount = i128::try_from(amount).map_err(|_| ScalarError::TooLarge)?;
        return i64::try_from(-amount).map(Number::from).map_err(|_| ScalarError::TooLarge);
    }
    u64::try_from(amount).map(Number::from).map_err(|_| ScalarError::TooLarge)
}

fn float(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let is_special = |word: &str| {
        unsigned == format!(".{word}") || unsigned == format!(".{}", word.to_uppercase())
    };
    if is_special("inf") || unsigned == ".Inf" || is_special("nan") && unsigned == text {
        return Some(f64::INFINITY);
    }
    if text == ".NaN" {
        return Some(f64::NAN);
    }
    // A dot is required, and an exponent has a sign.
    let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => (&unsigned[..at], Some(&unsigned[at + 1..])),
        None => (unsigned, None),
    };
    let (whole, fraction) = mantissa.split_once('.')?;
    let digits = |part: &str| part.chars().all(|c| c == '_' || c.is_ascii_digit());
    if let Some((minutes, seconds)) = whole.rsplit_once(':') {
        // `1:30.5`
        if exponent.is_some() || !digits(fraction) {
            return None;
        }
        let head = sexagesimal_head(minutes, seconds)?;
        let tail = format!("0.{}0", fraction.replace('_', "")).parse::<f64>().ok()?;
        let sign = if text.starts_with('-') { -1.0 } else { 1.0 };
        return Some(sign * (head + tail));
    }
    let whole_fits = if whole.is_empty() {
        // The sign belongs to numbers with digits before the dot.
        unsigned == text && fraction.starts_with(|c: char| c.is_ascii_digit())
    } else {
        whole.starts_with(|c: char| c.is_ascii_digit())
    };
    let exponent_fits = exponent.is_none_or(|exponent| {
        let rest = exponent.strip_prefix(['-', '+']);
        rest.is_some_and(|rest| !rest.is_empty() && rest.chars().all(|c| c.is_ascii_digit()))
    });
    if !(whole_fits && exponent_fits && digits(whole) && digits(fraction)) {
        return None;
    }
    let plain = text.replace('_', "");
    plain.parse().ok().or_else(|| format!("0{plain}").parse().ok())
}

fn sexagesimal_head(minutes: &str, seconds: &str) -> Option<f64> {
    let whole = format!("{minutes}:{seconds}");
    let mut parts = whole.split(':');
    let first = parts.next()?;
    let is_first = first.starts_with(|c: char| c.is_ascii_digit());
    if !is_first || !first.chars().all(|c| c == '_' || c.is_ascii_digit()) {
        return None;
    }
    let mut sum: f64 = first.replace('_', "").parse().ok()?;
    for part in parts {
        let fits = match part.as_bytes() {
            [one] => one.is_ascii_digit(),
            [ten, one] => (b'0'..=b'5').contains(ten) && one.is_ascii_digit(),
            _ => false,
        };
        if !fits {
            return None;
        }
        sum = sum * 60.0 + part.parse::<f64>().ok()?;
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value as Json, json};

    fn json(text: &str) -> Json {
        let at = crate::finding::Place::default();
        crate::value::Node { at, value: plain(text).unwrap() }.to_json()
    }

    #[test]
    fn pvs_8_scalars_mean_what_python_reads() {
        let table = [
            ("yes", json!(true)),
            ("Off", json!(false)),
            ("TRUE", json!(true)),
            ("y", json!("y")),
            ("tRUE", json!("tRUE")),
            ("", Json::Null),
            ("~", Json::Null),
            ("NULL", Json::Null),
            ("0", json!(0)),
            ("-0", json!(0)),
            ("00", json!(0)),
            ("010", json!(8)),
            ("0_", json!(0)),
            ("08", json!("08")),
            ("0o10", json!("0o10")),
            ("0x1F", json!(31)),
            ("0b101", json!(5)),
            ("-12", json!(-12)),
            ("+12", json!(12)),
            ("1_000", json!(1000)),
            ("_1", json!("_1")),
            ("1:30", json!(90)),
            ("1:60", json!("1:60")),
            ("01:30", json!("01:30")),
            ("22:22:22", json!(80542)),
            ("1.5", json!(1.5)),
            ("1.", json!(1.0)),
            (".5", json!(0.5)),
            ("-.5", json!("-.5")),
            ("-1.5", json!(-1.5)),
            ("1e3", json!("1e3")),
            ("1.0e3", json!("1.0e3")),
            ("1.0e+3", json!(1000.0)),
            ("1:30.5", json!(90.5)),
            ("1.2.3", json!("1.2.3")),
            ("10.0.0.1", json!("10.0.0.1")),
            ("1.34.11", json!("1.34.11")),
            ("2024-01-02", json!("2024-01-02")),
            ("::1", json!("::1")),
            ("=", json!("=")),
        ];
        for (text, expected) in table {
            assert_eq!(json(text), expected, "{text:?}");
        }
        for (text, expected) in [("1e3", 1000.0), ("1E-2", 0.01), ("-1.5", -1.5)] {
            assert_eq!(super::json(text), Ok(Value::Number(Number::from_f64(expected).unwrap())));
        }
        assert_eq!(super::json("-0"), Ok(Value::Number(0.into())));
        assert_eq!(super::json("null"), Ok(Value::Null));
        assert_eq!(super::json("99999999999999999999"), Err(ScalarError::TooLarge));
        assert_eq!(super::json("1e999"), Err(ScalarError::NotFinite));
        assert_eq!(plain(".inf"), Err(ScalarError::NotFinite));
        assert_eq!(plain(".NaN"), Err(ScalarError::NotFinite));
        assert_eq!(plain("99999999999999999999"), Err(ScalarError::TooLarge));
        assert_eq!(plain("-9223372036854775809"), Err(ScalarError::TooLarge));
    }
}
