//! Lists as sets.

use super::{EvalResult, LibraryFunction, no_overload};
use crate::compare;
use crate::cost::CostRule;
use crate::eval_context::EvalContext;
use crate::value::Value;

const SIGNATURES: &[&str] = &["(list(A),list(A)) bool"];

pub(super) const FUNCTIONS: &[LibraryFunction] = &[
    LibraryFunction {
        name: "sets.contains",
        signatures: SIGNATURES,
        charge: CostRule::Pairs(1),
        run: contains,
    },
    LibraryFunction {
        name: "sets.equivalent",
        signatures: SIGNATURES,
        charge: CostRule::Pairs(2),
        run: equivalent,
    },
    LibraryFunction {
        name: "sets.intersects",
        signatures: SIGNATURES,
        charge: CostRule::Pairs(1),
        run: intersects,
    },
];

fn contains<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [Value::List(outer), Value::List(inner)] = args else { return no_overload() };
    Ok(Value::Bool(compare::includes(&outer.to_vec()?, &inner.to_vec()?)?))
}

fn equivalent<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [Value::List(one), Value::List(two)] = args else { return no_overload() };
    let (one, two) = (one.to_vec()?, two.to_vec()?);
    Ok(Value::Bool(compare::includes(&one, &two)? && compare::includes(&two, &one)?))
}

fn intersects<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [Value::List(one), Value::List(two)] = args else { return no_overload() };
    let one = one.to_vec()?;
    for element in two.iter() {
        if compare::contains(&one, &element?)? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}
