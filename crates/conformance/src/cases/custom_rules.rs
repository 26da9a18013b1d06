//! Custom objects: validation rules in CEL.

use serde_json::{Value, json};

use super::objects::{
    DEFINITIONS, WIDGETS, define, define_widgets, object_path, widget, widget_definition,
    with_query,
};
use crate::case::{Case, Outcome, case, expect_equal};
use crate::session::{PatchType, RequestSpec, Session};

pub(super) const CASES: &[Case] = &[
    case!("rule-messages", [53], messages),
    case!("rule-reason-and-path", [53], reason_and_path),
    case!("rule-transition", [53], transition),
    case!("rule-optional-old-self", [53], optional_old_self),
    case!("rule-ratcheting", [53], ratcheting),
    case!("rule-blocked-by-errors", [53], blocked),
    case!("rule-at-the-root", [53], root),
    case!("rule-on-elements", [53], elements),
    case!("rule-escaped-names", [53], escaped),
    case!("rule-refused-in-definition", [53], refused),
    case!("rule-cost", [53], cost),
];

const INVALID: &str = "FieldValueInvalid";

/// A string with one rule.
fn ruled(rule: &Value) -> Value {
    json!({ "type": "string", "x-kubernetes-validations": [rule] })
}

async fn messages(talk: &mut Session) -> Outcome {
    let rule = "self != 'bad'";
    let schema = json!({ "type": "object", "properties": {
        "plain": ruled(&json!({ "rule": rule })),
        "text": ruled(&json!({ "rule": rule, "message": "not this" })),
        "made": ruled(&json!({
            "rule": rule, "message": "unused", "messageExpression": "'not ' + self",
        })),
        "failing": ruled(&json!({
            "rule": rule, "message": "fallback", "messageExpression": "self.split('')[9]",
        })),
    } });
    define_widgets(talk, &schema).await?;
    let bad = json!({ "plain": "bad", "text": "bad", "made": "bad", "failing": "bad" });
    let answer = talk.post(WIDGETS, &widget("w", &bad)).await?.expect(422)?;
    answer.has_causes(&[
        ("spec.plain", INVALID, "Invalid value: \"string\": failed rule: self != 'bad'"),
        ("spec.text", INVALID, "Invalid value: \"string\": not this"),
        ("spec.made", INVALID, "Invalid value: \"string\": not bad"),
        ("spec.failing", INVALID, "Invalid value: \"string\": fallback"),
    ])?;
    talk.create(WIDGETS, &widget("w", &json!({ "plain": "good", "text": "good" }))).await?;
    Ok(())
}

async fn reason_and_path(talk: &mut Session) -> Outcome {
    let number = json!({ "type": "integer" });
    let rule = |reason: &str, message: &str| {
        json!({
            "rule": "self.replicas <= self.size", "message": message, "reason": reason,
            "fieldPath": ".replicas",
        })
    };
    let schema = json!({
        "type": "object", "required": ["replicas", "size"],
        "properties": { "replicas": number, "size": number },
        "x-kubernetes-validations": [
            rule("FieldValueForbidden", "replicas above size"),
            rule("FieldValueRequired", "say less"),
            rule("FieldValueDuplicate", "seen before"),
            rule("FieldValueInvalid", "too many"),
        ],
    });
    define_widgets(talk, &schema).await?;
    let answer = talk.post(WIDGETS, &widget("w", &json!({ "replicas": 3, "size": 1 }))).await?;
    answer.expect(422)?.has_causes(&[
        ("spec.replicas", "FieldValueForbidden", "Forbidden: replicas above size"),
        ("spec.replicas", "FieldValueRequired", "Required value: say less"),
        ("spec.replicas", "FieldValueDuplicate", "Duplicate value: \"object\""),
        ("spec.replicas", INVALID, "Invalid value: \"object\": too many"),
    ])
}

async fn transition(talk: &mut Session) -> Outcome {
    let schema = json!({ "type": "object", "properties": {
        "imm": ruled(&json!({ "rule": "self == oldSelf", "message": "imm is immutable" })),
        "free": { "type": "string" },
    } });
    define_widgets(talk, &schema).await?;
    talk.create(WIDGETS, &widget("w", &json!({ "free": "x" }))).await?;
    let path = object_path(WIDGETS, "w");
    // The first value has no old one to differ from.
    let first = json!({ "spec": { "imm": "a" } });
    talk.patch(&path, PatchType::Merge, &first).await?.expect(200)?;
    let second = json!({ "spec": { "imm": "b" } });
    let answer = talk.patch(&path, PatchType::Merge, &second).await?.expect(422)?;
    answer.has_causes(&[("spec.imm", INVALID, "Invalid value: \"string\": imm is immutable")])?;
    let other = json!({ "spec": { "free": "y" } });
    talk.patch(&path, PatchType::Merge, &other).await?.expect(200)?;
    let gone = json!({ "spec": { "imm": null } });
    talk.patch(&path, PatchType::Merge, &gone).await?.expect(200)?;
    Ok(())
}

