//! Tests for every kind that values of its canonical schema can be read, and survive writing.

use std::collections::BTreeSet;

use gantry_api::decode::{self, Decoded, Options};
use gantry_api::kind::Kind;
use gantry_api::object::KINDS;
use proptest::prelude::*;
use proptest::strategy::{BoxedStrategy, ValueTree as _};
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Map, Value, json};

use crate::manifests;

/// Values per kind. Schemas are large and each value is a random walk through one.
const CASES: u32 = 64;

/// Levels below which only required fields are filled in: a PodSpec has no end otherwise.
const DEPTH: u32 = 7;

#[test]
fn decode_encode_decode_is_the_identity() {
    // Device kinds have fields of which exactly one is set, and a list that may be a map: no value
    // of theirs is found by following the schema. They have generators of their own.
    for kind in KINDS.iter().filter(|kind| kind.group != "devmgmtproto.k8s.io") {
        let strategy = object(kind);
        let mut runner = TestRunner::new(Config {
            cases: CASES,
            failure_persistence: None,
            ..Config::default()
        });
        let outcome = runner.run(&strategy, |value| {
            let first = (kind.decode)(value.clone()).map_err(|error| {
                TestCaseError::fail(format!("cannot be read: {error}\n{value:#}"))
            })?;
            let written = first.to_value().unwrap();
            let second = (kind.decode)(written.clone()).map_err(|error| {
                TestCaseError::fail(format!("not read again: {error}\n{written:#}"))
            })?;
            prop_assert_eq!(&first, &second, "{:#}", written);
            prop_assert_eq!(second.to_value().unwrap(), written);
            Ok(())
        });
        if let Err(error) = outcome {
            panic!("{kind:?}: {error}");
        }
    }
}

/// A field that can be left out must not be required: `Option` with a schema of its own is, unless
/// it also has a default. A field that is filled in when it is missing may be.
#[test]
fn what_the_schema_requires_is_really_required() {
    let mut optional = BTreeSet::new();
    for (kind, value) in samples() {
        let schema = (kind.canonical)();
        let mut places = Vec::new();
        required(&schema, &value, "", &mut places);
        for (holder, name) in places {
            let mut without = value.clone();
            without.pointer_mut(&holder).and_then(Value::as_object_mut).unwrap().remove(&name);
            let Ok(object) = (kind.decode)(without) else { continue };
            let written = object.to_value().unwrap();
            // An empty holder may not be written at all; then nothing was lost with the field.
            if written.pointer(&holder).is_some_and(|holder| holder.get(&name).is_none()) {
                optional.insert(format!("{kind:?} {holder}/{name}"));
            }
        }
    }
    assert_eq!(optional, BTreeSet::new(), "required by the schema, optional in the type");
}

/// Objects of every kind: those of the fixtures, and for what they lack, values made from schemas.
fn samples() -> Vec<(&'static Kind, Value)> {
    let mut samples = Vec::new();
    for file in manifests::files() {
        let text = std::fs::read_to_string(file).unwrap();
        for document in decode::documents(&text, Options::default()).unwrap_or_default() {
            if let Decoded::Object(object) = document.content {
                samples.push((object.kind(), object.to_value().unwrap()));
            }
        }
    }
    let mut runner = TestRunner::deterministic();
    for kind in KINDS.iter().filter(|kind| kind.group != "devmgmtproto.k8s.io") {
        let strategy = object(kind);
        samples.extend((0..8).map(|_| (kind, strategy.new_tree(&mut runner).unwrap().current())));
    }
    samples
}

