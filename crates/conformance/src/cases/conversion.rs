//! Custom objects in several versions, converted by a webhook.

use gantry_testkit::hook::Reply;
use serde_json::{Value, json};

use super::objects::{WIDGETS, at, define, wait_until, widget, with};
use crate::case::{Case, Outcome, case, holds, same};
use crate::conversation::{Ask, Conversation, Patch, Until};

pub(super) const CASES: &[Case] = &[
    case!("conversion-of-one", [54], of_one),
    case!("conversion-of-lists", [54], of_lists),
    case!("conversion-in-pages", [26, 54], in_pages),
    case!("conversion-in-tables", [10, 54], in_tables),
    case!("conversion-of-writes", [54], of_writes),
    case!("conversion-of-patches", [54], of_patches),
    case!("conversion-dry-run", [37, 54], dry_run),
    case!("conversion-and-apply", [44, 54], apply),
    case!("conversion-and-conflicts", [44, 54], conflicts),
    case!("conversion-and-update-owners", [46, 54], update_owners),
    case!("conversion-of-parts", [54], of_parts),
    case!("conversion-and-deletion", [36, 54], deletion),
    case!("conversion-and-finalizers", [20, 54], finalizers),
    case!("conversion-watched", [54], watched),
    case!("conversion-watched-by-label", [54], watched_by_label),
    case!("conversion-of-labels", [54], of_labels),
    case!("conversion-asked", [54], asked),
];

pub(super) const OTHER: &str = "/apis/{ns}.case.test/v2/namespaces/{ns}/widgets";
pub(super) const NAME: &str = "widgets.{ns}.case.test";

