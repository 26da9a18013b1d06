//! Definitions, and what a real server answered to them.

use serde_json::{Value, json};

use super::*;

/// Field, reason and message of each cause, in order of text: upstream walks maps in any order.
fn causes(faults: &[FieldError]) -> Vec<[String; 3]> {
    let mut causes: Vec<_> = faults
        .iter()
        .map(|fault| [fault.field.clone(), fault.reason.as_str().to_owned(), fault.message.clone()])
        .collect();
    causes.sort();
    causes
}

#[test]
fn definitions_match_upstream() {
    let answers: Vec<Value> = serde_json::from_str(include_str!("tests/answers.json")).unwrap();
    assert!(answers.len() > 70);
    for answer in answers {
        let mut definition = answer["definition"].clone();
        default_definition(&mut definition);
        prepare_definition(&mut definition, None);
        let mut expected: Vec<[String; 3]> =
            serde_json::from_value(answer["causes"].clone()).unwrap();
        expected.sort();
        assert_eq!(causes(&validate_definition(&definition, None)), expected, "{}", answer["why"]);
        let mut warnings = definition_warnings(&definition, None);
        warnings.sort();
        let mut expected: Vec<String> = serde_json::from_value(answer["warnings"].clone()).unwrap();
        expected.sort();
        if answer["causes"] == json!([]) {
            assert_eq!(warnings, expected, "{}", answer["why"]);
        }
    }
}

/// A definition as it is once it is in use.
fn established() -> Value {
    let schema = json!({ "openAPIV3Schema": { "type": "object" } });
    let version = |name: &str, storage: bool| json!({ "name": name, "served": true, "storage": storage, "schema": schema });
    let mut definition = json!({
        "metadata": { "name": "widgets.case.test" },
        "spec": {
            "group": "case.test", "scope": "Namespaced",
            "names": { "plural": "widgets", "kind": "Widget" },
            "versions": [version("v1", true), version("v2", false)],
        },
    });
    default_definition(&mut definition);
    prepare_definition(&mut definition, None);
    let names = accept_names(&definition, []);
    definition["status"]["acceptedNames"] = names.accepted;
    definition["status"]["conditions"] = json!([{ "type": "Established", "status": "True" }]);
    definition
}

