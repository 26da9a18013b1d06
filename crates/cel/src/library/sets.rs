//! Lists as sets.

use super::{Answer, Entry, no_overload};
use crate::compare;
use crate::cost::Charge;
use crate::value::Value;
use crate::work::Work;

const SIGNATURES: &[&str] = &["(list(A),list(A)) bool"];

pub(super) const FUNCTIONS: &[Entry] = &[
    Entry {
        name: "sets.contains",
        signatures: SIGNATURES,
        charge: Charge::Pairs(1),
        run: contains,
    },
    Entry {
        name: "sets.equivalent",
        signatures: SIGNATURES,
        charge: Charge::Pairs(2),
        run: equivalent,
    },
    Entry {
        name: "sets.intersects",
        signatures: SIGNATURES,
        charge: Charge::Pairs(1),
        run: intersects,
    },
];

fn contains<'v>(_: &mut Work<'_>, args: &[Value<'v>]) -> Answer<'v> {
    let [Value::List(outer), Value::List(inner)] = args else { return no_overload() };
    Ok(Value::Bool(compare::includes(&outer.to_vec()?, &inner.to_vec()?)?))
}

fn equivalent<'v>(_: &mut Work<'_>, args: &[Value<'v>]) -> Answer<'v> {
    let [Value::List(one), Value::List(two)] = args else { return no_overload() };
    let (one, two) = (one.to_vec()?, two.to_vec()?);
    Ok(Value::Bool(compare::includes(&one, &two)? && compare::includes(&two, &one)?))
}

fn intersects<'v>(_: &mut Work<'_>, args: &[Value<'v>]) -> Answer<'v> {
    let [Value::List(one), Value::List(two)] = args else { return no_overload() };
    let one = one.to_vec()?;
    for element in two.iter() {
        if compare::contains(&one, &element?)? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}
