use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::fixtures;

fn pod(spec: &Value) -> Value {
    json!({ "spec": { "template": { "spec": spec } } })
}

fn two_containers() -> Value {
    pod(&json!({ "containers": [
        { "name": "a", "image": "a:1" }, { "name": "b", "image": "b:1" },
    ] }))
}

fn patched(document: &Value, patch: &Value) -> Value {
    apply(fixtures::deployment(), document, patch).unwrap()
}

fn names(object: &Value) -> Vec<&str> {
    let containers = object["spec"]["template"]["spec"]["containers"].as_array().unwrap();
    containers.iter().map(|it| it["name"].as_str().unwrap()).collect()
}

#[test]
fn elements_merge_by_key() {
    let container = |name: &str| json!({ "name": name, "image": "i" });
    let order =
        |names: &[&str]| -> Value { names.iter().map(|name| json!({ "name": name })).collect() };
    let table = [
        (
            "a merged element keeps its place",
            json!({ "containers": [container("b")] }),
            vec!["a", "b"],
        ),
        (
            "a new element comes first",
            json!({ "containers": [container("c")] }),
            vec!["c", "a", "b"],
        ),
        (
            "a new one goes before what only the server has",
            json!({ "containers": [container("c"), container("b")] }),
            vec!["c", "a", "b"],
        ),
        ("delete", json!({ "containers": [{ "name": "a", "$patch": "delete" }] }), vec!["b"]),
        (
            "delete what is not there",
            json!({ "containers": [{ "name": "z", "$patch": "delete" }] }),
            vec!["a", "b"],
        ),
        ("replace", json!({ "containers": [container("c"), { "$patch": "replace" }] }), vec!["c"]),
        ("order", json!({ "$setElementOrder/containers": order(&["b", "a"]) }), vec!["b", "a"]),
        (
            "order and append",
            json!({ "$setElementOrder/containers": order(&["a", "b", "c"]), "containers": [container("c")] }),
            vec!["a", "b", "c"],
        ),
        (
            "others keep their place",
            json!({ "$setElementOrder/containers": order(&["c", "b"]), "containers": [container("c")] }),
            vec!["c", "a", "b"],
        ),
        (
            "order and delete",
            json!({ "$setElementOrder/containers": order(&["b"]), "containers": [{ "name": "a", "$patch": "delete" }] }),
            vec!["b"],
        ),
    ];
    for (why, patch, expected) in table {
        assert_eq!(names(&patched(&two_containers(), &pod(&patch))), expected, "{why}");
    }
}

#[test]
fn what_is_inside_elements_merges_too() {
    let with_env = |env: Value| pod(&json!({ "containers": [{ "name": "b", "env": env }] }));
    let once = patched(&two_containers(), &with_env(json!([{ "name": "E", "value": "1" }])));
    let twice = patched(&once, &with_env(json!([{ "name": "F", "value": "2" }])));
    let container = &twice["spec"]["template"]["spec"]["containers"][1];
    assert_eq!(container["image"], "b:1");
    let env = json!([{ "name": "F", "value": "2" }, { "name": "E", "value": "1" }]);
    assert_eq!(container["env"], env);
}

