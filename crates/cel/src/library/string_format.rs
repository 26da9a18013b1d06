//! `format`: values written into text.

use std::fmt::Write as _;

use super::{EvalResult, LibraryFunction, convert, no_overload, time};
use crate::cost::CostRule;
use crate::error::EvalError;
use crate::eval_context::EvalContext;
use crate::value::Value;

pub(super) const FUNCTIONS: &[LibraryFunction] = &[LibraryFunction {
    name: "format",
    signatures: &["string.(list(dyn)) string"],
    charge: CostRule::Text,
    run: format_list,
}];

/// Digits after the point where the pattern does not say.
const DEFAULT_PRECISION: usize = 6;
/// More digits than any number has; a larger precision would only cost memory.
const MAX_PRECISION: usize = 1_000;

fn format_list<'v>(work: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [Value::String(pattern), Value::List(list)] = args else { return no_overload() };
    let mut text = String::with_capacity(pattern.len());
    let mut rest = pattern.chars();
    let mut used = 0;
    while let Some(letter) = rest.next() {
        if letter != '%' {
            text.push(letter);
            continue;
        }
        let mut clause =
            rest.next().ok_or_else(|| EvalError::failed("unexpected end of string"))?;
        if clause == '%' {
            text.push('%');
            continue;
        }
        let mut precision = None;
        if clause == '.' {
            let digits: String = rest.as_str().chars().take_while(char::is_ascii_digit).collect();
            precision = digits.parse::<usize>().ok().filter(|most| *most <= MAX_PRECISION);
            if precision.is_none() {
                return Err(EvalError::failed(format!(
                    "could not parse formatting clause: error while parsing precision: error while \
                     converting precision to integer: {digits:?}"
                )));
            }
            rest = rest.as_str()[digits.len()..].chars();
            clause = rest.next().ok_or_else(|| {
                EvalError::failed("could not parse formatting clause: unexpected end of string")
            })?;
        }
        let value = list
            .get(used)?
            .ok_or_else(|| EvalError::failed(format!("index {used} out of range")))?;
        used += 1;
        let start = text.len();
        write_clause(&mut text, clause, precision, &value)?;
        work.charge(u64::try_from((text.len() - start) / 64).unwrap_or(u64::MAX))?;
    }
    Ok(Value::text(text))
}

fn write_clause(
    text: &mut String,
    clause: char,
    precision: Option<usize>,
    value: &Value<'_>,
) -> Result<(), EvalError> {
    let number = || match value {
        Value::Double(number) => Some(*number),
        Value::String(word) => match &**word {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    };
    let digits = precision.unwrap_or(DEFAULT_PRECISION);
    let written = match (clause, value) {
        ('s', _) => show(value)?,
        ('d', Value::Int(number)) => number.to_string(),
        ('d', Value::Uint(number)) => number.to_string(),
        ('d', _) => return Err(unsupported_verb_type("decimal", "integers", value)),
        ('f', _) => match number() {
            Some(number) => fixed(number, digits),
            None => return Err(unsupported_verb_type("fixed-point", "doubles", value)),
        },
        ('e', _) => match number() {
            Some(number) => scientific(number),
            None => return Err(unsupported_verb_type("scientific", "doubles", value)),
        },
        ('b', Value::Int(number)) => signed(*number, |size| format!("{size:b}")),
        ('b', Value::Uint(number)) => format!("{number:b}"),
        ('b', Value::Bool(truth)) => if *truth { "1" } else { "0" }.to_owned(),
        ('b', _) => return Err(unsupported_verb_type("binary", "integers and bools", value)),
        ('x', Value::Int(number)) => signed(*number, |size| format!("{size:x}")),
        ('x', Value::Uint(number)) => format!("{number:x}"),
        ('x', Value::String(word)) => hex(word.as_bytes(), false),
        ('x', Value::Bytes(bytes)) => hex(bytes, false),
        ('X', Value::Int(number)) => signed(*number, |size| format!("{size:X}")),
        ('X', Value::Uint(number)) => format!("{number:X}"),
        ('X', Value::String(word)) => hex(word.as_bytes(), true),
        ('X', Value::Bytes(bytes)) => hex(bytes, true),
        ('x' | 'X', _) => {
            return Err(unsupported_verb_type("hex", "integers, byte buffers, and strings", value));
        }
        ('o', Value::Int(number)) => signed(*number, |size| format!("{size:o}")),
        ('o', Value::Uint(number)) => format!("{number:o}"),
        ('o', _) => return Err(unsupported_verb_type("octal", "integers", value)),
        (other, _) => {
            return Err(EvalError::failed(format!(
                "could not parse formatting clause: unrecognized formatting clause \"{other}\""
            )));
        }
    };
    text.push_str(&written);
    Ok(())
}

fn unsupported_verb_type(clause: &str, takes: &str, value: &Value<'_>) -> EvalError {
    let name = value.type_name();
    EvalError::failed(format!(
        "error during formatting: {clause} clause can only be used on {takes}, was given {name}"
    ))
}

fn signed(number: i64, write: impl Fn(u64) -> String) -> String {
    let sign = if number < 0 { "-" } else { "" };
    format!("{sign}{}", write(number.unsigned_abs()))
}

fn hex(bytes: &[u8], upper: bool) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let written = if upper { write!(text, "{byte:02X}") } else { write!(text, "{byte:02x}") };
        debug_assert!(written.is_ok(), "writing to a string cannot fail");
        text
    })
}

