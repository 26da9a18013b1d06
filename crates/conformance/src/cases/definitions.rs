//! CustomResourceDefinitions: their life and their schemas.

use serde_json::{Value, json};

use super::objects::{
    DEFINITIONS, WIDGETS, condition, define, is_established, object_path, wait_until, widget,
    widget_definition, with_query,
};
use crate::case::{Case, Outcome, case, expect_equal, expect_true};
use crate::response::Response;
use crate::session::{PatchType, RequestSpec, Session};

pub(super) const CASES: &[Case] = &[
    case!("definition-established", [49], established),
    case!("definition-names-conflict", [49], names_conflict),
    case!("definition-approval", [49], approval),
    case!("definition-refusals", [50], refusals),
    case!("definition-structural-schemas", [50], structural),
    case!("definition-structural-versions", [50], structural_versions),
    case!("definition-forbidden-schemas", [50], forbidden_schemas),
    case!("definition-immutable-fields", [50], immutable),
    case!("definition-deletion", [56], deletion),
];

const DEFINITION_NAME: &str = "widgets.{ns}.case.test";

/// Whether a condition has a status.
fn has_condition(answer: &Response, kind: &str, status: &str) -> bool {
    condition(answer, kind).is_some_and(|it| it["status"] == status)
}

/// Checks reason and message of a condition.
fn condition_has(answer: &Response, kind: &str, reason: &str, message: &str) -> Outcome {
    let found = condition(answer, kind).cloned().unwrap_or_default();
    expect_equal("reason", &json!(reason), &found["reason"])?;
    expect_equal("message", &json!(message), &found["message"])
}

async fn established(talk: &mut Session) -> Outcome {
    let path = object_path(DEFINITIONS, DEFINITION_NAME);
    define(talk, &widget_definition(&json!({ "type": "object" }))).await?;
    let got = talk.get(&path).await?.expect(200)?;
    got.has_values(&[
        ("/spec/names/singular", json!("widget")),
        ("/spec/names/listKind", json!("WidgetList")),
        ("/spec/conversion", json!({ "strategy": "None" })),
        ("/status/storedVersions", json!(["v1"])),
        (
            "/status/acceptedNames",
            json!({
                "plural": "widgets", "singular": "widget", "kind": "Widget",
                "listKind": "WidgetList",
            }),
        ),
    ])?;
    condition_has(&got, "NamesAccepted", "NoConflicts", "no conflicts found")?;
    let message = "the initial names have been accepted";
    condition_has(&got, "Established", "InitialNamesAccepted", message)?;
    let list = talk.get(WIDGETS).await?.expect(200)?;
    list.has_values(&[
        ("/kind", json!("WidgetList")),
        ("/apiVersion", json!(talk.with_namespace("{ns}.case.test/v1"))),
        ("/items", json!([])),
        ("/metadata/continue", json!("")),
    ])
}

async fn names_conflict(talk: &mut Session) -> Outcome {
    let schema = json!({ "type": "object" });
    define(talk, &widget_definition(&schema)).await?;
    let mut other = widget_definition(&schema);
    other["metadata"]["name"] = json!("gadgets.{ns}.case.test");
    other["spec"]["names"] =
        json!({ "plural": "gadgets", "kind": "Gadget", "listKind": "WidgetList" });
    let path = object_path(DEFINITIONS, "gadgets.{ns}.case.test");
    talk.delete_at_end(&path);
    talk.create(DEFINITIONS, &other).await?;
    wait_until(talk, &path, |it| has_condition(it, "NamesAccepted", "False")).await?;
    wait_until(talk, &path, |it| has_condition(it, "Established", "False")).await?;
    let got = talk.get(&path).await?.expect(200)?;
    condition_has(&got, "NamesAccepted", "ListKindConflict", "\"WidgetList\" is already in use")?;
    condition_has(&got, "Established", "NotAccepted", "not all names are accepted")?;
    got.has_value("/status/acceptedNames/plural", &json!("gadgets"))?;
    let collection = "/apis/{ns}.case.test/v1/namespaces/{ns}/gadgets";
    talk.get(collection).await?.expect(404)?;
    talk.delete(&object_path(DEFINITIONS, DEFINITION_NAME)).await?.expect(200)?;
    wait_until(talk, &path, is_established).await?;
    wait_until(talk, collection, |answer| answer.status == 200).await
}