#[test]
fn maps_lists_and_directives() {
    let document = json!({
        "metadata": { "labels": { "a": "1" }, "finalizers": ["a", "b"] },
        "spec": {
            "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1 } },
            "template": { "spec": {
                "tolerations": [{ "key": "a" }, { "key": "b" }],
                "volumes": [{ "name": "v", "emptyDir": {} }],
            } },
        },
    });
    let metadata = |change: Value| json!({ "metadata": change });
    let table = [
        (
            "maps merge",
            metadata(json!({ "labels": { "b": "2" } })),
            "/metadata/labels",
            json!({ "a": "1", "b": "2" }),
        ),
        (
            "null deletes",
            metadata(json!({ "labels": { "a": null } })),
            "/metadata/labels",
            json!({}),
        ),
        (
            "replace a map",
            metadata(json!({ "labels": { "$patch": "replace", "c": "3" } })),
            "/metadata/labels",
            json!({ "c": "3" }),
        ),
        (
            "empty a map",
            metadata(json!({ "labels": { "$patch": "delete" } })),
            "/metadata/labels",
            json!({}),
        ),
        (
            "a set of scalars, the patch first",
            metadata(json!({ "finalizers": ["c", "a"] })),
            "/metadata/finalizers",
            json!(["c", "a", "b"]),
        ),
        (
            "delete scalars",
            metadata(json!({ "$deleteFromPrimitiveList/finalizers": ["a", "z"] })),
            "/metadata/finalizers",
            json!(["b"]),
        ),
        (
            "delete scalars of nothing",
            metadata(json!({ "$deleteFromPrimitiveList/ownerReferences": ["a"] })),
            "/metadata/finalizers",
            json!(["a", "b"]),
        ),
        (
            "order scalars",
            metadata(
                json!({ "$setElementOrder/finalizers": ["b", "c", "a"], "finalizers": ["c"] }),
            ),
            "/metadata/finalizers",
            json!(["b", "c", "a"]),
        ),
        (
            "a new map has no nulls",
            metadata(json!({ "annotations": { "a": null, "b": "1" } })),
            "/metadata/annotations",
            json!({ "b": "1" }),
        ),
        (
            "lists without key are replaced",
            pod(&json!({ "tolerations": [{ "key": "c" }] })),
            "/spec/template/spec/tolerations",
            json!([{ "key": "c" }]),
        ),
        (
            "retain keys in an element",
            pod(
                &json!({ "volumes": [{ "name": "v", "$retainKeys": ["name", "configMap"], "configMap": { "name": "m" } }] }),
            ),
            "/spec/template/spec/volumes",
            json!([{ "name": "v", "configMap": { "name": "m" } }]),
        ),
        (
            "retain keys in a struct",
            json!({ "spec": { "strategy": { "$retainKeys": ["type"], "type": "Recreate" } } }),
            "/spec/strategy",
            json!({ "type": "Recreate" }),
        ),
    ];
    for (why, patch, path, expected) in table {
        assert_eq!(patched(&document, &patch).pointer(path), Some(&expected), "{why}");
    }
    assert_eq!(patched(&document, &Value::Null), document);
    let gone = patched(&json!({}), &metadata(json!({ "labels": { "$patch": "delete" } })));
    assert_eq!(gone, json!({ "metadata": {} }), "a directive is no value");
}

#[test]
fn errors_match_upstream() {
    use StrategicError::{BadPatch, Failed, Unprocessable};
    let failed = |text: &str| Failed(text.to_owned());
    let bad = |text: &str| BadPatch(text.to_owned());
    let containers = |containers: Value| pod(&json!({ "containers": containers }));
    let finalizers = |name: &str, value: Value| json!({ "metadata": { name: value } });
    let table = [
        (
            containers(json!([{ "image": "q" }])),
            failed("map: map[image:q] does not contain declared merge key: name"),
        ),
        (
            containers(json!([{ "name": "a", "$patch": "zap" }])),
            failed("unknown patch type: zap in map: map[$patch:zap name:a]"),
        ),
        (
            containers(json!([{ "name": "a", "$patch": "merge" }])),
            failed("merging lists cannot yet be specified in the patch"),
        ),
        (
            json!({ "spec": { "$patch": "zap" } }),
            failed("unknown patch type: zap in map: map[$patch:zap]"),
        ),
        (
            pod(
                &json!({ "$setElementOrder/containers": [{ "name": "b" }], "containers": [{ "name": "d", "image": "d" }] }),
            ),
            failed(
                "The order in patch list:\n[map[image:d name:d]]\n doesn't match $setElementOrder list:\n[map[name:b]]\n",
            ),
        ),
        (
            pod(&json!({ "$setElementOrder/containers": {} })),
            failed("expected a []interface {}, but received a map[string]interface {}"),
        ),
        (
            pod(&json!({ "$setElementOrder": [] })),
            bad("invalid patch format of setElementOrder list"),
        ),
        (
            finalizers("$deleteFromPrimitiveList", json!([])),
            bad("invalid patch format of primitive list"),
        ),
        (json!({ "spec": { "$retainKeys": 1 } }), bad("invalid patch format of retainKeys")),
        (
            json!({ "spec": { "$retainKeys": ["template"], "paused": true } }),
            bad("invalid patch format of retainKeys"),
        ),
        (
            finalizers("finalizers", json!(["a", 1])),
            failed("list element types are not identical: [[a] [a 1]]"),
        ),
        (
            finalizers("finalizers", json!([["a"]])),
            failed("list element types are not identical: [[a] [[a]]]"),
        ),
        (
            json!([]),
            bad("json: cannot unmarshal array into Go value of type map[string]interface {}"),
        ),
    ];
    let mut document = two_containers();
    document["metadata"] = json!({ "finalizers": ["a"] });
    for (patch, error) in table {
        assert_eq!(apply(fixtures::deployment(), &document, &patch), Err(error), "{patch}");
    }
    document["metadata"] = json!({ "finalizers": [["a"]] });
    let patch = finalizers("finalizers", json!([["a"]]));
    let error = Unprocessable("lists of lists are not supported".to_owned());
    assert_eq!(apply(fixtures::deployment(), &document, &patch), Err(error));
}

