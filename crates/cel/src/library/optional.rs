//! Values that may be missing.

use super::{EvalResult, LibraryFunction, no_overload};
use crate::cost::CostRule;
use crate::error::EvalError;
use crate::eval_context::EvalContext;
use crate::value::Value;

pub(super) const FUNCTIONS: &[LibraryFunction] = &[
    LibraryFunction {
        name: "optional.of",
        signatures: &["(A) optional(A)"],
        charge: CostRule::Nominal,
        run: of,
    },
    LibraryFunction {
        name: "optional.none",
        signatures: &["() optional(A)"],
        charge: CostRule::Nominal,
        run: none,
    },
    LibraryFunction {
        name: "optional.ofNonZeroValue",
        signatures: &["(A) optional(A)"],
        charge: CostRule::Nominal,
        run: of_non_zero,
    },
    LibraryFunction {
        name: "hasValue",
        signatures: &["optional(A).() bool"],
        charge: CostRule::Nominal,
        run: has_value,
    },
    LibraryFunction {
        name: "value",
        signatures: &["optional(A).() A"],
        charge: CostRule::Nominal,
        run: value,
    },
    LibraryFunction {
        name: "or",
        signatures: &["optional(A).(optional(A)) optional(A)"],
        charge: CostRule::Fixed(0),
        run: or,
    },
    LibraryFunction {
        name: "orValue",
        signatures: &["optional(A).(A) A"],
        charge: CostRule::Fixed(0),
        run: or_value,
    },
    LibraryFunction {
        name: "first",
        signatures: &["list(A).() optional(A)"],
        charge: CostRule::Nominal,
        run: first,
    },
    LibraryFunction {
        name: "last",
        signatures: &["list(A).() optional(A)"],
        charge: CostRule::Nominal,
        run: last,
    },
    LibraryFunction {
        name: "unwrapOpt",
        signatures: &["list(optional(A)).() list(A)"],
        charge: CostRule::Nominal,
        run: unwrap,
    },
    LibraryFunction {
        name: "optional.unwrap",
        signatures: &["(list(optional(A))) list(A)"],
        charge: CostRule::Nominal,
        run: unwrap,
    },
];

fn of<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [value] = args else { return no_overload() };
    Ok(Value::some(value.clone()))
}

fn none<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    if args.is_empty() { Ok(Value::none()) } else { no_overload() }
}

fn of_non_zero<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [value] = args else { return no_overload() };
    let zero = match value {
        Value::Null => true,
        Value::Bool(truth) => !truth,
        Value::Int(number) => *number == 0,
        Value::Uint(number) => *number == 0,
        Value::Double(number) => *number == 0.0,
        Value::String(text) => text.is_empty(),
        Value::Bytes(bytes) => bytes.is_empty(),
        Value::Duration(nanos) => *nanos == 0,
        Value::List(list) => list.is_empty(),
        Value::Map(map) => map.is_empty(),
        Value::Optional(inner) => inner.is_none(),
        Value::Timestamp(_)
        | Value::Type(_)
        | Value::Quantity(_)
        | Value::Ip(_)
        | Value::Cidr(_)
        | Value::Url(_)
        | Value::Semver(_)
        | Value::Format(_)
        | Value::Host(_) => false,
    };
    Ok(if zero { Value::none() } else { Value::some(value.clone()) })
}

fn has_value<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    match args {
        [Value::Optional(inner)] => Ok(Value::Bool(inner.is_some())),
        _ => no_overload(),
    }
}

fn value<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    match args {
        [Value::Optional(Some(inner))] => Ok((**inner).clone()),
        [Value::Optional(None)] => Err(EvalError::failed("optional.none() dereference")),
        _ => no_overload(),
    }
}

fn or<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    match args {
        [first @ Value::Optional(Some(_)), _] => Ok(first.clone()),
        [Value::Optional(None), second @ Value::Optional(_)] => Ok(second.clone()),
        _ => no_overload(),
    }
}

fn or_value<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    match args {
        [Value::Optional(Some(inner)), _] => Ok((**inner).clone()),
        [Value::Optional(None), other] => Ok(other.clone()),
        // What is no optional is there.
        [value, _] => Ok(value.clone()),
        _ => no_overload(),
    }
}

fn first<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [Value::List(list)] = args else { return no_overload() };
    Ok(list.get(0)?.map_or_else(Value::none, Value::some))
}

fn last<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [Value::List(list)] = args else { return no_overload() };
    let found = list.len().checked_sub(1).map(|at| list.get(at)).transpose()?;
    Ok(found.flatten().map_or_else(Value::none, Value::some))
}

fn unwrap<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [Value::List(list)] = args else { return no_overload() };
    let mut items = Vec::new();
    for item in list.iter() {
        match item? {
            Value::Optional(Some(inner)) => items.push((*inner).clone()),
            Value::Optional(None) => {}
            _ => return no_overload(),
        }
    }
    Ok(Value::list(items))
}
