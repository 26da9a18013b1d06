use super::*;
use crate::behaviour::{behaviour, custom};
use serde_json::json;

fn causes(faults: &[FieldError]) -> Vec<(&str, &str)> {
    faults.iter().map(|it| (it.field.as_str(), it.message.as_str())).collect()
}

#[test]
fn no_finalizer_after_deletion_began() {
    let meta = |names: Value| {
        json!({ "metadata": {
            "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "5",
            "deletionTimestamp": "2024-01-01T00:00:00Z", "finalizers": names,
        } })
    };
    let (old, new) = (meta(json!(["a.test/b"])), meta(json!(["a.test/b", "a.test/c"])));
    let (faults, _) = validate_metadata(&new, Some(&old), true, behaviour("", "configmaps"));
    let said = "Forbidden: no new finalizers can be added if the object is being deleted, found \
                new finalizers []string{\"a.test/c\"}";
    assert_eq!(causes(&faults), [("metadata.finalizers", said), ("metadata.finalizers", said)]);
    let (faults, _) = validate_metadata(&old, Some(&new), true, behaviour("", "configmaps"));
    assert_eq!(faults, [], "finalizers may go");
}

#[test]
fn custom_finalizers_give_warnings() {
    let object = |names: Value| {
        json!({ "metadata": {
            "name": "a", "namespace": "n", "resourceVersion": "1", "finalizers": names,
        } })
    };
    let table = [
        ("bare", Some(" name to")),
        ("a.test", Some(" name including a path (/) to")),
        ("a.test/b", None),
        ("orphan", None),
    ];
    for (name, expected) in table {
        let new = object(json!([name]));
        let (faults, warnings) = validate_metadata(&new, None, true, custom(true));
        assert_eq!(faults, [], "{name}");
        assert_eq!(warnings.len(), usize::from(expected.is_some()), "{name}");
        assert!(warnings.iter().all(|it| it.contains(expected.unwrap_or_default())), "{name}");
        let (_, again) = validate_metadata(&new, Some(&new), true, custom(true));
        assert_eq!(again, [""; 0], "{name} was there before");
    }
}

#[test]
fn cluster_objects_have_no_namespace_and_others_need_one() {
    let node = json!({ "metadata": { "name": "a", "namespace": "n" } });
    let (faults, _) = validate_metadata(&node, None, false, behaviour("", "nodes"));
    let said = "Forbidden: not allowed on this type";
    assert_eq!(causes(&faults), [("metadata.namespace", said)]);
    let pod = json!({ "metadata": { "name": "a" } });
    let (faults, _) = validate_metadata(&pod, None, true, behaviour("", "pods"));
    assert_eq!(causes(&faults), [("metadata.namespace", "Required value")]);
}

#[test]
fn an_update_names_its_revision_and_does_not_go_back() {
    let old = json!({ "metadata": { "name": "a", "generation": 3, "resourceVersion": "7" } });
    let new = json!({ "metadata": { "name": "a", "generation": 2 } });
    let (faults, _) = validate_metadata(&new, Some(&old), false, behaviour("policy", "none"));
    let one = [
        ("metadata.resourceVersion", "Invalid value: \"\": must be specified for an update"),
        ("metadata.generation", "Invalid value: 2: must not be decremented"),
    ];
    assert_eq!(causes(&faults), [one, one].concat());
}