async fn optional_old_self(talk: &mut Session) -> Outcome {
    let schema = json!({ "type": "object", "properties": {
        "state": ruled(&json!({
            "rule": "oldSelf.hasValue() ? self != oldSelf.value() || true : self == 'new'",
            "message": "starts as new", "optionalOldSelf": true,
        })),
    } });
    define_widgets(talk, &schema).await?;
    let answer = talk.post(WIDGETS, &widget("w", &json!({ "state": "old" }))).await?.expect(422)?;
    answer.has_causes(&[("spec.state", INVALID, "Invalid value: \"string\": starts as new")])?;
    talk.create(WIDGETS, &widget("w", &json!({ "state": "new" }))).await?;
    let change = json!({ "spec": { "state": "old" } });
    talk.patch(&object_path(WIDGETS, "w"), PatchType::Merge, &change).await?.expect(200)?;
    Ok(())
}

async fn ratcheting(talk: &mut Session) -> Outcome {
    let text = json!({ "type": "string" });
    define_widgets(talk, &json!({ "type": "object", "properties": { "a": text, "b": text } }))
        .await?;
    talk.create(WIDGETS, &widget("w", &json!({ "a": "bad", "b": "x" }))).await?;
    let rules = json!([{
        "op": "add",
        "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/a/\
                 x-kubernetes-validations",
        "value": [{ "rule": "self == 'good'" }],
    }]);
    let path = object_path(DEFINITIONS, "widgets.{ns}.case.test");
    let ask = RequestSpec::patch(path, PatchType::Json, &rules);
    talk.send_unrecorded(ask).await?.expect(200)?;
    let wrong = widget("wrong", &json!({ "a": "bad" }));
    let ask = RequestSpec::post(with_query(WIDGETS, "dryRun=All"), &wrong);
    talk.send_until_unrecorded(ask, |answer| answer.status == 422).await?;
    let path = object_path(WIDGETS, "w");
    let other = json!({ "spec": { "b": "y" } });
    talk.patch(&path, PatchType::Merge, &other).await?.expect(200)?;
    let changed = json!({ "spec": { "a": "worse" } });
    let answer = talk.patch(&path, PatchType::Merge, &changed).await?.expect(422)?;
    let message = "Invalid value: \"string\": failed rule: self == 'good'";
    answer.has_causes(&[("spec.a", INVALID, message)])
}

async fn blocked(talk: &mut Session) -> Outcome {
    let schema = json!({ "type": "object", "required": ["must"], "properties": {
        "must": { "type": "string" },
        "short": { "type": "string", "pattern": "^a" },
        "ruled": ruled(&json!({ "rule": "self == 'good'" })),
    } });
    define_widgets(talk, &schema).await?;
    let answer = talk.post(WIDGETS, &widget("w", &json!({ "ruled": "bad" }))).await?.expect(422)?;
    answer.has_causes(&[
        ("spec.must", "FieldValueRequired", "Required value"),
        (
            "<nil>",
            INVALID,
            "Invalid value: null: some validation rules were not checked because the object was \
             invalid; correct the existing errors to complete validation",
        ),
    ])?;
    // A value that is merely invalid does not keep rules from being asked.
    let spec = json!({ "must": "x", "short": "b", "ruled": "bad" });
    let answer = talk.post(WIDGETS, &widget("w", &spec)).await?.expect(422)?;
    answer.has_causes(&[
        ("spec.short", INVALID, "Invalid value: \"b\": spec.short in body should match '^a'"),
        ("spec.ruled", INVALID, "Invalid value: \"string\": failed rule: self == 'good'"),
    ])
}

