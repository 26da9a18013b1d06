//! Webhooks that do not convert, or not as they should.

use gantry_testkit::webhook_server::Reply;
use serde_json::{Value, json};

use super::conversion::{
    DEFINITION_NAME, WIDGETS_V2, conversion_response, convert, convert_with,
    define_converted_widgets, widget_v2,
};
use super::objects::{DEFINITIONS, WIDGETS, object_path, wait_until, widget};
use crate::case::{Case, Outcome, case};
use crate::session::{PatchType, RequestSpec, Session};

pub(super) const CASES: &[Case] = &[
    case!("conversion-refused", [54], refused),
    case!("conversion-refused-in-writes", [54], refused_in_writes),
    case!("conversion-of-others-goes-on", [54], storage_version_still_works),
    case!("conversion-of-the-wrong-kind", [54], wrong_kind),
    case!("conversion-changes-identity", [54], identity),
    case!("conversion-changes-metadata", [54], metadata),
    case!("conversion-lacks-objects", [54], lacks_objects),
    case!("conversion-answers-nonsense", [54], invalid_responses),
    case!("conversion-answers-with-status", [54], statuses),
    case!("conversion-is-not-trusted", [54], not_trusted),
    case!("conversion-is-not-there", [54], unreachable),
    case!("conversion-has-no-service", [54], no_service),
];

/// Reads an object while the converter answers like this.
async fn read_with(
    talk: &mut Session,
    answer: impl Fn(&Value) -> Reply + Send + Sync + 'static,
) -> Outcome {
    talk.serve_webhook("convert", answer)?;
    talk.get(&object_path(WIDGETS_V2, "w")).await?.expect(500)?;
    Ok(())
}

async fn get_one(talk: &mut Session) -> Outcome {
    define_converted_widgets(talk).await?;
    talk.create(WIDGETS, &widget("w", &json!({ "a": "1" }))).await?;
    // From here on every server knows the object in both versions.
    talk.get(WIDGETS_V2).await?.expect(200)?.has_names(&["w"])
}

/// An answer with this result.
fn with_result(review: &Value, result: &Value) -> Reply {
    let mut answer = convert(review);
    answer["response"]["result"] = result.clone();
    Reply::Json(answer)
}

fn refuse(review: &Value) -> Reply {
    with_result(review, &json!({ "status": "Failure", "message": "cannot convert" }))
}

async fn refused(talk: &mut Session) -> Outcome {
    get_one(talk).await?;
    talk.serve_webhook("convert", refuse)?;
    let message = talk.with_namespace(
        "conversion webhook for {ns}.case.test/v1, Kind=Widget failed: cannot convert",
    );
    let answer = talk.get(&object_path(WIDGETS_V2, "w")).await?.expect(500)?;
    answer.has_value("/message", &json!(message))?;
    read_with(talk, |review| with_result(review, &json!({ "status": "Failure" }))).await?;
    read_with(talk, |review| with_result(review, &json!({}))).await?;
    read_with(talk, |review| with_result(review, &json!({ "message": "no status" }))).await?;
    talk.get(&object_path(WIDGETS, "w")).await?.expect(200)?;
    Ok(())
}

async fn refused_in_writes(talk: &mut Session) -> Outcome {
    get_one(talk).await?;
    talk.serve_webhook("convert", refuse)?;
    talk.post(WIDGETS_V2, &widget_v2("v", &json!({ "b": "1" }))).await?.expect(500)?;
    talk.get(&object_path(WIDGETS, "v")).await?.expect(404)?;
    let change = json!({ "spec": { "b": "2" } });
    talk.patch(&object_path(WIDGETS_V2, "w"), PatchType::Merge, &change).await?.expect(500)?;
    let path = format!("{}?fieldManager=one", object_path(WIDGETS_V2, "w"));
    talk.patch(&path, PatchType::Apply, &widget_v2("w", &json!({ "b": "2" })))
        .await?
        .expect(500)?;
    talk.put(&object_path(WIDGETS_V2, "w"), &widget_v2("w", &json!({ "b": "2" })))
        .await?
        .expect(500)?;
    talk.get(&object_path(WIDGETS_V2, "w/status")).await?.expect(500)?;
    talk.get(&object_path(WIDGETS_V2, "w/scale")).await?.expect(500)?;
    talk.delete(&object_path(WIDGETS_V2, "w")).await?.expect(500)?;
    talk.get(&object_path(WIDGETS, "w"))
        .await?
        .expect(200)?
        .has_value("/spec", &json!({ "a": "1" }))
}

