//! Equality and order of values.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde_json::Value as Json;

use crate::error::EvalError;
use crate::key::Key;
use crate::types::ListKind;
use crate::value::{List, Map, Text, Value};
use crate::view::to_json;

/// Whether two values are equal. Values of different types are not, except numbers.
pub(crate) fn equal(one: &Value<'_>, two: &Value<'_>) -> Result<bool, EvalError> {
    Ok(match (one, two) {
        (Value::Null, Value::Null) | (Value::Optional(None), Value::Optional(None)) => true,
        (Value::Bool(one), Value::Bool(two)) => one == two,
        (
            Value::Int(_) | Value::Uint(_) | Value::Double(_),
            Value::Int(_) | Value::Uint(_) | Value::Double(_),
        ) => numbers(one, two) == Some(Ordering::Equal),
        (Value::String(one), Value::String(two)) => **one == **two,
        (Value::Bytes(one), Value::Bytes(two)) => one == two,
        (Value::Timestamp(one), Value::Timestamp(two)) => one == two,
        (Value::Duration(one), Value::Duration(two)) => one == two,
        (Value::List(one), Value::List(two)) => lists_equal(one, two)?,
        (Value::Map(one), Value::Map(two)) => maps_equal(one, two)?,
        (Value::Optional(Some(one)), Value::Optional(Some(two))) => equal(one, two)?,
        (Value::Type(one), Value::Type(two)) => one == two,
        (Value::Quantity(one), Value::Quantity(two)) => one == two,
        (Value::Ip(one), Value::Ip(two)) => one == two,
        (Value::Cidr(one), Value::Cidr(two)) => one == two,
        (Value::Url(one), Value::Url(two)) => one == two,
        (Value::Semver(one), Value::Semver(two)) => one == two,
        (Value::Format(one), Value::Format(two)) => one.name == two.name,
        (Value::Host(one), Value::Host(two)) => std::sync::Arc::ptr_eq(one, two),
        _ => false,
    })
}

