//! Creates, updates and patches.

use super::*;
use crate::fixtures;

fn fixture() -> OwnershipFixture {
    OwnershipFixture::new(fixtures::config_map(), "v1")
}

#[test]
fn writes_take_ownership() {
    let mut story = fixture();
    let made = story.update("tool", &config_map(&json!({ "a": "x" })));
    assert_eq!(owned(&made, "tool"), json!({ "f:data": { ".": {}, "f:a": {} } }));
    let answer = story.patch("other", &json!({ "data": { "b": "y" } }));
    assert_eq!(owned(&answer, "other"), json!({ "f:data": { "f:b": {} } }));
    let answer = story.patch("other", &json!({ "data": { "a": "taken" } }));
    assert_eq!(owned(&answer, "other"), json!({ "f:data": { "f:a": {}, "f:b": {} } }));
    assert_eq!(owned(&answer, "tool"), json!({ "f:data": {} }));
    let answer = story.patch("third", &json!({ "data": null }));
    assert_eq!(answer["metadata"].get("managedFields"), None);
}

#[test]
fn times_change_only_with_what_is_owned() {
    let mut story = fixture();
    let made = story.update("tool", &config_map(&json!({ "a": "x" })));
    story.now = "2027-01-01T00:00:00Z".to_owned();
    assert_eq!(story.patch("tool", &json!({ "data": { "a": "x" } })), made);
    let answer = story.patch("other", &json!({ "data": { "b": "y" } }));
    assert_eq!(entry(&answer, "tool")["time"], NOW);
    assert_eq!(entry(&answer, "other")["time"], "2027-01-01T00:00:00Z");
}

#[test]
fn clients_may_reset_and_set_entries() {
    let mut story = fixture();
    let made = story.update("u", &config_map(&json!({ "a": "x" })));
    let mut object = made;
    object["metadata"]["managedFields"] = json!([{}]);
    assert_eq!(story.update("u", &object)["metadata"].get("managedFields"), None);
    let fields = json!({ "f:data": { "f:a": {} } });
    let mine = json!({ "metadata": { "managedFields": [{
        "manager": "chosen", "operation": "Update", "apiVersion": "v1",
        "time": "1999-01-01T02:00:00.5+02:00", "fieldsType": "FieldsV1", "fieldsV1": fields,
    }] } });
    let answer = story.patch("u", &mine);
    assert_eq!(owned(&answer, "chosen"), fields);
    assert_eq!(entry(&answer, "chosen")["time"], "1999-01-01T00:00:00Z");
    // What cannot be read is as if it had not been sent.
    let wrongs = [
        json!([{ "manager": "m", "operation": "Other", "apiVersion": "v1",
            "fieldsType": "FieldsV1", "fieldsV1": {} }]),
        json!([{ "manager": "m", "operation": "Update", "fieldsType": "FieldsV1" }]),
        json!([{ "manager": "m", "operation": "Update", "apiVersion": "v1" }]),
        json!([{ "manager": "m", "operation": "Update", "apiVersion": "v1",
            "fieldsType": "FieldsV1", "fieldsV1": { "nothing": {} } }]),
        json!([7, 8]),
    ];
    for wrong in wrongs {
        let change = json!({ "metadata": { "managedFields": wrong } });
        assert_eq!(story.patch("u", &change), answer, "{wrong}");
    }
}

#[test]
fn entries_sent_to_a_subresource_are_ignored() {
    let mut story = fixture();
    let made = story.update("u", &config_map(&json!({ "a": "x" })));
    story.subresource = "status";
    assert_eq!(story.patch("u", &json!({ "metadata": { "managedFields": [{}] } })), made);
}

