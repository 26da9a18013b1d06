//! Webhooks that change what is written.

use gantry_testkit::webhook_server::Reply;
use serde_json::{Value, json};

use super::objects::{
    CONFIG_MAPS, DEPLOYMENTS, WIDGETS, config_map, define, deployment, object_path, widget,
    widget_definition, with_query,
};
use super::webhooks::{Kind, allow, first_call, install, patch, respond, rule, webhook};
use crate::case::{Case, Outcome, case, expect_equal};
use crate::session::{PatchType, Session};

pub(super) const CASES: &[Case] = &[
    case!("webhook-changes-creation", [58], creation),
    case!("webhook-changes-update", [58], update),
    case!("webhook-changes-apply", [44, 58], apply),
    case!("webhook-changes-are-defaulted", [58], defaulted),
    case!("webhook-changes-are-validated", [58], validated),
    case!("webhook-changes-unknown-fields", [58], unknown_fields),
    case!("webhook-changes-custom-objects", [51, 58], custom),
    case!("webhook-changes-in-order", [58], in_order),
    case!("webhook-changes-seen-by-others", [58], visible_to_later_webhooks),
    case!("webhook-is-asked-again", [58], reinvoked),
    case!("webhook-is-not-asked-again", [58], not_reinvoked),
    case!("webhook-changes-dry-run", [37, 58], dry_run),
    case!("webhook-changes-deletion", [58], deletion),
    case!("webhook-changes-nothing", [58], nothing),
    case!("webhook-changes-scale", [58], scale),
    case!("webhook-changes-owners", [46, 58], owners),
    case!("webhook-changes-name", [58], name),
    case!("webhook-changes-and-warns", [58], warns),
    case!("webhook-patch-does-not-apply", [58], does_not_apply),
    case!("webhook-patch-is-none", [58], no_patch),
];

/// Puts one mutating webhook with this patch into effect.
async fn install_mutating(talk: &mut Session, operations: Value) -> Outcome {
    let config = talk.serve_webhook("hook", move |review| patch(review, &operations))?;
    install(talk, Kind::Mutating, "one", &[webhook("w", &config)]).await
}

async fn creation(talk: &mut Session) -> Outcome {
    let labels = json!({ "added": "yes" });
    install_mutating(talk, json!([{ "op": "add", "path": "/metadata/labels", "value": labels }]))
        .await?;
    let made = talk.create(CONFIG_MAPS, &config_map("c", "1")).await?;
    made.has_value("/metadata/labels", &json!({ "added": "yes" }))?;
    talk.get(&object_path(CONFIG_MAPS, "c")).await?.expect(200)?;
    Ok(())
}

async fn update(talk: &mut Session) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map("c", "1")).await?;
    install_mutating(talk, json!([{ "op": "add", "path": "/data/b", "value": "hook" }])).await?;
    let path = object_path(CONFIG_MAPS, "c");
    let answer = talk.put(&path, &config_map("c", "2")).await?.expect(200)?;
    answer.has_value("/data", &json!({ "a": "2", "b": "hook" }))?;
    let change = json!({ "data": { "a": "3", "b": "mine" } });
    let answer = talk.patch(&path, PatchType::Merge, &change).await?.expect(200)?;
    answer.has_value("/data", &json!({ "a": "3", "b": "hook" }))
}

async fn apply(talk: &mut Session) -> Outcome {
    install_mutating(talk, json!([{ "op": "add", "path": "/data/b", "value": "hook" }])).await?;
    let path = with_query(&object_path(CONFIG_MAPS, "c"), "fieldManager=one");
    talk.patch(&path, PatchType::Apply, &config_map("c", "1")).await?.expect(201)?;
    talk.patch(&path, PatchType::Apply, &config_map("c", "1")).await?.expect(200)?;
    let answer = talk.patch(&path, PatchType::Apply, &config_map("c", "2")).await?.expect(200)?;
    answer.has_value("/data", &json!({ "a": "2", "b": "hook" }))
}

