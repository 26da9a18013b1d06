//! Checks what kubectl reads in a document.

use serde_json::{Value, json};

use crate::Golden;

/// Operations with the method `method`, each with its path.
fn operations<'a>(document: &'a Value, method: &str) -> Vec<(&'a String, &'a Value)> {
    let paths = document["paths"].as_object().unwrap().iter();
    paths.filter_map(|(path, item)| Some((path, item.get(method)?))).collect()
}

/// Validation and dry run: kubectl looks for the patch of the kind and its query parameters.
#[test]
fn every_kind_has_a_patch_that_validates_fields_and_runs_dry() {
    for golden in Golden::all() {
        let document = golden.generated();
        for definition in &golden.definitions {
            let kind = &definition["spec"]["names"]["kind"];
            let qualified =
                json!({ "group": golden.group, "version": golden.version, "kind": kind });
            let patches = operations(&document, "patch");
            let mut of_kind = patches
                .iter()
                .filter(|(_, it)| it["x-kubernetes-group-version-kind"] == qualified)
                .peekable();
            assert!(of_kind.peek().is_some(), "{kind}");
            for (path, patch) in of_kind {
                for name in ["fieldValidation", "dryRun", "fieldManager", "force"] {
                    let parameters = patch["parameters"].as_array().unwrap();
                    let found = parameters.iter().find(|it| it["name"] == name);
                    assert_eq!(found.unwrap()["in"], "query", "{path}: {name}");
                }
            }
        }
    }
}

/// The kinds of patches: with strategic merge listed, kubectl would send it.
#[test]
fn no_custom_kind_offers_strategic_merge() {
    for golden in Golden::all() {
        let document = golden.generated();
        let patches = operations(&document, "patch");
        assert!(!patches.is_empty());
        for (path, patch) in patches {
            let content = patch["requestBody"]["content"].as_object().unwrap();
            let types: Vec<_> = content.keys().map(String::as_str).collect();
            let expected = [
                "application/apply-patch+yaml",
                "application/json-patch+json",
                "application/merge-patch+json",
            ];
            assert_eq!(types, expected, "{path}");
        }
        assert!(!document.to_string().contains("strategic-merge"), "{}", golden.name);
    }
}

/// `kubectl explain` finds the schema by its kind.
#[test]
fn every_kind_and_list_has_one_schema() {
    for golden in Golden::all() {
        let document = golden.generated();
        let schemas = document["components"]["schemas"].as_object().unwrap();
        for definition in &golden.definitions {
            for name in ["kind", "listKind"] {
                let kind = &definition["spec"]["names"][name];
                let mark =
                    json!([{ "group": golden.group, "version": golden.version, "kind": kind }]);
                let is_it = |it: &&Value| it["x-kubernetes-group-version-kind"] == mark;
                assert_eq!(schemas.values().filter(is_it).count(), 1, "{kind}");
            }
        }
    }
}

/// Client-side apply merges lists and maps as the schema says.
#[test]
fn merge_directions_reach_the_client() {
    let golden = Golden::all().into_iter().find(|it| it.name == "rich").unwrap();
    let document = golden.generated();
    let schema = &document["components"]["schemas"]["com.example.openapi.rich.v1.Widget"];
    let spec = &schema["properties"]["spec"]["properties"];
    assert_eq!(spec["map"]["x-kubernetes-list-type"], "map");
    assert_eq!(spec["map"]["x-kubernetes-list-map-keys"], json!(["host", "port"]));
    assert_eq!(spec["set"]["x-kubernetes-list-type"], "set");
    assert_eq!(spec["closed"]["x-kubernetes-map-type"], "atomic");
    assert_eq!(spec["size"]["default"], 3);
}