fn lists_equal(one: &List<'_>, two: &List<'_>) -> Result<bool, EvalError> {
    if one.len() != two.len() {
        return Ok(false);
    }
    // The side that knows how the list is meant to be compared decides.
    let kind = if *one.kind() == ListKind::Atomic { two.kind() } else { one.kind() };
    match kind {
        ListKind::Atomic => {
            for (one, two) in one.iter().zip(two.iter()) {
                if !equal(&one?, &two?)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        ListKind::Set | ListKind::Map(_) => {
            // As many elements on both sides, and elements are unique: one inclusion is enough,
            // but validation may not have run, so both are asked.
            let (one, two) = (one.to_vec()?, two.to_vec()?);
            let (these, those) = (Index::new(&one, kind)?, Index::new(&two, kind)?);
            Ok(these.includes(&two)? && those.includes(&one)?)
        }
    }
}

/// Whether every element of `inner` is in `outer`.
pub(crate) fn includes(outer: &[Value<'_>], inner: &[Value<'_>]) -> Result<bool, EvalError> {
    for element in inner {
        if !contains(outer, element)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether `element` is in `list`.
pub(crate) fn contains(list: &[Value<'_>], element: &Value<'_>) -> Result<bool, EvalError> {
    for candidate in list {
        if equal(candidate, element)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn maps_equal(one: &Map<'_>, two: &Map<'_>) -> Result<bool, EvalError> {
    if one.len() != two.len() {
        return Ok(false);
    }
    for key in one.keys() {
        let (Some(here), Some(there)) = (one.at(&key)?, two.at(&key)?) else { return Ok(false) };
        if !equal(&here, &there)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Two lists joined with `+`.
pub(crate) fn join<'v>(one: &List<'v>, two: &List<'v>) -> Result<List<'v>, EvalError> {
    let mut items = one.to_vec()?;
    match one.kind() {
        ListKind::Atomic => items.extend(two.to_vec()?),
        kind @ (ListKind::Set | ListKind::Map(_)) => {
            let mut places = BTreeMap::new();
            for (place, item) in items.iter().enumerate() {
                places.insert(identity(item, kind)?, place);
            }
            for element in two.iter() {
                let element = element?;
                let id = identity(&element, kind)?;
                match places.get(&id) {
                    Some(place) => items[*place] = element,
                    None => {
                        places.insert(id, items.len());
                        items.push(element);
                    }
                }
            }
        }
    }
    Ok(List::Owned { items: std::sync::Arc::new(items), kind: one.kind() })
}

/// The elements of a set or map list by what makes each of them one of a kind: looking for every
/// element of another list then takes no more than its length.
struct Index<'a, 'v> {
    kind: &'a ListKind,
    elements: BTreeMap<Vec<Option<Key<'v>>>, &'a Value<'v>>,
}

impl<'a, 'v> Index<'a, 'v> {
    fn new(items: &'a [Value<'v>], kind: &'a ListKind) -> Result<Self, EvalError> {
        let mut elements = BTreeMap::new();
        for item in items {
            elements.insert(identity(item, kind)?, item);
        }
        Ok(Self { kind, elements })
    }

    /// Whether every one of `items` is an element.
    fn includes(&self, items: &[Value<'v>]) -> Result<bool, EvalError> {
        for item in items {
            match self.elements.get(&identity(item, self.kind)?) {
                Some(known) if equal(known, item)? => {}
                _ => return Ok(false),
            }
        }
        Ok(true)
    }
}

/// What makes an element of a set or map list one of a kind.
fn identity<'v>(value: &Value<'v>, kind: &ListKind) -> Result<Vec<Option<Key<'v>>>, EvalError> {
    match (kind, value) {
        (ListKind::Map(keys), Value::Map(map)) => {
            let values = keys.iter().map(|key| {
                let name = crate::types::escape(key).unwrap_or_else(|| key.clone());
                map.get(&name)?.as_ref().map(key_of).transpose()
            });
            values.collect()
        }
        _ => Ok(vec![Some(key_of(value)?)]),
    }
}

/// A key that two values share if they are equal. What is no key is written out.
fn key_of<'v>(value: &Value<'v>) -> Result<Key<'v>, EvalError> {
    match value.as_key() {
        Some(key) => Ok(key),
        None => Ok(Key::String(Text::Shared(to_json(value)?.to_string().into()))),
    }
}

/// How much there is to compare in a value, in nodes: sizes alone say nothing of what is below.
pub(crate) fn node_count(value: &Value<'_>) -> u64 {
    match value {
        Value::List(List::View { items, .. }) => items.iter().map(json_node_count).sum(),
        Value::List(List::Owned { items, .. }) => items.iter().map(node_count).sum(),
        Value::Map(Map::View { entries, .. } | Map::Object { entries, .. }) => {
            entries.values().map(json_node_count).sum()
        }
        Value::Map(Map::Owned(entries)) => entries.values().map(node_count).sum(),
        Value::Map(Map::Host(entries)) => {
            let values = entries.names().into_iter().map(|name| entries.get(name));
            values.map(|value| value.ok().flatten().map_or(1, |value| node_count(&value))).sum()
        }
        _ => 1,
    }
}

fn json_node_count(json: &Json) -> u64 {
    match json {
        Json::Array(items) => 1 + items.iter().map(json_node_count).sum::<u64>(),
        Json::Object(entries) => 1 + entries.values().map(json_node_count).sum::<u64>(),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => 1,
    }
}

/// Which of two values comes first, if values of their types have an order.
pub(crate) fn order(one: &Value<'_>, two: &Value<'_>) -> Option<Ordering> {
    match (one, two) {
        (Value::Bool(one), Value::Bool(two)) => Some(one.cmp(two)),
        (Value::String(one), Value::String(two)) => Some(one.as_bytes().cmp(two.as_bytes())),
        (Value::Bytes(one), Value::Bytes(two)) => Some(one.cmp(two)),
        (Value::Timestamp(one), Value::Timestamp(two)) => Some(one.cmp(two)),
        (Value::Duration(one), Value::Duration(two)) => Some(one.cmp(two)),
        _ => numbers(one, two),
    }
}

/// Which of two numbers comes first, by their exact values; a NaN has no place.
fn numbers(one: &Value<'_>, two: &Value<'_>) -> Option<Ordering> {
    match (exact(one), exact(two)) {
        (Some(one), Some(two)) => Some(one.cmp(&two)),
        (Some(one), None) => match two {
            Value::Double(two) => double_order(*two, one).map(Ordering::reverse),
            _ => None,
        },
        (None, Some(two)) => match one {
            Value::Double(one) => double_order(*one, two),
            _ => None,
        },
        (None, None) => match (one, two) {
            (Value::Double(one), Value::Double(two)) => one.partial_cmp(two),
            _ => None,
        },
    }
}

fn exact(value: &Value<'_>) -> Option<i128> {
    match value {
        Value::Int(number) => Some(i128::from(*number)),
        Value::Uint(number) => Some(i128::from(*number)),
        _ => None,
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a float beyond the range saturates, as meant")]
fn double_order(double: f64, integer: i128) -> Option<Ordering> {
    if double.is_nan() {
        return None;
    }
    // All 64-bit integers are far inside the range of 128 bits, so saturation cannot tie.
    let floor = double.floor();
    match (floor as i128).cmp(&integer) {
        Ordering::Equal if double > floor => Some(Ordering::Greater),
        order => Some(order),
    }
}

/// Sorts by the first of each pair, keeping the order of equals.
pub(crate) fn sort_by_key(keyed: &mut [(Value<'_>, Value<'_>)]) -> Result<(), EvalError> {
    let Some((first, rest)) = keyed.split_first() else { return Ok(()) };
    let same_type = |value: &Value<'_>| value.type_name() == first.0.type_name();
    if order(&first.0, &first.0).is_none() && !matches!(first.0, Value::Double(_)) {
        return Err(EvalError::failed("list elements must be comparable"));
    }
    if !rest.iter().all(|(key, _)| same_type(key)) {
        return Err(EvalError::failed("list elements must have the same type"));
    }
    keyed.sort_by(|one, two| order(&one.0, &two.0).unwrap_or(Ordering::Equal));
    Ok(())
}
