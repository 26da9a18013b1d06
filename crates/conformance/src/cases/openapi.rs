//! Everything that is served in one document, and what a client that keeps documents is told.

use serde_json::{Value, json};

use super::objects::{DEFINITIONS, at, define, is_established, widget_definition};
use crate::case::{Case, CaseError, Outcome, case, holds, same};
use crate::conversation::{Ask, Conversation};

pub(super) const CASES: &[Case] = &[
    case!("openapi-v2", [3, 12], everything),
    case!("openapi-v2-in-protobuf", [3, 12], binary),
    case!("openapi-v2-forms", [3], forms),
    case!("openapi-not-modified", [3], not_modified),
    case!("openapi-v2-of-custom-kinds", [3, 12], custom),
];

const V2: &str = "/openapi/v2";
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
/// The name kubectl asks by, which is no media type by its letters.
const PROTOBUF_OF_OLD: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

/// What the document says about one built-in kind, from which kubectl makes its checks.
async fn everything(talk: &mut Conversation) -> Outcome {
    let document = talk.ask_unrecorded(Ask::get(V2)).await?.expect(200)?;
    document.has_header("content-type", "application/json")?;
    document.has(&[
        ("/swagger", json!("2.0")),
        ("/info", json!({ "title": "Kubernetes", "version": "1.34" })),
        ("/security", json!([{ "BearerToken": [] }])),
        ("/securityDefinitions/BearerToken/type", json!("apiKey")),
    ])?;
    let lease = document.at("/definitions/io.k8s.api.coordination.v1.Lease");
    let mark = json!([{ "group": "coordination.k8s.io", "version": "v1", "kind": "Lease" }]);
    same("the mark of a kind", &mark, &lease["x-kubernetes-group-version-kind"])?;
    let metadata = json!("#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
    same("a reference", &metadata, &lease["properties"]["metadata"]["$ref"])?;
    let quantity = document.at("/definitions/io.k8s.apimachinery.pkg.api.resource.Quantity");
    same("an amount is text", &json!("string"), &quantity["type"])?;
    let item = "/paths/~1apis~1coordination.k8s.io~1v1~1namespaces~1{namespace}~1leases~1{name}";
    document.has(&[
        (&format!("{item}/patch/x-kubernetes-group-version-kind"), mark[0].clone()),
        (
            &format!("{item}/patch/consumes"),
            json!([
                "application/json-patch+json",
                "application/merge-patch+json",
                "application/strategic-merge-patch+json",
                "application/apply-patch+yaml",
            ]),
        ),
        (&format!("{item}/patch/parameters/0/$ref"), json!("#/parameters/body-78PwaGsr")),
        (&format!("{item}/get/consumes"), json!(["*/*"])),
        (&format!("{item}/get/schemes"), json!(["https"])),
        (&format!("{item}/parameters/1/$ref"), json!("#/parameters/namespace-vgWSWtn3")),
        ("/parameters/namespace-vgWSWtn3/in", json!("path")),
        ("/parameters/body-78PwaGsr/required", json!(true)),
        ("/paths/~1version~1/get/consumes", json!(["application/json"])),
    ])?;
    let parameters = document.at(&format!("{item}/patch/parameters"));
    let named =
        |name: &str| parameters.as_array().into_iter().flatten().any(|it| it["name"] == name);
    holds(
        "fieldValidation and dryRun stand for themselves",
        named("fieldValidation") && named("dryRun"),
    )
}

async fn binary(talk: &mut Conversation) -> Outcome {
    for name in [PROTOBUF, PROTOBUF_OF_OLD] {
        let answer = talk.ask_unrecorded(Ask::get(V2).accept(name)).await?.expect(200)?;
        answer.has_header("content-type", PROTOBUF)?;
        holds("it has a tag", is_tag(answer.header("etag")))?;
        holds("it is long", answer.text().len() > 1_000_000)?;
    }
    Ok(())
}

async fn forms(talk: &mut Conversation) -> Outcome {
    let table = [
        ("*/*", "application/json"),
        ("application/*", "application/json"),
        ("application/yaml, */*", "application/json"),
        (
            "application/json;q=0.5, application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
            PROTOBUF,
        ),
    ];
    for (accept, expected) in table {
        let answer = talk.ask_unrecorded(Ask::get(V2).accept(accept)).await?.expect(200)?;
        answer.has_header("content-type", expected)?;
        holds("it varies by both", answer.header("vary") == ["Accept-Encoding", "Accept"])?;
    }
    let refused = talk.ask(Ask::get(V2).accept("text/html")).await?.expect(406)?;
    same("nothing is said", &"", &refused.text())?;
    talk.get("/openapi/v2/").await?.expect(404)?;
    Ok(())
}

/// Who has a document is told that it has not changed.
async fn not_modified(talk: &mut Conversation) -> Outcome {
    for path in [V2, "/openapi/v3/apis/coordination.k8s.io/v1"] {
        let tag = tag_of(talk, path).await?;
        let weak = format!("\"other\", W/{tag}");
        for said in [tag.clone(), weak, "*".to_owned()] {
            let answer = talk.ask_unrecorded(Ask::get(path).header("if-none-match", said)).await?;
            let answer = answer.expect(304)?;
            same("no body", &"", &answer.text())?;
            holds("the same tag", answer.header("etag") == [tag.clone()])?;
            holds("no type of nothing", answer.header("content-type").is_empty())?;
        }
        let other = Ask::get(path).header("if-none-match", "\"other\"");
        talk.ask_unrecorded(other).await?.expect(200)?;
    }
    Ok(())
}

async fn tag_of(talk: &mut Conversation, path: &str) -> Result<String, CaseError> {
    let answer = talk.ask_unrecorded(Ask::get(path)).await?.expect(200)?;
    holds("a tag in quotes", is_tag(answer.header("etag")))?;
    Ok(answer.header("etag")[0].clone())
}

fn is_tag(values: &[String]) -> bool {
    matches!(values, [tag] if tag.len() == 130 && tag.starts_with('"') && tag.ends_with('"'))
}

/// A custom kind is described by less than its schema says: what clients cannot read is left out.
async fn custom(talk: &mut Conversation) -> Outcome {
    let schema = json!({
        "type": "object",
        "properties": { "spec": {
            "type": "object",
            "required": ["size", "maybe"],
            "properties": {
                "size": { "type": "integer", "minimum": 1, "maximum": 9, "default": 3 },
                "maybe": { "type": "string", "nullable": true },
                "either": { "x-kubernetes-int-or-string": true },
                "open": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    "properties": { "a": { "type": "string" } },
                },
                "one": {
                    "type": "object", "properties": { "a": { "type": "string" } },
                    "oneOf": [{ "required": ["a"] }],
                },
                "whole": {
                    "type": "object", "x-kubernetes-embedded-resource": true,
                    "properties": { "a": { "type": "string" } },
                },
            },
        } },
    });
    let path = at(DEFINITIONS, "widgets.{ns}.case.test");
    talk.delete_at_end(&path);
    define(talk, &widget_definition(&schema)).await?;
    talk.ask_until_unrecorded(Ask::get(path), is_established).await?;
    let group = talk.fill("{ns}.case.test");
    let reversed: Vec<_> = group.split('.').rev().collect();
    let name = format!("/definitions/{}.v1.Widget", reversed.join("."));
    let document = talk.ask_until_unrecorded(Ask::get(V2), |it| it.at(&name).is_object()).await?;
    let spec = document.at(&format!("{name}/properties/spec"));
    same("what must be there and may be null need not be", &json!(["size"]), &spec["required"])?;
    let properties = &spec["properties"];
    let size = json!({ "type": "integer", "minimum": 1, "maximum": 9 });
    same("bounds stay, the default goes", &size, &properties["size"])?;
    same("null is of no type", &json!({}), &properties["maybe"])?;
    let either = json!({ "x-kubernetes-int-or-string": true });
    same("either is of no type", &either, &properties["either"])?;
    let open = json!({ "x-kubernetes-preserve-unknown-fields": true });
    same("unknown fields leave no known ones", &open, &properties["open"])?;
    let one = json!({ "type": "object", "properties": { "a": { "type": "string" } } });
    same("conditions go", &one, &properties["one"])?;
    let names = properties["whole"]["properties"].as_object().map(|it| it.keys().count());
    same("an object inside has what all have", &Some(4), &names)?;
    let item = format!("/paths/~1apis~1{group}~1v1~1namespaces~1{{namespace}}~1widgets~1{{name}}");
    let kind = json!({ "group": group, "version": "v1", "kind": "Widget" });
    let patch = document.at(&format!("{item}/patch"));
    same("the kind of a patch", &kind, &patch["x-kubernetes-group-version-kind"])?;
    same(
        "no strategic merge",
        &json!(3),
        &Value::from(patch["consumes"].as_array().map_or(0, Vec::len)),
    )
}
