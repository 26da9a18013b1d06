//! Custom objects in several versions, converted by a webhook.

use gantry_testkit::webhook_server::Reply;
use serde_json::{Value, json};

use super::objects::{WIDGETS, define, object_path, wait_until, widget, with_query};
use crate::case::{Case, Outcome, case, expect_equal, expect_true};
use crate::session::{PatchType, RequestSpec, Session, Until};

pub(super) const CASES: &[Case] = &[
    case!("conversion-of-one", [54], get_one),
    case!("conversion-of-lists", [54], of_lists),
    case!("conversion-in-pages", [26, 54], in_pages),
    case!("conversion-in-tables", [10, 54], in_tables),
    case!("conversion-of-writes", [54], of_writes),
    case!("conversion-of-patches", [54], of_patches),
    case!("conversion-dry-run", [37, 54], dry_run),
    case!("conversion-and-apply", [44, 54], apply),
    case!("conversion-and-conflicts", [44, 54], conflicts),
    case!("conversion-and-update-owners", [46, 54], update_owners),
    case!("conversion-of-parts", [54], of_subresources),
    case!("conversion-and-deletion", [36, 54], deletion),
    case!("conversion-and-finalizers", [20, 54], finalizers),
    case!("conversion-watched", [54], watched),
    case!("conversion-watched-by-label", [54], watched_by_label),
    case!("conversion-of-labels", [54], of_labels),
    case!("conversion-asked", [54], review_request),
];

pub(super) const WIDGETS_V2: &str = "/apis/{ns}.case.test/v2/namespaces/{ns}/widgets";
pub(super) const DEFINITION_NAME: &str = "widgets.{ns}.case.test";

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
        "metadata": { "name": DEFINITION_NAME },
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
    conversion_response(review, &converted.collect::<Vec<_>>())
}

