use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::fixtures::any_json;

#[test]
fn operations_change_the_document() {
    let document = json!({ "data": { "a": "x" }, "list": ["a", "b"], "n": null });
    let table = [
        (
            "add a member",
            json!([{ "op": "add", "path": "/data/b", "value": "y" }]),
            "/data/b",
            json!("y"),
        ),
        (
            "replace a member",
            json!([{ "op": "replace", "path": "/data/a", "value": 1 }]),
            "/data/a",
            json!(1),
        ),
        (
            "replace an absent member",
            json!([{ "op": "replace", "path": "/data/c", "value": 1 }]),
            "/data/c",
            json!(1),
        ),
        (
            "an absent value is null",
            json!([{ "op": "add", "path": "/data/c" }]),
            "/data/c",
            json!(null),
        ),
        (
            "append",
            json!([{ "op": "add", "path": "/list/-", "value": "c" }]),
            "/list",
            json!(["a", "b", "c"]),
        ),
        (
            "insert",
            json!([{ "op": "add", "path": "/list/1", "value": "c" }]),
            "/list",
            json!(["a", "c", "b"]),
        ),
        (
            "insert at the end",
            json!([{ "op": "add", "path": "/list/2", "value": "c" }]),
            "/list",
            json!(["a", "b", "c"]),
        ),
        (
            "insert before the end",
            json!([{ "op": "add", "path": "/list/-2", "value": "c" }]),
            "/list",
            json!(["a", "c", "b"]),
        ),
        (
            "replace an element",
            json!([{ "op": "replace", "path": "/list/-1", "value": "c" }]),
            "/list",
            json!(["a", "c"]),
        ),
        (
            "remove an element",
            json!([{ "op": "remove", "path": "/list/0" }]),
            "/list",
            json!(["b"]),
        ),
        (
            "move",
            json!([{ "op": "move", "from": "/data/a", "path": "/m~1n~0" }]),
            "/m~1n~0",
            json!("x"),
        ),
        (
            "copy",
            json!([{ "op": "copy", "from": "/data", "path": "/copy" }]),
            "/copy",
            json!({ "a": "x" }),
        ),
        (
            "copy an absent member",
            json!([{ "op": "copy", "from": "/data/z", "path": "/copy" }]),
            "/copy",
            json!(null),
        ),
        (
            "what is before the slash is ignored",
            json!([{ "op": "add", "path": "any/x", "value": 1 }]),
            "/x",
            json!(1),
        ),
        (
            "an absent member tests as null",
            json!([{ "op": "test", "path": "/z", "value": null }]),
            "/data/a",
            json!("x"),
        ),
        (
            "the whole document",
            json!([{ "op": "replace", "path": "", "value": { "x": 1 } }]),
            "",
            json!({ "x": 1 }),
        ),
        ("null is no operation", json!(null), "/data/a", json!("x")),
    ];
    for (why, patch, path, expected) in table {
        let patched = json_patch(&document, &patch).unwrap();
        assert_eq!(patched.pointer(path), Some(&expected), "{why}");
    }
}

#[test]
fn operations_that_fail_are_rejected() {
    let document = json!({ "data": { "a": "x" }, "list": ["a"], "n": null });
    let table = [
        json!([{ "op": "test", "path": "/data/a", "value": "other" }]),
        json!([{ "op": "test", "path": "", "value": {} }]),
        json!([{ "op": "remove", "path": "/data/none" }]),
        json!([{ "op": "remove", "path": "/list/1" }]),
        json!([{ "op": "replace", "path": "/list/1", "value": 1 }]),
        json!([{ "op": "replace", "path": "", "value": 1 }]),
        json!([{ "op": "add", "path": "/list/2", "value": 1 }]),
        json!([{ "op": "add", "path": "/list/-3", "value": 1 }]),
        json!([{ "op": "add", "path": "/list/x", "value": 1 }]),
        json!([{ "op": "add", "path": "/none/a/b", "value": 1 }]),
        json!([{ "op": "add", "path": "/n/a", "value": 1 }]),
        json!([{ "op": "add", "path": "", "value": {} }]),
        json!([{ "op": "move", "from": "/data/z", "path": "/data/y" }]),
        json!([{ "op": "move", "path": "/data/y" }]),
        json!([{ "op": "zap", "path": "/data/a" }]),
        json!([{ "path": "/data/a" }]),
        json!([null]),
    ];
    for patch in table {
        let answer = json_patch(&document, &patch);
        assert!(matches!(answer, Err(PatchError::Rejected(_))), "{patch}: {answer:?}");
    }
}

