//! Webhooks that cannot be asked, or answer nonsense.

use bytes::Bytes;
use gantry_testkit::webhook_server::Reply;
use serde_json::{Value, json};

use super::objects::{CONFIG_MAPS, config_map, object_path};
use super::webhooks::{Kind, allow, install, respond, webhook};
use crate::case::{Case, Outcome, case};
use crate::session::Session;

pub(super) const CASES: &[Case] = &[
    case!("webhook-never-answers", [58], never),
    case!("webhook-is-not-there", [58], unreachable),
    case!("webhook-is-not-trusted", [58], not_trusted),
    case!("webhook-has-no-service", [58], no_service),
    case!("webhook-answers-with-failure", [58], failures),
    case!("webhook-answers-nonsense", [58], malformed_responses),
    case!("webhook-answers-another", [58], mismatched_response),
    case!("webhook-answers-wrong-types", [58], wrong_types),
    case!("webhook-closes-the-connection", [58], closes),
    case!("webhook-validates-with-a-patch", [58], patches),
    case!("webhook-faults-are-ignored", [58], ignored),
    case!("webhook-faults-stop-deletion", [58], deletion),
];

/// Creates an object while one validating webhook with this change is in effect.
async fn create_with_webhook(talk: &mut Session, change: impl Fn(&mut Value)) -> Outcome {
    let config = talk.serve_webhook("hook", allow)?;
    let mut hook = webhook("w", &config);
    change(&mut hook);
    install(talk, Kind::Validating, "one", &[hook]).await
}

/// Creates an object while the webhook answers like this.
async fn create_with_reply(
    talk: &mut Session,
    answer: impl Fn(&Value) -> Reply + Send + Sync + 'static,
) -> Outcome {
    talk.serve_webhook("hook", answer)?;
    talk.post(CONFIG_MAPS, &config_map("c", "1")).await?.expect(500)?;
    Ok(())
}

async fn never(talk: &mut Session) -> Outcome {
    create_with_webhook(talk, |hook| hook["timeoutSeconds"] = json!(1)).await?;
    talk.serve_webhook("hook", |_| Reply::Never)?;
    let answer = talk.post(CONFIG_MAPS, &config_map("c", "1")).await?.expect(500)?;
    let text = answer.string("/message");
    let ends = text.ends_with("?timeout=1s\": context deadline exceeded");
    crate::case::expect_true(&text, ends)
}

async fn unreachable(talk: &mut Session) -> Outcome {
    let nobody = json!({ "url": "https://127.0.0.1:1/hook" });
    create_with_webhook(talk, |hook| hook["clientConfig"] = nobody.clone()).await?;
    talk.post(CONFIG_MAPS, &config_map("c", "1")).await?.expect(500)?;
    Ok(())
}

async fn not_trusted(talk: &mut Session) -> Outcome {
    create_with_webhook(talk, |hook| {
        drop(hook["clientConfig"].as_object_mut().map(|it| it.remove("caBundle")));
    })
    .await?;
    talk.post(CONFIG_MAPS, &config_map("c", "1")).await?.expect(500)?;
    Ok(())
}

async fn no_service(talk: &mut Session) -> Outcome {
    let service = json!({ "service": { "namespace": "{ns}", "name": "absent", "path": "/hook" } });
    create_with_webhook(talk, |hook| hook["clientConfig"] = service.clone()).await?;
    talk.post(CONFIG_MAPS, &config_map("c", "1")).await?.expect(500)?;
    Ok(())
}

fn raw(status: u16, kind: &'static str, body: &'static str) -> impl Fn(&Value) -> Reply {
    move |_| Reply::Raw {
        status,
        headers: vec![("content-type", kind.to_owned())],
        body: Bytes::from_static(body.as_bytes()),
    }
}

async fn failures(talk: &mut Session) -> Outcome {
    create_with_webhook(talk, |_| {}).await?;
    create_with_reply(talk, raw(500, "text/plain", "boom \"x\"")).await?;
    create_with_reply(talk, raw(500, "application/json", "{}")).await?;
    create_with_reply(talk, raw(404, "text/plain", "where?")).await?;
    create_with_reply(talk, raw(403, "text/plain", "keep out")).await?;
    create_with_reply(talk, raw(400, "text/plain", "bad")).await?;
    create_with_reply(talk, raw(401, "text/plain", "who?")).await?;
    create_with_reply(talk, raw(405, "text/plain", "how?")).await?;
    create_with_reply(talk, raw(409, "text/plain", "again")).await?;
    create_with_reply(talk, raw(422, "text/plain", "odd")).await?;
    create_with_reply(talk, raw(503, "text/plain", "later")).await?;
    create_with_reply(talk, raw(504, "text/plain", "much later")).await?;
    let status = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no"}"#;
    create_with_reply(talk, raw(418, "application/json", status)).await?;
    create_with_reply(talk, raw(418, "text/plain", "short and stout")).await
}

