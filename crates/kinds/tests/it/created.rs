//! Compares created objects with those that kube-apiserver stored.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::golden::{Row, all_agree, causes, create, without_volatile_fields};

fn rows() -> Vec<Row> {
    Row::read(include_str!("../golden/created.json"))
}

/// The recording has the uid of a job masked out of everything but its labels.
fn with_uid(row: &Row) -> Row {
    let mut row = Row(row.0.clone());
    let label = "/stored/spec/selector/matchLabels/batch.kubernetes.io~1controller-uid";
    if let Some(uid) = row.0.pointer(label).cloned() {
        row.0["send"]["metadata"]["uid"] = uid;
    }
    row
}

#[test]
fn stored_objects_match_real_server() {
    all_agree(&rows(), |row| {
        let row = with_uid(row);
        match create(&row) {
            Err(faults) => Some(format!("refused: {:?}", causes(&faults))),
            Ok(object) => {
                let (ours, theirs) =
                    (without_volatile_fields(&object), without_volatile_fields(&row.0["stored"]));
                (ours != theirs).then(|| difference("", &ours, &theirs))
            }
        }
    });
}

/// What differs, line by line.
pub(crate) fn difference(path: &str, ours: &Value, theirs: &Value) -> String {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            let null = Value::Null;
            keys.into_iter()
                .filter(|key| a.get(*key) != b.get(*key))
                .map(|key| {
                    let (a, b) = (a.get(key).unwrap_or(&null), b.get(key).unwrap_or(&null));
                    difference(&format!("{path}.{key}"), a, b)
                })
                .collect()
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => a
            .iter()
            .zip(b)
            .enumerate()
            .filter(|(_, (a, b))| a != b)
            .map(|(place, (a, b))| difference(&format!("{path}[{place}]"), a, b))
            .collect(),
        _ => format!("{path}: ours {ours}, theirs {theirs}\n"),
    }
}

#[test]
fn defaulting_is_idempotent() {
    all_agree(&rows(), |row| {
        let mut once = row.sent();
        row.behaviour().default(&mut once);
        let mut twice = once.clone();
        row.behaviour().default(&mut twice);
        (once != twice).then(|| difference("", &once, &twice))
    });
}

#[test]
fn defaults_that_only_a_type_shows_are_there() {
    let mut pod = json!({ "spec": { "containers": [], "volumes": [{ "name": "v" }] } });
    gantry_kinds::behaviour("", "pods").default(&mut pod);
    assert_eq!(pod["spec"]["securityContext"], json!({}));
    assert_eq!(pod["spec"]["volumes"][0]["emptyDir"], json!({}));
    let mut hook = json!({ "webhooks": [{ "name": "a" }] });
    let group = "admissionregistration.k8s.io";
    gantry_kinds::behaviour(group, "mutatingwebhookconfigurations").default(&mut hook);
    assert_eq!(hook["webhooks"][0]["objectSelector"], json!({}));
}

#[test]
fn the_recording_covers_enough_kinds() {
    let kinds: BTreeSet<String> =
        rows().iter().map(|row| row.text("resource").to_owned()).collect();
    assert!(rows().len() >= 40 && kinds.len() >= 25);
}