/// What a client sends to turn one list of containers into another: what to delete and what to
/// set, and the order it wants.
fn difference(from: &[(String, String)], to: &[(String, String)]) -> Value {
    let mut containers = Vec::new();
    for (name, image) in to {
        if !from.iter().any(|it| it == &(name.clone(), image.clone())) {
            containers.push(json!({ "name": name, "image": image }));
        }
    }
    for (name, _) in from {
        if !to.iter().any(|(other, _)| other == name) {
            containers.push(json!({ "name": name, "$patch": "delete" }));
        }
    }
    let order: Vec<Value> = to.iter().map(|(name, _)| json!({ "name": name })).collect();
    let mut spec = json!({ "$setElementOrder/containers": order });
    if !containers.is_empty() {
        spec["containers"] = containers.into();
    }
    pod(&spec)
}

fn any_containers() -> impl Strategy<Value = Vec<(String, String)>> {
    prop::collection::btree_map("[a-e]", "[x-z]", 1..5)
        .prop_map(|them| them.into_iter().collect::<Vec<_>>())
        .prop_shuffle()
}

fn listed(containers: &[(String, String)]) -> Value {
    let containers: Vec<Value> =
        containers.iter().map(|(name, image)| json!({ "name": name, "image": image })).collect();
    pod(&json!({ "containers": containers }))
}

proptest! {
    #[test]
    fn a_difference_reproduces_its_target(from in any_containers(), to in any_containers()) {
        prop_assert_eq!(patched(&listed(&from), &difference(&from, &to)), listed(&to));
    }

    /// What others added in the meantime stays.
    #[test]
    fn a_difference_leaves_others_alone(from in any_containers(), to in any_containers()) {
        let mut live = from.clone();
        live.push(("other".to_owned(), "x".to_owned()));
        let after = patched(&listed(&live), &difference(&from, &to));
        let mut kept = names(&after);
        prop_assert!(kept.contains(&"other"));
        kept.retain(|name| *name != "other");
        let wanted: Vec<&str> = to.iter().map(|(name, _)| name.as_str()).collect();
        prop_assert_eq!(kept, wanted);
    }

    #[test]
    fn nothing_panics(document in fixtures::any_json(), patch in fixtures::any_json()) {
        for schema in [fixtures::deployment(), fixtures::widget(), fixtures::config_map()] {
            let _ = apply(schema, &document, &patch);
            let wrapped = |value: &Value| json!({
                "metadata": { "finalizers": value }, "spec": { "template": { "spec": value } },
            });
            let _ = apply(schema, &wrapped(&document), &wrapped(&patch));
        }
    }
}