/// `reference.json` has the results of the library in Kubernetes 1.34 (`json-patch.v4` 4.12.0); a
/// case without a result fails there.
///
/// Left out, because the server refuses it before or the library crashes: too many operations, a
/// merge patch that is a list, and a `test` without a value. Also left out: to replace the whole
/// document by a scalar, which the library ignores and we refuse.
#[test]
fn patches_have_the_results_of_kubernetes() {
    let reference: Value = serde_json::from_str(include_str!("reference.json")).unwrap();
    let cases = reference["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 61);
    for case in cases {
        let document = case.get("document").unwrap_or_else(|| &reference["document"]);
        let patched = match case["kind"].as_str() {
            Some("json") => json_patch(document, &case["patch"]),
            _ => merge_patch(document, &case["patch"]),
        };
        assert_eq!(patched.ok().as_ref(), case.get("patched"), "{}", case["why"]);
    }
}

#[test]
fn malformed_patches_fail_like_go() {
    let table = [
        (
            json!({ "op": "add" }),
            "cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        ),
        (json!("x"), "cannot unmarshal string into Go value of type []handlers.jsonPatchOp"),
        (json!([1]), "cannot unmarshal number into Go value of type handlers.jsonPatchOp"),
        (
            json!([{ "op": 1 }]),
            "cannot unmarshal number into Go struct field jsonPatchOp.op of type string",
        ),
        (
            json!([{ "path": [] }]),
            "cannot unmarshal array into Go struct field jsonPatchOp.path of type string",
        ),
    ];
    for (patch, text) in table {
        let text = format!("error decoding patch: json: {text}");
        assert_eq!(json_patch(&json!({}), &patch), Err(PatchError::Decode(text)));
    }
    let table = [
        (
            json!([]),
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
        (
            json!("x"),
            "error decoding patch: json: cannot unmarshal string into Go value of type map[string]interface {}",
        ),
        (json!(null), "Invalid JSON Patch"),
    ];
    for (patch, text) in table {
        assert_eq!(merge_patch(&json!({}), &patch), Err(PatchError::Decode(text.to_owned())));
    }
}

#[test]
fn unknown_members_of_operations_are_named() {
    let patch = json!([{ "op": "test", "foo": 1 }, { "value": 1, "foo": 1, "bar": 2 }]);
    let unknown = [
        "json patch unknown field \"[0].foo\"",
        "json patch unknown field \"[1].foo\"",
        "json patch unknown field \"[1].bar\"",
    ];
    assert_eq!(unknown_patch_fields(&patch), unknown);
}

#[test]
fn patches_are_bounded() {
    let operation = json!({ "op": "test", "path": "/a", "value": null });
    let patch = Value::Array(vec![operation; 10_001]);
    let error = json_patch(&json!({}), &patch).unwrap_err();
    assert_eq!(error, PatchError::TooManyOperations(10_001));
    assert_eq!(
        error.to_string(),
        "The allowed maximum operations in a JSON patch is 10000, got 10001"
    );

    let document = json!({ "a": "x".repeat(1024 * 1024) });
    let copy = json!({ "op": "copy", "from": "/a", "path": "/b" });
    assert!(json_patch(&document, &json!([copy, copy])).is_ok());
    assert!(matches!(
        json_patch(&document, &json!([copy, copy, copy])),
        Err(PatchError::Rejected(_))
    ));

    // Doubling the depth with every copy would soon overflow the stack.
    let mut operations = vec![json!({ "op": "add", "path": "/a", "value": { "a": {} } })];
    let mut path = "/a".to_owned();
    for _ in 0..20 {
        path = path.repeat(2);
        operations.push(json!({ "op": "copy", "from": "/a", "path": path }));
    }
    assert!(matches!(
        json_patch(&json!({}), &Value::Array(operations)),
        Err(PatchError::Rejected(_))
    ));
}

#[test]
fn a_merge_patch_merges_objects_and_replaces_the_rest() {
    let document = json!({ "labels": { "a": "1", "b": "2" }, "list": [1, 2], "text": "x" });
    let table = [
        ("null deletes", json!({ "labels": { "a": null } }), "/labels", json!({ "b": "2" })),
        (
            "objects merge",
            json!({ "labels": { "c": "3" } }),
            "/labels",
            json!({ "a": "1", "b": "2", "c": "3" }),
        ),
        ("lists are replaced", json!({ "list": [3] }), "/list", json!([3])),
        (
            "what is new has no nulls",
            json!({ "new": { "a": null, "b": [{ "c": null }, null] } }),
            "/new",
            json!({ "b": [{}, null] }),
        ),
        (
            "a scalar gives way to an object",
            json!({ "text": { "a": null, "b": 1 } }),
            "/text",
            json!({ "b": 1 }),
        ),
        (
            "an object gives way to a list",
            json!({ "labels": [{ "a": null }] }),
            "/labels",
            json!([{ "a": null }]),
        ),
    ];
    for (why, patch, path, expected) in table {
        let patched = merge_patch(&document, &patch).unwrap();
        assert_eq!(patched.pointer(path), Some(&expected), "{why}");
    }
}

proptest! {
    #[test]
    fn nothing_panics(document in any_json(), patch in any_json()) {
        let _ = json_patch(&document, &patch);
        let _ = merge_patch(&document, &patch);
    }

    /// What is added can be tested for, and removed again.
    #[test]
    fn add_then_remove_is_a_no_op(document in any_json(), value in any_json()) {
        let Value::Object(mut members) = document else { return Ok(()) };
        members.shift_remove("new");
        let document = Value::Object(members);
        let patch = json!([
            { "op": "add", "path": "/new", "value": value },
            { "op": "test", "path": "/new", "value": value },
            { "op": "copy", "from": "/new", "path": "/new" },
            { "op": "remove", "path": "/new" },
        ]);
        prop_assert_eq!(json_patch(&document, &patch).unwrap(), document);
    }

    #[test]
    fn a_merge_patch_is_idempotent(document in any_json(), patch in any_json()) {
        if let Ok(once) = merge_patch(&document, &patch) {
            prop_assert_eq!(merge_patch(&once, &patch).unwrap(), once);
        }
    }
}
