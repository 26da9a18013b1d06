//! Field sets that were written under an older schema.

use super::types::{Form, Type};
use crate::path::PathElement;
use crate::set::Set;

/// Who owned parts of what has become one value owns that value; nobody owns its parts any more.
pub(super) fn reconcile(of: Type<'_>, fields: &Set) -> Option<Set> {
    let mut whole = Set::new();
    collect(of, fields, &mut Vec::new(), &mut whole);
    if whole.is_empty() {
        return None;
    }
    Some(fields.recursive_difference(&whole).union(&whole))
}

/// Finds what is owned in parts and is one value now.
fn collect(of: Type<'_>, fields: &Set, way: &mut Vec<PathElement>, whole: &mut Set) {
    if of.is_deduced() {
        return;
    }
    let atomic = match of.form(None) {
        Form::Scalar(_) => return,
        Form::Map(map) => map.atomic,
        Form::List(list) => list.is_atomic(),
    };
    if atomic {
        if !fields.is_empty() {
            whole.insert(way);
        }
        return;
    }
    for (element, _, below) in fields.entries() {
        if below.is_empty() {
            continue;
        }
        let inner = match (of.form(None), element) {
            (Form::Map(map), PathElement::Field(name)) => map.entry(name),
            (Form::Map(map), _) => map.others,
            (Form::List(list), _) => Some(list.items),
            (Form::Scalar(_), _) => None,
        };
        if let Some(inner) = inner {
            way.push(element.clone());
            collect(inner, below, way, whole);
            way.pop();
        }
    }
}
