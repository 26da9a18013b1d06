//! Converts field sets that were written under an older schema.

use super::types::{Type, TypeForm};
use crate::path::PathElement;
use crate::set::FieldSet;

/// Makes the owners of parts of a value that has become atomic the owners of the value; its parts
/// have no owners any more.
pub(super) fn reconcile(of: Type<'_>, fields: &FieldSet) -> Option<FieldSet> {
    let mut whole = FieldSet::new();
    collect(of, fields, &mut Vec::new(), &mut whole);
    if whole.is_empty() {
        return None;
    }
    Some(fields.recursive_difference(&whole).union(&whole))
}

/// Finds what is owned in parts and is one value now.
fn collect(of: Type<'_>, fields: &FieldSet, way: &mut Vec<PathElement>, whole: &mut FieldSet) {
    if of.is_deduced() {
        return;
    }
    let atomic = match of.form(None) {
        TypeForm::Scalar(_) => return,
        TypeForm::Map(map) => map.atomic,
        TypeForm::List(list) => list.is_atomic(),
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
            (TypeForm::Map(map), PathElement::Field(name)) => map.entry(name),
            (TypeForm::Map(map), _) => map.others,
            (TypeForm::List(list), _) => Some(list.items),
            (TypeForm::Scalar(_), _) => None,
        };
        if let Some(inner) = inner {
            way.push(element.clone());
            collect(inner, below, way, whole);
            way.pop();
        }
    }
}