async fn approval(talk: &mut Session) -> Outcome {
    let mut definition = widget_definition(&json!({ "type": "object" }));
    // A group of Kubernetes' own; the name of the run keeps it apart.
    definition["metadata"]["name"] = json!("widgets.{ns}.k8s.io");
    definition["spec"]["group"] = json!("{ns}.k8s.io");
    let answer = talk.post(DEFINITIONS, &definition).await?;
    let answer = answer.expect_error_containing(422, "Invalid", "api-approved.kubernetes.io")?;
    let field = "metadata.annotations[api-approved.kubernetes.io]";
    answer.has_value("/details/causes/0/field", &json!(field))?;
    let path = object_path(DEFINITIONS, "widgets.{ns}.k8s.io");
    talk.delete_at_end(&path);
    definition["metadata"]["annotations"] =
        json!({ "api-approved.kubernetes.io": "unapproved, experimental-only" });
    talk.create(DEFINITIONS, &definition).await?;
    let kind = "KubernetesAPIApprovalPolicyConformant";
    wait_until(talk, &path, |it| has_condition(it, kind, "False")).await?;
    let got = talk.send_unrecorded(RequestSpec::get(path.clone())).await?.expect(200)?;
    let found = condition(&got, kind).cloned().unwrap_or_default();
    expect_equal("reason", &json!("UnapprovedAnnotation"), &found["reason"])?;
    let approved = json!({ "metadata": { "annotations": {
        "api-approved.kubernetes.io": "https://case.test/approval",
    } } });
    let ask = RequestSpec::patch(path.clone(), PatchType::Merge, &approved);
    talk.send_unrecorded(ask).await?.expect(200)?;
    wait_until(talk, &path, |it| has_condition(it, kind, "True")).await?;
    let got = talk.send_unrecorded(RequestSpec::get(path)).await?.expect(200)?;
    let found = condition(&got, kind).cloned().unwrap_or_default();
    expect_equal("reason", &json!("ApprovedAnnotation"), &found["reason"])
}

/// Changes a definition.
type Change = fn(&mut Value);

async fn refusals(talk: &mut Session) -> Outcome {
    let table: [(Change, &str); 6] = [
        (|it| it["metadata"]["name"] = json!("other.{ns}.case.test"), "metadata.name"),
        (|it| it["spec"]["versions"][0]["storage"] = json!(false), "spec.versions"),
        (
            |it| it["spec"]["versions"][0]["schema"] = Value::Null,
            "spec.versions[0].schema.openAPIV3Schema",
        ),
        (|it| it["spec"]["preserveUnknownFields"] = json!(true), "spec.preserveUnknownFields"),
        (|it| it["spec"]["scope"] = json!("Galactic"), "spec.scope"),
        (|it| it["spec"]["names"]["plural"] = json!("Wid_gets"), "spec.names.plural"),
    ];
    for (change, field) in table {
        let mut definition = widget_definition(&json!({ "type": "object" }));
        change(&mut definition);
        let answer = talk.post(&with_query(DEFINITIONS, "dryRun=All"), &definition).await?;
        let answer = answer.expect_error_containing(422, "Invalid", " is invalid: ")?;
        let causes = answer.at("/details/causes").as_array().cloned().unwrap_or_default();
        expect_true(field, causes.iter().any(|cause| cause["field"] == field))?;
    }
    Ok(())
}

/// Posts a definition whose `spec` has this schema, and looks for a cause.
async fn expect_schema_error(
    talk: &mut Session,
    schema: &Value,
    field: &str,
    text: &str,
) -> Outcome {
    let definition = widget_definition(schema);
    let answer = talk.post(&with_query(DEFINITIONS, "dryRun=All"), &definition).await?;
    let answer = answer.expect_error_containing(422, "Invalid", " is invalid: ")?;
    let field = format!("spec.validation.openAPIV3Schema.properties[spec]{field}");
    let causes = answer.at("/details/causes").as_array().cloned().unwrap_or_default();
    let named = causes.iter().find(|cause| {
        let message = cause["message"].as_str().unwrap_or_default();
        cause["field"] == field.as_str() && message.contains(text)
    });
    expect_equal(&format!("{field}: {text}"), &true, &named.is_some())
}

async fn structural(talk: &mut Session) -> Outcome {
    let object = |properties: Value| json!({ "type": "object", "properties": properties });
    let table = [
        (object(json!({ "a": {} })), ".properties[a].type", "Required value"),
        (object(json!({ "a": { "type": "array" } })), ".properties[a].items", "Required value"),
        (
            json!({
                "type": "object", "properties": { "a": { "type": "string" } },
                "additionalProperties": { "type": "string" },
            }),
            ".additionalProperties",
            "Forbidden",
        ),
        (
            json!({ "type": "object", "anyOf": [{ "type": "object" }] }),
            ".anyOf[0].type",
            "Forbidden: must be empty to be structural",
        ),
        (
            json!({ "type": "object", "not": { "description": "no" } }),
            ".not.description",
            "Forbidden: must be empty to be structural",
        ),
        (
            object(json!({ "a": { "type": "string", "default": 1 } })),
            ".properties[a].default",
            "must be of type string: \"integer\"",
        ),
        (
            object(json!({ "a": {
                "type": "array", "x-kubernetes-list-type": "map", "items": object(json!({})),
            } })),
            ".properties[a].x-kubernetes-list-map-keys",
            "Required value",
        ),
    ];
    for (schema, field, text) in table {
        expect_schema_error(talk, &schema, field, text).await?;
    }
    Ok(())
}

