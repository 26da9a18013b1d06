//! Lists in a strategic merge patch.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::{
    FieldMergeRule, OptionalSchemaNode, PATCH, SET_ORDER, StrategicError, after_slash, bad_patch,
    element_merge_rule, go_type_name, merge_maps, no_merge_key, unknown_directive,
    without_directives, wrong_type,
};
use crate::golang;

const LIST: &str = "[]interface {}";
const OBJECT: &str = "map[string]interface {}";

/// Merges two lists: objects by their key, scalars as a set.
pub(super) fn merge(
    of: OptionalSchemaNode<'_>,
    original: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
    deletes: bool,
) -> Result<Vec<Value>, StrategicError> {
    if original.is_empty() && patch.is_empty() {
        return Ok(original);
    }
    if element_type_name(&original, &patch)? == OBJECT {
        if key.is_empty() {
            return Err(StrategicError::Failed(
                "cannot merge lists without merge key for struct".to_owned(),
            ));
        }
        let (original, patch) = apply_directives(original, patch, key)?;
        let patch_order = keys(&patch, key)?;
        let server_order = keys(&original, key)?;
        let merged = merge_elements(of, original, patch, key)?;
        return sort_by_order(merged, key, &patch_order, &server_order);
    }
    if deletes {
        let gone: HashSet<String> = patch.iter().map(Value::to_string).collect();
        return Ok(original.into_iter().filter(|it| !gone.contains(&it.to_string())).collect());
    }
    let texts = |values: &[Value]| -> Vec<String> { values.iter().map(Value::to_string).collect() };
    let (patch_order, server_order) = (texts(&patch), texts(&original));
    let mut seen = HashSet::new();
    let merged = original.into_iter().chain(patch).filter(|it| seen.insert(it.to_string()));
    sort_by_order(merged.collect(), "", &patch_order, &server_order)
}

/// Carries out every `$setElementOrder` of a patch, together with the patch of its list.
pub(super) fn apply_set_element_orders(
    of: OptionalSchemaNode<'_>,
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
) -> Result<(), StrategicError> {
    let directives: Vec<String> =
        patch.keys().filter(|name| name.starts_with(SET_ORDER)).cloned().collect();
    for directive in directives {
        let order = match patch.shift_remove(&directive) {
            Some(Value::Array(order)) => order,
            Some(other) => return Err(wrong_type(LIST, &other)),
            None => continue,
        };
        let name = after_slash(&directive, SET_ORDER)
            .ok_or_else(|| bad_patch("invalid patch format of setElementOrder list"))?;
        let list = |value: Option<&Value>| match value {
            None => Ok(None),
            Some(Value::Array(values)) => Ok(Some(values.clone())),
            Some(other) => Err(wrong_type(LIST, other)),
        };
        let (before, change) = (list(original.get(name))?, list(patch.get(name))?);
        let FieldMergeRule { schema_node: of, strategy: merge } = element_merge_rule(of, name)?;
        let key = merge.merge_key.as_deref().unwrap_or_default();
        check_order(change.as_deref().unwrap_or_default(), &order, key)?;
        let elements = match (before.clone(), change.clone()) {
            (None, None) => continue,
            (Some(before), None) => before,
            (None, Some(change)) => change.into_iter().filter_map(without_directives).collect(),
            (Some(before), Some(change)) if merge.merge => {
                self::merge(of, before, change, key, false)?
            }
            (Some(_), Some(change)) => change,
        };
        let before = before.unwrap_or_default();
        element_type_name(&before, &change.unwrap_or_default())?;
        let texts = |values: &[Value]| -> Result<Vec<String>, StrategicError> {
            if key.is_empty() {
                Ok(values.iter().map(Value::to_string).collect())
            } else {
                keys(values, key)
            }
        };
        let ordered = sort_by_order(elements, key, &texts(&order)?, &texts(&before)?)?;
        original.insert(name.to_owned(), Value::Array(ordered));
        patch.shift_remove(name);
    }
    Ok(())
}

/// What the patch sets must be in its order, at the place the order gives it.
fn check_order(patch: &[Value], order: &[Value], key: &str) -> Result<(), StrategicError> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut ordered = order.iter();
    for element in patch {
        let directive = match element {
            Value::Object(element) => element.get(PATCH),
            other if !key.is_empty() => return Err(wrong_type(OBJECT, other)),
            _ => None,
        };
        if directive.is_some() {
            continue;
        }
        let wanted = merge_key_text(element, key)?;
        loop {
            let Some(next) = ordered.next() else {
                return Err(StrategicError::Failed(format!(
                    "The order in patch list:\n{}\n doesn't match {SET_ORDER} list:\n{}\n",
                    golang::plain_list(patch),
                    golang::plain_list(order)
                )));
            };
            if merge_key_text(next, key)? == wanted {
                break;
            }
        }
    }
    Ok(())
}

