//! Patches that know nothing of schemas: JSON patch (RFC 6902) and merge patch (RFC 7386).
//!
//! Both follow the library the original API server uses where it departs from the standards,
//! because clients came to rely on it.

use serde_json::{Map, Value};

/// Operations in one JSON patch: more are refused before any is carried out.
const MOST_OPERATIONS: usize = 10_000;

/// Bytes that the `copy` operations of one patch may add, so that a small patch cannot make an
/// object that fills the memory.
const MOST_COPIED: usize = 3 * 1024 * 1024;

/// Levels of a patched document. JSON text with more is not read back.
const MOST_LEVELS: usize = 127;

/// Values that `move` operations may look through for their depth, for all operations together:
/// enough to move the largest object a few times, too little to keep a core busy.
const MOST_VISITED: usize = 5_000_000;

/// Why a patch failed, by the response the client gets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The body is not a patch: 400 with this text.
    #[error("{0}")]
    Decode(String),
    /// The patch has more operations than a server takes: 413.
    #[error("The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, got {0}")]
    TooManyOperations(usize),
    /// The patch does not apply to the object: 422 with the generic text. This one is for logs, and
    /// for callers that send a patch on behalf of others.
    #[error("cannot carry out the JSON patch: {0}")]
    Rejected(String),
}

/// Applies a JSON patch.
///
/// Departures from RFC 6902: `replace` and `test` see an absent member as `null`, `copy` copies it
/// as `null`, an absent `value` is `null`, negative indices count from the end, and what stands
/// before the first slash of a path is ignored.
///
/// # Errors
/// If the patch is none, is too long, or any operation fails; then nothing is changed.
pub fn json_patch(document: &Value, patch: &Value) -> Result<Value, PatchError> {
    let operations = operations(patch)?;
    if operations.len() > MOST_OPERATIONS {
        return Err(PatchError::TooManyOperations(operations.len()));
    }
    let mut patched = PatchState { document: document.clone(), copied: 0, visited: 0 };
    for operation in operations {
        patched.apply_operation(operation).map_err(PatchError::Rejected)?;
    }
    Ok(patched.document)
}

/// Members of the operations that no operation has, as the texts of warnings.
#[must_use]
pub fn unknown_patch_fields(patch: &Value) -> Vec<String> {
    let mut unknown = Vec::new();
    for (place, operation) in patch.as_array().into_iter().flatten().enumerate() {
        for name in operation.as_object().into_iter().flat_map(Map::keys) {
            if !matches!(name.as_str(), "op" | "path" | "from" | "value") {
                unknown.push(format!("json patch unknown field \"[{place}].{name}\""));
            }
        }
    }
    unknown
}

/// Applies a merge patch: `null` deletes, objects merge, everything else replaces.
///
/// # Errors
/// If the patch is not an object.
pub fn merge_patch(document: &Value, patch: &Value) -> Result<Value, PatchError> {
    let Value::Object(patch) = patch else {
        let text = if patch.is_null() {
            "Invalid JSON Patch".to_owned()
        } else {
            format!(
                "error decoding patch: json: cannot unmarshal {} into Go value of type \
                 map[string]interface {{}}",
                gantry_schema::json_kind(patch)
            )
        };
        return Err(PatchError::Decode(text));
    };
    let mut merged = document.as_object().cloned().unwrap_or_default();
    merge_objects(&mut merged, patch);
    Ok(Value::Object(merged))
}

fn merge_objects(document: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (name, change) in patch {
        if change.is_null() {
            document.shift_remove(name);
            continue;
        }
        match (document.get_mut(name), change) {
            (Some(Value::Object(current)), Value::Object(change)) => merge_objects(current, change),
            (Some(current @ Value::Object(_)), change) => *current = change.clone(),
            (Some(current), change) => *current = without_nulls(change),
            (None, change) => {
                document.insert(name.clone(), without_nulls(change));
            }
        }
    }
}

/// A value in which no object has a `null` member; nulls in lists stay.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(entries) => entries
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name.clone(), without_nulls(value)))
            .collect(),
        Value::Array(values) => values.iter().map(without_nulls).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// The operations of a patch, their members checked for their types.
fn operations(patch: &Value) -> Result<&[Value], PatchError> {
    let refused = |kind: &str, into: &str| {
        Err(PatchError::Decode(format!(
            "error decoding patch: json: cannot unmarshal {kind} into Go {into}"
        )))
    };
    let operations = match patch {
        Value::Array(operations) => operations.as_slice(),
        Value::Null => &[],
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            let kind = gantry_schema::json_kind(patch);
            return refused(kind, "value of type []handlers.jsonPatchOp");
        }
    };
    for operation in operations {
        match operation {
            Value::Object(members) => {
                for name in ["op", "path", "from"] {
                    if let Some(member) = members.get(name)
                        && !member.is_string()
                        && !member.is_null()
                    {
                        let into = format!("struct field jsonPatchOp.{name} of type string");
                        return refused(gantry_schema::json_kind(member), &into);
                    }
                }
            }
            Value::Null => {}
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                let kind = gantry_schema::json_kind(operation);
                return refused(kind, "value of type handlers.jsonPatchOp");
            }
        }
    }
    Ok(operations)
}

/// A document half-way through a patch.
struct PatchState {
    document: Value,
    copied: usize,
    visited: usize,
}

