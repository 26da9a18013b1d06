//! Lists, and places in text.

use std::cmp::Ordering;

use super::{EvalResult, LibraryFunction, no_overload, operators, strings};
use crate::compare;
use crate::cost::CostRule;
use crate::error::EvalError;
use crate::eval_context::EvalContext;
use crate::value::{List, Value};

const SORTABLE_SIGNATURES: &[&str] = &[
    "list(int).() bool",
    "list(uint).() bool",
    "list(double).() bool",
    "list(bool).() bool",
    "list(string).() bool",
    "list(bytes).() bool",
    "list(timestamp).() bool",
    "list(duration).() bool",
];

const MIN_MAX_SIGNATURES: &[&str] = &[
    "list(int).() int",
    "list(uint).() uint",
    "list(double).() double",
    "list(bool).() bool",
    "list(string).() string",
    "list(bytes).() bytes",
    "list(timestamp).() timestamp",
    "list(duration).() duration",
];

const INDEX_OF_SIGNATURES: &[&str] =
    &["string.(string) int", "string.(string,int) int", "list(A).(A) int"];

pub(super) const FUNCTIONS: &[LibraryFunction] = &[
    LibraryFunction {
        name: "isSorted",
        signatures: SORTABLE_SIGNATURES,
        charge: CostRule::Elements,
        run: is_sorted,
    },
    LibraryFunction {
        name: "sum",
        signatures: &[
            "list(int).() int",
            "list(uint).() uint",
            "list(double).() double",
            "list(duration).() duration",
        ],
        charge: CostRule::Elements,
        run: sum,
    },
    LibraryFunction {
        name: "min",
        signatures: MIN_MAX_SIGNATURES,
        charge: CostRule::Elements,
        run: min,
    },
    LibraryFunction {
        name: "max",
        signatures: MIN_MAX_SIGNATURES,
        charge: CostRule::Elements,
        run: max,
    },
    LibraryFunction {
        name: "indexOf",
        signatures: INDEX_OF_SIGNATURES,
        charge: CostRule::Elements,
        run: index_of,
    },
    LibraryFunction {
        name: "lastIndexOf",
        signatures: INDEX_OF_SIGNATURES,
        charge: CostRule::Elements,
        run: last_index_of,
    },
    LibraryFunction {
        name: "slice",
        signatures: &["list(A).(int,int) list(A)"],
        charge: CostRule::NewList,
        run: slice,
    },
    LibraryFunction {
        name: "flatten",
        signatures: &["list(list(A)).() list(A)", "list(dyn).(int) list(dyn)"],
        charge: CostRule::NewList,
        run: flatten,
    },
    LibraryFunction {
        name: "sort",
        signatures: &[
            "list(int).() list(int)",
            "list(uint).() list(uint)",
            "list(double).() list(double)",
            "list(bool).() list(bool)",
            "list(string).() list(string)",
            "list(bytes).() list(bytes)",
            "list(timestamp).() list(timestamp)",
            "list(duration).() list(duration)",
        ],
        charge: CostRule::SelfComparison,
        run: sort,
    },
    LibraryFunction {
        name: "reverse",
        signatures: &["list(A).() list(A)"],
        charge: CostRule::NewList,
        run: reverse,
    },
    LibraryFunction {
        name: "distinct",
        signatures: &["list(A).() list(A)"],
        charge: CostRule::SelfComparison,
        run: distinct,
    },
    LibraryFunction {
        name: "lists.range",
        signatures: &["(int) list(int)"],
        charge: CostRule::Range,
        run: range,
    },
];

fn is_sorted<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [Value::List(list)] = args else { return no_overload() };
    let items = list.to_vec()?;
    for pair in items.windows(2) {
        match compare::order(&pair[0], &pair[1]) {
            Some(Ordering::Greater) => return Ok(Value::Bool(false)),
            Some(_) => {}
            None => return no_overload(),
        }
    }
    Ok(Value::Bool(true))
}

fn sum<'v>(work: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [Value::List(list)] = args else { return no_overload() };
    let mut items = list.iter();
    // What the sum of nothing is depends on the type, which only the checker knows; of numbers,
    // zero is equal to zero whatever its type.
    let mut sum = items.next().transpose()?.unwrap_or(Value::Int(0));
    if matches!(sum, Value::String(_) | Value::List(_) | Value::Bytes(_)) {
        return no_overload();
    }
    for item in items {
        sum = operators::add(work, &[sum, item?])?;
    }
    Ok(sum)
}

fn extreme<'v>(list: &List<'v>, name: &str, wanted: Ordering) -> EvalResult<'v> {
    let mut best: Option<Value<'v>> = None;
    for item in list.iter() {
        let item = item?;
        best = Some(match best {
            None => item,
            Some(best) => match compare::order(&item, &best) {
                Some(order) if order == wanted => item,
                Some(_) => best,
                None => return no_overload(),
            },
        });
    }
    best.ok_or_else(|| EvalError::failed(format!("{name} called on empty list")))
}

fn min<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [Value::List(list)] = args else { return no_overload() };
    extreme(list, "min", Ordering::Less)
}

fn max<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [Value::List(list)] = args else { return no_overload() };
    extreme(list, "max", Ordering::Greater)
}