async fn defaulted(talk: &mut Session) -> Outcome {
    let container = json!({ "name": "added", "image": "registry.test/added" });
    let operations = json!([
        { "op": "add", "path": "/spec/template/spec/containers/-", "value": container },
        { "op": "remove", "path": "/spec/strategy" },
    ]);
    let config = talk.serve_webhook("hook", move |review| patch(review, &operations))?;
    let mut hook = webhook("w", &config);
    hook["rules"] = json!([rule(&["CREATE"], "apps", "deployments")]);
    install(talk, Kind::Mutating, "one", &[hook]).await?;
    let made = talk.create(DEPLOYMENTS, &deployment("d")).await?;
    let added = "/spec/template/spec/containers/1";
    made.has_values(&[
        (&format!("{added}/imagePullPolicy"), json!("Always")),
        (&format!("{added}/terminationMessagePath"), json!("/dev/termination-log")),
        ("/spec/strategy/type", json!("RollingUpdate")),
    ])
}

async fn validated(talk: &mut Session) -> Outcome {
    let labels = json!({ "bad": "-" });
    install_mutating(talk, json!([{ "op": "add", "path": "/metadata/labels", "value": labels }]))
        .await?;
    talk.post(CONFIG_MAPS, &config_map("c", "1")).await?.expect(422)?;
    Ok(())
}

async fn unknown_fields(talk: &mut Session) -> Outcome {
    install_mutating(talk, json!([{ "op": "add", "path": "/unknown", "value": { "x": 1 } }]))
        .await?;
    talk.create(CONFIG_MAPS, &config_map("c", "1")).await?.has_no_value("/unknown")?;
    let wrong = json!([{ "op": "replace", "path": "/data", "value": { "a": 1 } }]);
    talk.serve_webhook("hook", move |review| patch(review, &wrong))?;
    talk.post(CONFIG_MAPS, &config_map("d", "1")).await?.expect(500)?;
    Ok(())
}

async fn custom(talk: &mut Session) -> Outcome {
    let field = json!({ "type": "string" });
    let spec = json!({ "type": "object", "properties": {
        "a": field, "b": field, "c": { "type": "string", "default": "made up" },
    } });
    define(talk, &widget_definition(&spec)).await?;
    let operations = json!([
        { "op": "add", "path": "/spec/b", "value": "hook" },
        { "op": "add", "path": "/spec/unknown", "value": "hook" },
        { "op": "remove", "path": "/spec/c" },
    ]);
    let config = talk.serve_webhook("hook", move |review| patch(review, &operations))?;
    let mut hook = webhook("w", &config);
    hook["rules"] = json!([rule(&["CREATE", "UPDATE"], "{ns}.case.test", "widgets")]);
    install(talk, Kind::Mutating, "one", &[hook]).await?;
    let made = talk.create(WIDGETS, &widget("w", &json!({ "a": "1" }))).await?;
    made.has_value("/spec", &json!({ "a": "1", "b": "hook", "c": "made up" }))?;
    let wrong = json!([{ "op": "add", "path": "/spec/b", "value": 1 }]);
    talk.serve_webhook("hook", move |review| patch(review, &wrong))?;
    talk.post(WIDGETS, &widget("v", &json!({ "a": "1" }))).await?.expect(422)?;
    Ok(())
}

/// Adds a word to the annotation `order`.
fn append_to_order(review: &Value, word: &str) -> Reply {
    let object = &review["request"]["object"];
    let before = object["metadata"]["annotations"]["order"].as_str().unwrap_or_default();
    let annotations = json!({ "order": format!("{before}{word}") });
    patch(review, &json!([{ "op": "add", "path": "/metadata/annotations", "value": annotations }]))
}

async fn in_order(talk: &mut Session) -> Outcome {
    let first = talk.serve_webhook("first", |review| append_to_order(review, "1"))?;
    let second = talk.serve_webhook("second", |review| append_to_order(review, "2"))?;
    let third = talk.serve_webhook("third", |review| append_to_order(review, "3"))?;
    // By the name of the configuration, then as they are listed.
    install(talk, Kind::Mutating, "z", &[webhook("a", &third)]).await?;
    install(talk, Kind::Mutating, "a", &[webhook("z", &first), webhook("b", &second)]).await?;
    let made = talk.create(CONFIG_MAPS, &config_map("c", "1")).await?;
    made.has_value("/metadata/annotations", &json!({ "order": "123" }))
}