/// Who uses the stored version does not notice.
async fn storage_version_still_works(talk: &mut Session) -> Outcome {
    get_one(talk).await?;
    talk.serve_webhook("convert", refuse)?;
    let change = json!({ "spec": { "a": "2" } });
    talk.patch(&object_path(WIDGETS, "w"), PatchType::Merge, &change).await?.expect(200)?;
    talk.create(WIDGETS, &widget("v", &json!({ "a": "1" }))).await?;
    talk.get(WIDGETS).await?.expect(200)?.has_names(&["v", "w"])?;
    talk.delete(&object_path(WIDGETS, "v")).await?.expect(200)?;
    talk.get(&object_path(WIDGETS_V2, "absent")).await?.expect(404)?;
    Ok(())
}

async fn wrong_kind(talk: &mut Session) -> Outcome {
    get_one(talk).await?;
    let change = |name: &'static str, value: &'static str| {
        move |review: &Value| {
            Reply::Json(convert_with(review, |object| object[name] = json!(value)))
        }
    };
    read_with(talk, change("apiVersion", "other.test/v2")).await?;
    read_with(talk, change("apiVersion", "v2")).await?;
    read_with(talk, change("kind", "Gadget")).await?;
    read_with(talk, |review| Reply::Json(conversion_response(review, &not_converted(review)))).await
}

/// The objects of a question, as they are.
fn not_converted(review: &Value) -> Vec<Value> {
    review["request"]["objects"].as_array().cloned().unwrap_or_default()
}

async fn identity(talk: &mut Session) -> Outcome {
    get_one(talk).await?;
    for name in ["name", "namespace", "uid"] {
        read_with(talk, move |review| {
            Reply::Json(convert_with(review, |object| object["metadata"][name] = json!("other")))
        })
        .await?;
    }
    Ok(())
}

async fn metadata(talk: &mut Session) -> Outcome {
    get_one(talk).await?;
    let with = |metadata: Value| {
        move |review: &Value| {
            Reply::Json(convert_with(review, |object| {
                for (name, value) in metadata.as_object().into_iter().flatten() {
                    object["metadata"][name] = value.clone();
                }
            }))
        }
    };
    read_with(talk, with(json!({ "labels": ["x"] }))).await?;
    read_with(talk, with(json!({ "labels": { "x": 1 } }))).await?;
    read_with(talk, with(json!({ "labels": { "x": "-" } }))).await?;
    read_with(talk, with(json!({ "annotations": { "-": "x" } }))).await?;
    // What is not the webhook's is put back without a word.
    talk.serve_webhook(
        "convert",
        with(json!({
            "generation": 99, "finalizers": ["case.test/x"], "resourceVersion": "1",
            "creationTimestamp": "2000-01-01T00:00:00Z", "annotations": { "added": "yes" },
        })),
    )?;
    let answer = talk.get(&object_path(WIDGETS_V2, "w")).await?.expect(200)?;
    answer.has_values(&[
        ("/metadata/generation", json!(1)),
        ("/metadata/annotations", json!({ "added": "yes" })),
    ])?;
    answer.has_no_value("/metadata/finalizers")
}

