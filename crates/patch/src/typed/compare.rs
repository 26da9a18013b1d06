//! Finds the differences between two objects.

use std::collections::BTreeMap;
use std::mem::discriminant;

use serde_json::{Map, Value};

use super::key::element_of;
use super::types::{List, MapForm, Type, TypeForm};
use super::validate::check_scalar;
use super::{TypedError, ValuePath};
use crate::path::{PathElement, is_same_value};
use crate::set::FieldSet;

/// What differs between two objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Fields that only the new object has.
    pub added: FieldSet,
    /// Fields that both have, with different values.
    pub modified: FieldSet,
    /// Fields that only the old object has.
    pub removed: FieldSet,
}

impl Comparison {
    /// Whether nothing differs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    /// The comparison without these fields and what is below them.
    #[must_use]
    pub fn without(self, fields: &FieldSet) -> Self {
        if fields.is_empty() {
            return self;
        }
        Self {
            added: self.added.recursive_difference(fields),
            modified: self.modified.recursive_difference(fields),
            removed: self.removed.recursive_difference(fields),
        }
    }
}

pub(super) fn compare(of: Type<'_>, old: &Value, new: &Value) -> Result<Comparison, TypedError> {
    let mut walk = Comparer::default();
    walk.values(of, Some(old), Some(new), &ValuePath::TOP);
    walk.error.into_result(walk.comparison)
}

#[derive(Default)]
struct Comparer {
    comparison: Comparison,
    error: TypedError,
}

impl Comparer {
    fn values(
        &mut self,
        of: Type<'_>,
        old: Option<&Value>,
        new: Option<&Value>,
        trail: &ValuePath<'_>,
    ) {
        let (old_form, new_form) = (of.form(old), of.form(new));
        let leaf = if new.is_none() {
            self.form(old_form, old, new, trail)
        } else if old.is_none() || discriminant(&old_form) == discriminant(&new_form) {
            self.form(new_form, old, new, trail)
        } else {
            // The value has become one of another sort: seen as the old, its parts go away.
            self.form(old_form, old, new, trail);
            self.form(new_form, old, new, trail)
        };
        if !leaf {
            self.record_presence(old, new, trail);
        }
    }

    fn record_presence(&mut self, old: Option<&Value>, new: Option<&Value>, trail: &ValuePath<'_>) {
        if old.is_none() {
            self.comparison.added.insert(&trail.elements());
        } else if new.is_none() {
            self.comparison.removed.insert(&trail.elements());
        }
    }

    /// Compares as `form`, and says whether it is a leaf.
    fn form(
        &mut self,
        form: TypeForm<'_>,
        old: Option<&Value>,
        new: Option<&Value>,
        trail: &ValuePath<'_>,
    ) -> bool {
        match form {
            TypeForm::Scalar(scalar) => {
                let fault =
                    |value: Option<&Value>| value.and_then(|it| check_scalar(scalar, it).err());
                if let (Some(one), Some(other)) = (fault(old), fault(new)) {
                    self.error.add(trail, format!("lhs: {one}"));
                    self.error.add(trail, format!("rhs: {other}"));
                    return false;
                }
                self.leaf(old, new, trail);
                true
            }
            TypeForm::List(list) => {
                let (one, other) = (elements_of(old), elements_of(new));
                if list.is_atomic() || one.is_empty() && other.is_empty() {
                    self.leaf(old, new, trail);
                    return true;
                }
                if one != other {
                    self.lists(list, one, other, trail);
                }
                false
            }
            TypeForm::Map(map) => {
                let (one, other) = (entries_of(old), entries_of(new));
                let empty =
                    |entries: Option<&Map<String, Value>>| entries.is_none_or(Map::is_empty);
                if map.atomic || empty(one) && empty(other) {
                    self.leaf(old, new, trail);
                    return true;
                }
                self.maps(map, one, other, trail);
                false
            }
        }
    }

    fn leaf(&mut self, old: Option<&Value>, new: Option<&Value>, trail: &ValuePath<'_>) {
        match (old, new) {
            (Some(old), Some(new)) if is_same_value(old, new) => {}
            (Some(_), Some(_)) => self.comparison.modified.insert(&trail.elements()),
            (Some(_), None) | (None, Some(_)) | (None, None) => {
                self.record_presence(old, new, trail);
            }
        }
    }

    fn maps(
        &mut self,
        map: MapForm<'_>,
        old: Option<&Map<String, Value>>,
        new: Option<&Map<String, Value>>,
        trail: &ValuePath<'_>,
    ) {
        for (name, before) in old.into_iter().flatten() {
            let after = new.and_then(|new| new.get(name));
            self.entry(map, name, Some(before), after, trail);
        }
        for (name, after) in new.into_iter().flatten() {
            if old.is_none_or(|old| !old.contains_key(name)) {
                self.entry(map, name, None, Some(after), trail);
            }
        }
    }

    fn entry(
        &mut self,
        map: MapForm<'_>,
        name: &str,
        old: Option<&Value>,
        new: Option<&Value>,
        trail: &ValuePath<'_>,
    ) {
        let trail = trail.field(name);
        match map.entry(name) {
            Some(of) => self.values(of, old, new, &trail),
            // A field that is not changed may have outlived its declaration.
            None if old == new => {}
            None => self.error.add(&trail, "field not declared in schema".to_owned()),
        }
    }

    fn lists(&mut self, list: List<'_>, old: &[Value], new: &[Value], trail: &ValuePath<'_>) {
        let mut pairs: BTreeMap<PathElement, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
        for (place, child) in old.iter().enumerate() {
            match element_of(list, child) {
                Ok(element) => pairs.entry(element).or_default().0.push(child),
                Err(fault) => self.error.add(trail, format!("element {place}: {fault}")),
            }
        }
        for (place, child) in new.iter().enumerate() {
            match element_of(list, child) {
                Ok(element) => pairs.entry(element).or_default().1.push(child),
                Err(fault) => self.error.add(trail, format!("element {place}: {fault}")),
            }
        }
        for (element, (old, new)) in &pairs {
            let trail = trail.element(element);
            match (old.as_slice(), new.as_slice()) {
                ([] | [_], [] | [_]) => {
                    let (old, new) = (old.first().copied(), new.first().copied());
                    self.values(list.items, old, new, &trail);
                }
                // Elements with one key are owned together, so they differ as one.
                ([_, _, ..], [_, _, ..]) => {
                    let equal = old.len() == new.len()
                        && old.iter().zip(new).all(|(old, new)| is_same_value(old, new));
                    if !equal {
                        self.comparison.modified.insert(&trail.elements());
                    }
                }
                ([_, _, ..], [] | [_]) => {
                    if let [new] = new.as_slice() {
                        self.values(list.items, None, Some(new), &trail);
                    }
                    self.comparison.removed.insert(&trail.elements());
                }
                ([] | [_], [_, _, ..]) => {
                    if let [old] = old.as_slice() {
                        self.values(list.items, Some(old), None, &trail);
                    }
                    self.comparison.added.insert(&trail.elements());
                }
            }
        }
    }
}

fn elements_of(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn entries_of(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object)
}