#[test]
fn the_oldest_writers_are_merged() {
    let mut story = fixture();
    story.update("u00", &config_map(&json!({ "a": "x" })));
    for index in 1..=12 {
        story.now = format!("2026-02-02T03:04:{index:02}Z");
        story.patch(&format!("u{index:02}"), &json!({ "data": { format!("k{index:02}"): "x" } }));
    }
    let live = story.live.unwrap();
    let entries = live["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(entries.len(), 10);
    assert_eq!(entries[0]["manager"], "ancient-changes");
    assert_eq!(entries[0]["time"], "2026-02-02T03:04:03Z");
    let merged = json!({ "f:data": { ".": {}, "f:a": {}, "f:k01": {}, "f:k02": {}, "f:k03": {} } });
    assert_eq!(entries[0]["fieldsV1"], merged);
}

#[test]
fn entries_of_removed_versions_go() {
    let mut story = fixture();
    story.update("u", &config_map(&json!({ "a": "x" })));
    let live = story.live.as_mut().unwrap();
    live["metadata"]["managedFields"][0]["apiVersion"] = json!("v0");
    let answer = story.patch("w", &json!({ "data": { "b": "y" } }));
    assert_eq!(owned(&answer, "u"), Value::Null);
    assert_eq!(owned(&answer, "w"), json!({ "f:data": { "f:b": {} } }));
}

/// Two versions of a widget that differ in the name of one field.
struct Renamed;

impl VersionConverter for Renamed {
    fn schema(&self, api_version: &str) -> Option<&Schema> {
        matches!(api_version, "case.test/v1" | "case.test/v2").then(fixtures::widget)
    }

    fn convert(&self, object: &Value, api_version: &str) -> Option<Value> {
        let mut object = object.clone();
        object["apiVersion"] = json!(api_version);
        let (from, to) =
            if api_version == "case.test/v2" { ("text", "number") } else { ("number", "text") };
        if let Some(spec) = object["spec"].as_object_mut()
            && let Some(value) = spec.remove(from)
        {
            let value = if to == "number" { json!(1) } else { value };
            spec.insert(to.to_owned(), value);
        }
        Some(object)
    }
}

#[test]
fn entries_of_another_version_lose_what_changes_in_it() {
    let story = OwnershipFixture::new(fixtures::widget(), "case.test/v1");
    let context = Context { versions: &Renamed, ..story.context("m") };
    let live = json!({
        "apiVersion": "case.test/v1", "kind": "Widget",
        "metadata": { "name": "w", "uid": "u", "managedFields": [{
            "manager": "old", "operation": "Update", "apiVersion": "case.test/v2",
            "fieldsType": "FieldsV1", "fieldsV1": { "f:spec": { "f:number": {}, "f:replicas": {} } },
        }] },
        "spec": { "text": "a", "replicas": 1 },
    });
    let mut new = live.clone();
    new["spec"].as_object_mut().unwrap().remove("text");
    update(&context, Some(&live), &mut new).unwrap();
    assert_eq!(owned(&new, "old"), json!({ "f:spec": { "f:replicas": {} } }));
}

#[test]
fn apply_entry_survives_versions() {
    let story = OwnershipFixture::new(fixtures::widget(), "case.test/v1");
    let context = Context { versions: &Renamed, ..story.context("m") };
    let live = json!({
        "apiVersion": "case.test/v1", "kind": "Widget",
        "metadata": { "name": "w", "uid": "u", "managedFields": [{
            "manager": "m", "operation": "Apply", "apiVersion": "case.test/v2",
            "fieldsType": "FieldsV1", "fieldsV1": { "f:spec": { "f:number": {}, "f:replicas": {} } },
        }] },
        "spec": { "text": "a", "replicas": 1 },
    });
    let config = json!({
        "apiVersion": "case.test/v1", "kind": "Widget", "metadata": { "name": "w" },
        "spec": { "replicas": 1 },
    });
    let answer = apply(&context, Some(&live), &config, false).unwrap();
    assert_eq!(answer["spec"], json!({ "replicas": 1 }), "the renamed field is released");
    let entries = answer["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0]["apiVersion"], "case.test/v1");
}

#[test]
fn a_list_that_became_atomic_is_owned_as_a_whole() {
    let mut story = OwnershipFixture::new(fixtures::widget(), "case.test/v1");
    story.live = Some(json!({
        "apiVersion": "case.test/v1", "kind": "Widget",
        "metadata": { "name": "w", "uid": "u", "managedFields": [{
            "manager": "m", "operation": "Update", "apiVersion": "case.test/v1",
            "fieldsType": "FieldsV1",
            "fieldsV1": { "f:spec": { "f:plain": { ".": {}, "v:\"a\"": {} } } },
        }] },
        "spec": { "plain": ["a"] },
    }));
    let answer = story.patch("other", &json!({ "spec": { "text": "t" } }));
    assert_eq!(owned(&answer, "m"), json!({ "f:spec": { "f:plain": {} } }));
}

#[test]
fn type_errors_are_returned() {
    let story = fixture();
    let context = story.context("m");
    let mut live = config_map(&json!({ "a": "x" }));
    live["metadata"]["finalizers"] = json!(["a"]);
    live["metadata"]["uid"] = json!("u");
    let mut new = live.clone();
    new["metadata"]["finalizers"] = json!([{}]);
    let answer = update(&context, Some(&live), &mut new);
    assert_eq!(answer, Ok(()), "an object that is not tracked is not looked at");
    live["metadata"]["managedFields"] = json!([{
        "manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "fieldsV1": { "f:data": {} },
    }]);
    new["metadata"]["managedFields"] = live["metadata"]["managedFields"].clone();
    let error = update(&context, Some(&live), &mut new).unwrap_err();
    assert_eq!(new["metadata"].get("managedFields"), None);
    let source = std::error::Error::source(&error).unwrap().to_string();
    let text = ".metadata.finalizers: element 0: associative list without keys has an element \
                that's a map type";
    assert_eq!(source, text);
}
