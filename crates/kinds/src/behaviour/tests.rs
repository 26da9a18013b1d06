use super::*;
use serde_json::json;

fn updated(behaviour: &Behaviour, old: &Value, new: Value, part: SubresourceKind) -> Value {
    let mut new = new;
    behaviour.prepare_update(&mut new, old, part, "now");
    new
}

#[test]
fn custom_generation_follows_content() {
    let old = json!({ "metadata": { "generation": 1 }, "spec": { "a": 1 }, "status": { "s": 1 } });
    let table = [
        (
            "labels",
            json!({ "metadata": { "labels": { "l": "1" } }, "spec": { "a": 1 }, "status": { "s": 1 } }),
            1,
            1,
        ),
        ("spec", json!({ "metadata": {}, "spec": { "a": 2 }, "status": { "s": 1 } }), 2, 2),
        ("status", json!({ "metadata": {}, "spec": { "a": 1 }, "status": { "s": 2 } }), 1, 2),
        (
            "another field",
            json!({ "metadata": {}, "spec": { "a": 1 }, "status": { "s": 1 }, "x": {} }),
            2,
            2,
        ),
        (
            "nothing",
            json!({ "metadata": { "generation": 9 }, "spec": { "a": 1 }, "status": { "s": 1 } }),
            1,
            1,
        ),
    ];
    for (why, new, with, without) in table {
        let one = updated(custom(true), &old, new.clone(), SubresourceKind::Main);
        assert_eq!(one["metadata"]["generation"], with, "{why}, with a status");
        assert_eq!(one["status"], old["status"], "{why}: the status is not touched");
        let other = updated(custom(false), &old, new, SubresourceKind::Main);
        assert_eq!(other["metadata"]["generation"], without, "{why}, without a status");
    }
}

#[test]
fn the_status_of_a_custom_object_changes_alone() {
    let old = json!({ "metadata": { "name": "a", "generation": 1, "uid": "u", "resourceVersion": "3" },
        "spec": { "a": 1 } });
    let new = json!({ "metadata": { "name": "a", "labels": { "l": "1" }, "resourceVersion": "2",
        "managedFields": [1] }, "spec": { "a": 2 }, "status": { "s": 1 } });
    let changed = updated(custom(true), &old, new, SubresourceKind::Status);
    let expected = json!({ "metadata": { "name": "a", "generation": 1, "uid": "u",
        "resourceVersion": "2", "managedFields": [1] }, "spec": { "a": 1 }, "status": { "s": 1 } });
    assert_eq!(
        changed, expected,
        "the revision stays the caller's: it is what conflicts are found by"
    );
}

#[test]
fn creation_drops_the_given_status() {
    let object = json!({ "metadata": { "generation": 7 }, "spec": {}, "status": { "s": 1 } });
    let table = [
        (custom(true), json!({ "metadata": { "generation": 1 }, "spec": {} })),
        (
            custom(false),
            json!({ "metadata": { "generation": 1 }, "spec": {}, "status": { "s": 1 } }),
        ),
        (behaviour("", "nodes"), object.clone()),
    ];
    for (behaviour, expected) in table {
        let mut made = object.clone();
        behaviour.prepare_create(&mut made, "now");
        assert_eq!(made, expected);
    }
}

#[test]
fn server_metadata_is_preserved() {
    let old = json!({ "metadata": { "uid": "u", "creationTimestamp": "then",
        "deletionTimestamp": "soon", "deletionGracePeriodSeconds": 5 } });
    let new = json!({ "metadata": { "creationTimestamp": "mine", "selfLink": "/mine" } });
    let kept = updated(behaviour("", "configmaps"), &old, new, SubresourceKind::Main);
    assert_eq!(kept, old);
}

#[test]
fn a_resize_changes_resources_and_nothing_else() {
    let pod = |image: &str, cpu: &str, label: &str| {
        json!({ "metadata": { "generation": 1, "labels": { "l": label } }, "spec": { "containers": [
            { "name": "c", "image": image, "resources": { "limits": { "cpu": cpu } } },
        ] } })
    };
    let old = pod("a", "1", "x");
    let new = updated(behaviour("", "pods"), &old, pod("b", "2", "y"), SubresourceKind::Resize);
    let mut expected = pod("a", "2", "x");
    expected["metadata"]["generation"] = json!(2);
    assert_eq!(new, expected);
}

#[test]
fn subresources_are_parsed_by_name() {
    for (name, part) in [
        ("", Some(SubresourceKind::Main)),
        ("status", Some(SubresourceKind::Status)),
        ("log", None),
    ] {
        assert_eq!(SubresourceKind::of(name), part);
    }
}