async fn visible_to_later_webhooks(talk: &mut Session) -> Outcome {
    install_mutating(talk, json!([{ "op": "add", "path": "/data/b", "value": "hook" }])).await?;
    let config = talk.serve_webhook("objects", allow)?;
    install(talk, Kind::Validating, "one", &[webhook("v", &config)]).await?;
    talk.create(CONFIG_MAPS, &config_map("c", "1")).await?;
    let heard = talk.record_webhook_calls("objects")?;
    expect_equal(
        "what was made of it",
        &json!("hook"),
        &first_call(&heard)["body"]["request"]["object"]["data"]["b"],
    )
}

/// How often two webhooks are asked: the first signs, the second adds data; with this policy.
async fn count_invocations(
    talk: &mut Session,
    policy: &str,
) -> Result<[usize; 2], crate::case::CaseError> {
    let first = talk.serve_webhook("first", |review| {
        if review["request"]["object"]["metadata"]["annotations"]["order"].is_null() {
            append_to_order(review, "1")
        } else {
            allow(review)
        }
    })?;
    let second = talk.serve_webhook("second", |review| {
        patch(review, &json!([{ "op": "add", "path": "/data/b", "value": "hook" }]))
    })?;
    let hooks = ["first", "second"].iter().zip([first, second]).map(|(name, config)| {
        let mut hook = webhook(name, &config);
        hook["reinvocationPolicy"] = json!(policy);
        hook
    });
    install(talk, Kind::Mutating, "one", &hooks.collect::<Vec<_>>()).await?;
    let made = talk.create(CONFIG_MAPS, &config_map("c", "1")).await?;
    made.has_value("/data", &json!({ "a": "1", "b": "hook" }))?;
    Ok([talk.record_webhook_calls("first")?.len(), talk.record_webhook_calls("second")?.len()])
}

async fn reinvoked(talk: &mut Session) -> Outcome {
    let calls = count_invocations(talk, "IfNeeded").await?;
    expect_equal("the first sees what the second did", &[2, 1], &calls)
}

async fn not_reinvoked(talk: &mut Session) -> Outcome {
    let calls = count_invocations(talk, "Never").await?;
    expect_equal("once each", &[1, 1], &calls)
}

async fn dry_run(talk: &mut Session) -> Outcome {
    install_mutating(talk, json!([{ "op": "add", "path": "/data/b", "value": "hook" }])).await?;
    let path = with_query(CONFIG_MAPS, "dryRun=All");
    let answer = talk.post(&path, &config_map("c", "1")).await?.expect(201)?;
    answer.has_value("/data/b", &json!("hook"))?;
    talk.get(&object_path(CONFIG_MAPS, "c")).await?.expect(404)?;
    Ok(())
}

async fn deletion(talk: &mut Session) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map("c", "1")).await?;
    install_mutating(talk, json!([{ "op": "add", "path": "/data/b", "value": "hook" }])).await?;
    talk.delete(&object_path(CONFIG_MAPS, "c")).await?.expect(500)?;
    talk.serve_webhook("hook", |review| patch(review, &json!([])))?;
    talk.delete(&object_path(CONFIG_MAPS, "c")).await?.expect(200)?;
    Ok(())
}

async fn nothing(talk: &mut Session) -> Outcome {
    install_mutating(talk, json!([])).await?;
    talk.create(CONFIG_MAPS, &config_map("c", "1")).await?;
    let same = json!([{ "op": "add", "path": "/data/a", "value": "1" }]);
    talk.serve_webhook("hook", move |review| patch(review, &same))?;
    let answer = talk.create(CONFIG_MAPS, &config_map("d", "1")).await?;
    answer.has_value("/data", &json!({ "a": "1" }))
}

async fn scale(talk: &mut Session) -> Outcome {
    talk.create(DEPLOYMENTS, &deployment("d")).await?;
    let config = talk.serve_webhook("hook", |review| {
        patch(review, &json!([{ "op": "replace", "path": "/spec/replicas", "value": 7 }]))
    })?;
    let mut hook = webhook("w", &config);
    hook["rules"] = json!([rule(&["UPDATE"], "apps", "deployments/scale")]);
    install(talk, Kind::Mutating, "one", &[hook]).await?;
    let change = json!({ "spec": { "replicas": 3 } });
    let answer = talk
        .patch(&object_path(DEPLOYMENTS, "d/scale"), PatchType::Merge, &change)
        .await?
        .expect(200)?;
    answer.has_value("/spec/replicas", &json!(7))?;
    talk.get(&object_path(DEPLOYMENTS, "d"))
        .await?
        .expect(200)?
        .has_value("/spec/replicas", &json!(7))
}