impl PatchState {
    fn apply_operation(&mut self, operation: &Value) -> Result<(), String> {
        let member = |name: &str| {
            operation[name].as_str().ok_or_else(|| format!("operation without {name}"))
        };
        let value = &operation["value"];
        match operation["op"].as_str() {
            Some("add") => self.add(member("path")?, value.clone()),
            Some("remove") => self.remove(member("path")?).map(|_| ()),
            Some("replace") => self.replace(member("path")?, value),
            Some("test") => self.test(member("path")?, value),
            Some("move") => {
                let moved = self.remove(member("from")?)?;
                self.add(member("path")?, moved)
            }
            Some("copy") => {
                let copied = self.get(member("from")?)?.cloned();
                // An absent member costs nothing, a present one its text.
                self.copied += copied.as_ref().map_or(0, |copied| copied.to_string().len());
                if self.copied > MOST_COPIED {
                    return Err(format!("copies take more than {MOST_COPIED} bytes"));
                }
                self.add(member("path")?, copied.unwrap_or_default())
            }
            Some(other) => Err(format!("Unexpected kind: {other}")),
            None => Err("operation without op".to_owned()),
        }
    }

    fn add(&mut self, path: &str, value: Value) -> Result<(), String> {
        let depth = self.depth(&value, 1)? + path.matches('/').count();
        if depth > MOST_LEVELS {
            return Err(format!("{path} would be nested more than {MOST_LEVELS} levels deep"));
        }
        let (parent, key) = self.parent(path, "add")?;
        match parent {
            Value::Object(members) => {
                members.insert(key, value);
            }
            Value::Array(elements) if key == "-" => elements.push(value),
            Value::Array(elements) => {
                let place = list_index(&key, elements.len() + 1)?;
                elements.insert(place, value);
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                return Err(format!("nothing can be added at {path}"));
            }
        }
        Ok(())
    }

    fn remove(&mut self, path: &str) -> Result<Value, String> {
        let (parent, key) = self.parent(path, "remove")?;
        match parent {
            Value::Object(members) => members.shift_remove(&key).ok_or_else(|| {
                format!(
                    "error in remove for path: '{path}': Unable to remove nonexistent key: {key}: \
                     missing value"
                )
            }),
            Value::Array(elements) => {
                let place = list_index(&key, elements.len())?;
                Ok(elements.remove(place))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                Err(format!("there is no {path}"))
            }
        }
    }

    fn replace(&mut self, path: &str, value: &Value) -> Result<(), String> {
        if path.is_empty() {
            if !value.is_object() && !value.is_array() {
                return Err("a document is replaced by an object or a list".to_owned());
            }
            self.document.clone_from(value);
            return Ok(());
        }
        let (parent, key) = self.parent(path, "replace")?;
        if let Value::Array(elements) = parent {
            let place = list_index(&key, elements.len())?;
            elements[place].clone_from(value);
            return Ok(());
        }
        self.add(path, value.clone())
    }

    fn test(&mut self, path: &str, value: &Value) -> Result<(), String> {
        let found = if path.is_empty() { Some(&self.document) } else { self.get(path)? };
        if found.unwrap_or(&Value::Null) == value {
            return Ok(());
        }
        Err(format!("testing value {path} failed: test failed"))
    }

    /// What stands at `path`: an absent member is none, an absent element a failure.
    fn get(&mut self, path: &str) -> Result<Option<&Value>, String> {
        let (parent, key) = self.parent(path, "test")?;
        match parent {
            Value::Object(members) => Ok(members.get(&key)),
            Value::Array(elements) => {
                let place = list_index(&key, elements.len())?;
                Ok(elements.get(place))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                Err(format!("there is no {path}"))
            }
        }
    }

    /// What holds the target of `path`, and the target's name in it.
    fn parent(&mut self, path: &str, operation: &str) -> Result<(&mut Value, String), String> {
        let mut tokens = path.split('/').skip(1).map(unescaped);
        let mut key = tokens.next().ok_or_else(|| format!("{path:?} is not a path"))?;
        let mut parent = &mut self.document;
        for next in tokens {
            let found = match parent {
                Value::Object(members) => members.get_mut(&key),
                Value::Array(elements) => {
                    let place = list_index(&key, elements.len())?;
                    elements.get_mut(place)
                }
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
            };
            parent = found.ok_or_else(|| {
                // Upstream shows the path in quotes, but for one of them.
                let shown =
                    if operation == "replace" { path.to_owned() } else { format!("{path:?}") };
                format!(
                    "{operation} operation does not apply: doc is missing path: {shown}: missing \
                     value"
                )
            })?;
            key = next;
        }
        Ok((parent, key))
    }

    /// How deep a value is; it stops at the limits, and so does the stack it takes.
    fn depth(&mut self, value: &Value, level: usize) -> Result<usize, String> {
        self.visited += 1;
        if level > MOST_LEVELS || self.visited > MOST_VISITED {
            return Err("the patched document is too large".to_owned());
        }
        let mut deepest = level;
        match value {
            Value::Object(members) => {
                for member in members.values() {
                    deepest = deepest.max(self.depth(member, level + 1)?);
                }
            }
            Value::Array(elements) => {
                for element in elements {
                    deepest = deepest.max(self.depth(element, level + 1)?);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        Ok(deepest)
    }
}

/// The place in a list of `length` elements that a token names.
fn list_index(token: &str, length: usize) -> Result<usize, String> {
    let index: i64 = token.parse().map_err(|_| format!("{token:?} is not an index"))?;
    let size = usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX);
    let place = if index < 0 { length.checked_sub(size) } else { Some(size) };
    place.filter(|place| *place < length).ok_or_else(|| format!("there is no element {index}"))
}

fn unescaped(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

#[cfg(test)]
mod tests;
