//! What a real server of version 1.34 recorded, write by write.

use super::*;
use crate::fixtures;

/// Runs every recorded write and compares the entries, and for applies the lists, to the record.
fn replay(schema: &'static Schema, empty: &Value, record: &str) {
    let steps: Vec<Value> = serde_json::from_str(record).unwrap();
    for step in &steps {
        let why = step["why"].as_str().unwrap();
        let (before, after) = (&step["before"], &step["after"]);
        let live = (!before.is_null()).then_some(before);
        let mut reset = FieldSet::new();
        let subresource = step["subresource"].as_str().unwrap_or_default();
        if subresource.is_empty() {
            reset.insert(&Path::fields(&["status"]).0);
        } else {
            reset.insert(&Path::fields(&["spec"]).0);
        }
        let context = Context {
            schema,
            api_version: after["apiVersion"].as_str().unwrap(),
            manager: step["manager"].as_str().unwrap(),
            subresource,
            now: step["now"].as_str().unwrap(),
            reset_fields: &reset,
            empty,
            versions: &SingleVersion,
        };
        let result = if step["how"] == "apply" {
            apply(&context, live, &step["config"], step["force"] == true).unwrap()
        } else {
            let mut new = after.clone();
            new["metadata"].as_object_mut().unwrap().remove("managedFields");
            // What the server assigns once ownership is settled.
            for name in step["assigned"].as_array().into_iter().flatten() {
                new["spec"].as_object_mut().unwrap().remove(name.as_str().unwrap());
            }
            update(&context, live, &mut new).unwrap();
            new
        };
        let entries = |object: &Value| object["metadata"]["managedFields"].clone();
        assert_eq!(entries(&result), entries(after), "{why}");
        for list in ["/spec/map", "/spec/set", "/metadata/finalizers", "/spec/nested"] {
            assert_eq!(result.pointer(list), after.pointer(list), "{why}: {list}");
        }
    }
}

#[test]
fn config_maps_are_owned_as_on_a_real_server() {
    let empty = json!({ "metadata": {} });
    replay(fixtures::config_map(), &empty, include_str!("golden/config-map.json"));
}

#[test]
fn deployments_are_owned_as_on_a_real_server() {
    let empty = json!({
        "metadata": {},
        "spec": {
            "selector": null, "strategy": {},
            "template": { "metadata": {}, "spec": { "containers": null } },
        },
        "status": {},
    });
    replay(fixtures::deployment(), &empty, include_str!("golden/deployment.json"));
}

#[test]
fn services_are_owned_as_on_a_real_server() {
    let empty = json!({ "metadata": {}, "spec": {}, "status": { "loadBalancer": {} } });
    replay(fixtures::service(), &empty, include_str!("golden/service.json"));
}

#[test]
fn custom_objects_are_owned_as_on_a_real_server() {
    let empty = json!({ "apiVersion": "patch.case.test/v1", "kind": "Widget" });
    replay(fixtures::widget(), &empty, include_str!("golden/widget.json"));
}

#[test]
fn scales_are_owned_as_on_a_real_server() {
    let record: Value = serde_json::from_str(include_str!("golden/scale.json")).unwrap();
    let schema = fixtures::schema(&json!({ "fields": {
        "spec": { "fields": { "replicas": "int" } },
        "status": { "fields": { "replicas": "int", "selector": "string" } },
    } }));
    let parent = scale::Parent {
        api_version: "apps/v1",
        replicas: &[("apps/v1", Some(Path::fields(&["spec", "replicas"])))],
    };
    let empty = json!({ "metadata": {}, "spec": {}, "status": { "replicas": 0 } });
    let reset = FieldSet::new();
    let object = |replicas: u32, entries: Option<Value>| {
        let mut object = json!({
            "apiVersion": scale::API_VERSION, "kind": "Scale",
            "metadata": { "name": "f", "namespace": "case", "uid": "u" },
            "spec": { "replicas": replicas }, "status": { "replicas": 0 },
        });
        if let Some(entries) = entries {
            object["metadata"]["managedFields"] = entries;
        }
        object
    };
    let context = |manager| Context {
        schema: &schema,
        api_version: scale::API_VERSION,
        manager,
        subresource: "scale",
        now: NOW,
        reset_fields: &reset,
        empty: &empty,
        versions: &SingleVersion,
    };
    let written = |from: &Value, manager, was, is| {
        let live = object(was, parent.to_scale(from).unwrap());
        let mut scale = object(is, None);
        update(&context(manager), Some(&live), &mut scale).unwrap();
        parent.to_parent(from, &scale["metadata"]["managedFields"]).unwrap().unwrap()
    };
    assert_eq!(written(&record["before"], "s", 1, 2), record["changed"]);
    assert_eq!(written(&record["changed"], "s", 2, 3), record["again"]);
    assert_eq!(written(&record["before"], "s", 1, 1), record["before"], "nothing changes");

    let live = object(3, parent.to_scale(&record["again"]).unwrap());
    let config = json!({
        "apiVersion": scale::API_VERSION, "kind": "Scale",
        "metadata": { "name": "f", "namespace": "case" }, "spec": { "replicas": 6 },
    });
    let message = "Apply failed with 1 conflict: conflict with \"s\" with subresource \"scale\" \
                   using autoscaling/v1: .spec.replicas";
    let refused = apply(&context("p"), Some(&live), &config, false).unwrap_err();
    assert_eq!(refused.to_string(), message);
    let scale = apply(&context("p"), Some(&live), &config, true).unwrap();
    let entries = parent.to_parent(&record["again"], &scale["metadata"]["managedFields"]).unwrap();
    assert_eq!(entries.unwrap(), record["applied"]);
}
