//! Writes of several field managers: `managedFields` stay readable, and applying again
//! changes nothing.
#![no_main]

use std::borrow::Cow;

use arbitrary::{Result, Unstructured};
use gantry_fuzz::kinds::{Kind, named};
use gantry_fuzz::{kinds, tree};
use gantry_patch::FieldSet;
use gantry_patch::ownership::{
    Context, SingleVersion, apply, check_managed_fields, is_unchanged, update,
};
use gantry_schema::Schema;
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

const CUSTOM: (&str, &str) = ("example.com/v1", "Widget");

/// Returns the decoded object, if it can be decoded.
fn decoded(kind: Option<&Kind>, schema: &Schema, mut object: Value) -> Option<Value> {
    match kind {
        Some(kind) => gantry_builtin::read(kind.type_id, object).ok().map(|read| read.value),
        None => {
            gantry_schema::prune(schema, &mut object);
            gantry_schema::default(schema, &mut object);
            // As for any kind, empty values of metadata are left out.
            if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.retain(|_, value| *value != json!([]) && *value != json!({}));
            }
            Some(object)
        }
    }
}

fn entries(u: &mut Unstructured<'_>, api_version: &str, object: &Value) -> Result<Value> {
    let mut entries = Vec::new();
    for _ in 0..u.int_in_range(0..=3)? {
        let mut fields = tree::free(u)?;
        if u.arbitrary()?
            && let Some(names) = object.as_object()
        {
            fields = names.keys().map(|name| (format!("f:{name}"), json!({}))).collect();
        }
        entries.push(json!({
            "manager": tree::text(u)?, "operation": *u.choose(&["Apply", "Update"])?,
            "apiVersion": if u.ratio(1, 8)? { tree::text(u)? } else { api_version.to_owned() },
            "fieldsType": "FieldsV1", "fieldsV1": fields, "time": "2006-01-02T15:04:05Z",
        }));
    }
    Ok(entries.into())
}

/// Returns whether any value in the tree is null.
fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.iter().any(has_null),
        Value::Object(fields) => fields.values().any(has_null),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let kind = if u.ratio(2, 3)? { Some(kinds::builtin(u)?) } else { None };
    let schema: Cow<'_, Schema> = match kind {
        Some(kind) => Cow::Borrowed(&kind.schema),
        None => Cow::Borrowed(kinds::custom(u)?),
    };
    let (api_version, name) =
        kind.map_or(CUSTOM, |kind| (kind.api_version.as_str(), kind.name.as_str()));
    let bare = json!({ "apiVersion": api_version, "kind": name });
    let empty = decoded(kind, &schema, bare).expect("nothing can be decoded");
    let reset_fields = FieldSet::new();
    let mut live: Option<Value> = None;
    for _ in 0..u.int_in_range(1..=4)? {
        let context = Context {
            schema: &schema,
            api_version,
            manager: *u.choose(&["a", "b", "c", ""])?,
            subresource: *u.choose(&["", "", "", "status"])?,
            now: "2026-01-02T15:04:05Z",
            reset_fields: &reset_fields,
            empty: &empty,
            versions: &SingleVersion,
        };
        let sent = named(tree::shaped(u, &schema)?, api_version, name);
        if u.ratio(1, 3)? {
            let Some(mut new) = decoded(kind, &schema, sent) else { continue };
            // The server refuses metadata that is not an object before this step.
            let accepts_fields = |metadata: &Value| metadata.is_object() || metadata.is_null();
            if u.ratio(1, 4)? && new.is_object() && new.get("metadata").is_none_or(accepts_fields) {
                new["metadata"]["managedFields"] = entries(u, api_version, &new)?;
            }
            if update(&context, live.as_ref(), &mut new).is_ok() {
                let _ = check_managed_fields(&new);
                live = Some(new);
            }
            continue;
        }
        let force = u.arbitrary()?;
        let Ok(applied) = apply(&context, live.as_ref(), &sent, force) else { continue };
        check_managed_fields(&applied).expect("what was written can be read");
        let Some(stored) = decoded(kind, &schema, applied) else { continue };
        // A list key that is null is removed or defaulted by decoding. The next apply finds no
        // element with it and adds a second one, or cannot identify the element; a real server does
        // the same.
        if has_null(&sent) {
            continue;
        }
        let again = apply(&context, Some(&stored), &sent, force).expect("it was applied before");
        let again = decoded(kind, &schema, again).expect("it was decoded before");
        // A manager that applies only empty sets owns no field. The next apply finds an object
        // without owners and makes `before-first-apply` its owner, as a real server does.
        if stored["metadata"].get("managedFields").is_none() {
            live = Some(again);
            continue;
        }
        assert!(is_unchanged(&stored, &again), "{sent}\nfirst {stored}\nthen  {again}");
        live = Some(stored);
    }
    Ok(())
}

fuzz_target!(|data: &[u8]| {
    let _ = run(&mut Unstructured::new(data));
});