async fn root(talk: &mut Session) -> Outcome {
    let mut definition = widget_definition(&json!({ "type": "object" }));
    let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["x-kubernetes-validations"] = json!([{
        "rule": "self.metadata.name.startsWith('w-')",
        "message": "a name begins with w-",
    }]);
    define(talk, &definition).await?;
    let answer = talk.post(WIDGETS, &widget("v", &json!({}))).await?.expect(422)?;
    let message = "Invalid value: \"object\": a name begins with w-";
    answer.has_causes(&[("<nil>", INVALID, message)])?;
    talk.create(WIDGETS, &widget("w-1", &json!({}))).await?;
    Ok(())
}

async fn elements(talk: &mut Session) -> Outcome {
    let schema = json!({ "type": "object", "properties": {
        "list": { "type": "array", "maxItems": 5, "items": {
            "type": "object", "properties": { "n": { "type": "integer" } },
            "x-kubernetes-validations": [{
                "rule": "!has(self.n) || self.n > 0", "message": "positive",
            }],
        } },
        "map": { "type": "object", "maxProperties": 5, "additionalProperties": {
            "type": "integer",
            "x-kubernetes-validations": [{ "rule": "self > 0", "message": "positive" }],
        } },
        "all": {
            "type": "array", "maxItems": 5, "items": { "type": "integer" },
            "x-kubernetes-validations": [{
                "rule": "self.all(n, n > 0)", "message": "all positive",
            }],
        },
    } });
    define_widgets(talk, &schema).await?;
    let spec = json!({ "list": [{ "n": 1 }, { "n": 0 }, {}], "map": { "k": -1 }, "all": [1, -1] });
    let answer = talk.post(WIDGETS, &widget("w", &spec)).await?.expect(422)?;
    answer.has_causes(&[
        ("spec.list[1]", INVALID, "Invalid value: \"object\": positive"),
        ("spec.map[k]", INVALID, "Invalid value: \"integer\": positive"),
        ("spec.all", INVALID, "Invalid value: \"array\": all positive"),
    ])
}

async fn escaped(talk: &mut Session) -> Outcome {
    let number = json!({ "type": "integer" });
    let schema = json!({
        "type": "object",
        "properties": { "a-b": number, "c.d": number, "namespace": number, "e/f": number },
        "x-kubernetes-validations": [
            { "rule": "self.a__dash__b > 0", "message": "dash" },
            { "rule": "self.c__dot__d > 0", "message": "dot" },
            { "rule": "self.__namespace__ > 0", "message": "keyword" },
            { "rule": "self.e__slash__f > 0", "message": "slash" },
        ],
    });
    define_widgets(talk, &schema).await?;
    let spec = json!({ "a-b": 0, "c.d": 0, "namespace": 0, "e/f": 0 });
    let answer = talk.post(WIDGETS, &widget("w", &spec)).await?.expect(422)?;
    let causes = answer.at("/details/causes").as_array().map_or(0, Vec::len);
    expect_equal("causes", &4, &causes)
}

async fn refused(talk: &mut Session) -> Outcome {
    let table = [
        (json!({ "rule": "self.nothing" }), "compilation failed: ERROR: "),
        (json!({ "rule": "self + 'x'" }), "must evaluate to a bool"),
        (json!({ "rule": " " }), "Required value: rule is not specified"),
        (
            json!({ "rule": "true", "message": "a\nb" }),
            "message: Invalid value: \"a\\nb\": must not contain line breaks",
        ),
        (json!({ "rule": "true", "reason": "Because" }), "Unsupported value: \"Because\""),
        (
            json!({ "rule": "true", "messageExpression": "1" }),
            "messageExpression must evaluate to a string",
        ),
    ];
    for (rule, text) in table {
        let schema = json!({ "type": "object", "properties": { "a": ruled(&rule) } });
        let answer =
            talk.post(&with_query(DEFINITIONS, "dryRun=All"), &widget_definition(&schema)).await?;
        answer.expect_error_containing(422, "Invalid", text)?;
    }
    Ok(())
}

async fn cost(talk: &mut Session) -> Outcome {
    let inner = json!({ "type": "array", "items": { "type": "string" } });
    let schema = json!({ "type": "object", "properties": { "a": {
        "type": "array", "items": inner,
        "x-kubernetes-validations": [{ "rule": "self.all(x, x.all(y, y.contains('z')))" }],
    } } });
    let answer =
        talk.post(&with_query(DEFINITIONS, "dryRun=All"), &widget_definition(&schema)).await?;
    answer.expect_error_containing(
        422,
        "Invalid",
        "estimated rule cost exceeds budget by factor of more than 100x (try simplifying the rule, \
         or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are \
         declared)",
    )?;
    Ok(())
}
