//! Operators, and the functions that every type has.

use std::cmp::Ordering;
use std::sync::Arc;

use super::{EvalResult, LibraryFunction, mixed_comparisons, no_overload};
use crate::compare;
use crate::cost::CostRule;
use crate::error::EvalError;
use crate::eval_context::EvalContext;
use crate::value::Value;

/// The name that the grammar gives to membership.
pub(crate) const IN: &str = "@in";
/// The name that the grammar gives to addition.
pub(crate) const ADD: &str = "_+_";

const ORDERED: &[&str] = &[
    "(bool,bool) bool",
    "(int,int) bool",
    "(int,double) bool",
    "(int,uint) bool",
    "(uint,uint) bool",
    "(uint,double) bool",
    "(uint,int) bool",
    "(double,double) bool",
    "(double,int) bool",
    "(double,uint) bool",
    "(string,string) bool",
    "(bytes,bytes) bool",
    "(timestamp,timestamp) bool",
    "(duration,duration) bool",
];

const NUMERIC: &[&str] = &["(int,int) int", "(uint,uint) uint", "(double,double) double"];

pub(super) const FUNCTIONS: &[LibraryFunction] = &[
    LibraryFunction {
        name: "_==_",
        signatures: &["(A,A) bool"],
        charge: CostRule::Equality,
        run: equals,
    },
    LibraryFunction {
        name: "_!=_",
        signatures: &["(A,A) bool"],
        charge: CostRule::Equality,
        run: differs,
    },
    LibraryFunction { name: "_<_", signatures: ORDERED, charge: CostRule::Comparison, run: less },
    LibraryFunction {
        name: "_<=_",
        signatures: ORDERED,
        charge: CostRule::Comparison,
        run: less_or_equal,
    },
    LibraryFunction {
        name: "_>_",
        signatures: ORDERED,
        charge: CostRule::Comparison,
        run: greater,
    },
    LibraryFunction {
        name: "_>=_",
        signatures: ORDERED,
        charge: CostRule::Comparison,
        run: greater_or_equal,
    },
    LibraryFunction {
        name: ADD,
        signatures: &[
            "(int,int) int",
            "(uint,uint) uint",
            "(double,double) double",
            "(string,string) string",
            "(bytes,bytes) bytes",
            "(list(A),list(A)) list(A)",
            "(timestamp,duration) timestamp",
            "(duration,timestamp) timestamp",
            "(duration,duration) duration",
        ],
        charge: CostRule::Concatenation,
        run: add,
    },
    LibraryFunction {
        name: "_-_",
        signatures: &[
            "(int,int) int",
            "(uint,uint) uint",
            "(double,double) double",
            "(timestamp,duration) timestamp",
            "(timestamp,timestamp) duration",
            "(duration,duration) duration",
        ],
        charge: CostRule::Nominal,
        run: subtract,
    },
    LibraryFunction { name: "_*_", signatures: NUMERIC, charge: CostRule::Nominal, run: multiply },
    LibraryFunction { name: "_/_", signatures: NUMERIC, charge: CostRule::Nominal, run: divide },
    LibraryFunction {
        name: "_%_",
        signatures: &["(int,int) int", "(uint,uint) uint"],
        charge: CostRule::Nominal,
        run: modulo,
    },
    LibraryFunction {
        name: "-_",
        signatures: &["(int) int", "(double) double"],
        charge: CostRule::Nominal,
        run: negate,
    },
    LibraryFunction {
        name: "!_",
        signatures: &["(bool) bool"],
        charge: CostRule::Nominal,
        run: not,
    },
    LibraryFunction {
        name: IN,
        signatures: &["(A,list(A)) bool", "(A,map(A,B)) bool"],
        charge: CostRule::Membership,
        run: member,
    },
    LibraryFunction {
        name: "size",
        signatures: &[
            "(string) int",
            "(bytes) int",
            "(list(A)) int",
            "(map(A,B)) int",
            "string.() int",
            "bytes.() int",
            "list(A).() int",
            "map(A,B).() int",
        ],
        charge: CostRule::Nominal,
        run: size,
    },
    LibraryFunction {
        name: "type",
        signatures: &["(A) type"],
        charge: CostRule::Nominal,
        run: type_of,
    },
    LibraryFunction { name: "dyn", signatures: &["(A) dyn"], charge: CostRule::Nominal, run: same },
];

/// A comparison of trees is charged for what is below them too, at a rate that only repetition
/// makes felt: a server charges for the top alone, and one comparison in a loop would stall it.
fn charge_below(work: &mut EvalContext<'_>, value: &Value<'_>) -> Result<(), EvalError> {
    match value {
        Value::List(_) | Value::Map(_) => work.charge(compare::node_count(value) / 64),
        _ => Ok(()),
    }
}

fn is_equal(work: &mut EvalContext<'_>, args: &[Value<'_>]) -> Result<bool, EvalError> {
    let [one, two] = args else { return Err(EvalError::NoSuchOverload) };
    if let Some(order) = mixed_comparisons::order(work.comparisons, one, two)? {
        return Ok(order.is_eq());
    }
    charge_below(work, one)?;
    compare::equal(one, two)
}

fn equals<'v>(work: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    Ok(Value::Bool(is_equal(work, args)?))
}

fn differs<'v>(work: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    Ok(Value::Bool(!is_equal(work, args)?))
}