async fn lacks_objects(talk: &mut Session) -> Outcome {
    get_one(talk).await?;
    read_with(talk, |review| Reply::Json(conversion_response(review, &[]))).await?;
    read_with(talk, |review| {
        let objects = not_converted(review);
        Reply::Json(conversion_response(review, &[objects.clone(), objects].concat()))
    })
    .await?;
    read_with(talk, |review| {
        let mut answer = convert(review);
        answer["response"]["uid"] = json!("other");
        Reply::Json(answer)
    })
    .await?;
    read_with(talk, |review| {
        let mut answer = convert(review);
        answer["response"] = Value::Null;
        Reply::Json(answer)
    })
    .await
}

fn raw(status: u16, kind: &'static str, body: &'static str) -> impl Fn(&Value) -> Reply {
    move |_| Reply::Raw {
        status,
        headers: vec![("content-type", kind.to_owned())],
        body: body.as_bytes().to_vec().into(),
    }
}

async fn invalid_responses(talk: &mut Session) -> Outcome {
    get_one(talk).await?;
    read_with(talk, raw(200, "application/json", "hello")).await?;
    read_with(talk, raw(200, "application/json", "")).await?;
    read_with(talk, raw(200, "application/json", "{\"a\":")).await?;
    read_with(talk, raw(200, "application/json", "{}")).await?;
    read_with(talk, raw(200, "application/json", "[]")).await?;
    read_with(talk, raw(200, "application/json", "12")).await?;
    read_with(talk, raw(200, "application/json", "null")).await?;
    read_with(talk, raw(200, "text/html", "<html>")).await?;
    read_with(talk, raw(200, "application/json", r#"{"kind":"ConversionReview"}"#)).await?;
    let version = r#"{"apiVersion":"apiextensions.k8s.io/v1"}"#;
    read_with(talk, raw(200, "application/json", version)).await?;
    let status = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no"}"#;
    read_with(talk, raw(200, "application/json", status)).await?;
    read_with(talk, |review| {
        let mut answer = convert(review);
        answer["apiVersion"] = json!("other.test/v1");
        Reply::Json(answer)
    })
    .await
}

async fn statuses(talk: &mut Session) -> Outcome {
    get_one(talk).await?;
    read_with(talk, raw(500, "text/plain", "boom")).await?;
    read_with(talk, raw(500, "application/json", "{}")).await?;
    read_with(talk, raw(404, "text/plain", "where?")).await?;
    read_with(talk, raw(403, "text/plain", "keep out")).await?;
    read_with(talk, raw(400, "text/plain", "bad")).await?;
    read_with(talk, raw(503, "text/plain", "later")).await?;
    let status =
        r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","code":418}"#;
    read_with(talk, raw(418, "application/json", status)).await?;
    read_with(talk, |_| Reply::Close).await
}

/// Calls the converter like this from now on, and waits until the server does.
async fn reconfigure(talk: &mut Session, config: &Value, message: &str) -> Outcome {
    let path = object_path(DEFINITIONS, DEFINITION_NAME);
    let change = json!([{
        "op": "replace", "path": "/spec/conversion/webhook/clientConfig", "value": config,
    }]);
    talk.send_unrecorded(RequestSpec::patch(path, PatchType::Json, &change)).await?.expect(200)?;
    wait_until(talk, &object_path(WIDGETS_V2, "w"), |it| it.string("/message").contains(message))
        .await?;
    talk.get(&object_path(WIDGETS_V2, "w")).await?.expect(500)?;
    Ok(())
}

async fn not_trusted(talk: &mut Session) -> Outcome {
    get_one(talk).await?;
    let own = talk.serve_webhook("convert", |review| Reply::Json(convert(review)))?;
    let unknown = json!({ "url": own["url"] });
    reconfigure(talk, &unknown, "certificate signed by unknown authority").await
}

async fn unreachable(talk: &mut Session) -> Outcome {
    get_one(talk).await?;
    let nobody = json!({ "url": "https://127.0.0.1:1/convert" });
    reconfigure(talk, &nobody, "connection refused").await
}

async fn no_service(talk: &mut Session) -> Outcome {
    get_one(talk).await?;
    let service = json!({ "service": { "namespace": "{ns}", "name": "absent", "path": "/x" } });
    reconfigure(talk, &service, "service \"absent\" not found").await
}
