//! Schemas and strategies for tests.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use gantry_schema::{Builder, Field, ListType, MergeStrategy, Node, NodeId, Scalar, Schema, Shape};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// A schema from a short description.
///
/// A word is a scalar or `any`; `{"fields": {..}}` is a struct, `{"map": ..}` a map and
/// `{"list": ..}` a list. Next to these stand `atomic`, `open`, `default`, `keys`, `set`, and the
/// strategies of patches `merge`, `key`, `replace`.
pub(crate) fn schema(description: &Value) -> Schema {
    let mut builder = Builder::new();
    let root = add(&mut builder, description);
    builder.build(root)
}

fn add(builder: &mut Builder, description: &Value) -> NodeId {
    let flag = |name: &str| description[name].as_bool().unwrap_or(false);
    let word = description.as_str().or_else(|| description["type"].as_str());
    let shape = match word {
        Some("string") => Shape::Scalar(Scalar::String),
        Some("int") => Shape::Scalar(Scalar::Integer),
        Some("number") => Shape::Scalar(Scalar::Number),
        Some("bool") => Shape::Scalar(Scalar::Boolean),
        Some("port") => Shape::Scalar(Scalar::IntOrString),
        Some("time") => Shape::Scalar(Scalar::Untyped),
        Some("any") => Shape::Any,
        Some(other) => panic!("no such type: {other}"),
        None => {
            if let Some(values) = description.get("map") {
                Shape::Map { values: add(builder, values), atomic: flag("atomic") }
            } else if let Some(items) = description.get("list") {
                let list_type = if let Some(keys) = description["keys"].as_array() {
                    ListType::Map(keys.iter().map(|key| key.as_str().unwrap().into()).collect())
                } else if flag("set") {
                    ListType::Set
                } else {
                    ListType::Atomic
                };
                Shape::List { items: add(builder, items), list_type }
            } else {
                let fields: BTreeMap<_, _> = description["fields"]
                    .as_object()
                    .unwrap()
                    .iter()
                    .map(|(name, inner)| {
                        let merge = MergeStrategy {
                            merge: inner["merge"].as_bool().unwrap_or(false),
                            merge_key: inner["key"].as_str().map(Into::into),
                            replace: inner["replace"].as_bool().unwrap_or(false),
                            retain_keys: false,
                        };
                        (name.as_str().into(), Field { node: add(builder, inner), merge })
                    })
                    .collect();
                Shape::Struct {
                    fields,
                    atomic: flag("atomic"),
                    preserve_unknown: flag("open"),
                    embedded: false,
                }
            }
        }
    };
    builder.add(Node { shape, nullable: false, default: description.get("default").cloned() })
}

fn metadata() -> Value {
    let owner = json!({ "fields": {
        "apiVersion": "string", "kind": "string", "name": "string",
        "uid": { "type": "string", "default": "" },
        "controller": "bool", "blockOwnerDeletion": "bool",
    }, "atomic": true });
    json!({ "fields": {
        "name": "string", "namespace": "string", "generateName": "string", "uid": "string",
        "resourceVersion": "string", "generation": "int", "creationTimestamp": "time",
        "labels": { "map": "string" }, "annotations": { "map": "string" },
        "finalizers": { "list": "string", "set": true, "merge": true },
        "ownerReferences": { "list": owner, "keys": ["uid"], "merge": true, "key": "uid" },
        "managedFields": { "list": "any" },
    } })
}

fn kind(fields: &Value) -> Schema {
    let mut all = json!({ "apiVersion": "string", "kind": "string", "metadata": metadata() });
    for (name, field) in fields.as_object().unwrap() {
        all[name] = field.clone();
    }
    schema(&json!({ "fields": all }))
}

/// A ConfigMap.
pub(crate) fn config_map() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        kind(&json!({
            "data": { "map": "string" }, "binaryData": { "map": "string" }, "immutable": "bool",
        }))
    });
    &SCHEMA
}

/// A Service, as far as tests go.
pub(crate) fn service() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let port = json!({ "fields": {
            "name": "string", "port": "int", "targetPort": "port", "nodePort": "int",
            "protocol": { "type": "string", "default": "TCP" },
        } });
        kind(&json!({
            "spec": { "fields": {
                "clusterIP": "string", "clusterIPs": { "list": "string" }, "type": "string",
                "internalTrafficPolicy": "string", "sessionAffinity": "string",
                "ipFamilies": { "list": "string" }, "ipFamilyPolicy": "string",
                "ports": {
                    "list": port, "keys": ["port", "protocol"], "merge": true, "key": "port",
                },
                "selector": { "map": "string", "atomic": true },
            } },
            "status": { "fields": { "loadBalancer": { "fields": {} } } },
        }))
    });
    &SCHEMA
}

