//! Messages in the words of a real server.

mod oracle;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{compile, default, prune};

const INVALID: FieldErrorReason = FieldErrorReason::Invalid;
const TYPE: FieldErrorReason = FieldErrorReason::TypeInvalid;

/// Objects whose `spec` has this schema.
fn schema(spec: &Value) -> Schema {
    compile(&json!({ "type": "object", "properties": { "spec": spec } })).unwrap()
}

fn schema_of_x(x: &Value) -> Schema {
    schema(&json!({ "type": "object", "properties": { "x": x } }))
}

fn object(spec: &Value) -> Value {
    json!({ "apiVersion": "a/v1", "kind": "A", "metadata": { "name": "a" }, "spec": spec })
}

/// Field, reason and message.
type Cause<'text> = (&'text str, FieldErrorReason, &'text str);

fn assert_errors(why: &str, found: &[FieldError], expected: &[Cause<'_>]) {
    let found: Vec<_> =
        found.iter().map(|it| (it.field.as_str(), it.reason, it.message.as_str())).collect();
    assert_eq!(found, expected, "{why}");
}

/// Checks values of `spec.x` one by one.
fn assert_refused(x: &Value, table: &[(Value, &[Cause<'_>])]) {
    let schema = schema_of_x(x);
    for (value, expected) in table {
        let found = validate(&schema, &object(&json!({ "x": value })), None);
        assert_errors(&value.to_string(), &found, expected);
    }
}

#[test]
fn texts_are_measured_in_code_points_and_matched() {
    let x = json!({ "type": "string", "minLength": 2, "maxLength": 4, "pattern": "^[a-zä]+$" });
    assert_refused(
        &x,
        &[
            (json!("abc"), &[]),
            (json!("ääää"), &[]),
            (
                json!("a"),
                &[(
                    "spec.x",
                    INVALID,
                    "Invalid value: \"a\": spec.x in body should be at least 2 chars long",
                )],
            ),
            (
                json!("abcde"),
                &[("spec.x", FieldErrorReason::TooLong, "Too long: may not be more than 4 bytes")],
            ),
            (
                json!("AB"),
                &[(
                    "spec.x",
                    INVALID,
                    "Invalid value: \"AB\": spec.x in body should match '^[a-zä]+$'",
                )],
            ),
        ],
    );
}

#[test]
fn numbers_are_bounded() {
    let x = json!({ "type": "number", "minimum": 1, "maximum": 10, "exclusiveMaximum": true });
    assert_refused(
        &x,
        &[
            (json!(9.5), &[]),
            (
                json!(0),
                &[(
                    "spec.x",
                    INVALID,
                    "Invalid value: 0: spec.x in body should be greater than or equal to 1",
                )],
            ),
            (
                json!(10),
                &[("spec.x", INVALID, "Invalid value: 10: spec.x in body should be less than 10")],
            ),
            (
                json!(10.5),
                &[(
                    "spec.x",
                    INVALID,
                    "Invalid value: 10.5: spec.x in body should be less than 10",
                )],
            ),
        ],
    );
    let x = json!({ "type": "number", "multipleOf": 0.5 });
    assert_refused(
        &x,
        &[
            (json!(1.5), &[]),
            (
                json!(1.3),
                &[(
                    "spec.x",
                    INVALID,
                    "Invalid value: 1.3: spec.x in body should be a multiple of 0.5",
                )],
            ),
            (
                json!(2),
                &[(
                    "spec.x",
                    INVALID,
                    "Invalid value: 0: factor MultipleOf declared for spec.x must be positive: 0",
                )],
            ),
        ],
    );
    let x = json!({ "type": "integer", "multipleOf": 3 });
    assert_refused(
        &x,
        &[
            (json!(9), &[]),
            (
                json!(8),
                &[(
                    "spec.x",
                    INVALID,
                    "Invalid value: 8: spec.x in body should be a multiple of 3",
                )],
            ),
        ],
    );
}

#[test]
fn lists_and_maps_are_bounded_and_unique() {
    let text = json!({ "type": "string" });
    let x = json!({ "type": "object", "properties": {
        "few": { "type": "array", "items": text, "minItems": 1, "maxItems": 2 },
        "small": { "type": "object", "additionalProperties": text, "maxProperties": 1 },
        "some": { "type": "object", "additionalProperties": text, "minProperties": 1 },
        "set": { "type": "array", "items": text, "x-kubernetes-list-type": "set" },
        "map": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": { "type": "object", "required": ["k"], "properties": { "k": text } },
        },
        "two": {
            "type": "array", "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["p", "n"],
            "items": { "type": "object", "properties": { "n": { "type": "integer" }, "p": text } },
        },
        "sets": { "type": "object", "additionalProperties": {
            "type": "array", "items": { "type": "integer" }, "x-kubernetes-list-type": "set",
        } },
    } });
    assert_refused(
        &x,
        &[
            (
                json!({ "few": ["a", "b", "c"] }),
                &[(
                    "spec.x.few",
                    FieldErrorReason::TooMany,
                    "Too many: 3: must have at most 2 items",
                )],
            ),
            (
                json!({ "few": [] }),
                &[(
                    "spec.x.few",
                    INVALID,
                    "Invalid value: 0: spec.x.few in body should have at least 1 items",
                )],
            ),
            (
                json!({ "small": { "a": "1", "b": "2" } }),
                &[(
                    "spec.x.small",
                    FieldErrorReason::TooMany,
                    "Too many: 2: must have at most 1 item",
                )],
            ),
            (
                json!({ "some": {} }),
                &[(
                    "spec.x.some",
                    INVALID,
                    "Invalid value: 0: spec.x.some in body should have at least 1 properties",
                )],
            ),
            (
                json!({ "small": { "a": 1 } }),
                &[(
                    "spec.x.small.a",
                    TYPE,
                    "Invalid value: \"integer\": spec.x.small.a in body must be of type string: \
                     \"integer\"",
                )],
            ),
            (
                json!({ "set": ["a", "a", "a", "b", "b"] }),
                &[
                    ("spec.x.set[1]", FieldErrorReason::Duplicate, "Duplicate value: \"a\""),
                    ("spec.x.set[4]", FieldErrorReason::Duplicate, "Duplicate value: \"b\""),
                ],
            ),
            (
                json!({ "map": [{ "k": "a" }, { "k": "a" }] }),
                &[("spec.x.map[1]", FieldErrorReason::Duplicate, "Duplicate value: {\"k\":\"a\"}")],
            ),
            (
                json!({ "map": [{}] }),
                &[("spec.x.map[0].k", FieldErrorReason::Required, "Required value")],
            ),
            (
                json!({ "two": [{ "n": 1, "p": "a" }, { "n": 1 }, { "p": "a", "n": 1 }] }),
                &[(
                    "spec.x.two[2]",
                    FieldErrorReason::Duplicate,
                    "Duplicate value: {\"n\":1,\"p\":\"a\"}",
                )],
            ),
            (
                json!({ "sets": { "a": [1, 1] } }),
                &[("spec.x.sets[a][1]", FieldErrorReason::Duplicate, "Duplicate value: 1")],
            ),
        ],
    );
}

#[test]
fn types_are_named() {
    let x = json!({ "type": "object", "properties": {
        "integer": { "type": "integer" },
        "boolean": { "type": "boolean" },
        "list": { "type": "array", "items": { "type": "string" } },
        "choice": { "type": "string", "enum": ["red", "blue"] },
        "number": { "type": "number", "enum": [1, 2.5] },
        "port": { "x-kubernetes-int-or-string": true },
        "closed": { "type": "object", "additionalProperties": false },
        "maybe": { "type": "string", "nullable": true },
    } });
    assert_refused(
        &x,
        &[
            (
                json!({ "integer": 1.0, "port": "a", "number": 2.5, "maybe": null, "closed": {} }),
                &[],
            ),
            (
                json!("text"),
                &[(
                    "spec.x",
                    TYPE,
                    "Invalid value: \"string\": spec.x in body must be of type object: \"string\"",
                )],
            ),
            (
                json!(null),
                &[(
                    "spec.x",
                    TYPE,
                    "Invalid value: \"null\": spec.x in body must be of type object: \"null\"",
                )],
            ),
            (
                json!({ "integer": "1" }),
                &[(
                    "spec.x.integer",
                    TYPE,
                    "Invalid value: \"string\": spec.x.integer in body must be of type integer: \"string\"",
                )],
            ),
            (
                json!({ "integer": 1.5 }),
                &[(
                    "spec.x.integer",
                    TYPE,
                    "Invalid value: \"number\": spec.x.integer in body must be of type integer: \"number\"",
                )],
            ),
            (
                json!({ "boolean": 1 }),
                &[(
                    "spec.x.boolean",
                    TYPE,
                    "Invalid value: \"integer\": spec.x.boolean in body must be of type boolean: \"integer\"",
                )],
            ),
            (
                json!({ "list": [1] }),
                &[(
                    "spec.x.list[0]",
                    TYPE,
                    "Invalid value: \"integer\": spec.x.list[0] in body must be of type string: \"integer\"",
                )],
            ),
            (
                json!({ "list": {} }),
                &[(
                    "spec.x.list",
                    TYPE,
                    "Invalid value: \"object\": spec.x.list in body must be of type array: \"object\"",
                )],
            ),
            (
                json!({ "choice": "green" }),
                &[(
                    "spec.x.choice",
                    FieldErrorReason::NotSupported,
                    "Unsupported value: \"green\": supported values: \"red\", \"blue\"",
                )],
            ),
            (
                json!({ "number": 3 }),
                &[(
                    "spec.x.number",
                    FieldErrorReason::NotSupported,
                    "Unsupported value: 3: supported values: \"1\", \"2.5\"",
                )],
            ),
            (
                json!({ "port": 1.5 }),
                &[(
                    "spec.x.port",
                    TYPE,
                    "Invalid value: \"number\": spec.x.port in body must be of type integer,string: \"number\"",
                )],
            ),
            (
                json!({ "closed": { "a": 1 } }),
                &[(
                    "spec.x.closed",
                    INVALID,
                    "Invalid value: \"a\": spec.x.closed.a in body is a forbidden property",
                )],
            ),
        ],
    );
}

#[test]
fn errors_are_sorted_required_last() {
    let schema = schema(&json!({ "type": "object", "required": ["must"], "properties": {
        "must": { "type": "string" },
        "replicas": { "type": "integer" },
        "color": { "type": "string", "enum": ["red", "blue"] },
        "size": { "type": "integer", "maximum": 10, "x-kubernetes-validations": [
            { "rule": "self != 7", "message": "no sevens" },
        ] },
    } }));
    let spec = json!({ "size": 20, "replicas": "many", "color": "green" });
    let mut found = validate(&schema, &object(&spec), None);
    assert!(has_blocking_errors(&found));
    found.push(rules_blocked_error());
    assert_errors(
        "together",
        &found,
        &[
            (
                "spec.color",
                FieldErrorReason::NotSupported,
                "Unsupported value: \"green\": supported values: \"red\", \"blue\"",
            ),
            (
                "spec.replicas",
                TYPE,
                "Invalid value: \"string\": spec.replicas in body must be of type integer: \"string\"",
            ),
            (
                "spec.size",
                INVALID,
                "Invalid value: 20: spec.size in body should be less than or equal to 10",
            ),
            ("spec.must", FieldErrorReason::Required, "Required value"),
            (
                "<nil>",
                INVALID,
                "Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation",
            ),
        ],
    );
    let merely_invalid = validate(&schema, &object(&json!({ "must": "a", "size": 20 })), None);
    assert!(!has_blocking_errors(&merely_invalid));
}

#[test]
fn formats_stand_for_types() {
    let of = |format: &str| json!({ "type": "string", "format": format });
    let x = json!({ "type": "object", "properties": {
        "time": of("date-time"), "own": of("no-such-format"), "small": { "type": "integer", "format": "int32" },
    } });
    assert_refused(
        &x,
        &[
            (
                json!({ "time": "1999-01-01T00:00:00Z", "own": "anything", "small": 4_294_967_296_i64 }),
                &[],
            ),
            (
                json!({ "time": "zz" }),
                &[(
                    "spec.x.time",
                    TYPE,
                    "Invalid value: \"zz\": spec.x.time in body must be of type date-time: \"zz\"",
                )],
            ),
            (
                json!({ "time": 5 }),
                &[(
                    "spec.x.time",
                    TYPE,
                    "Invalid value: \"int64\": spec.x.time in body must be of type date-time: \"int64\"",
                )],
            ),
            (
                json!({ "time": true }),
                &[(
                    "spec.x.time",
                    TYPE,
                    "Invalid value: \"\": spec.x.time in body must be of type date-time: \"\"",
                )],
            ),
        ],
    );
}

#[test]
fn clauses_report_the_nearest_miss() {
    let text = json!({ "type": "string" });
    let x = json!({
        "type": "object", "properties": { "a": text, "b": text },
        "oneOf": [{ "required": ["a"] }, { "required": ["b"] }],
        "not": { "properties": { "a": { "enum": ["never"] } }, "required": ["a"] },
    });
    assert_refused(
        &x,
        &[
            (json!({ "a": "1" }), &[]),
            (
                json!({}),
                &[
                    (
                        "<nil>",
                        INVALID,
                        "Invalid value: \"\": \"spec.x\" must validate one and only one schema (oneOf). Found none valid",
                    ),
                    ("spec.x.a", FieldErrorReason::Required, "Required value"),
                ],
            ),
            (
                json!({ "a": "1", "b": "2" }),
                &[(
                    "<nil>",
                    INVALID,
                    "Invalid value: \"\": \"spec.x\" must validate one and only one schema (oneOf). Found 2 valid alternatives",
                )],
            ),
            (
                json!({ "a": "never" }),
                &[(
                    "<nil>",
                    INVALID,
                    "Invalid value: \"\": \"spec.x\" must not validate the schema (not)",
                )],
            ),
        ],
    );
    let x = json!({
        "type": "integer",
        "anyOf": [{ "maximum": 1 }, { "minimum": 5, "multipleOf": 2 }],
        "allOf": [{ "maximum": 100 }, { "not": { "enum": [8] } }],
    });
    assert_refused(
        &x,
        &[
            (json!(6), &[]),
            (
                json!(3),
                &[
                    (
                        "<nil>",
                        INVALID,
                        "Invalid value: \"\": \"spec.x\" must validate at least one schema (anyOf)",
                    ),
                    (
                        "spec.x",
                        INVALID,
                        "Invalid value: 3: spec.x in body should be less than or equal to 1",
                    ),
                ],
            ),
            (
                json!(8),
                &[
                    (
                        "<nil>",
                        INVALID,
                        "Invalid value: \"\": \"spec.x\" must not validate the schema (not)",
                    ),
                    (
                        "<nil>",
                        INVALID,
                        "Invalid value: \"\": \"spec.x\" must validate all the schemas (allOf)",
                    ),
                ],
            ),
        ],
    );
}

#[test]
fn embedded_objects_need_type_meta() {
    let x = json!({
        "type": "object", "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true,
    });
    assert_refused(
        &x,
        &[
            (json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p" } }), &[]),
            (
                json!({ "kind": "Pod" }),
                &[("spec.x.apiVersion", FieldErrorReason::Required, "Required value")],
            ),
            (
                json!({ "apiVersion": "a/b/c", "kind": "" }),
                &[
                    (
                        "spec.x.apiVersion",
                        INVALID,
                        "Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c",
                    ),
                    ("spec.x.kind", INVALID, "Invalid value: \"\": must not be empty"),
                ],
            ),
            (
                json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a/b" } }),
                &[("spec.x.metadata.name", INVALID, "Invalid value: \"a/b\": may not contain '/'")],
            ),
        ],
    );
}

#[test]
fn status_is_named_without_its_own_name() {
    let schema = compile(&json!({ "type": "object", "properties": { "status": {
        "type": "object", "required": ["b"], "properties": { "a": { "type": "integer" } },
    } } }))
    .unwrap();
    let found = validate_status(&schema, &json!({ "status": { "a": "1" } }), None);
    assert_errors(
        "status",
        &found,
        &[
            (
                "status.a",
                TYPE,
                "Invalid value: \"string\": a in body must be of type integer: \"string\"",
            ),
            ("status.b", FieldErrorReason::Required, "Required value"),
        ],
    );
}

#[test]
fn unchanged_errors_are_ratcheted() {
    let part = json!({ "type": "object", "required": ["k"], "properties": {
        "k": { "type": "string" }, "v": { "type": "string", "maxLength": 3 },
    } });
    let schema = schema(&json!({ "type": "object", "properties": {
        "a": { "type": "string", "maxLength": 3 },
        "b": { "type": "string" },
        "inner": { "type": "object", "required": ["must"], "properties": { "c": { "type": "string" } } },
        "list": { "type": "array", "items": part },
        "map": {
            "type": "array", "items": part, "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"],
        },
        "set": { "type": "array", "items": { "type": "string" }, "x-kubernetes-list-type": "set" },
    } }));
    let long = ("spec.a", FieldErrorReason::TooLong, "Too long: may not be more than 3 bytes");
    let (one, two) = (json!({ "k": "1", "v": "long" }), json!({ "k": "2", "v": "fine" }));
    let table: [(&str, Value, Value, &[Cause<'_>]); 9] = [
        (
            "another field changes",
            json!({ "a": "long", "b": "x" }),
            json!({ "a": "long", "b": "y" }),
            &[],
        ),
        ("the field changes", json!({ "a": "long" }), json!({ "a": "longer" }), &[long]),
        ("the field is new", json!({}), json!({ "a": "long" }), &[long]),
        (
            "an object is unchanged",
            json!({ "inner": { "c": "x" } }),
            json!({ "inner": { "c": "x" }, "b": "y" }),
            &[],
        ),
        (
            "an object changes",
            json!({ "inner": { "c": "x" } }),
            json!({ "inner": { "c": "y" } }),
            &[("spec.inner.must", FieldErrorReason::Required, "Required value")],
        ),
        (
            "elements of a map move",
            json!({ "map": [one, two] }),
            json!({ "map": [{ "k": "2", "v": "x" }, one] }),
            &[],
        ),
        (
            "elements of a list are not told apart",
            json!({ "list": [one] }),
            json!({ "list": [one, { "k": "3" }] }),
            &[(
                "spec.list[0].v",
                FieldErrorReason::TooLong,
                "Too long: may not be more than 3 bytes",
            )],
        ),
        ("a list is unchanged", json!({ "list": [one] }), json!({ "list": [one], "b": "y" }), &[]),
        (
            "a set was no set before",
            json!({ "set": ["a", "a"] }),
            json!({ "set": ["b", "b"] }),
            &[],
        ),
    ];
    for (why, old, new, expected) in table {
        assert_errors(why, &validate(&schema, &object(&new), Some(&object(&old))), expected);
    }
    let found = validate(
        &schema,
        &object(&json!({ "set": ["b", "b"] })),
        Some(&object(&json!({ "set": ["b"] }))),
    );
    assert_errors(
        "a set stays one",
        &found,
        &[("spec.set[1]", FieldErrorReason::Duplicate, "Duplicate value: \"b\"")],
    );
}

/// A schema with most of what there is, and the values that come near it.
fn rich_schema() -> Value {
    let text = json!({ "type": "string", "maxLength": 3 });
    json!({ "type": "object", "required": ["a"], "properties": {
        "a": text,
        "b": { "type": "integer", "default": 3, "maximum": 5 },
        "c": { "type": "string", "nullable": true, "enum": ["x", "y"] },
        "d": { "type": "object", "properties": { "a": text, "b": { "type": "string", "default": "z" } } },
        "e": { "type": "array", "items": { "type": "object", "properties": { "a": { "type": "string", "default": "q" } } },
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"] },
        "f": { "type": "object", "additionalProperties": { "type": "object", "properties": { "a": text } } },
        "g": { "type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": { "d": { "type": "object" } } },
        "h": { "type": "object", "default": {}, "properties": { "b": { "type": "boolean", "default": true } } },
        "i": { "type": "array", "items": text, "x-kubernetes-list-type": "set" },
        "j": { "x-kubernetes-int-or-string": true },
    } })
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2..9_i64).prop_map(Value::from),
        "[xyz]{0,4}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        let entries = prop::collection::vec(("[a-l]", inner.clone()), 0..6);
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(Value::from),
            entries.prop_map(|entries| entries.into_iter().collect::<Value>()),
        ]
    })
}

/// The same value with the entries of all objects in the opposite order.
fn reversed(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            map.iter().rev().map(|(key, value)| (key.clone(), reversed(value))).collect()
        }
        Value::Array(list) => list.iter().map(reversed).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

proptest! {
    #[test]
    fn prune_and_default_are_idempotent(spec in any_value()) {
        let schema = schema(&rich_schema());
        let mut once = object(&spec);
        prune(&schema, &mut once);
        let pruned = once.clone();
        prop_assert_eq!(prune(&schema, &mut once), Vec::<String>::new());
        prop_assert_eq!(&once, &pruned);
        default(&schema, &mut once);
        let defaulted = once.clone();
        default(&schema, &mut once);
        prop_assert_eq!(&once, &defaulted);
        prop_assert!(prune(&schema, &mut once).is_empty());
    }

    /// A pruned field is one whose place no schema describes: naming it again is pruned again, and
    /// nothing that stays is told.
    #[test]
    fn pruned_fields_are_reported(spec in any_value()) {
        let schema = schema(&rich_schema());
        let mut value = object(&spec);
        let told = prune(&schema, &mut value);
        let was_told = |path: String| told.contains(&path);
        if let (Some(before), Some(after)) = (spec.as_object(), value["spec"].as_object()) {
            for key in before.keys() {
                prop_assert_eq!(was_told(format!("spec.{key}")), !after.contains_key(key));
            }
        }
    }

    #[test]
    fn errors_ignore_key_order(old in any_value(), new in any_value()) {
        let schema = schema(&rich_schema());
        let (old, new) = (object(&old), object(&new));
        let verdict = validate(&schema, &new, Some(&old));
        prop_assert_eq!(validate(&schema, &reversed(&new), Some(&reversed(&old))), verdict);
    }

    /// Writing back what is stored never fails, however wrong it is, except where the schema cannot
    /// tell that it is unchanged: it does not describe all of `g`, and elements of `e` may lack
    /// keys.
    #[test]
    fn unchanged_objects_validate(spec in any_value()) {
        let schema = schema(&rich_schema());
        let mut value = object(&spec);
        prune(&schema, &mut value);
        if ["g", "e"].iter().all(|name| value["spec"].get(name).is_none()) {
            prop_assert_eq!(validate_values(&schema, &value, Some(&value)), Vec::new());
        }
    }
}
