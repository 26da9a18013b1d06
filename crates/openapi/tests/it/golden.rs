use std::collections::BTreeSet;

use gantry_openapi::{CustomKind, OpenApiVersion};
use serde_json::{Value, json};

use crate::{Golden, walk};

#[test]
fn documents_equal_those_of_kubernetes() {
    for golden in Golden::all() {
        let (made, expected) = (golden.generated(), &golden.document);
        let differences = differences(&made, expected);
        assert!(differences.is_empty(), "{}:\n{}", golden.name, differences.join("\n"));
        assert_eq!(made, *expected, "{}", golden.name);
    }
}

/// The fragment also has what kinds refer to, which everything built in has already.
#[test]
fn fragments_equal_those_of_kubernetes() {
    for golden in Golden::all() {
        let mut made = golden.generated_in(OpenApiVersion::V2);
        let expected = &golden.fragment;
        let known = expected["definitions"].as_object().unwrap();
        made["definitions"].as_object_mut().unwrap().retain(|name, _| known.contains_key(name));
        made.as_object_mut().unwrap().remove("parameters");
        let differences = differences(&made, expected);
        assert!(differences.is_empty(), "{}:\n{}", golden.name, differences.join("\n"));
        assert_eq!(made, *expected, "{}", golden.name);
    }
}

/// The leaves and empty containers that only one side has, or that differ.
fn differences(made: &Value, expected: &Value) -> Vec<String> {
    let made = leaves(made);
    let expected = leaves(expected);
    let extra = made.difference(&expected).map(|it| format!("+ {it}"));
    extra.chain(expected.difference(&made).map(|it| format!("- {it}"))).collect()
}

fn leaves(value: &Value) -> BTreeSet<String> {
    let mut leaves = BTreeSet::new();
    walk(value, "", &mut |place, value| {
        let inner = match value {
            Value::Object(fields) => !fields.is_empty(),
            Value::Array(items) => !items.is_empty(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        };
        if !inner {
            leaves.insert(format!("{place} = {value}"));
        }
    });
    leaves
}

#[test]
fn a_definition_tells_what_it_serves() {
    let golden = Golden::all().into_iter().find(|it| it.name == "versions-v2").unwrap();
    let definition = &golden.definitions[0];
    let old = CustomKind::of(definition, "v1alpha1").unwrap();
    let new = CustomKind::of(definition, "v2").unwrap();
    assert!(old.namespaced && old.has_status && !old.has_scale && old.selectable_fields.is_empty());
    assert!(new.namespaced && !new.has_status && new.selectable_fields == [".new"]);
    assert_eq!((new.plural, new.kind, new.list_kind), ("things", "Thing", "ThingList"));
    assert_eq!(new.schema["description"], "new");
    assert!(CustomKind::of(definition, "v3").is_none(), "a version that is not served");
    assert!(CustomKind::of(definition, "v4").is_none(), "a version that does not exist");
    assert!(CustomKind::of(&json!({}), "v1").is_none(), "no definition");
}