async fn malformed_responses(talk: &mut Session) -> Outcome {
    create_with_webhook(talk, |_| {}).await?;
    create_with_reply(talk, raw(200, "application/json", "hello")).await?;
    create_with_reply(talk, raw(200, "application/json", "")).await?;
    create_with_reply(talk, raw(200, "application/json", "{\"a\":")).await?;
    create_with_reply(talk, raw(200, "application/json", "{}")).await?;
    create_with_reply(talk, raw(200, "application/json", "[]")).await?;
    create_with_reply(talk, raw(200, "text/html", "<html>")).await?;
    create_with_reply(talk, raw(200, "application/json", r#"{"kind":"AdmissionReview"}"#)).await?;
    let status = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no"}"#;
    create_with_reply(talk, raw(200, "application/json", status)).await
}

async fn mismatched_response(talk: &mut Session) -> Outcome {
    create_with_webhook(talk, |_| {}).await?;
    let changed = |change: fn(&mut Value)| {
        move |review: &Value| match allow(review) {
            Reply::Json(mut answer) => {
                change(&mut answer);
                Reply::Json(answer)
            }
            other => other,
        }
    };
    create_with_reply(talk, changed(|it| it["response"]["uid"] = json!("other"))).await?;
    create_with_reply(
        talk,
        changed(|it| drop(it["response"].as_object_mut().map(|it| it.remove("uid")))),
    )
    .await?;
    create_with_reply(talk, changed(|it| it["response"] = Value::Null)).await?;
    create_with_reply(talk, changed(|it| it["apiVersion"] = json!("admission.k8s.io/v1beta1")))
        .await?;
    create_with_reply(talk, changed(|it| it["apiVersion"] = json!("other.test/v1"))).await?;
    create_with_reply(talk, changed(|it| it["kind"] = json!("Other"))).await?;
    create_with_reply(talk, changed(|it| drop(it.as_object_mut().map(|it| it.remove("kind")))))
        .await
}

async fn wrong_types(talk: &mut Session) -> Outcome {
    create_with_webhook(talk, |_| {}).await?;
    create_with_reply(talk, |review| respond(review, &json!({ "allowed": "yes" }))).await?;
    create_with_reply(talk, |review| respond(review, &json!({ "allowed": 1 }))).await?;
    create_with_reply(talk, |review| respond(review, &json!({ "allowed": true, "patchType": 1 })))
        .await?;
    create_with_reply(talk, |review| respond(review, &json!({ "allowed": true, "patch": {} })))
        .await
}

async fn closes(talk: &mut Session) -> Outcome {
    create_with_webhook(talk, |_| {}).await?;
    create_with_reply(talk, |_| Reply::Close).await
}

async fn patches(talk: &mut Session) -> Outcome {
    create_with_webhook(talk, |_| {}).await?;
    let patch = json!({ "allowed": true, "patch": "W10=" });
    create_with_reply(talk, move |review| respond(review, &patch)).await?;
    let kind = json!({ "allowed": true, "patchType": "JSONPatch" });
    create_with_reply(talk, move |review| respond(review, &kind)).await
}

async fn ignored(talk: &mut Session) -> Outcome {
    let config = talk.serve_webhook("hook", raw(500, "text/plain", "boom"))?;
    let mut broken = webhook("broken", &config);
    let mut absent = webhook("absent", &json!({ "url": "https://127.0.0.1:1/hook" }));
    for hook in [&mut broken, &mut absent] {
        hook["failurePolicy"] = json!("Ignore");
    }
    let both = [broken, absent];
    install(talk, Kind::Mutating, "one", &both).await?;
    install(talk, Kind::Validating, "one", &both).await?;
    talk.create(CONFIG_MAPS, &config_map("c", "1")).await?;
    talk.serve_webhook("hook", raw(200, "application/json", "hello"))?;
    talk.create(CONFIG_MAPS, &config_map("d", "1")).await?;
    // A refusal is no fault.
    talk.serve_webhook("hook", |review| respond(review, &json!({ "allowed": false })))?;
    talk.post(CONFIG_MAPS, &config_map("e", "1")).await?.expect(400)?;
    Ok(())
}

async fn deletion(talk: &mut Session) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map("c", "1")).await?;
    create_with_webhook(talk, |_| {}).await?;
    talk.serve_webhook("hook", raw(500, "text/plain", "boom"))?;
    talk.delete(&object_path(CONFIG_MAPS, "c")).await?.expect(500)?;
    talk.get(&object_path(CONFIG_MAPS, "c")).await?.expect(200)?;
    Ok(())
}
