//! Merges an applied configuration into an object.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::discriminant;

use serde_json::{Map, Value};

use super::key::element_of;
use super::types::{List, MapForm, Type, TypeForm};
use super::validate::check_scalar;
use super::{TypedError, ValuePath};
use crate::path::PathElement;

pub(super) fn merge(of: Type<'_>, object: &Value, config: &Value) -> Result<Value, TypedError> {
    let mut walk = Merger { error: TypedError::default() };
    let merged = walk.values(of, object, config, &ValuePath::TOP);
    walk.error.into_result(merged.unwrap_or_default())
}

struct Merger {
    error: TypedError,
}

impl Merger {
    fn values(
        &mut self,
        of: Type<'_>,
        object: &Value,
        config: &Value,
        trail: &ValuePath<'_>,
    ) -> Option<Value> {
        let (was, is) = (of.form(Some(object)), of.form(Some(config)));
        if discriminant(&was) != discriminant(&is) {
            // Only a type that is left open gets here: the config decides the sort.
            return Some(config.clone());
        }
        match is {
            TypeForm::Scalar(scalar) => {
                if let (Err(one), Err(other)) =
                    (check_scalar(scalar, object), check_scalar(scalar, config))
                {
                    self.error.add(trail, format!("lhs: {one}"));
                    self.error.add(trail, format!("rhs: {other}"));
                }
                Some(config.clone())
            }
            TypeForm::List(list) => {
                let (one, other) = (elements_of(object), elements_of(config));
                if list.is_atomic() || one.is_empty() && other.is_empty() {
                    return Some(config.clone());
                }
                self.lists(list, one, other, trail)
            }
            TypeForm::Map(map) => {
                let none = Map::new();
                let one = entries_of(object).unwrap_or(&none);
                let other = entries_of(config).unwrap_or(&none);
                if map.atomic || one.is_empty() && other.is_empty() {
                    return Some(config.clone());
                }
                self.maps(map, one, other, trail)
            }
        }
    }

    fn maps(
        &mut self,
        map: MapForm<'_>,
        object: &Map<String, Value>,
        config: &Map<String, Value>,
        trail: &ValuePath<'_>,
    ) -> Option<Value> {
        let mut merged = Map::new();
        for (name, before) in object {
            let after = match (config.get(name), map.entry(name)) {
                (Some(change), Some(of)) => self.values(of, before, change, &trail.field(name)),
                (Some(_), None) => {
                    self.error.add(&trail.field(name), "field not declared in schema".to_owned());
                    None
                }
                (None, _) => Some(before.clone()),
            };
            if let Some(after) = after {
                merged.insert(name.clone(), after);
            }
        }
        for (name, added) in config {
            if !object.contains_key(name) {
                merged.insert(name.clone(), added.clone());
            }
        }
        (!merged.is_empty()).then_some(Value::Object(merged))
    }

    /// Merges two lists whose elements have keys.
    ///
    /// Elements that only the object has stay before the shared element that followed them; shared
    /// and new ones come in the order of the config.
    fn lists(
        &mut self,
        list: List<'_>,
        object: &[Value],
        config: &[Value],
        trail: &ValuePath<'_>,
    ) -> Option<Value> {
        let right = self.index(list, config, trail, true)?;
        let left = self.index(list, object, trail, false)?;
        let mut shared =
            right.elements.iter().filter(|element| left.children.contains_key(element));
        let mut next_shared = shared.next();
        let mut done: BTreeSet<&PathElement> = BTreeSet::new();
        let mut merged = Vec::with_capacity(left.elements.len().max(right.elements.len()));
        let (mut at_left, mut at_right) = (0, 0);
        loop {
            let (own, theirs) = (left.elements.get(at_left), right.elements.get(at_right));
            if own.is_none() && theirs.is_none() {
                break;
            }
            if let (Some(own), Some(theirs)) = (own, theirs) {
                if own == theirs {
                    done.insert(own);
                    merged.extend(self.element(list, own, &left, &right, trail));
                    at_left += 1;
                    at_right += 1;
                    next_shared = shared.next();
                    continue;
                }
                if right.children.contains_key(own) && next_shared.is_some_and(|next| next != own) {
                    // Shared, but another one comes first.
                    at_left += 1;
                    continue;
                }
            }
            if let Some(own) = own {
                if !right.children.contains_key(own) {
                    merged.push(object[at_left].clone());
                    at_left += 1;
                    continue;
                }
                if done.contains(own) {
                    at_left += 1;
                }
            }
            if let Some(theirs) = theirs {
                done.insert(theirs);
                merged.extend(self.element(list, theirs, &left, &right, trail));
                at_right += 1;
                if next_shared == Some(theirs) {
                    next_shared = shared.next();
                }
            }
        }
        (!merged.is_empty()).then_some(Value::Array(merged))
    }

    fn element(
        &mut self,
        list: List<'_>,
        element: &PathElement,
        left: &ElementIndex<'_>,
        right: &ElementIndex<'_>,
        trail: &ValuePath<'_>,
    ) -> Option<Value> {
        let old = left.children.get(element).copied().flatten();
        let new = right.children.get(element).copied().flatten();
        match (old, new) {
            (Some(old), Some(new)) => self.values(list.items, old, new, &trail.element(element)),
            (None, value) | (value, None) => value.cloned(),
        }
    }

    fn index<'a>(
        &mut self,
        list: List<'_>,
        elements: &'a [Value],
        trail: &ValuePath<'_>,
        unique: bool,
    ) -> Option<ElementIndex<'a>> {
        let mut index = ElementIndex { elements: Vec::new(), children: BTreeMap::new() };
        let mut sound = true;
        for (place, child) in elements.iter().enumerate() {
            let element = match element_of(list, child) {
                Ok(element) => element,
                Err(fault) => {
                    self.error.add(trail, format!("element {place}: {fault}"));
                    sound = false;
                    continue;
                }
            };
            let twice = index.children.contains_key(&element);
            if twice && unique {
                self.error.add(trail, format!("duplicate entries for key {element}"));
                sound = false;
                continue;
            }
            // One of several with the same key is not merged with what the config has for it.
            index.children.insert(element.clone(), (!twice).then_some(child));
            index.elements.push(element);
        }
        sound.then_some(index)
    }
}

/// The elements of a list in order, and by what tells them apart.
struct ElementIndex<'a> {
    elements: Vec<PathElement>,
    children: BTreeMap<PathElement, Option<&'a Value>>,
}

fn elements_of(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn entries_of(value: &Value) -> Option<&Map<String, Value>> {
    value.as_object()
}