async fn owners(talk: &mut Session) -> Outcome {
    let broken = json!([{ "manager": "x", "operation": "Update", "apiVersion": "v1",
        "fieldsType": "FieldsV2", "fieldsV1": {} }]);
    install_mutating(
        talk,
        json!([{ "op": "add", "path": "/metadata/managedFields", "value": broken }]),
    )
    .await?;
    talk.create(CONFIG_MAPS, &config_map("c", "1")).await?;
    Ok(())
}

async fn name(talk: &mut Session) -> Outcome {
    install_mutating(
        talk,
        json!([{ "op": "replace", "path": "/metadata/name", "value": "other" }]),
    )
    .await?;
    talk.post(CONFIG_MAPS, &config_map("c", "1")).await?;
    talk.get(&object_path(CONFIG_MAPS, "other")).await?;
    talk.serve_webhook("hook", |review| {
        patch(review, &json!([{ "op": "replace", "path": "/metadata/namespace", "value": "x" }]))
    })?;
    talk.post(CONFIG_MAPS, &config_map("d", "1")).await?;
    Ok(())
}

async fn warns(talk: &mut Session) -> Outcome {
    let config = talk.serve_webhook("hook", |review| {
        respond(review, &json!({ "allowed": true, "warnings": ["of the first"] }))
    })?;
    install(talk, Kind::Mutating, "one", &[webhook("w", &config)]).await?;
    let config = talk.serve_webhook("objects", |review| {
        respond(review, &json!({ "allowed": true, "warnings": ["of the second"] }))
    })?;
    install(talk, Kind::Validating, "one", &[webhook("v", &config)]).await?;
    let made = talk.create(CONFIG_MAPS, &config_map("c", "1")).await?;
    made.has_warnings(&["of the first", "of the second"])
}

async fn does_not_apply(talk: &mut Session) -> Outcome {
    install_mutating(talk, json!([{ "op": "test", "path": "/data/a", "value": "other" }])).await?;
    talk.post(CONFIG_MAPS, &config_map("c", "1")).await?.expect(500)?;
    let table = [
        json!([{ "op": "remove", "path": "/data/absent" }]),
        json!([{ "op": "add", "path": "/absent/deep", "value": 1 }]),
        json!([{ "op": "replace", "path": "/absent/deep", "value": "x" }]),
        json!([{ "op": "remove", "path": "/absent/deep" }]),
        json!([{ "op": "odd", "path": "/data/a", "value": "x" }]),
    ];
    for operations in table {
        talk.serve_webhook("hook", move |review| patch(review, &operations))?;
        talk.post(CONFIG_MAPS, &config_map("c", "1")).await?.expect(500)?;
    }
    Ok(())
}

async fn no_patch(talk: &mut Session) -> Outcome {
    install_mutating(talk, json!([])).await?;
    let table = [
        json!({ "allowed": true, "patch": "W10=" }),
        json!({ "allowed": true, "patchType": "JSONPatch" }),
        json!({ "allowed": true, "patchType": "", "patch": "W10=" }),
        json!({
            "allowed": true,
            "patchType": "MergePatch",
            "patch": "W3sib3AiOiJhZGQiLCJwYXRoIjoiL2RhdGEvYiIsInZhbHVlIjoiMSJ9XQ==",
        }),
        json!({ "allowed": true, "patchType": "JSONPatch", "patch": "bm8gSlNPTg==" }),
        json!({ "allowed": true, "patchType": "JSONPatch", "patch": "e30=" }),
        json!({ "allowed": true, "patchType": "JSONPatch", "patch": "???" }),
    ];
    for response in table {
        talk.serve_webhook("hook", move |review| respond(review, &response))?;
        talk.post(CONFIG_MAPS, &config_map("c", "1")).await?.expect(500)?;
    }
    Ok(())
}
