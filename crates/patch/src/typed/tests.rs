use serde_json::json;

use super::*;
use crate::fixtures;

fn validation_error(object: &Value) -> String {
    validate(fixtures::config_map(), object, Duplicates::Refused).unwrap_err().to_string()
}

#[test]
fn errors_match_upstream() {
    let config = |member: &str, value: Value| json!({ "apiVersion": "v1", member: value });
    let metadata = |member: &str, value: Value| json!({ "metadata": { member: value } });
    let table = [
        (
            config("data", json!({ "a": 1 })),
            ".data.a: expected string, got &value.valueUnstructured{Value:1}",
        ),
        (
            config("data", json!({ "a": true })),
            ".data.a: expected string, got &value.valueUnstructured{Value:true}",
        ),
        (
            config("data", json!({ "a": 1.5 })),
            ".data.a: expected string, got &value.valueUnstructured{Value:1.5}",
        ),
        (
            config("data", json!({ "a": { "b": "c" } })),
            ".data.a: expected string, got &value.valueUnstructured{Value:map[string]interface {}{\"b\":\"c\"}}",
        ),
        (
            config("data", json!({ "a": [1, "x"] })),
            ".data.a: expected string, got &value.valueUnstructured{Value:[]interface {}{1, \"x\"}}",
        ),
        (config("data", json!("s")), ".data: expected map, got &{s}"),
        (config("data", json!([1])), ".data: expected map, got &{[1]}"),
        (config("immutable", json!("yes")), ".immutable: expected boolean, got &{yes}"),
        (config("nothing", json!(1)), ".nothing: field not declared in schema"),
        (
            metadata("creationTimestamp", json!({})),
            ".metadata.creationTimestamp: expected any scalar, got &{map[]}",
        ),
        (
            metadata("generation", json!([1])),
            ".metadata.generation: expected numeric (int or float), got []interface {}",
        ),
        (metadata("finalizers", json!("x")), ".metadata.finalizers: expected list, got &{x}"),
        (
            metadata("finalizers", json!([{}])),
            ".metadata.finalizers: element 0: associative list without keys has an element that's a map type",
        ),
        (
            metadata("finalizers", json!([null])),
            ".metadata.finalizers: element 0: associative list without keys has an element that's an explicit null",
        ),
        (
            metadata("finalizers", json!([[]])),
            ".metadata.finalizers: element 0: not supported: associative list with lists as elements",
        ),
        (
            metadata("finalizers", json!(["a", "a"])),
            ".metadata.finalizers: duplicate entries for key [=\"a\"]",
        ),
        (
            metadata("ownerReferences", json!([null])),
            ".metadata.ownerReferences: element 0: associative list with keys may not have a null element",
        ),
        (
            metadata("ownerReferences", json!([1])),
            ".metadata.ownerReferences: element 0: associative list with keys may not have non-map elements",
        ),
        (
            json!({ "data": 1, "immutable": 2 }),
            "errors:\n  .data: expected map, got &{1}\n  .immutable: expected boolean, got &{2}",
        ),
    ];
    for (object, text) in table {
        assert_eq!(validation_error(&object), text);
    }
    let keyless = json!({ "spec": { "map": [{ "v": "1" }] } });
    let error = validate(fixtures::widget(), &keyless, Duplicates::Allowed).unwrap_err();
    let text = ".spec.map: element 0: associative list with keys has an element that omits all key \
                fields [\"k\"] (and doesn't have default values for any key fields)";
    assert_eq!(error.to_string(), text);
}

#[test]
fn nulls_are_of_every_type() {
    let object =
        json!({ "metadata": { "labels": null, "finalizers": null, "name": null }, "data": null });
    assert_eq!(validate(fixtures::config_map(), &object, Duplicates::Refused), Ok(()));
}

#[test]
fn duplicates_fail_only_if_refused() {
    let object = json!({ "metadata": { "finalizers": ["a", "a"] } });
    assert_eq!(validate(fixtures::config_map(), &object, Duplicates::Allowed), Ok(()));
}

#[test]
fn custom_objects_have_the_metadata_of_all_objects() {
    let object = json!({
        "apiVersion": "case.test/v1", "kind": "Widget",
        "metadata": { "name": "w", "finalizers": ["a"], "ownerReferences": [{ "uid": "u", "name": "n" }] },
    });
    assert_eq!(validate(fixtures::widget(), &object, Duplicates::Refused), Ok(()));
    let fields = json!({
        "f:apiVersion": {}, "f:kind": {},
        "f:metadata": {
            "f:finalizers": { "v:\"a\"": {} }, "f:name": {},
            "f:ownerReferences": { "k:{\"uid\":\"u\"}": {} },
        },
    });
    assert_eq!(field_set(fixtures::widget(), &object).to_fields(), fields);
    let unknown = json!({ "metadata": { "nothing": 1 } });
    let error = validate(fixtures::widget(), &unknown, Duplicates::Refused).unwrap_err();
    assert_eq!(error.to_string(), ".metadata.nothing: field not declared in schema");
}

