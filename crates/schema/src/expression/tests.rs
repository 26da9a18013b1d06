//! Rules, and what a real server said about them.

use gantry_cel::{ListKind, Type};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::compile::compile;
use crate::field_error::FieldError;
use crate::structural::structural;
use crate::validate::validate;

/// Field, reason and message of each cause, in order of text: upstream walks maps in any order.
fn causes(faults: &[FieldError]) -> Vec<[String; 3]> {
    let mut causes: Vec<_> = faults
        .iter()
        .map(|fault| [fault.field.clone(), fault.reason.as_str().to_owned(), fault.message.clone()])
        .collect();
    causes.sort();
    causes
}

fn recorded(causes: &Value) -> Vec<[String; 3]> {
    let mut causes: Vec<[String; 3]> = serde_json::from_value(causes.clone()).unwrap();
    causes.sort();
    causes
}

/// What a real server refuses and this one takes: it knows less of some types and sizes, and takes
/// what it cannot rule out.
const ACCEPTED_ONLY_HERE: [&str; 2] = ["objects compared", "string() in a message"];

#[test]
fn definitions_match_upstream() {
    let answers: Vec<Value> = serde_json::from_str(include_str!("tests/definitions.json")).unwrap();
    assert!(answers.len() > 60);
    for answer in answers {
        let mut expected = recorded(&answer["causes"]);
        let found = causes(&structural(&answer["schema"], "spec.validation.openAPIV3Schema"));
        let why = answer["why"].as_str().unwrap();
        if ACCEPTED_ONLY_HERE.contains(&why) {
            let before = expected.len();
            expected.retain(|cause| found.contains(cause));
            assert!(expected.len() < before, "{why}: nothing more is taken");
        }
        assert_eq!(found, expected, "{why}");
    }
}

#[test]
fn objects_match_upstream() {
    let groups: Vec<Value> = serde_json::from_str(include_str!("tests/objects.json")).unwrap();
    let mut judged = 0;
    for group in groups {
        let schema = compile(&group["schema"]).unwrap();
        let rules = Rules::compile(&schema);
        for case in group["cases"].as_array().unwrap() {
            let object = |spec: &Value| {
                json!({
                    "apiVersion": "rules.example.com/v1", "kind": "Widget",
                    "metadata": { "name": "c" }, "spec": spec,
                })
            };
            let new = object(&case["new"]);
            let old = Some(object(&case["old"])).filter(|_| !case["old"].is_null());
            let mut faults = validate(&schema, &new, old.as_ref());
            let mut warnings =
                rules.evaluate_unless_blocked(&schema, &new, old.as_ref(), &mut faults);
            warnings.sort();
            let why = format!("{}: {}", group["group"], case["why"]);
            assert_eq!(causes(&faults), recorded(&case["causes"]), "{why}");
            let told: Vec<String> = serde_json::from_value(case["warnings"].clone()).unwrap();
            assert_eq!(warnings, told, "{why}");
            judged += 1;
        }
    }
    assert!(judged > 40);
}

/// A schema with one field under rules.
fn ruled(spec: &Value) -> Value {
    json!({ "type": "object", "properties": { "spec": spec } })
}

#[test]
fn values_have_cel_types() {
    let text = json!({ "type": "string" });
    let format = |format: &str| json!({ "type": "string", "format": format, "maxLength": 9 });
    let kept = json!({ "x-kubernetes-preserve-unknown-fields": true });
    let table = [
        (json!({ "type": "boolean" }), Some("bool")),
        (json!({ "type": "integer", "nullable": true }), Some("int")),
        (json!({ "type": "number" }), Some("double")),
        (text.clone(), Some("string")),
        (format("byte"), Some("bytes")),
        (format("date"), Some("timestamp")),
        (format("date-time"), Some("timestamp")),
        // A server takes this name for the format and not for the type.
        (format("datetime"), Some("string")),
        (format("duration"), Some("duration")),
        (format("email"), Some("string")),
        (json!({ "x-kubernetes-int-or-string": true }), Some("dyn")),
        (json!({ "type": "array", "items": text }), Some("list(string)")),
        (json!({ "type": "array", "items": kept }), None),
        (json!({ "type": "object", "additionalProperties": text }), Some("map(string, string)")),
        (json!({ "type": "object", "additionalProperties": kept }), None),
        (json!({ "type": "object", "additionalProperties": true }), Some("self")),
        (json!({ "type": "object" }), Some("self")),
        (kept, None),
    ];
    for (spec, expected) in table {
        let schema = compile(&ruled(&spec)).unwrap();
        let node = schema.entry(schema.root(), "spec").unwrap();
        let found = cel_type(&schema, node).map(|ty| ty.to_string());
        assert_eq!(found.as_deref(), expected, "{spec}");
    }
}

