//! Objects that kube-apiserver rejected, and its messages.

use std::collections::BTreeSet;

use serde_json::json;

use crate::golden::{Row, all_agree, causes, create, recorded_causes};

fn rows() -> Vec<Row> {
    let mut rows = Row::read(include_str!("../golden/refused.json"));
    for row in &mut rows {
        // Too large to keep in a file.
        if row.text("why") == "annotations too large" {
            row.0["send"]["metadata"]["annotations"] = json!({ "a": "x".repeat(262_144) });
        }
        // A server generates the name before it validates it.
        if row.text("why") == "bad prefix" {
            let message = row.0["causes"][1]["message"].as_str().unwrap().to_owned();
            let name = message.split('"').nth(1).unwrap();
            row.0["send"]["metadata"]["name"] = json!(name);
        }
        // The labels and the selector of a Job contain its uid.
        let recorded = recorded_causes(row).concat();
        if let Some((_, rest)) = recorded.split_once("batch.kubernetes.io/controller-uid\":\"") {
            row.0["send"]["metadata"]["uid"] = json!(rest.split('"').next().unwrap());
        }
    }
    rows
}

#[test]
fn validation_errors_match_real_server() {
    all_agree(&rows(), |row| {
        let ours = create(row).err().map(|faults| causes(&faults)).unwrap_or_default();
        let theirs = recorded_causes(row);
        (ours != theirs).then(|| format!("ours   {ours:#?}\ntheirs {theirs:#?}"))
    });
}

#[test]
fn the_recording_covers_enough_kinds() {
    let kinds: BTreeSet<String> =
        rows().iter().map(|row| row.text("resource").to_owned()).collect();
    assert!(rows().len() >= 120 && kinds.len() >= 30);
}