/// Widgets in v1, which is stored and has `spec.a`, and v2, which calls the same `spec.b`.
pub(super) fn definition(config: &Value) -> Value {
    let version = |name: &str, field: &str, stored: bool| {
        json!({
            "name": name, "served": true, "storage": stored,
            "subresources": {
                "status": {},
                "scale": { "specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n" },
            },
            "additionalPrinterColumns": [
                { "name": field, "type": "string", "jsonPath": format!(".spec.{field}") },
            ],
            "schema": { "openAPIV3Schema": {
                "type": "object",
                "properties": {
                    "spec": { "type": "object", "properties": {
                        field: { "type": "string" }, "n": { "type": "integer" },
                        "same": { "type": "string" },
                    } },
                    "status": { "type": "object", "properties": {
                        field: { "type": "string" }, "n": { "type": "integer" },
                    } },
                },
            } },
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": NAME },
        "spec": {
            "group": "{ns}.case.test",
            "scope": "Namespaced",
            "names": { "plural": "widgets", "kind": "Widget" },
            "conversion": {
                "strategy": "Webhook",
                "webhook": { "conversionReviewVersions": ["v1"], "clientConfig": config },
            },
            "versions": [version("v1", "a", true), version("v2", "b", false)],
        },
    })
}

/// The answer of a webhook that converts as it should.
pub(super) fn convert(review: &Value) -> Value {
    convert_with(review, |_| {})
}

/// The same, with a change made to each object.
pub(super) fn convert_with(review: &Value, change: impl Fn(&mut Value)) -> Value {
    let wanted = review["request"]["desiredAPIVersion"].as_str().unwrap_or_default();
    let (from, to) = if wanted.ends_with("v2") { ("a", "b") } else { ("b", "a") };
    let objects = review["request"]["objects"].as_array().cloned().unwrap_or_default();
    let converted = objects.into_iter().map(|mut object| {
        object["apiVersion"] = json!(wanted);
        for part in ["spec", "status"] {
            if let Some(fields) = object.get_mut(part).and_then(Value::as_object_mut)
                && let Some(value) = fields.shift_remove(from)
            {
                fields.insert(to.to_owned(), value);
            }
        }
        change(&mut object);
        object
    });
    answered(review, &converted.collect::<Vec<_>>())
}

/// A successful answer with these objects.
pub(super) fn answered(review: &Value, objects: &[Value]) -> Value {
    json!({
        "apiVersion": review["apiVersion"], "kind": "ConversionReview",
        "response": {
            "uid": review["request"]["uid"],
            "convertedObjects": objects,
            "result": { "status": "Success" },
        },
    })
}

/// Defines widgets with a converter that does as it should, and waits until both versions answer.
pub(super) async fn begin(talk: &mut Conversation) -> Outcome {
    let config = talk.hook("convert", |review| Reply::Json(convert(review)))?;
    define(talk, &definition(&config)).await?;
    wait_until(talk, OTHER, |answer| answer.status == 200).await
}

/// A Widget of v2.
pub(super) fn other(name: &str, spec: &Value) -> Value {
    let mut object = widget(name, spec);
    object["apiVersion"] = json!("{ns}.case.test/v2");
    object
}

async fn of_one(talk: &mut Conversation) -> Outcome {
    begin(talk).await?;
    let made = talk.create(WIDGETS, &widget("w", &json!({ "a": "1", "same": "x" }))).await?;
    let other = talk.get(&at(OTHER, "w")).await?.expect(200)?;
    other.has(&[
        ("/apiVersion", json!(talk.fill("{ns}.case.test/v2"))),
        ("/spec", json!({ "b": "1", "same": "x" })),
        ("/metadata/uid", made.at("/metadata/uid").clone()),
        ("/metadata/resourceVersion", made.at("/metadata/resourceVersion").clone()),
    ])?;
    talk.get(&at(WIDGETS, "w")).await?.expect(200)?.is("/spec", &json!({ "a": "1", "same": "x" }))
}

async fn of_lists(talk: &mut Conversation) -> Outcome {
    begin(talk).await?;
    talk.get(OTHER).await?.expect(200)?.lists(&[])?;
    for name in ["x", "y", "z"] {
        talk.create(WIDGETS, &widget(name, &json!({ "a": name }))).await?;
    }
    let list = talk.get(OTHER).await?.expect(200)?;
    list.lists(&["x", "y", "z"])?;
    list.has(&[("/items/1/spec", json!({ "b": "y" })), ("/kind", json!("WidgetList"))])?;
    talk.get(&with(OTHER, "fieldSelector=metadata.name%3Dy")).await?.lists(&["y"])?;
    talk.get("/apis/{ns}.case.test/v2/widgets").await?.expect(200)?.lists(&["x", "y", "z"])
}

async fn in_pages(talk: &mut Conversation) -> Outcome {
    begin(talk).await?;
    for name in ["a", "b", "c", "d", "e"] {
        talk.create(WIDGETS, &widget(name, &json!({ "a": name }))).await?;
    }
    let first = talk.get(&with(OTHER, "limit=2")).await?.expect(200)?;
    first.lists(&["a", "b"])?;
    first.is("/metadata/remainingItemCount", &json!(3))?;
    let query = format!("limit=2&continue={}", first.string("/metadata/continue"));
    let second = talk.get(&with(OTHER, &query)).await?.expect(200)?;
    second.lists(&["c", "d"])?;
    let query = format!("limit=2&continue={}", second.string("/metadata/continue"));
    let third = talk.get(&with(OTHER, &query)).await?.expect(200)?;
    third.lists(&["e"])?;
    third.is("/metadata/continue", &json!(""))?;
    let whole = talk.get(&with(OTHER, "limit=5")).await?.expect(200)?;
    whole.is("/metadata/continue", &json!(""))
}

async fn in_tables(talk: &mut Conversation) -> Outcome {
    begin(talk).await?;
    talk.create(WIDGETS, &widget("w", &json!({ "a": "1" }))).await?;
    let table = talk.ask(Ask::get(OTHER).table()).await?.expect(200)?;
    table.is("/rows/0/cells", &json!(["w", "1"]))?;
    table.is("/columnDefinitions/1/name", &json!("b"))?;
    talk.ask(Ask::get(at(OTHER, "w")).table()).await?.expect(200)?;
    let list = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    talk.ask(Ask::get(OTHER).accept(list)).await?.expect(200)?;
    let one = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    talk.ask(Ask::get(at(OTHER, "w")).accept(one)).await?.expect(200)?;
    Ok(())
}

async fn of_writes(talk: &mut Conversation) -> Outcome {
    begin(talk).await?;
    let made = talk.create(OTHER, &other("w", &json!({ "b": "1" }))).await?;
    made.has(&[
        ("/apiVersion", json!(talk.fill("{ns}.case.test/v2"))),
        ("/spec", json!({ "b": "1" })),
        ("/metadata/generation", json!(1)),
    ])?;
    talk.get(&at(WIDGETS, "w")).await?.expect(200)?.is("/spec", &json!({ "a": "1" }))?;
    let mut changed = made.json().clone();
    changed["spec"]["b"] = json!("2");
    let answer = talk.put(&at(OTHER, "w"), &changed).await?.expect(200)?;
    answer.has(&[("/spec/b", json!("2")), ("/metadata/generation", json!(2))])?;
    talk.put(&at(OTHER, "w"), &changed).await?.expect(409)?;
    let answer = talk.put(&at(OTHER, "w"), answer.json()).await?.expect(200)?;
    answer.is("/metadata/generation", &json!(2))?;
    talk.get(&at(WIDGETS, "w")).await?.expect(200)?.is("/spec", &json!({ "a": "2" }))?;
    talk.post(OTHER, &other("w", &json!({}))).await?.expect(409)?;
    let named = json!({ "metadata": { "generateName": "g-" }, "spec": { "b": "3" },
        "apiVersion": "{ns}.case.test/v2", "kind": "Widget" });
    talk.create(OTHER, &named).await?.is("/spec/b", &json!("3"))
}

async fn of_patches(talk: &mut Conversation) -> Outcome {
    begin(talk).await?;
    talk.create(WIDGETS, &widget("w", &json!({ "a": "1" }))).await?;
    let merge = json!({ "spec": { "b": "2" } });
    let answer = talk.patch(&at(OTHER, "w"), Patch::Merge, &merge).await?.expect(200)?;
    answer.is("/spec", &json!({ "b": "2" }))?;
    let json = json!([
        { "op": "test", "path": "/spec/b", "value": "2" },
        { "op": "replace", "path": "/spec/b", "value": "3" },
    ]);
    talk.patch(&at(OTHER, "w"), Patch::Json, &json).await?.expect(200)?;
    talk.patch(&at(OTHER, "w"), Patch::Merge, &json!({})).await?.expect(200)?;
    talk.get(&at(WIDGETS, "w")).await?.expect(200)?.is("/spec", &json!({ "a": "3" }))
}

async fn dry_run(talk: &mut Conversation) -> Outcome {
    begin(talk).await?;
    let path = with(OTHER, "dryRun=All");
    let answer = talk.post(&path, &other("w", &json!({ "b": "1" }))).await?.expect(201)?;
    answer.is("/spec", &json!({ "b": "1" }))?;
    answer.lacks("/metadata/resourceVersion")?;
    talk.get(&at(OTHER, "w")).await?.expect(404)?;
    talk.create(WIDGETS, &widget("w", &json!({ "a": "1" }))).await?;
    let path = with(&at(OTHER, "w"), "dryRun=All");
    let patch = json!({ "spec": { "b": "2" } });
    let answer = talk.patch(&path, Patch::Merge, &patch).await?.expect(200)?;
    answer.is("/spec/b", &json!("2"))?;
    talk.delete(&path).await?.expect(200)?;
    talk.get(&at(OTHER, "w")).await?.expect(200)?.is("/spec/b", &json!("1"))
}

/// The path of an apply.
fn applied(path: &str, manager: &str) -> String {
    with(path, &format!("fieldManager={manager}"))
}

async fn apply(talk: &mut Conversation) -> Outcome {
    begin(talk).await?;
    let first = applied(&at(WIDGETS, "w"), "one");
    let config = widget("w", &json!({ "a": "1" }));
    talk.patch(&first, Patch::Apply, &config).await?.expect(201)?;
    let second = applied(&at(OTHER, "w"), "two");
    let config = other("w", &json!({ "same": "x" }));
    let answer = talk.patch(&second, Patch::Apply, &config).await?.expect(200)?;
    answer.is("/spec", &json!({ "b": "1", "same": "x" }))?;
    let entries = answer.at("/metadata/managedFields").as_array().cloned().unwrap_or_default();
    let mut versions: Vec<(String, String)> = entries
        .iter()
        .map(|it| (it["manager"].to_string(), it["apiVersion"].to_string()))
        .collect();
    versions.sort();
    let version = |name: &str| format!("\"{}\"", talk.fill(&format!("{{ns}}.case.test/{name}")));
    let expected =
        vec![("\"one\"".to_owned(), version("v1")), ("\"two\"".to_owned(), version("v2"))];
    same("each manager has the version it applied in", &expected, &versions)?;
    // The first manager changes its field in the words of the other version, then lets it go.
    let config = other("w", &json!({ "b": "2" }));
    let path = applied(&at(OTHER, "w"), "one");
    let answer = talk.patch(&path, Patch::Apply, &config).await?.expect(200)?;
    answer.is("/spec", &json!({ "b": "2", "same": "x" }))?;
    let config = other("w", &json!({}));
    let answer = talk.patch(&path, Patch::Apply, &config).await?.expect(200)?;
    answer.is("/spec", &json!({ "same": "x" }))
}

async fn conflicts(talk: &mut Conversation) -> Outcome {
    begin(talk).await?;
    let first = applied(&at(WIDGETS, "w"), "one");
    talk.patch(&first, Patch::Apply, &widget("w", &json!({ "a": "1" }))).await?.expect(201)?;
    let second = applied(&at(OTHER, "w"), "two");
    let config = other("w", &json!({ "b": "2" }));
    talk.patch(&second, Patch::Apply, &config).await?.expect(409)?;
    let agreed = other("w", &json!({ "b": "1" }));
    talk.patch(&second, Patch::Apply, &agreed).await?.expect(200)?;
    let forced = format!("{second}&force=true");
    talk.patch(&forced, Patch::Apply, &config).await?.expect(200)?;
    let answer = talk.get(&at(WIDGETS, "w")).await?.expect(200)?;
    answer.is("/spec", &json!({ "a": "2" }))
}

async fn update_owners(talk: &mut Conversation) -> Outcome {
    begin(talk).await?;
    let first = applied(&at(WIDGETS, "w"), "one");
    let config = widget("w", &json!({ "a": "1", "same": "x" }));
    talk.patch(&first, Patch::Apply, &config).await?.expect(201)?;
    let path = applied(&at(OTHER, "w"), "two");
    let change = json!({ "spec": { "b": "2" } });
    talk.patch(&path, Patch::Merge, &change).await?.expect(200)?;
    let path = applied(&at(WIDGETS, "w"), "three");
    let change = json!({ "spec": { "a": "3" } });
    talk.patch(&path, Patch::Merge, &change).await?.expect(200)?;
    talk.get(&at(OTHER, "w")).await?.expect(200)?;
    Ok(())
}

async fn of_parts(talk: &mut Conversation) -> Outcome {
    begin(talk).await?;
    talk.create(WIDGETS, &widget("w", &json!({ "a": "1", "n": 2 }))).await?;
    let status = json!({ "status": { "b": "ok", "n": 1 } });
    let path = at(OTHER, "w/status");
    let answer = talk.patch(&path, Patch::Merge, &status).await?.expect(200)?;
    answer.is("/status", &json!({ "b": "ok", "n": 1 }))?;
    talk.get(&at(WIDGETS, "w/status")).await?.expect(200)?.is("/status/a", &json!("ok"))?;
    let path = at(OTHER, "w/scale");
    talk.get(&path)
        .await?
        .expect(200)?
        .has(&[("/spec/replicas", json!(2)), ("/status/replicas", json!(1))])?;
    let change = json!({ "spec": { "replicas": 5 } });
    talk.patch(&path, Patch::Merge, &change).await?.expect(200)?;
    talk.get(&at(WIDGETS, "w")).await?.expect(200)?.is("/spec", &json!({ "a": "1", "n": 5 }))
}

async fn deletion(talk: &mut Conversation) -> Outcome {
    begin(talk).await?;
    for name in ["x", "y", "z"] {
        talk.create(WIDGETS, &widget(name, &json!({ "a": name }))).await?;
    }
    talk.delete(&at(OTHER, "x")).await?.expect(200)?;
    talk.get(&at(OTHER, "x")).await?.expect(404)?;
    let answer = talk.delete(OTHER).await?.expect(200)?;
    answer.is("/items/0/spec", &json!({ "b": "y" }))?;
    talk.get(WIDGETS).await?.expect(200)?.lists(&[])
}

async fn finalizers(talk: &mut Conversation) -> Outcome {
    begin(talk).await?;
    let mut object = widget("w", &json!({ "a": "1" }));
    object["metadata"]["finalizers"] = json!(["case.test/hold"]);
    talk.create(WIDGETS, &object).await?;
    let answer = talk.delete(&at(OTHER, "w")).await?.expect(200)?;
    answer.is("/spec", &json!({ "b": "1" }))?;
    talk.get(&at(WIDGETS, "w")).await?.expect(200)?;
    let released = json!({ "metadata": { "finalizers": null } });
    talk.patch(&at(OTHER, "w"), Patch::Merge, &released).await?.expect(200)?;
    talk.get(&at(WIDGETS, "w")).await?.expect(404)?;
    Ok(())
}

async fn watched(talk: &mut Conversation) -> Outcome {
    begin(talk).await?;
    let list = talk.get(OTHER).await?.expect(200)?;
    let query = format!("watch=1&resourceVersion={}", list.revision());
    let watch = talk.watch(Ask::get(with(OTHER, &query))).await?;
    talk.create(WIDGETS, &widget("w", &json!({ "a": "1" }))).await?;
    let change = json!({ "spec": { "b": "2" } });
    talk.patch(&at(OTHER, "w"), Patch::Merge, &change).await?.expect(200)?;
    talk.delete(&at(WIDGETS, "w")).await?.expect(200)?;
    let answer = talk.read(watch, Until::Events(3)).await?;
    answer.tells(&[("ADDED", "w"), ("MODIFIED", "w"), ("DELETED", "w")])?;
    same("the second version", &json!({ "b": "2" }), &answer.events()[1]["object"]["spec"])?;
    // And what is there at the beginning.
    talk.create(WIDGETS, &widget("v", &json!({ "a": "1" }))).await?;
    let answer = talk.watch_until(&with(OTHER, "watch=1"), Until::Events(1)).await?;
    same("the first state", &json!({ "b": "1" }), &answer.events()[0]["object"]["spec"])
}

/// A converter that writes the version into a label.
fn label_version(review: &Value) -> Reply {
    Reply::Json(convert_with(review, |object| {
        let version = object["apiVersion"].as_str().and_then(|it| it.rsplit('/').next());
        object["metadata"]["labels"]["seen-as"] = json!(version.unwrap_or_default());
    }))
}

async fn watched_by_label(talk: &mut Conversation) -> Outcome {
    begin(talk).await?;
    let list = talk.get(OTHER).await?.expect(200)?;
    let query = format!("watch=1&labelSelector=on%3Dyes&resourceVersion={}", list.revision());
    let watch = talk.watch(Ask::get(with(OTHER, &query))).await?;
    talk.create(WIDGETS, &widget("w", &json!({ "a": "1" }))).await?;
    for value in [json!("yes"), json!("no")] {
        let change = json!({ "metadata": { "labels": { "on": value } } });
        talk.patch(&at(WIDGETS, "w"), Patch::Merge, &change).await?.expect(200)?;
    }
    let answer = talk.read(watch, Until::Events(2)).await?;
    answer.tells(&[("ADDED", "w"), ("DELETED", "w")])
}

async fn of_labels(talk: &mut Conversation) -> Outcome {
    let config = talk.hook("convert", label_version)?;
    define(talk, &definition(&config)).await?;
    wait_until(talk, OTHER, |answer| answer.status == 200).await?;
    talk.create(WIDGETS, &widget("w", &json!({ "a": "1" }))).await?;
    let answer = talk.get(&at(OTHER, "w")).await?.expect(200)?;
    answer.is("/metadata/labels", &json!({ "seen-as": "v2" }))?;
    talk.get(&at(WIDGETS, "w")).await?.expect(200)?.lacks("/metadata/labels")?;
    talk.get(&with(OTHER, "labelSelector=seen-as%3Dv2")).await?.expect(200)?.lists(&["w"])?;
    talk.get(&with(WIDGETS, "labelSelector=seen-as%3Dv2")).await?.expect(200)?.lists(&[])
}

async fn asked(talk: &mut Conversation) -> Outcome {
    begin(talk).await?;
    talk.create(WIDGETS, &widget("w", &json!({ "a": "1" }))).await?;
    // From here on it remembers only what is asked now.
    talk.hook("convert", |review| Reply::Json(convert(review)))?;
    talk.get(&at(OTHER, "w")).await?.expect(200)?;
    let heard = talk.heard("convert")?;
    let of_get = heard.iter().find(|it| it["body"]["request"]["objects"][0]["spec"]["a"] == "1");
    let Some(call) = of_get else { return holds("the webhook was asked", false) };
    let body = &call["body"];
    same("the time", &json!("timeout=30s"), &call["query"])?;
    same("the form", &json!([{ "content-type": "application/json" }]), &call["headers"])?;
    same("the kind", &json!("ConversionReview"), &body["kind"])?;
    same("the version", &json!("apiextensions.k8s.io/v1"), &body["apiVersion"])?;
    let keys = |value: &Value| -> Vec<String> {
        let mut keys: Vec<String> =
            value.as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect();
        keys.sort();
        keys
    };
    let expected = ["apiVersion", "kind", "request", "response"].map(str::to_owned).to_vec();
    same("the parts", &expected, &keys(body))?;
    let expected = ["desiredAPIVersion", "objects", "uid"].map(str::to_owned).to_vec();
    same("the parts of the request", &expected, &keys(&body["request"]))?;
    let response = json!({ "uid": "", "convertedObjects": null, "result": { "metadata": {} } });
    same("the answer's place", &response, &body["response"])?;
    let wanted = talk.fill("{ns}.case.test/v2");
    same("what is wanted", &json!(wanted), &body["request"]["desiredAPIVersion"])
}