#[test]
fn declared_limits_are_part_of_a_type() {
    let spec = json!({ "type": "object", "required": ["keyed", "free"], "properties": {
        "short": { "type": "string", "maxLength": 3 },
        "chosen": { "type": "string", "enum": ["a", "abcde"] },
        "keyed": {
            "type": "array", "maxItems": 5, "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"],
            "items": { "type": "object", "properties": { "k": { "type": "integer" } } },
        },
        "free": {
            "type": "object", "maxProperties": -1, "default": {},
            "additionalProperties": { "type": "integer" },
        },
        "a.b": { "type": "integer" },
        "1st": { "type": "integer" },
    } });
    let schema = compile(&ruled(&spec)).unwrap();
    let node = schema.entry(schema.root(), "spec").unwrap();
    let Some(Type::Object(object)) = cel_type(&schema, node) else { panic!("no object") };
    let fields: Vec<_> =
        object.fields.iter().map(|(name, field)| (name.as_str(), field.required)).collect();
    let expected = [
        ("a__dot__b", false),
        ("chosen", false),
        ("free", false),
        ("keyed", true),
        ("short", false),
    ];
    assert_eq!(fields, expected, "an unreachable field is not seen, a default makes one optional");
    let ty = |name: &str| object.fields[name].ty.clone();
    assert_eq!(ty("short"), Type::String { max_length: Some(3) });
    assert_eq!(ty("chosen"), Type::String { max_length: Some(2) });
    let Type::List(list) = ty("keyed") else { panic!("no list") };
    assert_eq!((&list.kind, list.max_items), (&ListKind::Map(vec!["k".to_owned()]), Some(5)));
    let Type::Map(map) = ty("free") else { panic!("no map") };
    assert_eq!(map.max_properties, Some(0));
}

#[test]
fn whole_objects_have_their_names() {
    let text = json!({ "type": "string" });
    let named = json!({ "type": "object", "properties": { "name": text, "generateName": text } });
    let embedded = json!({
        "type": "object", "x-kubernetes-embedded-resource": true,
        "properties": { "spec": text },
    });
    let table = [
        (json!({ "type": "object" }), "apiVersion kind metadata", "generateName name"),
        (embedded.clone(), "apiVersion kind metadata spec", "generateName name"),
        (
            json!({ "type": "object", "properties": {
                "metadata": { "type": "object", "properties": { "name": text } },
            } }),
            "apiVersion kind metadata",
            "generateName name",
        ),
        (
            json!({ "type": "object", "properties": {
                "apiVersion": text, "kind": text, "metadata": named,
            } }),
            "apiVersion kind metadata",
            "generateName name",
        ),
    ];
    let fields = |ty: &Type| match ty {
        Type::Object(object) => object.fields.keys().cloned().collect::<Vec<_>>().join(" "),
        other => panic!("{other} is no object"),
    };
    for (schema, outside, metadata) in table {
        let compiled = compile(&schema).unwrap();
        let ty = cel_type(&compiled, compiled.root()).unwrap();
        assert_eq!(fields(&ty), outside, "{schema}");
        let Type::Object(object) = &ty else { panic!("no object") };
        assert_eq!(fields(&object.fields["metadata"].ty), metadata, "{schema}");
    }
    let compiled = compile(&ruled(&embedded)).unwrap();
    let node = compiled.entry(compiled.root(), "spec").unwrap();
    let ty = cel_type(&compiled, node).unwrap();
    assert_eq!(fields(&ty), "apiVersion kind metadata spec");
}