/// A Deployment, as far as tests go.
pub(crate) fn deployment() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let port = json!({ "fields": {
            "name": "string", "containerPort": "int", "hostPort": "int",
            "protocol": { "type": "string", "default": "TCP" },
        } });
        let env = json!({ "fields": { "name": "string", "value": "string" } });
        let container = json!({ "fields": {
            "name": { "type": "string", "default": "" }, "image": "string",
            "args": { "list": "string" },
            "env": { "list": env, "keys": ["name"], "merge": true, "key": "name" },
            "ports": {
                "list": port, "keys": ["containerPort", "protocol"],
                "merge": true, "key": "containerPort",
            },
            "resources": { "fields": {
                "limits": { "map": "port" }, "requests": { "map": "port" },
            } },
            "imagePullPolicy": "string",
            "terminationMessagePath": "string", "terminationMessagePolicy": "string",
        } });
        let volume = json!({ "fields": {
            "name": "string", "emptyDir": { "fields": { "medium": "string" } },
            "configMap": { "fields": { "name": "string", "defaultMode": "int" } },
        } });
        let toleration = json!({ "fields": { "key": "string", "operator": "string" } });
        let selector = json!({ "fields": { "matchLabels": { "map": "string" } }, "atomic": true });
        let condition = json!({ "fields": {
            "type": "string", "status": "string", "lastUpdateTime": "time",
            "lastTransitionTime": "time",
        } });
        kind(&json!({
            "spec": { "fields": {
                "replicas": "int", "selector": selector, "progressDeadlineSeconds": "int",
                "revisionHistoryLimit": "int", "paused": "bool",
                "strategy": { "fields": {
                    "type": "string",
                    "rollingUpdate": { "fields": { "maxSurge": "port", "maxUnavailable": "port" } },
                } },
                "template": { "fields": { "metadata": metadata(), "spec": { "fields": {
                    "containers": {
                        "list": container, "keys": ["name"], "merge": true, "key": "name",
                    },
                    "volumes": { "list": volume, "keys": ["name"], "merge": true, "key": "name" },
                    "tolerations": { "list": toleration },
                    "nodeSelector": { "map": "string", "atomic": true },
                    "dnsPolicy": "string", "restartPolicy": "string", "schedulerName": "string",
                    "securityContext": { "fields": { "runAsUser": "int" } },
                    "terminationGracePeriodSeconds": "int",
                } } } },
            } },
            "status": { "fields": {
                "observedGeneration": "int", "replicas": "int",
                "conditions": {
                    "list": condition, "keys": ["type"], "merge": true, "key": "type",
                },
            } },
        }))
    });
    &SCHEMA
}

/// A custom kind with every sort of list and map.
pub(crate) fn widget() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let item = json!({ "fields": { "k": "string", "v": "string" } });
        schema(&json!({ "fields": {
            "spec": { "fields": {
                "replicas": "int", "text": "string", "number": "number",
                "plain": { "list": "string" },
                "set": { "list": "string", "set": true },
                "map": { "list": item, "keys": ["k"] },
                "free": { "fields": {}, "open": true },
                "whole": { "map": "string", "atomic": true },
                "parts": { "map": "string" },
                "nested": { "fields": { "a": { "fields": { "b": "string", "c": "string" } } } },
            } },
            "status": { "fields": { "replicas": "int" } },
        } }))
    });
    &SCHEMA
}

/// Any JSON, of a few levels and with few names, so that two of them have something in common.
pub(crate) fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3i64..4).prop_map(Value::from),
        (0i32..8).prop_map(|quarters| Value::from(f64::from(quarters) / 4.0)),
        "[a-c<\"]{0,2}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 5, |inner| {
        let names = prop_oneof![
            "[a-d]",
            Just("metadata".to_owned()),
            Just("spec".to_owned()),
            Just("containers".to_owned()),
            Just("name".to_owned()),
            Just("finalizers".to_owned()),
            Just("managedFields".to_owned()),
            Just("$patch".to_owned()),
            Just("$retainKeys".to_owned()),
            Just("$setElementOrder/containers".to_owned()),
            Just("$deleteFromPrimitiveList/finalizers".to_owned()),
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::vec((names, inner), 0..5)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

/// The spec of a widget, with any of its fields.
pub(crate) fn any_widget() -> impl Strategy<Value = Value> {
    let letter = || "[a-d]".prop_map(Value::from);
    let letters = || prop::collection::btree_set("[a-d]", 0..4);
    let map = letters().prop_flat_map(|keys| {
        let keys: Vec<String> = keys.into_iter().collect();
        let count = keys.len();
        (Just(keys), prop::collection::vec(prop::option::of("[x-z]"), count)).prop_perturb(
            |(mut keys, values), mut random| {
                for place in (1..keys.len()).rev() {
                    keys.swap(place, usize::try_from(random.next_u32()).unwrap() % (place + 1));
                }
                keys.into_iter()
                    .zip(values)
                    .map(|(key, value)| match value {
                        Some(value) => json!({ "k": key, "v": value }),
                        None => json!({ "k": key }),
                    })
                    .collect::<Value>()
            },
        )
    });
    let texts = || {
        prop::collection::btree_map("[a-d]", "[x-z]", 1..4)
            .prop_map(|entries| entries.into_iter().map(|(k, v)| (k, Value::from(v))).collect())
    };
    let fields = (
        prop::option::of((0i64..3).prop_map(Value::from)),
        prop::option::of(letter()),
        prop::option::of(prop::collection::vec(letter(), 1..3).prop_map(Value::Array)),
        prop::option::of(letters().prop_map(|set| set.into_iter().map(Value::from).collect())),
        prop::option::of(map),
        prop::option::of(texts()),
        prop::option::of(texts()),
        prop::option::of(texts()),
    );
    fields.prop_map(|(replicas, text, plain, set, map, whole, parts, free)| {
        let mut spec = Map::new();
        let fields: [(&str, Option<Value>); 8] = [
            ("replicas", replicas),
            ("text", text),
            ("plain", plain),
            ("set", set),
            ("map", map),
            ("whole", whole),
            ("parts", parts),
            ("free", free),
        ];
        for (name, value) in fields {
            // An empty list or map is nothing that could be merged or owned in parts.
            let empty =
                value.as_ref().is_none_or(|value| value.as_array().is_some_and(Vec::is_empty));
            if !empty {
                spec.insert(name.to_owned(), value.unwrap());
            }
        }
        if spec.is_empty() {
            spec.insert("text".to_owned(), json!("x"));
        }
        json!({
            "apiVersion": "case.test/v1", "kind": "Widget",
            "metadata": { "name": "w" }, "spec": spec,
        })
    })
}
