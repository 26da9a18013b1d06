use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::types::kind_type;

fn pod(value: Value) -> DecodedObject {
    read(kind_type("", "v1", "Pod").unwrap(), value).unwrap()
}

#[test]
fn fields_leave_in_the_order_of_their_declaration() {
    let read = pod(json!({
        "status": {}, "spec": {"containers": [{"image": "i", "name": "c"}], "nodeName": "n"},
        "metadata": {"uid": "u", "name": "p"}, "apiVersion": "v1", "kind": "Pod",
    }));
    let expected = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","uid":"u"},"spec":{"containers":[{"name":"c","image":"i","resources":{}}],"nodeName":"n"},"status":{}}"#;
    assert_eq!(read.value.to_string(), expected);
    assert_eq!(read.unknown, Vec::<String>::new());
}

#[test]
fn unknown_fields_are_reported_up_to_a_bound() {
    let fields: Map<String, Value> = (0..300).map(|n| (format!("x{n}"), Value::from(n))).collect();
    let read = pod(Value::Object(fields));
    assert_eq!(read.unknown.len(), MAX_UNKNOWN_FIELDS);
    assert_eq!(read.unknown[0], "x0");
}

#[test]
fn what_is_not_an_object_is_refused() {
    let pod = kind_type("", "v1", "Pod").unwrap();
    let fault = read(pod, json!([1])).unwrap_err();
    assert_eq!(fault.to_string(), "json: cannot unmarshal array into Go value of type v1.Pod");
}

/// A random tree that looks enough like a pod to reach deep into its types.
fn any_tree() -> impl Strategy<Value = Value> {
    let names = [
        "metadata",
        "spec",
        "status",
        "containers",
        "labels",
        "name",
        "ports",
        "containerPort",
        "env",
        "resources",
        "limits",
        "volumes",
        "creationTimestamp",
        "httpGet",
        "port",
        "livenessProbe",
        "zzz",
        "emptyDir",
        "sizeLimit",
        "finalizers",
        "startTime",
        "nodeSelector",
        "cpu",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        Just(json!("")),
        Just(json!("1.5Gi")),
        Just(json!("2020-01-01T00:00:00Z")),
        Just(json!({})),
        Just(json!([])),
    ];
    leaf.prop_recursive(6, 64, 4, move |inner| {
        let key = prop::sample::select(names.to_vec()).prop_map(str::to_owned);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..5)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

proptest! {
    /// Reading is idempotent for every tree that can be read.
    #[test]
    fn reading_again_changes_nothing(tree in any_tree()) {
        let id = kind_type("", "v1", "Pod").unwrap();
        if let Ok(once) = read(id, tree) {
            let again = read(id, once.value.clone()).unwrap();
            prop_assert_eq!(again.value.to_string(), once.value.to_string());
            prop_assert_eq!(again.unknown, Vec::<String>::new());
        }
    }
}