#[test]
fn a_rule_that_does_not_compile_fails_the_object() {
    let spec = json!({ "type": "string", "x-kubernetes-validations": [
        { "rule": "self.x" }, { "rule": "" }, { "rule": "self == 'a'", "messageExpression": "1" },
    ] });
    let schema = compile(&ruled(&spec)).unwrap();
    let asked = Rules::compile(&schema).evaluate(&schema, &json!({ "spec": "b" }), None);
    let messages: Vec<_> = asked.errors.iter().map(|fault| fault.message.as_str()).collect();
    let expected = [
        "Invalid value: \"string\": rule compile error: compilation failed: ERROR: <input>:1:5: \
         type 'string' does not support field selection\n | self.x\n | ....^",
        "Invalid value: \"string\": failed rule: self == 'a'",
    ];
    assert_eq!(messages, expected);
}

#[test]
fn invisible_content_has_no_rules() {
    let spec = json!({ "type": "object", "properties": { "kept": {
        "x-kubernetes-preserve-unknown-fields": true,
        "x-kubernetes-validations": [{ "rule": "false" }],
        "properties": { "a": {
            "type": "string", "x-kubernetes-validations": [{ "rule": "false" }],
        } },
    } } });
    let schema = compile(&ruled(&spec)).unwrap();
    let rules = Rules::compile(&schema);
    assert!(!rules.is_empty());
    let object = json!({ "spec": { "kept": { "a": "x" } } });
    assert_eq!(rules.evaluate(&schema, &object, None), RuleResults::default());
}

#[test]
fn no_rules_means_no_evaluation() {
    let schema = compile(&ruled(&json!({ "type": "string" }))).unwrap();
    let rules = Rules::compile(&schema);
    assert!(rules.is_empty() && rules.nodes.is_empty());
    let mut faults = vec![FieldError::required("spec", "")];
    let object = json!({ "spec": 1 });
    assert_eq!(
        rules.evaluate_unless_blocked(&schema, &object, None, &mut faults),
        Vec::<String>::new()
    );
    assert_eq!(faults.len(), 1);
}

#[test]
fn rules_are_shared_between_threads() {
    fn shared<T: Send + Sync + std::fmt::Debug>() {}
    shared::<Rules>();
}

/// A definition with one rule, which costs too much by itself.
fn costly(description: &str, per_rule: bool) -> Value {
    let items = if per_rule { json!({ "type": "string" }) } else { json!({ "type": "integer" }) };
    let rule =
        if per_rule { "self.all(x, x.contains('z'))" } else { "self.all(x, x > 1 && x < 9)" };
    let spec = json!({
        "type": "array", "items": items, "description": description,
        "x-kubernetes-validations": [{ "rule": rule }],
    });
    let mut definition = json!({
        "metadata": { "name": "widgets.case.test" },
        "spec": {
            "group": "case.test", "scope": "Namespaced",
            "names": { "plural": "widgets", "kind": "Widget" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": ruled(&spec) },
            }],
        },
    });
    crate::default_definition(&mut definition);
    crate::prepare_definition(&mut definition, None);
    definition
}

/// Those of a schema that did not change were accepted with what they cost, unless all together are
/// too much.
#[test]
fn cost_is_checked_on_schema_change() {
    let faults = |new: &Value, old: Option<&Value>| {
        let faults = crate::validate_definition(new, old);
        faults.into_iter().map(|fault| fault.message).collect::<Vec<_>>()
    };
    let (old, changed) = (costly("", false), costly("changed", false));
    let dear = "Forbidden: estimated rule cost exceeds budget by factor of ";
    let created = faults(&old, None);
    assert!(matches!(created.as_slice(), [one] if one.starts_with(dear)), "{created:?}");
    assert_eq!(faults(&old, Some(&old)), Vec::<String>::new());
    assert_eq!(faults(&changed, Some(&old)), created);
    // The limit of all rules together always holds.
    let unlimited = costly("", true);
    assert_eq!(faults(&unlimited, None).len(), 3);
    assert_eq!(faults(&unlimited, Some(&unlimited)).len(), 2);
}