fn index_or_missing<'v>(place: Option<usize>) -> EvalResult<'v> {
    Ok(Value::Int(place.and_then(|place| i64::try_from(place).ok()).unwrap_or(-1)))
}

fn index_of<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    match args {
        [Value::List(list), wanted] => {
            for (at, item) in list.iter().enumerate() {
                if compare::equal(&item?, wanted)? {
                    return index_or_missing(Some(at));
                }
            }
            index_or_missing(None)
        }
        [Value::String(text), Value::String(part)] => {
            index_or_missing(text.find(&**part).map(|at| text[..at].chars().count()))
        }
        [Value::String(text), Value::String(part), Value::Int(from)] => {
            if part.is_empty() {
                return Ok(Value::Int(*from));
            }
            if *from < 0 {
                return Err(EvalError::failed(format!("index out of range: {from}")));
            }
            let Some(start) = strings::byte_at(text, *from) else { return index_or_missing(None) };
            let found = text[start..].find(&**part).map(|at| text[..start + at].chars().count());
            index_or_missing(found)
        }
        _ => no_overload(),
    }
}

fn last_index_of<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    match args {
        [Value::List(list), wanted] => {
            for at in (0..list.len()).rev() {
                if compare::equal(&list.get(at)?.unwrap_or(Value::Null), wanted)? {
                    return index_or_missing(Some(at));
                }
            }
            index_or_missing(None)
        }
        [Value::String(text), Value::String(part)] => {
            index_or_missing(text.rfind(&**part).map(|at| text[..at].chars().count()))
        }
        [Value::String(text), Value::String(part), Value::Int(from)] => {
            if part.is_empty() {
                return Ok(Value::Int(*from));
            }
            if *from < 0 {
                return Err(EvalError::failed(format!("index out of range: {from}")));
            }
            let Some(start) = strings::byte_at(text, *from).filter(|at| *at < text.len()) else {
                return index_or_missing(None);
            };
            // A match may start at that place, and so end after it.
            let most = (start + part.len()).min(text.len());
            let most = (most..=text.len()).find(|at| text.is_char_boundary(*at));
            let head = &text[..most.unwrap_or(text.len())];
            let found = head.rfind(&**part).map(|at| text[..at].chars().count());
            index_or_missing(found)
        }
        _ => no_overload(),
    }
}

fn slice<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [Value::List(list), Value::Int(start), Value::Int(end)] = args else {
        return no_overload();
    };
    let fault = |what: String| EvalError::failed(format!("cannot slice({start}, {end}), {what}"));
    let (Ok(from), Ok(to)) = (usize::try_from(*start), usize::try_from(*end)) else {
        return Err(fault("negative indexes not supported".to_owned()));
    };
    if from > to {
        return Err(fault("start index must be less than or equal to end index".to_owned()));
    }
    if to > list.len() {
        return Err(fault(format!("list is length {}", list.len())));
    }
    let items = (from..to).map(|at| Ok(list.get(at)?.unwrap_or(Value::Null)));
    Ok(Value::list(items.collect::<Result<_, EvalError>>()?))
}

fn flatten<'v>(work: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let (list, depth) = match args {
        [Value::List(list)] => (list, 1),
        [Value::List(list), Value::Int(depth)] => (list, *depth),
        _ => return no_overload(),
    };
    if depth < 0 {
        return Err(EvalError::failed("level must be non-negative"));
    }
    let mut flat = Vec::new();
    flatten_into(work, list, depth, &mut flat)?;
    Ok(Value::list(flat))
}

/// Recursion ends with the nesting of the value, which that of the expression and its input bounds.
fn flatten_into<'v>(
    work: &mut EvalContext<'_>,
    list: &List<'v>,
    depth: i64,
    flat: &mut Vec<Value<'v>>,
) -> Result<(), EvalError> {
    for item in list.iter() {
        match item? {
            Value::List(inner) if depth > 0 => {
                // Lists may be shared, so the input's size does not bound the answer's.
                work.charge(u64::try_from(inner.len() / 8).unwrap_or(u64::MAX))?;
                flatten_into(work, &inner, depth - 1, flat)?;
            }
            other => flat.push(other),
        }
    }
    Ok(())
}

fn sort<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [Value::List(list)] = args else { return no_overload() };
    let mut keyed: Vec<_> = list.to_vec()?.into_iter().map(|item| (item.clone(), item)).collect();
    compare::sort_by_key(&mut keyed)?;
    Ok(Value::list(keyed.into_iter().map(|(_, item)| item).collect()))
}

fn reverse<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [Value::List(list)] = args else { return no_overload() };
    let mut items = list.to_vec()?;
    items.reverse();
    Ok(Value::list(items))
}

fn distinct<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [Value::List(list)] = args else { return no_overload() };
    let mut items: Vec<Value<'v>> = Vec::new();
    for item in list.iter() {
        let item = item?;
        if !compare::contains(&items, &item)? {
            items.push(item);
        }
    }
    Ok(Value::list(items))
}

fn range<'v>(_: &mut EvalContext<'_>, args: &[Value<'v>]) -> EvalResult<'v> {
    let [Value::Int(count)] = args else { return no_overload() };
    Ok(Value::list((0..*count).map(Value::Int).collect()))
}
