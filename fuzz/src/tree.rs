//! Random JSON, free or in the shape of a schema.

use arbitrary::{Result, Unstructured};
use gantry_schema::{NodeId, Scalar, Schema, Shape};
use serde_json::{Map, Value, json};

/// The greatest depth of free trees.
const MAX_DEPTH: u32 = 5;

/// Names and texts that have a meaning for some reader. They are few, so that two trees made
/// from them have fields in common.
pub const WORDS: &[&str] = &[
    "", "a", "b", "c", "name", "x/y", "TCP", "80", "1", "0", "-", "true", "null", "100m", "1Gi",
    "~", "~1", "metadata", "spec", "labels", "kubernetes.io/metadata.name", "2006-01-02T15:04:05Z",
    "127.0.0.1", "10.0.0.0/8", "é", "\u{0}", "$patch", "a.b", "a-b", "A", "http://a", "1h", "YQ==",
    "apps/v1", "v1", "Always", "RollingUpdate", "ClusterIP", "50%", "IfNotPresent", "*/5 * * * *",
];

const NUMBERS: &[i64] = &[
    0, 1, -1, 2, 3, 80, 255, 256, 65535, 65536, i32::MAX as i64, i32::MIN as i64,
    i32::MAX as i64 + 1, i64::MAX, i64::MIN, 1 << 53, -(1 << 53) - 1, 1_000_000_000_000,
];

/// Returns one of [`WORDS`], or sometimes any text.
pub fn text(u: &mut Unstructured<'_>) -> Result<String> {
    if u.ratio(1, 8)? {
        return Ok(u.arbitrary::<&str>()?.chars().take(64).collect());
    }
    Ok((*u.choose(WORDS)?).to_owned())
}

/// Returns a number, mostly one at the bounds of a type.
pub fn number(u: &mut Unstructured<'_>) -> Result<Value> {
    Ok(match u.int_in_range(0..=15)? {
        0 => json!(u.arbitrary::<i64>()?),
        1 => json!(u.arbitrary::<u64>()?),
        2 => json!(u.arbitrary::<f64>()?),
        3 => json!(1.5),
        4 => json!(u64::MAX),
        5 => json!(-0.0),
        6 => json!(1e300),
        _ => json!(*u.choose(NUMBERS)?),
    })
}

/// Returns any tree.
pub fn free(u: &mut Unstructured<'_>) -> Result<Value> {
    free_within(u, MAX_DEPTH)
}

fn free_within(u: &mut Unstructured<'_>, depth: u32) -> Result<Value> {
    Ok(match u.int_in_range(0..=if depth == 0 { 5 } else { 9 })? {
        0 => Value::Null,
        1 => json!(u.arbitrary::<bool>()?),
        2 | 3 => number(u)?,
        4 | 5 => text(u)?.into(),
        6 | 7 => {
            let count = u.int_in_range(0..=3)?;
            (0..count).map(|_| free_within(u, depth - 1)).collect::<Result<Vec<_>>>()?.into()
        }
        _ => {
            let mut entries = Map::new();
            for _ in 0..u.int_in_range(0..=4)? {
                entries.insert(text(u)?, free_within(u, depth - 1)?);
            }
            entries.into()
        }
    })
}

/// Returns a tree that nearly conforms to a schema.
pub fn shaped(u: &mut Unstructured<'_>, schema: &Schema) -> Result<Value> {
    shaped_at(u, schema, schema.root(), 12)
}

fn shaped_at(u: &mut Unstructured<'_>, schema: &Schema, id: NodeId, depth: u32) -> Result<Value> {
    if depth == 0 || u.ratio(1, 40)? {
        return free_within(u, 2);
    }
    Ok(match &schema.node(id).shape {
        Shape::Any => free_within(u, 3)?,
        Shape::Scalar(scalar) => scalar_value(u, *scalar)?,
        Shape::Map { values, .. } => {
            let mut entries = Map::new();
            for _ in 0..u.int_in_range(0..=3)? {
                entries.insert(text(u)?, shaped_at(u, schema, *values, depth - 1)?);
            }
            entries.into()
        }
        Shape::List { items, .. } => {
            let count = u.int_in_range(0..=3)?;
            let items = (0..count).map(|_| shaped_at(u, schema, *items, depth - 1));
            items.collect::<Result<Vec<_>>>()?.into()
        }
        Shape::Struct { fields, preserve_unknown, .. } => {
            let mut entries = Map::new();
            if !fields.is_empty() {
                for _ in 0..u.int_in_range(0..=5)? {
                    let place = u.choose_index(fields.len())?;
                    let Some((name, field)) = fields.iter().nth(place) else { continue };
                    let value = shaped_at(u, schema, field.node, depth - 1)?;
                    entries.insert(name.to_string(), value);
                }
            }
            if *preserve_unknown || u.ratio(1, 20)? {
                entries.insert(text(u)?, free_within(u, 2)?);
            }
            entries.into()
        }
    })
}

fn scalar_value(u: &mut Unstructured<'_>, scalar: Scalar) -> Result<Value> {
    Ok(match scalar {
        Scalar::Boolean => json!(u.arbitrary::<bool>()?),
        Scalar::Integer | Scalar::Number => number(u)?,
        Scalar::String => text(u)?.into(),
        Scalar::IntOrString | Scalar::Untyped => {
            if u.arbitrary()? { number(u)? } else { text(u)?.into() }
        }
    })
}

/// Adds the directives of strategic merge patches to a tree.
pub fn direct(u: &mut Unstructured<'_>, patch: &mut Value) -> Result<()> {
    match patch {
        Value::Array(items) => {
            for item in items.iter_mut() {
                direct(u, item)?;
            }
            if u.ratio(1, 8)? {
                items.push(json!({ "$patch": *u.choose(&["replace", "merge", "delete"])? }));
            }
        }
        Value::Object(entries) => {
            let names: Vec<String> = entries.keys().cloned().collect();
            for name in &names {
                direct(u, &mut entries[name])?;
                if u.ratio(1, 10)? {
                    entries.insert(name.clone(), Value::Null);
                }
            }
            if u.ratio(1, 4)? {
                let field = if names.is_empty() { "a" } else { u.choose(&names)?.as_str() };
                let (name, value) = match u.int_in_range(0..=5)? {
                    0 => ("$patch".to_owned(), json!("delete")),
                    1 => ("$patch".to_owned(), json!(text(u)?)),
                    2 => ("$patch".to_owned(), json!("replace")),
                    3 => (format!("$setElementOrder/{field}"), elements(u)?),
                    4 => (format!("$deleteFromPrimitiveList/{field}"), elements(u)?),
                    _ => ("$retainKeys".to_owned(), json!(names)),
                };
                entries.insert(name, value);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    Ok(())
}

fn elements(u: &mut Unstructured<'_>) -> Result<Value> {
    if u.ratio(1, 8)? {
        return free_within(u, 2);
    }
    let mut items = Vec::new();
    for _ in 0..u.int_in_range(0..=3)? {
        items.push(match u.int_in_range(0..=2)? {
            0 => json!({ "name": text(u)? }),
            1 => json!({ "name": text(u)?, "port": number(u)?, "containerPort": number(u)? }),
            _ => json!(text(u)?),
        });
    }
    Ok(items.into())
}