/// Expressions that compile or not, with values that fit or not.
fn any_rule() -> impl Strategy<Value = Value> {
    let rule = prop_oneof![
        "[a-z .()'=!<>&|0-9\\[\\]]{0,30}",
        proptest::sample::select(vec![
            "self == oldSelf",
            "has(self.a)",
            "self.a > 0",
            "self.all(x, x == 'a')",
            "self[0] == 1",
            "self.b.c != 'x'",
            "size(self) > 1",
            "oldSelf.hasValue()",
            "type(self) == int ? self > 0 : self == 'x'",
        ])
        .prop_map(ToOwned::to_owned),
    ];
    let message = proptest::option::of(proptest::sample::select(vec![
        "'x'",
        "self",
        "string(self)",
        "oldSelf",
        "''",
        "self.a +",
    ]));
    (rule, message, any::<Option<bool>>(), any::<bool>()).prop_map(
        |(rule, message, optional, has_path)| {
            json!({
                "rule": rule, "messageExpression": message, "optionalOldSelf": optional,
                "fieldPath": if has_path { json!(".a") } else { Value::Null },
            })
        },
    )
}

fn any_schema() -> impl Strategy<Value = Value> {
    let leaf = proptest::sample::select(vec![
        json!({ "type": "string", "maxLength": 9 }),
        json!({ "type": "integer", "nullable": true }),
        json!({ "type": "boolean" }),
        json!({ "type": "string", "format": "date-time" }),
        json!({ "x-kubernetes-int-or-string": true }),
        json!({ "x-kubernetes-preserve-unknown-fields": true }),
    ]);
    let with_rules = |schema: BoxedStrategy<Value>| {
        (schema, proptest::collection::vec(any_rule(), 0..2)).prop_map(|(mut schema, rules)| {
            schema["x-kubernetes-validations"] = rules.into();
            schema
        })
    };
    let schema = with_rules(leaf.boxed()).prop_recursive(3, 12, 3, move |inner| {
        let parts = prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| {
                json!({ "type": "object", "properties": { "a": a, "b": b } })
            }),
            inner.clone().prop_map(|it| json!({ "type": "array", "maxItems": 3, "items": it })),
            inner.clone().prop_map(|it| json!({ "type": "array", "items": it })),
            inner.prop_map(|it| json!({ "type": "object", "additionalProperties": it })),
        ];
        with_rules(parts.boxed())
    });
    schema.prop_map(|spec| ruled(&spec))
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = proptest::sample::select(vec![
        json!(null),
        json!(true),
        json!(0),
        json!(7),
        json!(1.5),
        json!("a"),
        json!("2024-01-01T00:00:00Z"),
    ]);
    leaf.prop_recursive(3, 12, 3, |inner| {
        let entry = (proptest::sample::select(vec!["a", "b", "c"]), inner.clone());
        prop_oneof![
            proptest::collection::vec(inner, 0..3).prop_map(Value::from),
            proptest::collection::vec(entry, 0..3).prop_map(|entries| {
                let entries = entries.into_iter().map(|(name, value)| (name.to_owned(), value));
                Value::Object(entries.collect())
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Whatever rules and objects are, there is an answer; and an object that does not change is
    /// refused only by rules about change, or for rules that have no answer.
    #[test]
    fn any_rule_evaluates_any_object(
        schema in any_schema(), new in any_value(), old in any_value(),
    ) {
        let _ = structural(&schema, "schema");
        let compiled = compile(&schema).unwrap();
        let rules = Rules::compile(&compiled);
        let object = |spec: Value| json!({ "metadata": { "name": "x" }, "spec": spec });
        let (new, old) = (object(new), object(old));
        let _ = rules.evaluate(&compiled, &new, None);
        let _ = rules.evaluate(&compiled, &new, Some(&old));
        let mut pruned = new;
        crate::prune(&compiled, &mut pruned);
        let unchanged = rules.evaluate(&compiled, &pruned, Some(&pruned));
        // What is merely kept is never known to be unchanged, nor what has another type.
        let text = schema.to_string();
        if text.contains("preserve") || !validate(&compiled, &pruned, None).is_empty() {
            return Ok(());
        }
        for fault in &unchanged.errors {
            let answers = ["rule compile error", " evaluating rule: ", "no such overload"];
            let has_no_answer = answers.iter().any(|text| fault.message.contains(text));
            prop_assert!(has_no_answer || text.contains("oldSelf"), "{fault}");
        }
    }
}