/// A successful answer with these objects.
pub(super) fn conversion_response(review: &Value, objects: &[Value]) -> Value {
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
pub(super) async fn define_converted_widgets(talk: &mut Session) -> Outcome {
    let config = talk.serve_webhook("convert", |review| Reply::Json(convert(review)))?;
    define(talk, &definition(&config)).await?;
    wait_until(talk, WIDGETS_V2, |answer| answer.status == 200).await
}

/// A Widget of v2.
pub(super) fn widget_v2(name: &str, spec: &Value) -> Value {
    let mut object = widget(name, spec);
    object["apiVersion"] = json!("{ns}.case.test/v2");
    object
}

async fn get_one(talk: &mut Session) -> Outcome {
    define_converted_widgets(talk).await?;
    let made = talk.create(WIDGETS, &widget("w", &json!({ "a": "1", "same": "x" }))).await?;
    let other = talk.get(&object_path(WIDGETS_V2, "w")).await?.expect(200)?;
    other.has_values(&[
        ("/apiVersion", json!(talk.with_namespace("{ns}.case.test/v2"))),
        ("/spec", json!({ "b": "1", "same": "x" })),
        ("/metadata/uid", made.at("/metadata/uid").clone()),
        ("/metadata/resourceVersion", made.at("/metadata/resourceVersion").clone()),
    ])?;
    talk.get(&object_path(WIDGETS, "w"))
        .await?
        .expect(200)?
        .has_value("/spec", &json!({ "a": "1", "same": "x" }))
}

async fn of_lists(talk: &mut Session) -> Outcome {
    define_converted_widgets(talk).await?;
    talk.get(WIDGETS_V2).await?.expect(200)?.has_names(&[])?;
    for name in ["x", "y", "z"] {
        talk.create(WIDGETS, &widget(name, &json!({ "a": name }))).await?;
    }
    let list = talk.get(WIDGETS_V2).await?.expect(200)?;
    list.has_names(&["x", "y", "z"])?;
    list.has_values(&[("/items/1/spec", json!({ "b": "y" })), ("/kind", json!("WidgetList"))])?;
    talk.get(&with_query(WIDGETS_V2, "fieldSelector=metadata.name%3Dy"))
        .await?
        .has_names(&["y"])?;
    talk.get("/apis/{ns}.case.test/v2/widgets").await?.expect(200)?.has_names(&["x", "y", "z"])
}

async fn in_pages(talk: &mut Session) -> Outcome {
    define_converted_widgets(talk).await?;
    for name in ["a", "b", "c", "d", "e"] {
        talk.create(WIDGETS, &widget(name, &json!({ "a": name }))).await?;
    }
    let first = talk.get(&with_query(WIDGETS_V2, "limit=2")).await?.expect(200)?;
    first.has_names(&["a", "b"])?;
    first.has_value("/metadata/remainingItemCount", &json!(3))?;
    let query = format!("limit=2&continue={}", first.string("/metadata/continue"));
    let second = talk.get(&with_query(WIDGETS_V2, &query)).await?.expect(200)?;
    second.has_names(&["c", "d"])?;
    let query = format!("limit=2&continue={}", second.string("/metadata/continue"));
    let third = talk.get(&with_query(WIDGETS_V2, &query)).await?.expect(200)?;
    third.has_names(&["e"])?;
    third.has_value("/metadata/continue", &json!(""))?;
    let whole = talk.get(&with_query(WIDGETS_V2, "limit=5")).await?.expect(200)?;
    whole.has_value("/metadata/continue", &json!(""))
}

async fn in_tables(talk: &mut Session) -> Outcome {
    define_converted_widgets(talk).await?;
    talk.create(WIDGETS, &widget("w", &json!({ "a": "1" }))).await?;
    let table = talk.send(RequestSpec::get(WIDGETS_V2).table()).await?.expect(200)?;
    table.has_value("/rows/0/cells", &json!(["w", "1"]))?;
    table.has_value("/columnDefinitions/1/name", &json!("b"))?;
    talk.send(RequestSpec::get(object_path(WIDGETS_V2, "w")).table()).await?.expect(200)?;
    let list = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    talk.send(RequestSpec::get(WIDGETS_V2).accept(list)).await?.expect(200)?;
    let one = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    talk.send(RequestSpec::get(object_path(WIDGETS_V2, "w")).accept(one)).await?.expect(200)?;
    Ok(())
}

async fn of_writes(talk: &mut Session) -> Outcome {
    define_converted_widgets(talk).await?;
    let made = talk.create(WIDGETS_V2, &widget_v2("w", &json!({ "b": "1" }))).await?;
    made.has_values(&[
        ("/apiVersion", json!(talk.with_namespace("{ns}.case.test/v2"))),
        ("/spec", json!({ "b": "1" })),
        ("/metadata/generation", json!(1)),
    ])?;
    talk.get(&object_path(WIDGETS, "w"))
        .await?
        .expect(200)?
        .has_value("/spec", &json!({ "a": "1" }))?;
    let mut changed = made.json().clone();
    changed["spec"]["b"] = json!("2");
    let answer = talk.put(&object_path(WIDGETS_V2, "w"), &changed).await?.expect(200)?;
    answer.has_values(&[("/spec/b", json!("2")), ("/metadata/generation", json!(2))])?;
    talk.put(&object_path(WIDGETS_V2, "w"), &changed).await?.expect(409)?;
    let answer = talk.put(&object_path(WIDGETS_V2, "w"), answer.json()).await?.expect(200)?;
    answer.has_value("/metadata/generation", &json!(2))?;
    talk.get(&object_path(WIDGETS, "w"))
        .await?
        .expect(200)?
        .has_value("/spec", &json!({ "a": "2" }))?;
    talk.post(WIDGETS_V2, &widget_v2("w", &json!({}))).await?.expect(409)?;
    let named = json!({ "metadata": { "generateName": "g-" }, "spec": { "b": "3" },
        "apiVersion": "{ns}.case.test/v2", "kind": "Widget" });
    talk.create(WIDGETS_V2, &named).await?.has_value("/spec/b", &json!("3"))
}

async fn of_patches(talk: &mut Session) -> Outcome {
    define_converted_widgets(talk).await?;
    talk.create(WIDGETS, &widget("w", &json!({ "a": "1" }))).await?;
    let merge = json!({ "spec": { "b": "2" } });
    let answer =
        talk.patch(&object_path(WIDGETS_V2, "w"), PatchType::Merge, &merge).await?.expect(200)?;
    answer.has_value("/spec", &json!({ "b": "2" }))?;
    let json = json!([
        { "op": "test", "path": "/spec/b", "value": "2" },
        { "op": "replace", "path": "/spec/b", "value": "3" },
    ]);
    talk.patch(&object_path(WIDGETS_V2, "w"), PatchType::Json, &json).await?.expect(200)?;
    talk.patch(&object_path(WIDGETS_V2, "w"), PatchType::Merge, &json!({})).await?.expect(200)?;
    talk.get(&object_path(WIDGETS, "w"))
        .await?
        .expect(200)?
        .has_value("/spec", &json!({ "a": "3" }))
}

async fn dry_run(talk: &mut Session) -> Outcome {
    define_converted_widgets(talk).await?;
    let path = with_query(WIDGETS_V2, "dryRun=All");
    let answer = talk.post(&path, &widget_v2("w", &json!({ "b": "1" }))).await?.expect(201)?;
    answer.has_value("/spec", &json!({ "b": "1" }))?;
    answer.has_no_value("/metadata/resourceVersion")?;
    talk.get(&object_path(WIDGETS_V2, "w")).await?.expect(404)?;
    talk.create(WIDGETS, &widget("w", &json!({ "a": "1" }))).await?;
    let path = with_query(&object_path(WIDGETS_V2, "w"), "dryRun=All");
    let patch = json!({ "spec": { "b": "2" } });
    let answer = talk.patch(&path, PatchType::Merge, &patch).await?.expect(200)?;
    answer.has_value("/spec/b", &json!("2"))?;
    talk.delete(&path).await?.expect(200)?;
    talk.get(&object_path(WIDGETS_V2, "w")).await?.expect(200)?.has_value("/spec/b", &json!("1"))
}

/// The path of an apply.
fn applied(path: &str, manager: &str) -> String {
    with_query(path, &format!("fieldManager={manager}"))
}

async fn apply(talk: &mut Session) -> Outcome {
    define_converted_widgets(talk).await?;
    let first = applied(&object_path(WIDGETS, "w"), "one");
    let config = widget("w", &json!({ "a": "1" }));
    talk.patch(&first, PatchType::Apply, &config).await?.expect(201)?;
    let second = applied(&object_path(WIDGETS_V2, "w"), "two");
    let config = widget_v2("w", &json!({ "same": "x" }));
    let answer = talk.patch(&second, PatchType::Apply, &config).await?.expect(200)?;
    answer.has_value("/spec", &json!({ "b": "1", "same": "x" }))?;
    let entries = answer.at("/metadata/managedFields").as_array().cloned().unwrap_or_default();
    let mut versions: Vec<(String, String)> = entries
        .iter()
        .map(|it| (it["manager"].to_string(), it["apiVersion"].to_string()))
        .collect();
    versions.sort();
    let version =
        |name: &str| format!("\"{}\"", talk.with_namespace(&format!("{{ns}}.case.test/{name}")));
    let expected =
        vec![("\"one\"".to_owned(), version("v1")), ("\"two\"".to_owned(), version("v2"))];
    expect_equal("each manager has the version it applied in", &expected, &versions)?;
    // The first manager changes its field in the words of the other version, then lets it go.
    let config = widget_v2("w", &json!({ "b": "2" }));
    let path = applied(&object_path(WIDGETS_V2, "w"), "one");
    let answer = talk.patch(&path, PatchType::Apply, &config).await?.expect(200)?;
    answer.has_value("/spec", &json!({ "b": "2", "same": "x" }))?;
    let config = widget_v2("w", &json!({}));
    let answer = talk.patch(&path, PatchType::Apply, &config).await?.expect(200)?;
    answer.has_value("/spec", &json!({ "same": "x" }))
}

async fn conflicts(talk: &mut Session) -> Outcome {
    define_converted_widgets(talk).await?;
    let first = applied(&object_path(WIDGETS, "w"), "one");
    talk.patch(&first, PatchType::Apply, &widget("w", &json!({ "a": "1" }))).await?.expect(201)?;
    let second = applied(&object_path(WIDGETS_V2, "w"), "two");
    let config = widget_v2("w", &json!({ "b": "2" }));
    talk.patch(&second, PatchType::Apply, &config).await?.expect(409)?;
    let agreed = widget_v2("w", &json!({ "b": "1" }));
    talk.patch(&second, PatchType::Apply, &agreed).await?.expect(200)?;
    let forced = format!("{second}&force=true");
    talk.patch(&forced, PatchType::Apply, &config).await?.expect(200)?;
    let answer = talk.get(&object_path(WIDGETS, "w")).await?.expect(200)?;
    answer.has_value("/spec", &json!({ "a": "2" }))
}

async fn update_owners(talk: &mut Session) -> Outcome {
    define_converted_widgets(talk).await?;
    let first = applied(&object_path(WIDGETS, "w"), "one");
    let config = widget("w", &json!({ "a": "1", "same": "x" }));
    talk.patch(&first, PatchType::Apply, &config).await?.expect(201)?;
    let path = applied(&object_path(WIDGETS_V2, "w"), "two");
    let change = json!({ "spec": { "b": "2" } });
    talk.patch(&path, PatchType::Merge, &change).await?.expect(200)?;
    let path = applied(&object_path(WIDGETS, "w"), "three");
    let change = json!({ "spec": { "a": "3" } });
    talk.patch(&path, PatchType::Merge, &change).await?.expect(200)?;
    talk.get(&object_path(WIDGETS_V2, "w")).await?.expect(200)?;
    Ok(())
}

async fn of_subresources(talk: &mut Session) -> Outcome {
    define_converted_widgets(talk).await?;
    talk.create(WIDGETS, &widget("w", &json!({ "a": "1", "n": 2 }))).await?;
    let status = json!({ "status": { "b": "ok", "n": 1 } });
    let path = object_path(WIDGETS_V2, "w/status");
    let answer = talk.patch(&path, PatchType::Merge, &status).await?.expect(200)?;
    answer.has_value("/status", &json!({ "b": "ok", "n": 1 }))?;
    talk.get(&object_path(WIDGETS, "w/status"))
        .await?
        .expect(200)?
        .has_value("/status/a", &json!("ok"))?;
    let path = object_path(WIDGETS_V2, "w/scale");
    talk.get(&path)
        .await?
        .expect(200)?
        .has_values(&[("/spec/replicas", json!(2)), ("/status/replicas", json!(1))])?;
    let change = json!({ "spec": { "replicas": 5 } });
    talk.patch(&path, PatchType::Merge, &change).await?.expect(200)?;
    talk.get(&object_path(WIDGETS, "w"))
        .await?
        .expect(200)?
        .has_value("/spec", &json!({ "a": "1", "n": 5 }))
}

async fn deletion(talk: &mut Session) -> Outcome {
    define_converted_widgets(talk).await?;
    for name in ["x", "y", "z"] {
        talk.create(WIDGETS, &widget(name, &json!({ "a": name }))).await?;
    }
    talk.delete(&object_path(WIDGETS_V2, "x")).await?.expect(200)?;
    talk.get(&object_path(WIDGETS_V2, "x")).await?.expect(404)?;
    let answer = talk.delete(WIDGETS_V2).await?.expect(200)?;
    answer.has_value("/items/0/spec", &json!({ "b": "y" }))?;
    talk.get(WIDGETS).await?.expect(200)?.has_names(&[])
}

async fn finalizers(talk: &mut Session) -> Outcome {
    define_converted_widgets(talk).await?;
    let mut object = widget("w", &json!({ "a": "1" }));
    object["metadata"]["finalizers"] = json!(["case.test/hold"]);
    talk.create(WIDGETS, &object).await?;
    let answer = talk.delete(&object_path(WIDGETS_V2, "w")).await?.expect(200)?;
    answer.has_value("/spec", &json!({ "b": "1" }))?;
    talk.get(&object_path(WIDGETS, "w")).await?.expect(200)?;
    let released = json!({ "metadata": { "finalizers": null } });
    talk.patch(&object_path(WIDGETS_V2, "w"), PatchType::Merge, &released).await?.expect(200)?;
    talk.get(&object_path(WIDGETS, "w")).await?.expect(404)?;
    Ok(())
}

async fn watched(talk: &mut Session) -> Outcome {
    define_converted_widgets(talk).await?;
    let list = talk.get(WIDGETS_V2).await?.expect(200)?;
    let query = format!("watch=1&resourceVersion={}", list.revision());
    let watch = talk.watch(RequestSpec::get(with_query(WIDGETS_V2, &query))).await?;
    talk.create(WIDGETS, &widget("w", &json!({ "a": "1" }))).await?;
    let change = json!({ "spec": { "b": "2" } });
    talk.patch(&object_path(WIDGETS_V2, "w"), PatchType::Merge, &change).await?.expect(200)?;
    talk.delete(&object_path(WIDGETS, "w")).await?.expect(200)?;
    let answer = talk.finish_watch(watch, Until::Events(3)).await?;
    answer.has_events(&[("ADDED", "w"), ("MODIFIED", "w"), ("DELETED", "w")])?;
    expect_equal(
        "the second version",
        &json!({ "b": "2" }),
        &answer.events()[1]["object"]["spec"],
    )?;
    // And what is there at the beginning.
    talk.create(WIDGETS, &widget("v", &json!({ "a": "1" }))).await?;
    let answer = talk.watch_until(&with_query(WIDGETS_V2, "watch=1"), Until::Events(1)).await?;
    expect_equal("the first state", &json!({ "b": "1" }), &answer.events()[0]["object"]["spec"])
}

/// A converter that writes the version into a label.
fn label_version(review: &Value) -> Reply {
    Reply::Json(convert_with(review, |object| {
        let version = object["apiVersion"].as_str().and_then(|it| it.rsplit('/').next());
        object["metadata"]["labels"]["seen-as"] = json!(version.unwrap_or_default());
    }))
}

async fn watched_by_label(talk: &mut Session) -> Outcome {
    define_converted_widgets(talk).await?;
    let list = talk.get(WIDGETS_V2).await?.expect(200)?;
    let query = format!("watch=1&labelSelector=on%3Dyes&resourceVersion={}", list.revision());
    let watch = talk.watch(RequestSpec::get(with_query(WIDGETS_V2, &query))).await?;
    talk.create(WIDGETS, &widget("w", &json!({ "a": "1" }))).await?;
    for value in [json!("yes"), json!("no")] {
        let change = json!({ "metadata": { "labels": { "on": value } } });
        talk.patch(&object_path(WIDGETS, "w"), PatchType::Merge, &change).await?.expect(200)?;
    }
    let answer = talk.finish_watch(watch, Until::Events(2)).await?;
    answer.has_events(&[("ADDED", "w"), ("DELETED", "w")])
}

async fn of_labels(talk: &mut Session) -> Outcome {
    let config = talk.serve_webhook("convert", label_version)?;
    define(talk, &definition(&config)).await?;
    wait_until(talk, WIDGETS_V2, |answer| answer.status == 200).await?;
    talk.create(WIDGETS, &widget("w", &json!({ "a": "1" }))).await?;
    let answer = talk.get(&object_path(WIDGETS_V2, "w")).await?.expect(200)?;
    answer.has_value("/metadata/labels", &json!({ "seen-as": "v2" }))?;
    talk.get(&object_path(WIDGETS, "w")).await?.expect(200)?.has_no_value("/metadata/labels")?;
    talk.get(&with_query(WIDGETS_V2, "labelSelector=seen-as%3Dv2"))
        .await?
        .expect(200)?
        .has_names(&["w"])?;
    talk.get(&with_query(WIDGETS, "labelSelector=seen-as%3Dv2")).await?.expect(200)?.has_names(&[])
}

async fn review_request(talk: &mut Session) -> Outcome {
    define_converted_widgets(talk).await?;
    talk.create(WIDGETS, &widget("w", &json!({ "a": "1" }))).await?;
    // From here on it remembers only what is asked now.
    talk.serve_webhook("convert", |review| Reply::Json(convert(review)))?;
    talk.get(&object_path(WIDGETS_V2, "w")).await?.expect(200)?;
    let heard = talk.webhook_calls("convert")?;
    let of_get = heard.iter().find(|it| it["body"]["request"]["objects"][0]["spec"]["a"] == "1");
    let Some(call) = of_get else { return expect_true("the webhook was asked", false) };
    let body = &call["body"];
    expect_equal("the time", &json!("timeout=30s"), &call["query"])?;
    expect_equal("the form", &json!([{ "content-type": "application/json" }]), &call["headers"])?;
    expect_equal("the kind", &json!("ConversionReview"), &body["kind"])?;
    expect_equal("the version", &json!("apiextensions.k8s.io/v1"), &body["apiVersion"])?;
    let keys = |value: &Value| -> Vec<String> {
        let mut keys: Vec<String> =
            value.as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect();
        keys.sort();
        keys
    };
    let expected = ["apiVersion", "kind", "request", "response"].map(str::to_owned).to_vec();
    expect_equal("the parts", &expected, &keys(body))?;
    let expected = ["desiredAPIVersion", "objects", "uid"].map(str::to_owned).to_vec();
    expect_equal("the parts of the request", &expected, &keys(&body["request"]))?;
    let response = json!({ "uid": "", "convertedObjects": null, "result": { "metadata": {} } });
    expect_equal("the answer's place", &response, &body["response"])?;
    let wanted = talk.with_namespace("{ns}.case.test/v2");
    expect_equal("what is wanted", &json!(wanted), &body["request"]["desiredAPIVersion"])
}