/// Whether the order of two values is as wanted; a NaN has none, and nothing is true of it.
fn ordered<'v>(
    work: &EvalContext<'_>,
    args: &[Value<'v>],
    wanted: fn(Ordering) -> bool,
) -> EvalResult<'v> {
    let [one, two] = args else { return no_overload() };
    let order = match mixed_comparisons::order(work.comparisons, one, two)? {
        Some(order) => Some(order),
        None => compare::order(one, two),
    };
    match order {
        Some(order) => Ok(Value::Bool(wanted(order))),
        None if is_number(one) && is_number(two) => Ok(Value::Bool(false)),
        None => no_overload(),
    }
}

fn is_number(value: &Value<'_>) -> bool {
    matches!(value, Value::Int(_) | Value::Uint(_) | Value::Double(_))
}

fn less<'v>(work: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    ordered(work, args, Ordering::is_lt)
}

fn less_or_equal<'v>(work: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    ordered(work, args, Ordering::is_le)
}

fn greater<'v>(work: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    ordered(work, args, Ordering::is_gt)
}

fn greater_or_equal<'v>(work: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    ordered(work, args, Ordering::is_ge)
}

fn signed<'v>(answer: Option<i64>) -> EvalResult<'v> {
    answer.map(Value::Int).ok_or_else(|| EvalError::failed("integer overflow"))
}

fn unsigned<'v>(answer: Option<u64>) -> EvalResult<'v> {
    answer.map(Value::Uint).ok_or_else(|| EvalError::failed("unsigned integer overflow"))
}

fn duration_result<'v>(answer: Option<i64>) -> EvalResult<'v> {
    answer.map(Value::Duration).ok_or_else(|| EvalError::failed("duration overflow"))
}

pub(super) fn add<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [one, two] = args else { return no_overload() };
    match (one, two) {
        (Value::Int(one), Value::Int(two)) => signed(one.checked_add(*two)),
        (Value::Uint(one), Value::Uint(two)) => unsigned(one.checked_add(*two)),
        (Value::Double(one), Value::Double(two)) => Ok(Value::Double(one + two)),
        (Value::String(one), Value::String(two)) => {
            Ok(Value::text(format!("{}{}", &**one, &**two)))
        }
        (Value::Bytes(one), Value::Bytes(two)) => {
            Ok(Value::Bytes(Arc::from([one.as_ref(), two.as_ref()].concat())))
        }
        (Value::List(one), Value::List(two)) => Ok(Value::List(compare::join(one, two)?)),
        (Value::Timestamp(at), Value::Duration(nanos))
        | (Value::Duration(nanos), Value::Timestamp(at)) => at.after(*nanos).map(Value::Timestamp),
        (Value::Duration(one), Value::Duration(two)) => duration_result(one.checked_add(*two)),
        _ => no_overload(),
    }
}

fn subtract<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [one, two] = args else { return no_overload() };
    match (one, two) {
        (Value::Int(one), Value::Int(two)) => signed(one.checked_sub(*two)),
        (Value::Uint(one), Value::Uint(two)) => unsigned(one.checked_sub(*two)),
        (Value::Double(one), Value::Double(two)) => Ok(Value::Double(one - two)),
        (Value::Timestamp(at), Value::Duration(nanos)) => at.before(*nanos).map(Value::Timestamp),
        (Value::Timestamp(one), Value::Timestamp(two)) => duration_result(one.since(*two)),
        (Value::Duration(one), Value::Duration(two)) => duration_result(one.checked_sub(*two)),
        _ => no_overload(),
    }
}

fn multiply<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    match args {
        [Value::Int(one), Value::Int(two)] => signed(one.checked_mul(*two)),
        [Value::Uint(one), Value::Uint(two)] => unsigned(one.checked_mul(*two)),
        [Value::Double(one), Value::Double(two)] => Ok(Value::Double(one * two)),
        _ => no_overload(),
    }
}

fn divide<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    match args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => {
            Err(EvalError::failed("division by zero"))
        }
        [Value::Int(one), Value::Int(two)] => signed(one.checked_div(*two)),
        [Value::Uint(one), Value::Uint(two)] => unsigned(one.checked_div(*two)),
        [Value::Double(one), Value::Double(two)] => Ok(Value::Double(one / two)),
        _ => no_overload(),
    }
}

fn modulo<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    match args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => {
            Err(EvalError::failed("modulus by zero"))
        }
        [Value::Int(one), Value::Int(two)] => signed(one.checked_rem(*two)),
        [Value::Uint(one), Value::Uint(two)] => unsigned(one.checked_rem(*two)),
        _ => no_overload(),
    }
}

fn negate<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    match args {
        [Value::Int(number)] => signed(number.checked_neg()),
        [Value::Double(number)] => Ok(Value::Double(-number)),
        _ => no_overload(),
    }
}

fn not<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    match args {
        [Value::Bool(truth)] => Ok(Value::Bool(!truth)),
        _ => no_overload(),
    }
}

fn member<'v>(work: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    match args {
        [element, Value::List(list)] => {
            charge_below(work, &args[1])?;
            for candidate in list.iter() {
                if compare::equal(&candidate?, element)? {
                    return Ok(Value::Bool(true));
                }
            }
            Ok(Value::Bool(false))
        }
        [key, Value::Map(map)] => match key.as_key() {
            Some(key) => Ok(Value::Bool(map.has(&key)?)),
            None => Ok(Value::Bool(false)),
        },
        _ => no_overload(),
    }
}

fn size<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    match args {
        [value @ (Value::String(_) | Value::Bytes(_) | Value::List(_) | Value::Map(_))] => {
            Ok(Value::Int(i64::try_from(value.size()).unwrap_or(i64::MAX)))
        }
        _ => no_overload(),
    }
}

fn type_of<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [value] = args else { return no_overload() };
    Ok(Value::Type(value.type_name().into()))
}

fn same<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [value] = args else { return no_overload() };
    Ok(value.clone())
}
