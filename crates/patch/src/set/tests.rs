use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::path::ComparableValue;

fn set(fields: &Value) -> FieldSet {
    FieldSet::from_fields(fields).unwrap()
}

#[test]
fn paths_print_as_in_conflicts() {
    let fields = json!({
        "f:spec": {
            "f:containers": { "k:{\"name\":\"c\"}": { "f:image": {} } },
            "f:ports": { "k:{\"protocol\":\"TCP\",\"port\":80}": {} },
            "f:set": { "v:\"a\"": {}, "v:1": {}, "v:true": {} },
            "f:list": { "i:0": {} },
        },
    });
    let printed: Vec<String> = set(&fields).paths().iter().map(Path::to_string).collect();
    assert_eq!(
        printed,
        [
            ".spec.containers[name=\"c\"].image",
            ".spec.list[0]",
            ".spec.ports[port=80,protocol=\"TCP\"]",
            ".spec.set[=1]",
            ".spec.set[=\"a\"]",
            ".spec.set[=true]",
        ]
    );
}

#[test]
fn fields_are_written_in_order() {
    let fields = json!({ "k:{\"b\":2,\"a\":\"<\"}": {}, "f:b": { "f:x": {}, ".": {} }, "v:2": {}, "f:a": {}, "i:1": {} });
    let expected = r#"{"f:a":{},"f:b":{".":{},"f:x":{}},"k:{\"a\":\"\\u003c\",\"b\":2}":{},"v:2":{},"i:1":{}}"#;
    assert_eq!(set(&fields).to_fields().to_string(), expected);
}

#[test]
fn unknown_is_skipped_invalid_fails() {
    assert_eq!(set(&json!({ "x:later": {}, "f:a": {} })), set(&json!({ "f:a": {} })));
    assert_eq!(set(&json!({ "f:a": { "x:later": {} } })), set(&json!({ "f:a": {} })));
    for wrong in [
        json!({ "f": {} }),
        json!({ "nothing": {} }),
        json!({ "v:x": {} }),
        json!({ "k:[]": {} }),
        json!({ "i:x": {} }),
        json!({ "f:a": 1 }),
        json!([]),
    ] {
        assert!(FieldSet::from_fields(&wrong).is_err(), "{wrong}");
    }
}

#[test]
fn numbers_compare_by_value() {
    let number = |value: Value| PathElement::Value(ComparableValue(value));
    assert_eq!(number(json!(1)), number(json!(1.0)));
    assert!(number(json!(1)) < number(json!(1.5)));
    assert!(number(json!(2)) < number(json!("1")));
}

fn any_set() -> impl Strategy<Value = FieldSet> {
    let element = prop_oneof![
        "[a-c<]".prop_map(|name| PathElement::field(&name)),
        "[a-b]".prop_map(|name| PathElement::Value(ComparableValue(name.into()))),
        (0i64..2).prop_map(PathElement::Index),
        (0i64..2).prop_map(|port| {
            PathElement::Key(vec![
                ("p".into(), ComparableValue("T".into())),
                ("q".into(), ComparableValue(port.into())),
            ])
        }),
    ];
    let path = prop::collection::vec(element, 1..4);
    prop::collection::vec(path, 0..12).prop_map(|paths| {
        let mut set = FieldSet::new();
        for path in &paths {
            set.insert(path);
        }
        set
    })
}

/// The set as a list of its fields, to check the tree against.
fn listed(set: &FieldSet) -> std::collections::BTreeSet<Path> {
    set.paths().into_iter().collect()
}

proptest! {
    #[test]
    fn fields_come_back_as_they_were_written(set in any_set()) {
        let fields = set.to_fields();
        prop_assert_eq!(FieldSet::from_fields(&fields).unwrap(), set);
        let text = fields.to_string();
        let again: Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(FieldSet::from_fields(&again).unwrap().to_fields().to_string(), text);
    }

    #[test]
    fn sets_obey_the_laws_of_sets(a in any_set(), b in any_set(), c in any_set()) {
        let (one, other) = (listed(&a), listed(&b));
        prop_assert_eq!(listed(&a.union(&b)), &one | &other);
        prop_assert_eq!(listed(&a.intersection(&b)), &one & &other);
        prop_assert_eq!(listed(&a.difference(&b)), &one - &other);
        prop_assert_eq!(a.union(&b), b.union(&a));
        prop_assert_eq!(a.union(&b).union(&c), a.union(&b.union(&c)));
        prop_assert_eq!(a.intersection(&b.union(&c)), a.intersection(&b).union(&a.intersection(&c)));
        prop_assert!(a.difference(&a).is_empty());
        prop_assert_eq!(a.difference(&b).union(&a.intersection(&b)), a);
    }

    #[test]
    fn a_recursive_difference_takes_what_is_below(a in any_set(), b in any_set()) {
        let kept = listed(&a).into_iter().filter(|path| {
            (1..=path.0.len()).all(|length| !b.contains(&path.0[..length]))
        });
        prop_assert_eq!(listed(&a.recursive_difference(&b)), kept.collect());
    }

    #[test]
    fn leaves_have_nothing_below(a in any_set()) {
        let all = listed(&a);
        let leaves = all.iter().filter(|path| {
            !all.iter().any(|other| other.0.len() > path.0.len() && other.0.starts_with(&path.0))
        });
        prop_assert_eq!(listed(&a.leaves()), leaves.cloned().collect());
    }

    #[test]
    fn inserted_fields_are_contained(a in any_set()) {
        for path in a.paths() {
            prop_assert!(a.contains(&path.0));
        }
        prop_assert!(!a.contains(&[]));
    }
}