/// Fixed digits, with a comma between groups of three as an English reader has them.
fn fixed(number: f64, digits: usize) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    let sign = if number.is_sign_negative() { "-" } else { "" };
    if number.is_infinite() {
        return format!("{sign}∞");
    }
    let text = format!("{:.digits$}", number.abs());
    let (whole, part) = text.split_once('.').map_or((text.as_str(), None), |(w, p)| (w, Some(p)));
    let mut grouped = String::from(sign);
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if let Some(part) = part {
        grouped.push('.');
        grouped.push_str(part);
    }
    grouped
}

/// Six digits and a power of ten in raised digits, as an English reader has them; a precision is
/// taken for a width, and so has no effect.
fn scientific(number: f64) -> String {
    if !number.is_finite() {
        return fixed(number, 0);
    }
    let text = format!("{number:.DEFAULT_PRECISION$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ("\u{207b}", exponent),
        None => ("", exponent),
    };
    let raised: String = format!("{exponent:0>2}")
        .chars()
        .map(|digit| match digit {
            '1' => '¹',
            '2' => '²',
            '3' => '³',
            other => {
                other.to_digit(10).and_then(|value| char::from_u32(0x2070 + value)).unwrap_or(other)
            }
        })
        .collect();
    format!("{digits}×10{sign}{raised}")
}

/// What `%s` writes.
fn show(value: &Value<'_>) -> Result<String, EvalError> {
    Ok(match value {
        Value::Null => "null".to_owned(),
        Value::Type(name) => name.to_string(),
        Value::List(_) | Value::Map(_) => literal(value)?,
        Value::Bool(_)
        | Value::Int(_)
        | Value::Uint(_)
        | Value::Double(_)
        | Value::String(_)
        | Value::Bytes(_)
        | Value::Timestamp(_)
        | Value::Duration(_) => convert::to_text(value)?,
        Value::Optional(_)
        | Value::Quantity(_)
        | Value::Ip(_)
        | Value::Cidr(_)
        | Value::Url(_)
        | Value::Semver(_)
        | Value::Format(_)
        | Value::Host(_) => {
            let takes = "strings, bools, bytes, ints, doubles, maps, lists, types, durations, and \
                         timestamps";
            return Err(unsupported_verb_type("string", takes, value));
        }
    })
}

/// A value inside a list or map, as an expression would spell it.
fn literal(value: &Value<'_>) -> Result<String, EvalError> {
    Ok(match value {
        Value::String(text) => format!("{:?}", &**text),
        Value::Bytes(bytes) => format!("b{:?}", String::from_utf8_lossy(bytes)),
        Value::Double(number) if !number.is_finite() => {
            format!("{:?}", convert::show_double(*number))
        }
        Value::Double(number) => format!("{number:.DEFAULT_PRECISION$}"),
        Value::Timestamp(at) => format!("timestamp({:?})", time::show_timestamp(*at)),
        Value::Duration(nanos) => format!("duration({:?})", time::show_duration(*nanos)),
        Value::Type(name) => format!("type({name})"),
        Value::List(list) => {
            let items = list.iter().map(|item| literal(&item?)).collect::<Result<Vec<_>, _>>()?;
            format!("[{}]", items.join(", "))
        }
        Value::Map(map) => {
            let mut entries = Vec::with_capacity(map.len());
            for key in map.keys() {
                let value = map.at(&key)?.unwrap_or(Value::Null);
                entries.push((literal(&key.into())?, literal(&value)?));
            }
            entries.sort();
            let entries: Vec<_> =
                entries.into_iter().map(|(key, value)| format!("{key}:{value}")).collect();
            format!("{{{}}}", entries.join(", "))
        }
        other => show(other)?,
    })
}