#[test]
fn compare_lists_all_changes() {
    let spec = |spec: Value| json!({ "spec": spec });
    let table = [
        (
            "a scalar",
            json!({ "text": "a" }),
            json!({ "text": "b" }),
            json!({}),
            json!({ "f:text": {} }),
            json!({}),
        ),
        (
            "a whole float is an integer",
            json!({ "number": 1 }),
            json!({ "number": 1.0 }),
            json!({}),
            json!({}),
            json!({}),
        ),
        (
            "an atomic list",
            json!({ "plain": ["a"] }),
            json!({ "plain": ["a", "b"] }),
            json!({}),
            json!({ "f:plain": {} }),
            json!({}),
        ),
        (
            "an atomic map",
            json!({ "whole": { "a": "1" } }),
            json!({ "whole": {} }),
            json!({}),
            json!({ "f:whole": {} }),
            json!({}),
        ),
        (
            "a set",
            json!({ "set": ["a", "b"] }),
            json!({ "set": ["c", "b"] }),
            json!({ "f:set": { "v:\"c\"": {} } }),
            json!({}),
            json!({ "f:set": { "v:\"a\"": {} } }),
        ),
        (
            "a set in another order",
            json!({ "set": ["a", "b"] }),
            json!({ "set": ["b", "a"] }),
            json!({}),
            json!({}),
            json!({}),
        ),
        (
            "a keyed list",
            json!({ "map": [{ "k": "a", "v": "1" }] }),
            json!({ "map": [{ "k": "b" }, { "k": "a", "v": "2" }] }),
            json!({ "f:map": { "k:{\"k\":\"b\"}": { ".": {}, "f:k": {} } } }),
            json!({ "f:map": { "k:{\"k\":\"a\"}": { "f:v": {} } } }),
            json!({}),
        ),
        (
            "a map that is new",
            json!({ "text": "a" }),
            json!({ "text": "a", "parts": { "a": "1" } }),
            json!({ "f:parts": { ".": {}, "f:a": {} } }),
            json!({}),
            json!({}),
        ),
        (
            "a struct that goes",
            json!({ "nested": { "a": { "b": "1" } } }),
            json!({ "nested": {} }),
            json!({}),
            json!({}),
            json!({ "f:nested": { "f:a": { ".": {}, "f:b": {} } } }),
        ),
        (
            "what becomes another sort of value",
            json!({ "free": { "x": { "y": 1 } } }),
            json!({ "free": { "x": "text" } }),
            json!({}),
            json!({ "f:free": { "f:x": {} } }),
            json!({ "f:free": { "f:x": { "f:y": {} } } }),
        ),
        (
            "a duplicate that goes",
            json!({ "set": ["a", "a"] }),
            json!({ "set": ["a"] }),
            json!({ "f:set": { "v:\"a\"": {} } }),
            json!({}),
            json!({ "f:set": { "v:\"a\"": {} } }),
        ),
        (
            "duplicates that go",
            json!({ "set": ["a", "a", "b"] }),
            json!({ "set": ["b"] }),
            json!({}),
            json!({}),
            json!({ "f:set": { "v:\"a\"": {} } }),
        ),
        (
            "duplicates that change",
            json!({ "map": [{ "k": "a" }, { "k": "a" }] }),
            json!({ "map": [{ "k": "a" }, { "k": "a", "v": "1" }] }),
            json!({}),
            json!({ "f:map": { "k:{\"k\":\"a\"}": {} } }),
            json!({}),
        ),
        (
            "a duplicate that comes",
            json!({ "set": ["a"] }),
            json!({ "set": ["a", "a"] }),
            json!({ "f:set": { "v:\"a\"": {} } }),
            json!({}),
            json!({ "f:set": { "v:\"a\"": {} } }),
        ),
    ];
    for (why, old, new, added, modified, removed) in table {
        let found = compare(fixtures::widget(), &spec(old), &spec(new)).unwrap();
        let fields = |set: &FieldSet| set.to_fields().get("f:spec").cloned().unwrap_or(json!({}));
        assert_eq!(fields(&found.added), added, "{why}: added");
        assert_eq!(fields(&found.modified), modified, "{why}: modified");
        assert_eq!(fields(&found.removed), removed, "{why}: removed");
    }
}

