//! Custom objects: what a schema refuses, and the words for it.

use serde_json::{Value, json};

use super::objects::{DEFINITIONS, WIDGETS, define_widgets, object_path, widget};
use crate::case::{Case, Outcome, case};
use crate::session::{PatchType, RequestSpec, Session};

pub(super) const CASES: &[Case] = &[
    case!("custom-errors-of-strings", [52], strings),
    case!("custom-errors-of-numbers", [52], numbers),
    case!("custom-errors-of-lists", [52], lists),
    case!("custom-errors-of-types", [52], types),
    case!("custom-errors-together", [52], together),
    case!("custom-errors-of-formats", [52], formats),
    case!("custom-errors-of-combinations", [52], combinations),
    case!("custom-errors-of-identity", [52], identity),
    case!("custom-ratcheting", [53], ratcheting),
];

const INVALID: &str = "FieldValueInvalid";
const TYPE: &str = "FieldValueTypeInvalid";

/// Field, reason and message of a cause.
type Cause<'text> = (&'text str, &'text str, &'text str);

/// Defines Widgets with one property `x`.
async fn define_x(talk: &mut Session, x: &Value) -> Outcome {
    define_widgets(talk, &json!({ "type": "object", "properties": { "x": x } })).await
}

/// Posts Widgets with each value of `x`, and compares the causes.
async fn refuse(talk: &mut Session, table: &[(Value, &[Cause<'_>])]) -> Outcome {
    for (value, causes) in table {
        let answer = talk.post(WIDGETS, &widget("w", &json!({ "x": value }))).await?;
        answer.expect_error_containing(422, "Invalid", " is invalid: ")?.has_causes(causes)?;
    }
    Ok(())
}

async fn strings(talk: &mut Session) -> Outcome {
    let x = json!({
        "type": "string", "minLength": 2, "maxLength": 4, "pattern": "^[a-z]+$",
    });
    define_x(talk, &x).await?;
    refuse(
        talk,
        &[
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
                &[("spec.x", "FieldValueTooLong", "Too long: may not be more than 4 bytes")],
            ),
            (
                json!("AB"),
                &[(
                    "spec.x",
                    INVALID,
                    "Invalid value: \"AB\": spec.x in body should match '^[a-z]+$'",
                )],
            ),
        ],
    )
    .await
}

async fn numbers(talk: &mut Session) -> Outcome {
    let x = json!({ "type": "number", "minimum": 1, "maximum": 10 });
    let multiple = json!({ "type": "number", "multipleOf": 0.5 });
    let properties = json!({ "x": x, "multiple": multiple });
    define_widgets(talk, &json!({ "type": "object", "properties": properties })).await?;
    refuse(
        talk,
        &[
            (
                json!(0),
                &[(
                    "spec.x",
                    INVALID,
                    "Invalid value: 0: spec.x in body should be greater than or equal to 1",
                )],
            ),
            (
                json!(20),
                &[(
                    "spec.x",
                    INVALID,
                    "Invalid value: 20: spec.x in body should be less than or equal to 10",
                )],
            ),
        ],
    )
    .await?;
    let answer =
        talk.post(WIDGETS, &widget("w", &json!({ "multiple": 1.3 }))).await?.expect(422)?;
    let message = "Invalid value: 1.3: spec.multiple in body should be a multiple of 0.5";
    answer.has_causes(&[("spec.multiple", INVALID, message)])?;
    // A whole number is checked by whole numbers, and half of one is none.
    let answer = talk.post(WIDGETS, &widget("w", &json!({ "multiple": 2 }))).await?.expect(422)?;
    let message =
        "Invalid value: 0: factor MultipleOf declared for spec.multiple must be positive: 0";
    answer.has_causes(&[("spec.multiple", INVALID, message)])
}

async fn lists(talk: &mut Session) -> Outcome {
    let text = json!({ "type": "string" });
    let x = json!({ "type": "object", "properties": {
        "few": { "type": "array", "items": text, "minItems": 1, "maxItems": 2 },
        "small": { "type": "object", "additionalProperties": text, "maxProperties": 1 },
        "set": { "type": "array", "items": text, "x-kubernetes-list-type": "set" },
        "map": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": { "type": "object", "required": ["k"], "properties": { "k": text } },
        },
    } });
    define_x(talk, &x).await?;
    refuse(
        talk,
        &[
            (
                json!({ "few": ["a", "b", "c"] }),
                &[("spec.x.few", "FieldValueTooMany", "Too many: 3: must have at most 2 items")],
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
                &[("spec.x.small", "FieldValueTooMany", "Too many: 2: must have at most 1 item")],
            ),
            (
                json!({ "set": ["a", "a"] }),
                &[("spec.x.set[1]", "FieldValueDuplicate", "Duplicate value: \"a\"")],
            ),
            (
                json!({ "map": [{ "k": "a" }, { "k": "a" }] }),
                &[("spec.x.map[1]", "FieldValueDuplicate", "Duplicate value: {\"k\":\"a\"}")],
            ),
            (
                json!({ "map": [{}] }),
                &[("spec.x.map[0].k", "FieldValueRequired", "Required value")],
            ),
        ],
    )
    .await
}

async fn types(talk: &mut Session) -> Outcome {
    let x = json!({ "type": "object", "properties": {
        "integer": { "type": "integer" },
        "boolean": { "type": "boolean" },
        "list": { "type": "array", "items": { "type": "string" } },
        "choice": { "type": "string", "enum": ["red", "blue"] },
    } });
    define_x(talk, &x).await?;
    refuse(
        talk,
        &[
            (
                json!("text"),
                &[(
                    "spec.x",
                    TYPE,
                    "Invalid value: \"string\": spec.x in body must be of type object: \"string\"",
                )],
            ),
            (
                json!({ "integer": "1" }),
                &[(
                    "spec.x.integer",
                    TYPE,
                    "Invalid value: \"string\": spec.x.integer in body must be of type integer: \
                     \"string\"",
                )],
            ),
            (
                json!({ "integer": 1.5 }),
                &[(
                    "spec.x.integer",
                    TYPE,
                    "Invalid value: \"number\": spec.x.integer in body must be of type integer: \
                     \"number\"",
                )],
            ),
            (
                json!({ "boolean": 1 }),
                &[(
                    "spec.x.boolean",
                    TYPE,
                    "Invalid value: \"integer\": spec.x.boolean in body must be of type boolean: \
                     \"integer\"",
                )],
            ),
            (
                json!({ "list": [1] }),
                &[(
                    "spec.x.list[0]",
                    TYPE,
                    "Invalid value: \"integer\": spec.x.list[0] in body must be of type string: \
                     \"integer\"",
                )],
            ),
            (
                json!({ "choice": "green" }),
                &[(
                    "spec.x.choice",
                    "FieldValueNotSupported",
                    "Unsupported value: \"green\": supported values: \"red\", \"blue\"",
                )],
            ),
        ],
    )
    .await
}

async fn together(talk: &mut Session) -> Outcome {
    let schema = json!({ "type": "object", "required": ["must"], "properties": {
        "must": { "type": "string" },
        "replicas": { "type": "integer" },
        "color": { "type": "string", "enum": ["red", "blue"] },
        "size": { "type": "integer", "maximum": 10, "x-kubernetes-validations": [
            { "rule": "self != 7", "message": "no sevens" },
        ] },
    } });
    define_widgets(talk, &schema).await?;
    let spec = json!({ "replicas": "many", "color": "green", "size": 20 });
    let answer = talk.post(WIDGETS, &widget("w", &spec)).await?;
    let start = talk.with_namespace("Widget.{ns}.case.test \"w\" is invalid: [");
    let answer = answer.expect_error_containing(422, "Invalid", &start)?;
    answer.has_value("/details/kind", &json!("Widget"))?;
    answer.has_value("/details/group", &json!(talk.with_namespace("{ns}.case.test")))?;
    answer.has_causes(&[
        ("spec.must", "FieldValueRequired", "Required value"),
        (
            "spec.replicas",
            TYPE,
            "Invalid value: \"string\": spec.replicas in body must be of type integer: \"string\"",
        ),
        (
            "spec.color",
            "FieldValueNotSupported",
            "Unsupported value: \"green\": supported values: \"red\", \"blue\"",
        ),
        (
            "spec.size",
            INVALID,
            "Invalid value: 20: spec.size in body should be less than or equal to 10",
        ),
        (
            "<nil>",
            INVALID,
            "Invalid value: null: some validation rules were not checked because the object was \
             invalid; correct the existing errors to complete validation",
        ),
    ])
}

async fn formats(talk: &mut Session) -> Outcome {
    let of = |format: &str| json!({ "type": "string", "format": format });
    let x = json!({ "type": "object", "properties": {
        "time": of("date-time"), "ip": of("ipv4"), "mail": of("email"), "uri": of("uri"),
        "span": of("duration"), "own": of("no-such-format"),
    } });
    define_x(talk, &x).await?;
    for (key, format) in
        [("time", "date-time"), ("ip", "ipv4"), ("mail", "email"), ("span", "duration")]
    {
        let answer = talk.post(WIDGETS, &widget("w", &json!({ "x": { key: "zz" } }))).await?;
        let message =
            format!("Invalid value: \"zz\": spec.x.{key} in body must be of type {format}: \"zz\"");
        let field = format!("spec.x.{key}");
        answer.expect(422)?.has_causes(&[(&field, TYPE, &message)])?;
    }
    let good = json!({ "x": {
        "time": "1999-01-01T00:00:00Z", "ip": "192.0.2.1", "mail": "a@case.test", "span": "5m",
        "uri": "https://case.test/", "own": "anything",
    } });
    talk.create(WIDGETS, &widget("w", &good)).await?;
    Ok(())
}

async fn combinations(talk: &mut Session) -> Outcome {
    let text = json!({ "type": "string" });
    let x = json!({
        "type": "object", "properties": { "a": text, "b": text },
        "oneOf": [{ "required": ["a"] }, { "required": ["b"] }],
        "not": { "properties": { "a": { "enum": ["never"] } }, "required": ["a"] },
    });
    define_x(talk, &x).await?;
    talk.create(WIDGETS, &widget("good", &json!({ "x": { "a": "1" } }))).await?;
    for value in [json!({}), json!({ "a": "1", "b": "2" }), json!({ "a": "never" })] {
        let answer = talk.post(WIDGETS, &widget("w", &json!({ "x": value }))).await?;
        answer.expect_error_containing(422, "Invalid", "\"spec.x\" must ")?;
    }
    Ok(())
}

async fn identity(talk: &mut Session) -> Outcome {
    define_x(talk, &json!({ "type": "string" })).await?;
    let mut object = widget("w", &json!({}));
    object["apiVersion"] = json!("{ns}.case.test/v2");
    let message = talk.with_namespace(
        "the API version in the data ({ns}.case.test/v2) does not match the expected API version \
         ({ns}.case.test/v1)",
    );
    talk.post(WIDGETS, &object).await?.expect_error(400, "BadRequest", &message)?;
    let mut object = widget("w", &json!({}));
    object["kind"] = json!("Gadget");
    let answer = talk.post(WIDGETS, &object).await?;
    answer.expect_error_containing(
        422,
        "Invalid",
        "kind: Invalid value: \"Gadget\": must be Widget",
    )?;
    Ok(())
}

async fn ratcheting(talk: &mut Session) -> Outcome {
    let old = json!({ "type": "object", "properties": {
        "a": { "type": "string" }, "b": { "type": "string" },
    } });
    define_widgets(talk, &old).await?;
    talk.create(WIDGETS, &widget("w", &json!({ "a": "long enough", "b": "x" }))).await?;
    let stricter = json!([{
        "op": "add",
        "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/a/maxLength",
        "value": 3,
    }]);
    let definition = object_path(DEFINITIONS, "widgets.{ns}.case.test");
    let ask = RequestSpec::patch(definition, PatchType::Json, &stricter);
    talk.send_unrecorded(ask).await?.expect(200)?;
    let wrong = widget("wrong", &json!({ "a": "too long" }));
    let path = format!("{WIDGETS}?dryRun=All");
    let ask = RequestSpec::post(path, &wrong);
    talk.send_until_unrecorded(ask, |answer| answer.status == 422).await?;
    let path = object_path(WIDGETS, "w");
    let other = json!({ "spec": { "b": "y" } });
    talk.patch(&path, PatchType::Merge, &other)
        .await?
        .expect(200)?
        .has_value("/spec/a", &json!("long enough"))?;
    let changed = json!({ "spec": { "a": "still too long" } });
    talk.patch(&path, PatchType::Merge, &changed).await?.expect(422)?.has_causes(&[(
        "spec.a",
        "FieldValueTooLong",
        "Too long: may not be more than 3 bytes",
    )])
}