#[test]
fn new_definition_is_defaulted() {
    let definition = established();
    assert_eq!(
        definition["spec"]["names"],
        json!({ "plural": "widgets", "kind": "Widget", "singular": "widget", "listKind": "WidgetList" })
    );
    assert_eq!(definition["spec"]["conversion"], json!({ "strategy": "None" }));
    assert_eq!(definition["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(definition["status"]["acceptedNames"], definition["spec"]["names"]);
    let mut again = definition.clone();
    default_definition(&mut again);
    prepare_definition(&mut again, Some(&definition));
    assert_eq!(again, definition);
}

/// Changes a definition.
type Change = fn(&mut Value);

/// A field and what is said of it.
type ExpectedCause<'text> = (&'text str, &'text str);

#[test]
fn names_in_use_are_immutable() {
    let immutable = "field is immutable";
    let missing = "missing from spec.versions; v1 was previously a storage version, and must remain \
                   in spec.versions until a storage migration ensures no data remains persisted in \
                   v1 and removes v1 from status.storedVersions";
    let table: [(&str, Change, &[ExpectedCause<'_>]); 7] = [
        ("nothing changes", |_| {}, &[]),
        ("the scope", |it| it["spec"]["scope"] = json!("Cluster"), &[("spec.scope", immutable)]),
        (
            "the kind",
            |it| it["spec"]["names"]["kind"] = json!("Gadget"),
            &[("spec.names.kind", immutable)],
        ),
        (
            "the plural",
            |it| it["spec"]["names"]["plural"] = json!("gadgets"),
            &[("spec.names.plural", immutable)],
        ),
        ("the group", |it| it["spec"]["group"] = json!("b.test"), &[("spec.group", immutable)]),
        ("the list kind", |it| it["spec"]["names"]["listKind"] = json!("Widgets"), &[]),
        (
            "a stored version goes",
            |it| {
                it["spec"]["versions"].as_array_mut().unwrap().remove(0);
                it["spec"]["versions"][0]["storage"] = json!(true);
            },
            &[("status.storedVersions[0]", missing)],
        ),
    ];
    let old = established();
    for (why, change, expected) in table {
        let mut new = old.clone();
        change(&mut new);
        prepare_definition(&mut new, Some(&old));
        let faults = validate_definition(&new, Some(&old));
        let found: Vec<_> = faults
            .iter()
            .map(|it| (it.field.as_str(), it.message.splitn(3, ": ").nth(2).unwrap()))
            .collect();
        assert_eq!(found, expected, "{why}");
    }
}

#[test]
fn scope_and_kind_may_change_before_they_are_in_use() {
    let mut old = established();
    old["status"]["conditions"] = Value::Null;
    let mut new = old.clone();
    new["spec"]["scope"] = json!("Cluster");
    new["spec"]["names"]["kind"] = json!("Gadget");
    assert_eq!(validate_definition(&new, Some(&old)), []);
}

#[test]
fn a_new_storage_version_joins_the_stored_ones() {
    let old = established();
    let mut new = old.clone();
    new["spec"]["versions"][0]["storage"] = json!(false);
    new["spec"]["versions"][1]["storage"] = json!(true);
    prepare_definition(&mut new, Some(&old));
    assert_eq!(new["status"]["storedVersions"], json!(["v1", "v2"]));
    assert_eq!(validate_definition(&new, Some(&old)), []);
}

#[test]
fn conflicting_names_are_rejected() {
    let first = established();
    let other = |names: Value| {
        let mut other = established();
        other["metadata"]["name"] = json!("gadgets.case.test");
        other["spec"]["names"] = names;
        other["status"] = json!({});
        default_definition(&mut other);
        other
    };
    let table = [
        (json!({ "plural": "gadgets", "kind": "Gadget" }), "NoConflicts", "no conflicts found"),
        (
            json!({ "plural": "gadgets", "kind": "Gadget", "listKind": "WidgetList" }),
            "ListKindConflict",
            "\"WidgetList\" is already in use",
        ),
        (
            json!({ "plural": "widgets", "kind": "Gadget" }),
            "PluralConflict",
            "\"widgets\" is already in use",
        ),
        (
            json!({ "plural": "gadgets", "kind": "Gadget", "singular": "widget" }),
            "SingularConflict",
            "\"widget\" is already in use",
        ),
        (
            json!({ "plural": "gadgets", "kind": "Gadget", "shortNames": ["widget", "g", "widgets"] }),
            "ShortNamesConflict",
            "[\"widget\" is already in use, \"widgets\" is already in use]",
        ),
        (
            json!({ "plural": "gadgets", "kind": "WidgetList" }),
            "KindConflict",
            "\"WidgetList\" is already in use",
        ),
    ];
    for (names, reason, message) in table {
        let second = other(names);
        let decided = accept_names(&second, [&first, &second]);
        let condition = &decided.names_accepted;
        assert_eq!((condition.reason, condition.message.as_str()), (reason, message));
        let is_fine = reason == "NoConflicts";
        assert_eq!((condition.status, decided.established.status), (is_fine, is_fine), "{reason}");
        let asked = &second["spec"]["names"];
        assert_eq!(decided.accepted["plural"] == asked["plural"], reason != "PluralConflict");
        assert_eq!(decided.accepted["listKind"] == asked["listKind"], reason != "ListKindConflict");
        let established = match is_fine {
            true => ("InitialNamesAccepted", "the initial names have been accepted"),
            false => ("NotAccepted", "not all names are accepted"),
        };
        assert_eq!((decided.established.reason, decided.established.message.as_str()), established);
    }
}

#[test]
fn conflict_keeps_established() {
    let (first, mut second) = (established(), established());
    second["metadata"]["name"] = json!("gadgets.case.test");
    second["spec"]["names"] =
        json!({ "plural": "gadgets", "kind": "Gadget", "shortNames": ["widget"] });
    let decided = accept_names(&second, [&first]);
    assert_eq!((decided.names_accepted.status, decided.established.status), (false, true));
}

#[test]
fn names_of_other_groups_do_not_matter() {
    let (mut first, mut second) = (established(), established());
    first["spec"]["group"] = json!("other.test");
    first["metadata"]["name"] = json!("widgets.other.test");
    second["status"] = json!({});
    assert!(accept_names(&second, [&first]).names_accepted.status);
}

#[test]
fn approval_is_a_condition() {
    let mut definition = established();
    assert_eq!(approval_condition(&definition), None);
    definition["spec"]["group"] = json!("case.k8s.io");
    let table = [
        ("https://case.test/a", true, "ApprovedAnnotation", "approved in https://case.test/a"),
        ("unapproved, x", false, "UnapprovedAnnotation", "not approved: \"unapproved, x\""),
    ];
    for (annotation, status, reason, message) in table {
        definition["metadata"]["annotations"] = json!({ "api-approved.kubernetes.io": annotation });
        let condition = approval_condition(&definition).unwrap();
        let kind = "KubernetesAPIApprovalPolicyConformant";
        assert_eq!(condition, Condition { kind, status, reason, message: message.to_owned() });
    }
}
