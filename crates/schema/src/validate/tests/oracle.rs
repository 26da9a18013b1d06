//! Objects, and what a real server answered to them.

use serde_json::Value;

use super::*;
use crate::read_json;

fn texts(value: &Value) -> Vec<String> {
    serde_json::from_value(value.clone()).unwrap()
}

#[test]
fn objects_match_upstream() {
    let (groups, _) = read_json(include_bytes!("answers.json")).unwrap();
    let mut count = 0;
    let mut differ = Vec::new();
    for group in groups.as_array().unwrap() {
        let schema = compile(&group["schema"]).unwrap();
        for answer in group["answers"].as_array().unwrap() {
            count += 1;
            let mut object = answer["object"].clone();
            let why = format!("{}: {}", group["why"], object["spec"]);
            let told = prune(&schema, &mut object);
            let told: Vec<_> =
                told.iter().map(|path| format!("unknown field \"{path}\"")).collect();
            default(&schema, &mut object);
            let mut found: Vec<[String; 3]> = validate(&schema, &object, None)
                .into_iter()
                .map(|it| [it.field, it.reason.as_str().to_owned(), it.message])
                .collect();
            found.sort();
            let mut expected: Vec<[String; 3]> =
                serde_json::from_value(answer["causes"].clone()).unwrap();
            expected.sort();
            if found != expected {
                differ.push(format!("{why}\n  {found:?}\n  {expected:?}"));
            }
            if told != texts(&answer["warnings"]) {
                differ.push(format!("{why}\n  {told:?}\n  {}", answer["warnings"]));
            }
            object.as_object_mut().unwrap().shift_remove("metadata");
            if answer.get("stored").is_some_and(|stored| object != *stored) {
                differ.push(format!("{why}\n  {object}\n  {}", answer["stored"]));
            }
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
    assert!(count > 250, "{count}");
}

#[test]
fn updates_match_upstream() {
    let (answers, _) = read_json(include_bytes!("updates.json")).unwrap();
    let schema = compile(&answers["schema"]).unwrap();
    let updates = answers["updates"].as_array().unwrap();
    assert!(updates.len() > 25);
    for update in updates {
        let (old, new) = (object(&update["old"]), object(&update["new"]));
        let mut found: Vec<[String; 3]> = validate(&schema, &new, Some(&old))
            .into_iter()
            .map(|it| [it.field, it.reason.as_str().to_owned(), it.message])
            .collect();
        found.sort();
        let mut expected: Vec<[String; 3]> =
            serde_json::from_value(update["causes"].clone()).unwrap();
        expected.sort();
        assert_eq!(found, expected, "{} to {}", update["old"], update["new"]);
    }
}