/// Every object in `value` that has a field its schema requires, with the field.
fn required(schema: &Value, value: &Value, at: &str, places: &mut Vec<(String, String)>) {
    match value {
        Value::Object(entries) => {
            let names =
                schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let present = names.filter(|name| entries.contains_key(*name));
            places.extend(present.map(|name| (at.to_owned(), name.to_owned())));
            for (name, entry) in entries {
                let below = match schema["properties"].get(name) {
                    Some(below) => below,
                    None => &schema["additionalProperties"],
                };
                let name = name.replace('~', "~0").replace('/', "~1");
                required(below, entry, &format!("{at}/{name}"), places);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                required(&schema["items"], item, &format!("{at}/{index}"), places);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn object(kind: &'static Kind) -> BoxedStrategy<Value> {
    let mut schema = (kind.canonical)();
    // Metadata is Kubernetes' own; its round trip is that of k8s-openapi.
    schema["properties"]["metadata"] =
        json!({"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}});
    let (api_version, name) = (kind.api_version(), kind.kind);
    value(&schema, DEPTH)
        .prop_map(move |mut value| {
            value["apiVersion"] = json!(api_version);
            value["kind"] = json!(name);
            if value.get("metadata").is_none() {
                value["metadata"] = json!({"name": "x"});
            }
            value
        })
        .boxed()
}

fn value(schema: &Value, depth: u32) -> BoxedStrategy<Value> {
    if let Some(allowed) = schema.get("enum").and_then(Value::as_array) {
        return prop::sample::select(allowed.clone()).boxed();
    }
    if schema.get("x-kubernetes-int-or-string").is_some() {
        let samples = [json!("1"), json!("500m"), json!("1Gi"), json!(3), json!("0"), json!("1e3")];
        return prop::sample::select(samples.to_vec()).boxed();
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("object") => fields(schema, depth),
        Some("array") => {
            let element = value(&schema["items"], depth.saturating_sub(1));
            let least = schema.get("minItems").and_then(Value::as_u64).unwrap_or(0);
            let least = usize::try_from(least).unwrap();
            prop::collection::vec(element, least..least + 3).prop_map(Value::from).boxed()
        }
        Some("string") => text(schema),
        Some("boolean") => any::<bool>().prop_map(Value::from).boxed(),
        Some("integer") => {
            let bound = |name: &str, otherwise| {
                schema.get(name).and_then(Value::as_i64).unwrap_or(otherwise)
            };
            (bound("minimum", 0)..=bound("maximum", 1000)).prop_map(Value::from).boxed()
        }
        Some("number") => prop::sample::select(vec![json!(0.0), json!(1.5), json!(-2.25)]).boxed(),
        Some(_) | None => {
            prop::sample::select(vec![json!({"a": [1, null]}), json!("x"), json!(7)]).boxed()
        }
    }
}

fn text(schema: &Value) -> BoxedStrategy<Value> {
    if schema.get("format").and_then(Value::as_str) == Some("date-time") {
        // Whole seconds: Kubernetes' own `Time` drops the rest.
        let samples = ["2024-01-02T03:04:05Z", "2026-11-15T00:00:00Z"];
        return prop::sample::select(samples.to_vec()).prop_map(Value::from).boxed();
    }
    match schema.get("pattern").and_then(Value::as_str) {
        Some(pattern) => {
            prop::string::string_regex(pattern.trim_start_matches('^').trim_end_matches('$'))
                .unwrap()
                .prop_map(Value::from)
                .boxed()
        }
        None => "[a-z]{1,4}".prop_map(Value::from).boxed(),
    }
}

fn fields(schema: &Value, depth: u32) -> BoxedStrategy<Value> {
    if let Some(element) = schema.get("additionalProperties").filter(|part| part.is_object()) {
        let element = value(element, depth.saturating_sub(1));
        return prop::collection::btree_map("[a-z]{1,3}", element, 0..3)
            .prop_map(|map| Value::Object(map.into_iter().collect()))
            .boxed();
    }
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return Just(json!({"apiVersion": "v1", "kind": "Pod", "free": {"x": 1}})).boxed();
    };
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut parts: Vec<BoxedStrategy<Option<(String, Value)>>> = Vec::new();
    for (name, part) in properties {
        let must = required.contains(&name.as_str());
        if !must && depth == 0 {
            continue;
        }
        let name = name.clone();
        let filled =
            value(part, depth.saturating_sub(1)).prop_map(move |value| (name.clone(), value));
        parts.push(if must {
            filled.prop_map(Some).boxed()
        } else {
            // Near the root every field is likely; deeper down a few are enough.
            prop::option::weighted(0.2 + 0.1 * f64::from(depth.min(5)), filled).boxed()
        });
    }
    parts
        .prop_map(|entries| Value::Object(entries.into_iter().flatten().collect::<Map<_, _>>()))
        .boxed()
}
