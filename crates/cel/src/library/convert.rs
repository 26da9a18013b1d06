//! Conversions between types.

use super::{EvalResult, LibraryFunction, no_overload, time};
use crate::cost::CostRule;
use crate::error::EvalError;
use crate::eval_context::EvalContext;
use crate::value::Value;

pub(super) const FUNCTIONS: &[LibraryFunction] = &[
    LibraryFunction {
        name: "int",
        signatures: &[
            "(int) int",
            "(uint) int",
            "(double) int",
            "(string) int",
            "(timestamp) int",
            "(duration) int",
        ],
        charge: CostRule::Nominal,
        run: int,
    },
    LibraryFunction {
        name: "uint",
        signatures: &["(uint) uint", "(int) uint", "(double) uint", "(string) uint"],
        charge: CostRule::Nominal,
        run: uint,
    },
    LibraryFunction {
        name: "double",
        signatures: &["(double) double", "(int) double", "(uint) double", "(string) double"],
        charge: CostRule::Nominal,
        run: double,
    },
    LibraryFunction {
        name: "bool",
        signatures: &["(bool) bool", "(string) bool"],
        charge: CostRule::Nominal,
        run: boolean,
    },
    LibraryFunction {
        name: "string",
        signatures: &[
            "(string) string",
            "(bool) string",
            "(int) string",
            "(uint) string",
            "(double) string",
            "(bytes) string",
            "(timestamp) string",
            "(duration) string",
            "(net.IP) string",
            "(net.CIDR) string",
        ],
        charge: CostRule::Conversion,
        run: string,
    },
    LibraryFunction {
        name: "bytes",
        signatures: &["(bytes) bytes", "(string) bytes"],
        charge: CostRule::Conversion,
        run: bytes,
    },
    LibraryFunction {
        name: "timestamp",
        signatures: &["(timestamp) timestamp", "(string) timestamp", "(int) timestamp"],
        charge: CostRule::Nominal,
        run: timestamp,
    },
    LibraryFunction {
        name: "duration",
        signatures: &["(duration) duration", "(string) duration", "(int) duration"],
        charge: CostRule::Nominal,
        run: duration,
    },
];

fn mismatch(value: &Value<'_>, to: &str) -> EvalError {
    EvalError::failed(format!("type conversion error from '{}' to '{to}'", value.type_name()))
}

fn out_of_range() -> EvalError {
    EvalError::failed("integer overflow")
}

fn int<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [value] = args else { return no_overload() };
    Ok(Value::Int(match value {
        Value::Int(number) => *number,
        Value::Uint(number) => i64::try_from(*number).map_err(|_| out_of_range())?,
        Value::Double(number) => crate::value::whole(number.trunc())
            // The two ends of the range are not exact in floating point, and are refused.
            .filter(|whole| *whole != i64::MIN)
            .ok_or_else(out_of_range)?,
        Value::String(text) => text.parse().map_err(|_| mismatch(value, "int"))?,
        Value::Timestamp(at) => at.seconds(),
        Value::Duration(nanos) => *nanos,
        _ => return no_overload(),
    }))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the range was checked"
)]
fn uint<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [value] = args else { return no_overload() };
    let overflow = || EvalError::failed("unsigned integer overflow");
    Ok(Value::Uint(match value {
        Value::Uint(number) => *number,
        Value::Int(number) => u64::try_from(*number).map_err(|_| overflow())?,
        Value::Double(number) if (0.0..1.844_674_407_370_955_2e19).contains(&number.trunc()) => {
            number.trunc() as u64
        }
        Value::Double(_) => return Err(overflow()),
        Value::String(text) => text.parse().map_err(|_| mismatch(value, "uint"))?,
        _ => return no_overload(),
    }))
}

#[expect(clippy::cast_precision_loss, reason = "the nearest number is what is asked for")]
fn double<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [value] = args else { return no_overload() };
    Ok(Value::Double(match value {
        Value::Double(number) => *number,
        Value::Int(number) => *number as f64,
        Value::Uint(number) => *number as f64,
        Value::String(text) => text.parse().map_err(|_| mismatch(value, "double"))?,
        _ => return no_overload(),
    }))
}

fn boolean<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [value] = args else { return no_overload() };
    match value {
        Value::Bool(truth) => Ok(Value::Bool(*truth)),
        Value::String(text) => match &**text {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(Value::Bool(false)),
            _ => Err(mismatch(value, "bool")),
        },
        _ => no_overload(),
    }
}

fn string<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    match args {
        [Value::String(text)] => Ok(Value::String(text.clone())),
        [value] => to_text(value).map(Value::text),
        _ => no_overload(),
    }
}

/// What `string(value)` answers.
pub(crate) fn to_text(value: &Value<'_>) -> Result<String, EvalError> {
    Ok(match value {
        Value::String(text) => (**text).to_owned(),
        Value::Bool(truth) => truth.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Uint(number) => number.to_string(),
        Value::Double(number) => show_double(*number),
        Value::Bytes(bytes) => std::str::from_utf8(bytes)
            .map_err(|_| EvalError::failed("invalid UTF-8 in bytes, cannot convert to string"))?
            .to_owned(),
        Value::Timestamp(at) => time::show_timestamp(*at),
        Value::Duration(nanos) => time::show_duration(*nanos),
        Value::Ip(ip) => ip.to_string(),
        Value::Cidr(cidr) => cidr.to_string(),
        Value::Null
        | Value::List(_)
        | Value::Map(_)
        | Value::Optional(_)
        | Value::Type(_)
        | Value::Quantity(_)
        | Value::Url(_)
        | Value::Semver(_)
        | Value::Format(_)
        | Value::Host(_) => return Err(EvalError::NoSuchOverload),
    })
}

/// The shortest digits that give the number back; exponents outside of 1e-4 to 1e6.
pub(crate) fn show_double(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let size = number.abs();
    if size != 0.0 && !(1e-4..1e6).contains(&size) {
        let text = format!("{number:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(exponent) => ('-', exponent),
            None => ('+', exponent),
        };
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    number.to_string()
}

fn bytes<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    match args {
        [Value::Bytes(bytes)] => Ok(Value::Bytes(bytes.clone())),
        [Value::String(text)] => Ok(Value::Bytes(text.as_bytes().into())),
        _ => no_overload(),
    }
}

fn timestamp<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [value] = args else { return no_overload() };
    Ok(Value::Timestamp(match value {
        Value::Timestamp(at) => *at,
        Value::String(text) => {
            time::parse_rfc3339(text).ok_or_else(|| mismatch(value, "google.protobuf.Timestamp"))?
        }
        Value::Int(seconds) => time::from_seconds(*seconds)?,
        _ => return no_overload(),
    }))
}

fn duration<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [value] = args else { return no_overload() };
    Ok(Value::Duration(match value {
        Value::Duration(nanos) | Value::Int(nanos) => *nanos,
        Value::String(text) => {
            time::parse_duration(text).ok_or_else(|| mismatch(value, "google.protobuf.Duration"))?
        }
        _ => return no_overload(),
    }))
}
