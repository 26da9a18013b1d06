//! Compares rows and columns with those that kube-apiserver printed, and tests them on random
//! objects.
//!
//! `tests/print` was recorded from kube-apiserver v1.34.10: `columns.json` by listing every kind as
//! a table, `builtin.json` and `custom.json` by reading objects once as they are and once as
//! tables, both within the second that is noted as `now`.

use std::path::Path;

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// The kinds and their columns in kube-apiserver, one entry for each kind that it lists.
fn recorded_columns() -> serde_json::Map<String, Value> {
    let Value::Object(kinds) = recorded("columns.json") else { panic!("a map") };
    kinds
}

fn recorded(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/print").join(name);
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn at(entry: &Value) -> Timestamp {
    Timestamp::from_second(entry["now"].as_i64().unwrap()).unwrap()
}

/// Where the cells of one row differ, for a message that can be read.
fn differences(columns: &[Column], expected: &Value, cells: &[Value]) -> Vec<String> {
    let expected = expected.as_array().unwrap();
    let mut found = Vec::new();
    if expected.len() != cells.len() {
        found.push(format!("{} cells, not {}", cells.len(), expected.len()));
    }
    for (place, (expected, cell)) in expected.iter().zip(cells).enumerate() {
        if expected != cell {
            let column = columns.get(place).map_or("(none)", |it| &it.name);
            found.push(format!("{place} {column}: {cell}, not {expected}"));
        }
    }
    found
}

#[test]
fn columns_are_those_of_a_real_server() {
    for (kind, expected) in recorded_columns() {
        let (group, resource) = kind.split_once('/').unwrap();
        let columns: Vec<Value> = columns(group, resource).iter().map(Column::to_json).collect();
        assert_eq!(Value::from(columns), expected, "{kind}");
    }
    let columns: Vec<Value> = default_columns().iter().map(Column::to_json).collect();
    assert_eq!(Value::from(columns), recorded_columns()["/limitranges"]);
}

#[test]
fn rows_are_those_of_a_real_server() {
    let entries = recorded("builtin.json");
    let entries = entries.as_array().unwrap();
    assert!(entries.len() >= 140, "{} objects", entries.len());
    let mut wrong = Vec::new();
    for entry in entries {
        let (group, resource) =
            (entry["group"].as_str().unwrap(), entry["resource"].as_str().unwrap());
        let row = row(group, resource, &entry["object"], at(entry));
        let columns = columns(group, resource);
        let name = &entry["object"]["metadata"]["name"];
        for found in differences(columns, &entry["cells"], &row.cells) {
            wrong.push(format!("{resource} {name}: {found}"));
        }
        assert_eq!(Value::from(row.conditions), entry["conditions"], "{resource} {name}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Each listed kind is among the recorded objects, except those that the recording server had no
/// objects of.
#[test]
fn every_kind_has_a_recorded_row() {
    let entries = recorded("builtin.json");
    let has = |kind: &str| {
        entries.as_array().unwrap().iter().any(|it| {
            let (group, resource) = (it["group"].as_str(), it["resource"].as_str());
            group.zip(resource).is_some_and(|(group, it)| format!("{group}/{it}") == kind)
        })
    };
    let kinds = recorded_columns();
    let missing: Vec<&String> = kinds.keys().filter(|it| !has(it)).collect();
    assert_eq!(missing, ["/componentstatuses", "apiextensions.k8s.io/customresourcedefinitions"],);
}

#[test]
fn custom_rows_are_those_of_a_real_server() {
    let mut wrong = Vec::new();
    for entry in recorded("custom.json").as_array().unwrap() {
        let custom = CustomColumns::compile(&entry["declared"]).unwrap_or_else(|it| it.usable);
        let columns: Vec<Value> = custom.columns().iter().map(Column::to_json).collect();
        assert_eq!(Value::from(columns), entry["columns"], "{}", entry["declared"]);
        for recorded in entry["rows"].as_array().unwrap() {
            let row = custom.row(&recorded["object"], at(entry));
            let name = &recorded["object"]["metadata"]["name"];
            for found in differences(custom.columns(), &recorded["cells"], &row.cells) {
                wrong.push(format!("{name}: {found}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// One cell of an object's row, by the heading.
fn cell(group: &str, resource: &str, heading: &str, object: &Value) -> Value {
    let now = "2026-05-01T12:00:00Z".parse().unwrap();
    let place = columns(group, resource).iter().position(|it| it.name == heading).unwrap();
    row(group, resource, object, now).cells.swap_remove(place)
}

/// States that the recording server would not store, or that would have disturbed it.
#[test]
fn cells_of_rare_states() {
    let default = json!({ "metadata": { "name": "a", "annotations": {
        "storageclass.kubernetes.io/is-default-class": "true",
    } } });
    let healthy = |status| {
        json!({ "conditions": [
        { "type": "Healthy", "status": status, "message": "m", "error": "e" },
    ] })
    };
    let available = |status, reason| {
        json!({
            "spec": { "service": { "namespace": "n", "name": "s" } },
            "status": { "conditions": [{ "type": "Available", "status": status, "reason": reason }] },
        })
    };
    let issued = json!({ "status": {
        "certificate": "AAAA",
        "conditions": [{ "type": "Approved" }],
    } });
    let empty_role = json!({ "metadata": { "labels": {
        "node-role.kubernetes.io/": "",
        "kubernetes.io/role": "",
    } } });
    let two_readies = json!({ "status": { "conditions": [
        { "type": "Ready", "status": "False" },
        { "type": "Ready", "status": "True" },
    ] } });
    let suspended = json!({ "spec": {}, "status": { "lastScheduleTime": "2026-05-01T11:00:00Z" } });
    let no_values = json!({ "spec": { "selector": { "matchExpressions": [
        { "key": "a", "operator": "In" },
    ] } } });
    let unknown_metric = json!({ "spec": { "metrics": [{ "type": "New" }] } });
    let deleted = json!({ "metadata": { "deletionTimestamp": "2026-05-01T11:00:00Z" } });
    let old_kubelet =
        json!({ "status": { "podIP": "10.0.0.2", "podIPs": [{ "ip": "10.0.0.1" }] } });
    let future = json!({ "metadata": { "creationTimestamp": "2026-05-01T12:00:02Z" } });
    let criteria = json!({ "status": { "conditions": [
        { "type": "Complete", "status": "False" },
        { "type": "SuccessCriteriaMet", "status": "True" },
    ] } });
    let dangling =
        json!({ "status": { "conditions": [{ "type": "Dangling", "status": "True" }] } });
    let sidecar = |started: bool| {
        json!({
            "spec": {
                "initContainers": [{ "name": "s", "restartPolicy": "Always" }],
                "containers": [{ "name": "c" }],
            },
            "status": { "phase": "Pending", "initContainerStatuses": [
                { "name": "s", "ready": true, "started": started, "state": { "running": {} } },
            ] },
        })
    };
    let reserved = json!({ "status": { "reservedFor": [{ "name": "p" }] } });
    let no_share = json!({ "spec": { "metrics": [
        { "type": "Resource", "resource": { "name": "cpu", "target": {} } },
    ] } });
    let storage = "storage.k8s.io";
    let registration = "apiregistration.k8s.io";
    let flow = "flowcontrol.apiserver.k8s.io";
    let table: [(&str, &str, &str, Value, Value); 32] = [
        (storage, "storageclasses", "Name", default, json!("a (default)")),
        ("", "componentstatuses", "Status", healthy("True"), json!("Healthy")),
        ("", "componentstatuses", "Status", healthy("False"), json!("Unhealthy")),
        ("", "componentstatuses", "Status", json!({}), json!("Unknown")),
        ("", "componentstatuses", "Error", healthy("True"), json!("e")),
        (registration, "apiservices", "Service", available("True", "r"), json!("n/s")),
        (registration, "apiservices", "Available", available("True", "r"), json!("True")),
        (registration, "apiservices", "Available", available("False", "r"), json!("False (r)")),
        (registration, "apiservices", "Available", available("False", ""), json!("False")),
        (registration, "apiservices", "Available", json!({}), json!("Unknown")),
        (
            "certificates.k8s.io",
            "certificatesigningrequests",
            "Condition",
            issued,
            json!("Approved,Issued"),
        ),
        ("", "nodes", "Roles", empty_role, json!("<none>")),
        ("", "nodes", "Status", two_readies, json!("Ready")),
        ("batch", "cronjobs", "Suspend", suspended.clone(), json!("<unset>")),
        ("batch", "cronjobs", "Last Schedule", suspended, json!("60m")),
        ("apps", "deployments", "Selector", no_values.clone(), json!("<invalid>")),
        ("apps", "replicasets", "Selector", no_values, json!("<error>")),
        ("apps", "deployments", "Selector", json!({}), json!("")),
        (
            "autoscaling",
            "horizontalpodautoscalers",
            "Targets",
            unknown_metric,
            json!("<unknown type>"),
        ),
        ("batch", "jobs", "Status", deleted.clone(), json!("Terminating")),
        ("batch", "jobs", "Status", criteria, json!("SuccessCriteriaMet")),
        ("resource.k8s.io", "resourceclaims", "State", deleted, json!("deleted")),
        ("", "pods", "IP", old_kubelet, json!("10.0.0.2")),
        ("", "configmaps", "Age", future, json!("<invalid>")),
        ("", "services", "External-IP", json!({}), json!("<unknown>")),
        (flow, "flowschemas", "MissingPL", dangling, json!("True")),
        (flow, "flowschemas", "MissingPL", json!({}), json!("?")),
        ("", "pods", "Status", sidecar(false), json!("Init:0/1")),
        ("", "pods", "Status", sidecar(true), json!("Pending")),
        ("", "pods", "Ready", sidecar(true), json!("1/2")),
        ("resource.k8s.io", "resourceclaims", "State", reserved, json!("pending")),
        (
            "autoscaling",
            "horizontalpodautoscalers",
            "Targets",
            no_share,
            json!("cpu: <unknown>/<auto>"),
        ),
    ];
    for (group, resource, heading, object, expected) in table {
        assert_eq!(cell(group, resource, heading, &object), expected, "{resource} {object}");
    }
}

#[test]
fn kinds_without_printer_show_created() {
    let now = "2026-05-01T12:00:00Z".parse().unwrap();
    let object = json!({ "metadata": {
        "name": "a",
        "creationTimestamp": "2026-05-01T14:00:00.5+02:00",
    } });
    let row_of = |object| row("example.org", "things", object, now).cells;
    assert_eq!(row_of(&object), [json!("a"), json!("2026-05-01T12:00:00Z")]);
    assert_eq!(row_of(&json!({})), [json!(""), json!("0001-01-01T00:00:00Z")]);
    assert_eq!(columns("example.org", "things"), default_columns());
}

/// The answers of kube-apiserver to the same columns.
#[test]
fn columns_of_a_definition_are_checked_in_its_words() {
    let declared = json!([
        { "name": "", "type": "", "format": "", "jsonPath": "" },
        { "name": "a", "type": "text", "format": "uuid", "jsonPath": "spec" },
        { "name": "a", "type": "date", "format": "date-time", "jsonPath": ".spec[" },
    ]);
    let faults = check_columns(&declared, "spec.versions[0].additionalPrinterColumns");
    let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
    assert_eq!(
        faults,
        [
            "spec.versions[0].additionalPrinterColumns[0].name: Required value",
            "spec.versions[0].additionalPrinterColumns[0].type: Required value: \
             must be one of boolean,date,integer,number,string",
            "spec.versions[0].additionalPrinterColumns[0].JSONPath: Required value",
            "spec.versions[0].additionalPrinterColumns[1].type: Invalid value: \"text\": \
             must be one of boolean,date,integer,number,string",
            "spec.versions[0].additionalPrinterColumns[1].format: Invalid value: \"uuid\": \
             must be one of byte,date,date-time,double,float,int32,int64,password",
            "spec.versions[0].additionalPrinterColumns[1].JSONPath: Invalid value: \"spec\": \
             must be a simple json path starting with .",
        ],
    );
}

#[test]
fn bad_path_keeps_earlier_columns() {
    let declared = json!([
        { "name": "A", "type": "string", "jsonPath": ".a" },
        { "name": "B", "type": "string", "jsonPath": ".b[x]" },
        { "name": "C", "type": "string", "jsonPath": ".c" },
    ]);
    let error = CustomColumns::compile(&declared).unwrap_err();
    assert_eq!(error.to_string(), "unrecognized column definition \".b[x]\"");
    assert_eq!(error.cause.to_string(), "invalid array index x");
    let names: Vec<&str> = error.usable.columns().iter().map(|it| &*it.name).collect();
    assert_eq!(names, ["Name", "A"]);
}

#[test]
fn trees_are_printed_with_their_fields_in_order() {
    let declared = json!([{ "name": "A", "type": "string", "jsonPath": ".spec" }]);
    let custom = CustomColumns::compile(&declared).unwrap();
    let object = json!({ "spec": { "b": [1, "<"], "a": { "d": null, "c": 1.5 } } });
    let cells = custom.row(&object, "2026-05-01T12:00:00Z".parse().unwrap()).cells;
    assert_eq!(cells[1], json!(r#"{"a":{"c":1.5,"d":null},"b":[1,"\u003c"]}"#));
}

/// Random trees of the words that printers look for, so that evaluation gets further than a first
/// field.
fn any_tree() -> impl Strategy<Value = Value> {
    let words = vocabulary();
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(words.clone()).prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from),
        "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 200, 12, move |inner| {
        let key = prop::sample::select(words.clone());
        prop_oneof![
            1 => prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            3 => prop::collection::vec((key, inner), 0..12)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// Every key and every text of the recorded objects.
fn vocabulary() -> Vec<String> {
    fn gather(value: &Value, words: &mut std::collections::BTreeSet<String>) {
        match value {
            Value::Object(fields) => fields.iter().for_each(|(key, value)| {
                words.insert(key.clone());
                gather(value, words);
            }),
            Value::Array(elements) => elements.iter().for_each(|it| gather(it, words)),
            Value::String(text) => {
                words.insert(text.clone());
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    let mut words = std::collections::BTreeSet::new();
    for entry in recorded("builtin.json").as_array().unwrap() {
        gather(&entry["object"], &mut words);
    }
    words.into_iter().collect()
}

/// A recorded object with one part of it replaced by a random value.
fn any_broken_object() -> impl Strategy<Value = (String, String, Value)> {
    let entries = recorded("builtin.json").as_array().unwrap().clone();
    (prop::sample::select(entries), any::<prop::sample::Index>(), any_tree()).prop_map(
        |(entry, index, other)| {
            let mut object = entry["object"].clone();
            let paths = pointers(&object);
            *object.pointer_mut(&paths[index.index(paths.len())]).unwrap() = other;
            let word = |field: &str| entry[field].as_str().unwrap().to_owned();
            (word("group"), word("resource"), object)
        },
    )
}

fn pointers(value: &Value) -> Vec<String> {
    let children: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| (key.replace('~', "~0").replace('/', "~1"), value))
            .collect(),
        Value::Array(elements) => {
            elements.iter().enumerate().map(|(place, it)| (place.to_string(), it)).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    };
    let mut paths = vec![String::new()];
    for (key, child) in children {
        paths.extend(pointers(child).iter().map(|it| format!("/{key}{it}")));
    }
    paths
}

/// As many cells as columns, whatever the object is, and none that is a list or a map.
fn assert_row_matches_columns(group: &str, resource: &str, object: &Value) {
    let now = "2026-05-01T12:00:00Z".parse().unwrap();
    let cells = row(group, resource, object, now).cells;
    let surplus = usize::from(resource == "ipaddresses");
    assert_eq!(cells.len(), columns(group, resource).len() + surplus, "{resource}");
    for cell in cells {
        assert!(!cell.is_array() && !cell.is_object() && !cell.is_null(), "{resource}: {cell}");
    }
}

proptest! {
    #[test]
    fn anything_has_a_row_in_every_table(object in any_tree()) {
        for kind in recorded_columns().keys() {
            let (group, resource) = kind.split_once('/').unwrap();
            assert_row_matches_columns(group, resource, &object);
        }
    }

    #[test]
    fn a_broken_object_has_a_row((group, resource, object) in any_broken_object()) {
        assert_row_matches_columns(&group, &resource, &object);
    }

    #[test]
    fn a_custom_row_has_a_cell_for_each_column(
        object in any_tree(),
        path in "\\.[a-c.*$@ ]{0,6}(\\[(\\*|-?[0-9]{0,2}:?[0-9]{0,2}|'[a-c.]{0,3}'|\\?\\(@\\.[a-c]{0,2}(==|<|>=|!)?(1|\"a\"|true)?\\))\\])?[a-c.]{0,4}",
        kind in prop::sample::select(vec!["string", "integer", "number", "boolean", "date"]),
    ) {
        let declared = json!([{ "name": "A", "type": kind, "jsonPath": path }]);
        let custom = CustomColumns::compile(&declared).unwrap_or_else(|it| it.usable);
        let now = "2026-05-01T12:00:00Z".parse().unwrap();
        prop_assert_eq!(custom.row(&object, now).cells.len(), custom.columns().len());
    }
}