#[test]
fn merged_lists_keep_both_orders() {
    let table = [
        ("new ones follow", vec!["a", "b"], vec!["c"], vec!["a", "b", "c"]),
        (
            "the config decides the order of its own",
            vec!["a", "b", "c"],
            vec!["c", "a"],
            vec!["b", "c", "a"],
        ),
        (
            "others stay before what followed them",
            vec!["x", "a", "y", "b"],
            vec!["a", "b"],
            vec!["x", "a", "y", "b"],
        ),
        (
            "new ones stand where the config has them",
            vec!["a", "x", "b"],
            vec!["a", "n", "b"],
            vec!["a", "x", "n", "b"],
        ),
        ("as a real server did it", vec!["b", "c"], vec!["d", "b"], vec!["d", "b", "c"]),
        (
            "as a real server did it with a keyed list",
            vec!["c", "a"],
            vec!["d", "a", "e"],
            vec!["c", "d", "a", "e"],
        ),
        ("an empty config changes nothing", vec!["a"], vec![], vec!["a"]),
    ];
    for (why, object, config, expected) in table {
        let set = |set: &[&str]| json!({ "spec": { "set": set } });
        let merged = merge(fixtures::widget(), &set(&object), &set(&config)).unwrap();
        assert_eq!(merged, set(&expected), "{why}");
    }
}

#[test]
fn items_are_removed_and_extracted_by_their_sets() {
    let object = json!({ "spec": {
        "text": "t", "plain": ["a"], "set": ["a", "b"],
        "map": [{ "k": "a", "v": "1" }, { "k": "b", "v": "2" }], "parts": { "a": "1" },
    } });
    let fields = FieldSet::from_fields(&json!({ "f:spec": {
        "f:plain": {}, "f:set": { "v:\"a\"": {} },
        "f:map": { "k:{\"k\":\"a\"}": { "f:v": {} }, "k:{\"k\":\"b\"}": {} },
        "f:parts": { "f:a": {} },
    } }))
    .unwrap();
    assert_eq!(
        remove(fixtures::widget(), &object, &fields),
        json!({ "spec": { "text": "t", "set": ["b"], "map": [{ "k": "a" }], "parts": null } })
    );
    assert_eq!(
        extract(fixtures::widget(), &object, &fields),
        json!({ "spec": {
            "plain": ["a"], "set": ["a"], "map": [{ "v": "1" }, { "k": "b", "v": "2" }],
            "parts": { "a": "1" },
        } })
    );
}

#[test]
fn named_fields_are_members_once_something_below_is() {
    let fields = FieldSet::from_fields(&json!({ "f:spec": {
        "f:nested": { "f:a": { "f:b": {} } }, "f:parts": { "f:a": {} },
        "f:map": { "k:{\"k\":\"a\"}": { "f:v": {} } },
    } }))
    .unwrap();
    let named = json!({ "f:spec": {
        ".": {},
        "f:map": { ".": {}, "k:{\"k\":\"a\"}": { "f:v": {} } },
        "f:nested": { ".": {}, "f:a": { ".": {}, "f:b": {} } }, "f:parts": { ".": {}, "f:a": {} },
    } });
    assert_eq!(with_named_fields(fixtures::widget(), &fields).to_fields(), named);
}

#[test]
fn empty_values_are_fields() {
    let spec = json!({ "spec": {
        "nested": { "a": {} }, "text": null, "set": null, "map": [], "plain": [],
    } });
    let fields = json!({ "f:spec": {
        "f:nested": { "f:a": {} }, "f:plain": {}, "f:set": {}, "f:text": {},
    } });
    assert_eq!(field_set(fixtures::widget(), &spec).to_fields(), fields);
}

#[test]
fn elements_with_one_key_are_owned_together() {
    let object = json!({ "spec": { "map": [{ "k": "a", "v": "1" }, { "k": "a" }, { "k": "b" }] } });
    let fields = json!({ "f:spec": { "f:map": {
        "k:{\"k\":\"a\"}": {}, "k:{\"k\":\"b\"}": { ".": {}, "f:k": {} },
    } } });
    assert_eq!(field_set(fixtures::widget(), &object).to_fields(), fields);
}

/// A definition may declare entries without a type: then a map has those, and anything else may
/// stand in its place.
#[test]
fn entries_without_a_type_bind_maps_only() {
    let schema = gantry_schema::compile(&json!({
        "type": "object",
        "properties": {"secret": {
            "properties": {"name": {"type": "string"}},
            "x-kubernetes-preserve-unknown-fields": true,
        }},
    }))
    .unwrap();
    for (secret, expected) in [
        (json!("signing"), None),
        (json!(["signing"]), None),
        (json!({"name": "signing"}), None),
        (
            json!({"name": 1}),
            Some(".secret.name: expected string, got &value.valueUnstructured{Value:1}"),
        ),
    ] {
        let verdict = validate(&schema, &json!({ "secret": secret }), Duplicates::Refused);
        let said = verdict.err().map(|fault| fault.to_string());
        assert_eq!(said.as_deref(), expected, "{secret}");
    }
}