async fn structural_versions(talk: &mut Session) -> Outcome {
    let mut definition = widget_definition(&json!({ "type": "object" }));
    let mut second = definition["spec"]["versions"][0].clone();
    second["name"] = json!("v2");
    second["storage"] = json!(false);
    second["schema"]["openAPIV3Schema"]["properties"]["spec"] = json!({});
    if let Some(versions) = definition["spec"]["versions"].as_array_mut() {
        versions.push(second);
    }
    let answer =
        talk.post(&with_query(DEFINITIONS, "dryRun=All"), &definition).await?.expect(422)?;
    let field = "spec.versions[1].schema.openAPIV3Schema.properties[spec].type";
    let message = "Required value: must not be empty for specified object fields";
    answer.has_causes(&[(field, "FieldValueRequired", message)])
}

async fn forbidden_schemas(talk: &mut Session) -> Outcome {
    let table = [
        (json!({ "type": "object", "$ref": "#/definitions/a" }), ".$ref"),
        (json!({ "type": "object", "definitions": { "a": { "type": "string" } } }), ".definitions"),
        (json!({ "type": "object", "dependencies": { "a": ["b"] } }), ".dependencies"),
        (json!({ "type": "object", "id": "me" }), ".id"),
        (
            json!({ "type": "object", "patternProperties": { "a": { "type": "string" } } }),
            ".patternProperties",
        ),
        (
            json!({ "type": "array", "items": { "type": "string" }, "uniqueItems": true }),
            ".uniqueItems",
        ),
    ];
    for (schema, field) in table {
        expect_schema_error(talk, &schema, field, "Forbidden").await?;
    }
    Ok(())
}

async fn immutable(talk: &mut Session) -> Outcome {
    define(talk, &widget_definition(&json!({ "type": "object" }))).await?;
    let path = object_path(DEFINITIONS, DEFINITION_NAME);
    let table = [
        (json!({ "spec": { "scope": "Cluster" } }), "spec.scope"),
        (json!({ "spec": { "names": { "kind": "Gadget" } } }), "spec.names.kind"),
    ];
    for (change, field) in table {
        let answer = talk.patch(&path, PatchType::Merge, &change).await?;
        let answer = answer.expect_error_containing(422, "Invalid", "field is immutable")?;
        answer.has_value("/details/causes/0/field", &json!(field))?;
    }
    let schema = json!({ "openAPIV3Schema": { "type": "object" } });
    let renamed = json!({ "spec": { "versions": [
        { "name": "v2", "served": true, "storage": true, "schema": schema },
    ] } });
    let answer = talk.patch(&path, PatchType::Merge, &renamed).await?.expect(422)?;
    answer.has_value("/details/causes/0/field", &json!("status.storedVersions[0]"))
}

async fn deletion(talk: &mut Session) -> Outcome {
    define(talk, &widget_definition(&json!({ "type": "object" }))).await?;
    let mut held = widget("held", &json!({}));
    held["metadata"]["finalizers"] = json!(["case.test/hold"]);
    talk.create(WIDGETS, &held).await?;
    talk.create(WIDGETS, &widget("free", &json!({}))).await?;
    let path = object_path(DEFINITIONS, DEFINITION_NAME);
    let deleted = talk.delete(&path).await?.expect(200)?;
    let finalizer = json!(["customresourcecleanup.apiextensions.k8s.io"]);
    deleted.has_value("/metadata/finalizers", &finalizer)?;
    wait_until(talk, &path, |it| has_condition(it, "Terminating", "True")).await?;
    wait_until(talk, &object_path(WIDGETS, "free"), |answer| answer.status == 404).await?;
    let is_marked = |answer: &Response| answer.at("/metadata/deletionTimestamp").is_string();
    wait_until(talk, &object_path(WIDGETS, "held"), is_marked).await?;
    let ask = RequestSpec::post(WIDGETS, &widget("late", &json!({})));
    let answer = talk.send_until(ask, |answer| answer.status != 201).await?;
    let message = "create not allowed while custom resource definition is terminating";
    answer.expect_error_containing(403, "Forbidden", message)?;
    let free = json!({ "metadata": { "finalizers": null } });
    talk.patch(&object_path(WIDGETS, "held"), PatchType::Merge, &free).await?.expect(200)?;
    wait_until(talk, &path, |answer| answer.status == 404).await?;
    wait_until(talk, WIDGETS, |answer| answer.status == 404).await
}
