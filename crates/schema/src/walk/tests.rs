use serde_json::json;

use super::*;
use crate::compile;

fn ruled(kind: &str) -> Value {
    json!({ "type": kind, "x-kubernetes-validations": [{ "rule": "true", "message": "said" }] })
}

/// A schema with rules in every sort of place.
fn schema() -> Schema {
    let element = json!({
        "type": "object", "required": ["k"],
        "properties": { "k": { "type": "string" }, "v": ruled("string") },
    });
    let rules = json!([{ "rule": "self.a != ''", "reason": "FieldValueForbidden" }]);
    compile(&json!({
        "type": "object",
        "x-kubernetes-validations": rules,
        "properties": { "spec": { "type": "object", "properties": {
            "a": ruled("string"),
            "plain": { "type": "string" },
            "list": { "type": "array", "items": element },
            "keyed": {
                "type": "array", "items": element, "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["k"],
            },
            "map": { "type": "object", "additionalProperties": ruled("integer") },
        } } },
    }))
    .unwrap()
}

/// Field, old value and whether it counts as unchanged, of each place with rules.
fn sites(new: &Value, old: Option<&Value>) -> Vec<(String, Option<Value>, bool)> {
    let schema = schema();
    let wrap = |spec: &Value| json!({ "spec": spec });
    let (new, old) = (wrap(new), old.map(wrap));
    rule_sites(&schema, &new, old.as_ref())
        .iter()
        .map(|site| (site.field.clone(), site.old.cloned(), site.is_unchanged(&schema)))
        .filter(|(field, _, _)| field != "<nil>")
        .collect()
}

/// The same with borrowed names, to be written down.
type Expected<'text> = &'text [(&'text str, Option<Value>, bool)];

#[test]
fn old_values_are_found_by_structure_and_keys() {
    let element = |k: &str, v: &str| json!({ "k": k, "v": v });
    let table: [(&str, Value, Option<Value>, Expected<'_>); 8] = [
        ("a create", json!({ "a": "x" }), None, &[("spec.a", None, false)]),
        (
            "an update elsewhere",
            json!({ "a": "x", "plain": "y" }),
            Some(json!({ "a": "x" })),
            &[("spec.a", Some(json!("x")), true)],
        ),
        (
            "an update here",
            json!({ "a": "y" }),
            Some(json!({ "a": "x" })),
            &[("spec.a", Some(json!("x")), false)],
        ),
        ("a new field", json!({ "a": "y" }), Some(json!({})), &[("spec.a", None, false)]),
        ("nothing is asked of null", json!({ "a": null }), None, &[]),
        (
            "entries of a map",
            json!({ "map": { "z": 1, "b": 2 } }),
            Some(json!({ "map": { "b": 3 } })),
            &[("spec.map[b]", Some(json!(3)), false), ("spec.map[z]", None, false)],
        ),
        (
            "elements with keys",
            json!({ "keyed": [element("2", "x"), element("1", "y")] }),
            Some(json!({ "keyed": [element("1", "y")] })),
            &[("spec.keyed[0].v", None, false), ("spec.keyed[1].v", Some(json!("y")), true)],
        ),
        (
            "elements without keys are unchanged with their list",
            json!({ "list": [element("1", "y")], "plain": "z" }),
            Some(json!({ "list": [element("1", "y")] })),
            &[("spec.list[0].v", None, true)],
        ),
    ];
    for (why, new, old, expected) in table {
        let found = sites(&new, old.as_ref());
        let found: Vec<_> =
            found.iter().map(|(field, old, same)| (field.as_str(), old.clone(), *same)).collect();
        assert_eq!(found, expected, "{why}");
    }
}

#[test]
fn rules_keep_their_written_order() {
    let schema = schema();
    let object = json!({ "spec": {} });
    assert!(has_rules(&schema));
    let sites = rule_sites(&schema, &object, None);
    assert_eq!(sites.len(), 1);
    assert_eq!((sites[0].field.as_str(), sites[0].is_object), ("<nil>", true));
    let rule = &sites[0].rules[0];
    assert_eq!(
        (rule.rule.as_str(), rule.reason.as_deref()),
        ("self.a != ''", Some("FieldValueForbidden"))
    );
    let plain = compile(&json!({ "type": "object", "properties": { "a": { "type": "string" } } }));
    assert!(!has_rules(&plain.unwrap()));
}