/// Carries out the elements that are directives; what is left is the lists to merge.
fn apply_directives(
    mut original: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), StrategicError> {
    let mut plain = Vec::new();
    let mut replaces = false;
    for element in patch {
        let Value::Object(entries) = &element else { continue };
        let Some(directive) = entries.get(PATCH) else {
            plain.push(element);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                let gone = entries.get(key).ok_or_else(|| no_merge_key(entries, key))?;
                original.retain(|element| element.get(key) != Some(gone));
            }
            Some("replace") => replaces = true,
            Some("merge") => {
                return Err(StrategicError::Failed(
                    "merging lists cannot yet be specified in the patch".to_owned(),
                ));
            }
            _ => return Err(unknown_directive(directive, entries)),
        }
    }
    Ok(if replaces { (plain, Vec::new()) } else { (original, plain) })
}

fn merge_elements(
    of: OptionalSchemaNode<'_>,
    mut original: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
) -> Result<Vec<Value>, StrategicError> {
    let mut places: HashMap<String, usize> = HashMap::new();
    for (place, text) in keys(&original, key)?.into_iter().enumerate() {
        places.entry(text).or_insert(place);
    }
    for element in patch {
        let text = merge_key_text(&element, key)?;
        match (places.get(&text), element) {
            (Some(place), Value::Object(change)) => {
                let was = match original[*place].take() {
                    Value::Object(was) => was,
                    other => return Err(wrong_type(OBJECT, &other)),
                };
                original[*place] = Value::Object(merge_maps(of, was, change)?);
            }
            (_, element) => {
                places.insert(text, original.len());
                original.push(element);
            }
        }
    }
    Ok(original)
}

/// Puts elements in order: those of the patch as the patch has them, the others as the server had
/// them, and a patched element before the others unless the server had it after them.
fn sort_by_order(
    elements: Vec<Value>,
    key: &str,
    patch_order: &[String],
    server_order: &[String],
) -> Result<Vec<Value>, StrategicError> {
    let (patch_rank, server_rank) = (ranks(patch_order), ranks(server_order));
    let mut patched = Vec::new();
    let mut others = Vec::new();
    for element in elements {
        let text = merge_key_text(&element, key)?;
        let known = server_rank.get(text.as_str()).copied();
        match patch_rank.get(text.as_str()) {
            Some(rank) => patched.push((*rank, known, element)),
            None => others.push((known, element)),
        }
    }
    patched.sort_by_key(|(rank, _, _)| *rank);
    // What neither order knows comes first, the last of it foremost.
    let unknown = others.iter().filter(|(rank, _)| rank.is_none()).count();
    others.sort_by_key(|(rank, _)| *rank);
    others[..unknown].reverse();
    let mut ordered = Vec::with_capacity(patched.len() + others.len());
    let (mut patched, mut others) = (patched.into_iter().peekable(), others.into_iter().peekable());
    loop {
        let other_first = match (others.peek(), patched.peek()) {
            (Some((Some(other), _)), Some((_, Some(patched), _))) => other < patched,
            (Some(_), None) => true,
            (_, Some(_)) => false,
            (None, None) => break,
        };
        if other_first {
            ordered.extend(others.next().map(|(_, element)| element));
        } else {
            ordered.extend(patched.next().map(|(_, _, element)| element));
        }
    }
    Ok(ordered)
}

/// The first place of each text.
fn ranks(order: &[String]) -> HashMap<&str, usize> {
    let mut ranks = HashMap::with_capacity(order.len());
    for (place, text) in order.iter().enumerate() {
        ranks.entry(text.as_str()).or_insert(place);
    }
    ranks
}

/// The texts of the keys of objects.
fn keys(values: &[Value], key: &str) -> Result<Vec<String>, StrategicError> {
    values.iter().map(|value| merge_key_text(value, key)).collect()
}

/// What tells an element apart, as text: its key, or itself where there is none.
fn merge_key_text(element: &Value, key: &str) -> Result<String, StrategicError> {
    if key.is_empty() {
        return Ok(element.to_string());
    }
    match element {
        Value::Object(entries) => {
            let value = entries.get(key).ok_or_else(|| no_merge_key(entries, key))?;
            Ok(value.to_string())
        }
        other => Err(wrong_type(OBJECT, other)),
    }
}

/// The sort of all elements of two lists.
fn element_type_name(one: &[Value], other: &[Value]) -> Result<&'static str, StrategicError> {
    let mut sorts = one.iter().chain(other).map(go_type_name);
    let Some(first) = sorts.next() else {
        return Err(StrategicError::Failed("no elements in any of the given slices".to_owned()));
    };
    if first == LIST {
        return Err(StrategicError::Unprocessable("lists of lists are not supported".to_owned()));
    }
    if sorts.any(|sort| sort != first) {
        return Err(StrategicError::Failed(format!(
            "list element types are not identical: [{} {}]",
            golang::plain_list(one),
            golang::plain_list(other)
        )));
    }
    Ok(first)
}
