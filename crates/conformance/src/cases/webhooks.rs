//! Admission webhooks: what they see, and what they may say.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gantry_testkit::webhook_server::Reply;
use serde_json::{Value, json};

use super::objects::{CONFIG_MAPS, DEPLOYMENTS, config_map, deployment, object_path, with_query};
use crate::case::{Case, Outcome, case, expect_equal, expect_true};
use crate::session::{PatchType, RequestSpec, Session};

pub(super) const CASES: &[Case] = &[
    case!("webhook-allows", [58], allows),
    case!("webhook-denies", [58], denies),
    case!("webhook-denies-with-status", [58], denies_with_status),
    case!("webhook-denies-every-way", [58], denies_every_way),
    case!("webhook-sees-creation", [58], sees_creation),
    case!("webhook-sees-update", [58], sees_update),
    case!("webhook-sees-patch", [58], sees_patch),
    case!("webhook-sees-apply", [58], sees_apply),
    case!("webhook-sees-deletion", [58], sees_deletion),
    case!("webhook-sees-deleted-collection", [36, 58], sees_collection),
    case!("webhook-sees-status", [58], sees_status),
    case!("webhook-sees-scale", [58], sees_scale),
    case!("webhook-sees-generated-names", [17, 58], sees_generated_names),
    case!("webhook-sees-dry-runs", [37, 58], sees_dry_runs),
    case!("webhook-sees-no-change", [16, 58], sees_no_change),
    case!("webhook-warns", [58], warns),
    case!("webhook-warns-and-denies", [58], warns_and_denies),
    case!("webhook-and-old-reviews", [58], old_reviews),
];

/// A kind of configuration.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Mutating,
    Validating,
}

impl Kind {
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Mutating => "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
            Self::Validating => {
                "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
            }
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Mutating => "MutatingWebhookConfiguration",
            Self::Validating => "ValidatingWebhookConfiguration",
        }
    }
}

/// Objects with this label are there to see whether a configuration is in effect; the webhooks of
/// the case do not see them.
const PROBE_LABEL: &str = "probe";

/// A webhook for config maps of the case's namespace.
pub(super) fn webhook(name: &str, config: &Value) -> Value {
    json!({
        "name": format!("{name}.case.test"),
        "clientConfig": config,
        "rules": [rule(&["CREATE", "UPDATE", "DELETE"], "", "configmaps")],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": "{ns}" } },
        "objectSelector": {
            "matchExpressions": [{ "key": PROBE_LABEL, "operator": "DoesNotExist" }],
        },
    })
}

/// A rule about one resource.
pub(super) fn rule(operations: &[&str], group: &str, resource: &str) -> Value {
    json!({
        "operations": operations, "apiGroups": [group], "apiVersions": ["*"],
        "resources": [resource],
    })
}

/// Puts webhooks into effect, and waits until they are: a server may take a moment.
pub(super) async fn install(
    talk: &mut Session,
    kind: Kind,
    name: &str,
    webhooks: &[Value],
) -> Outcome {
    let full = format!("{{ns}}-{name}");
    // One of its own for each configuration, or another one would answer for it.
    let probe_of = format!("{}-{name}", kind.name().to_lowercase());
    let config =
        talk.serve_webhook(&probe_of, |review| deny(review, &json!({ "message": "probed" })))?;
    let mut probe = webhook("probe", &config);
    probe["objectSelector"] = json!({ "matchLabels": { PROBE_LABEL: probe_of } });
    let webhooks: Vec<&Value> = webhooks.iter().chain([&probe]).collect();
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind.name(),
        "metadata": { "name": full }, "webhooks": webhooks,
    });
    talk.delete_at_end(&object_path(kind.path(), &full));
    talk.send_unrecorded(RequestSpec::post(kind.path(), &configuration)).await?.expect(201)?;
    let mut object = config_map("probe", "x");
    object["metadata"]["labels"] = json!({ PROBE_LABEL: probe_of });
    let ask = RequestSpec::post(with_query(CONFIG_MAPS, "dryRun=All"), &object);
    let probed = |message: &str| message.ends_with("probe.case.test\" denied the request: probed");
    talk.send_until_unrecorded(ask, |answer| probed(&answer.string("/message"))).await?;
    Ok(())
}

/// An answer to a review.
pub(super) fn respond(review: &Value, response: &Value) -> Reply {
    let mut response = response.clone();
    response["uid"] = review["request"]["uid"].clone();
    Reply::Json(json!({
        "apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response,
    }))
}

/// Says yes.
pub(super) fn allow(review: &Value) -> Reply {
    respond(review, &json!({ "allowed": true }))
}

/// Says no, with this status.
pub(super) fn deny(review: &Value, status: &Value) -> Reply {
    respond(review, &json!({ "allowed": false, "status": status }))
}

/// Says yes, with this patch.
pub(super) fn patch(review: &Value, operations: &Value) -> Reply {
    let patch = STANDARD.encode(operations.to_string());
    respond(review, &json!({ "allowed": true, "patchType": "JSONPatch", "patch": patch }))
}

/// Puts one validating webhook that answers like this into effect.
async fn install_validating(
    talk: &mut Session,
    answer: impl Fn(&Value) -> Reply + Send + Sync + 'static,
) -> Outcome {
    let config = talk.serve_webhook("hook", answer)?;
    install(talk, Kind::Validating, "one", &[webhook("w", &config)]).await
}

/// The first call, or null.
pub(super) fn first_call(heard: &[Value]) -> &Value {
    heard.first().unwrap_or(&Value::Null)
}

/// Records what the webhook has received, except for the user of the request.
pub(super) fn record_calls(
    talk: &mut Session,
    name: &str,
) -> Result<Vec<Value>, crate::case::CaseError> {
    talk.record_webhook_calls(name)
}

async fn allows(talk: &mut Session) -> Outcome {
    install_validating(talk, allow).await?;
    talk.create(CONFIG_MAPS, &config_map("c", "1")).await?;
    talk.put(&object_path(CONFIG_MAPS, "c"), &config_map("c", "2")).await?.expect(200)?;
    talk.delete(&object_path(CONFIG_MAPS, "c")).await?.expect(200)?;
    expect_equal("three calls", &3, &talk.webhook_calls("hook")?.len())
}

async fn denies(talk: &mut Session) -> Outcome {
    install_validating(talk, |review| deny(review, &json!({ "message": "not today" }))).await?;
    let answer = talk.post(CONFIG_MAPS, &config_map("c", "1")).await?.expect(400)?;
    let message = "admission webhook \"w.case.test\" denied the request: not today";
    answer.has_value("/message", &json!(message))?;
    talk.get(&object_path(CONFIG_MAPS, "c")).await?.expect(404)?;
    Ok(())
}

async fn denies_with_status(talk: &mut Session) -> Outcome {
    install_validating(talk, allow).await?;
    let table = [
        (json!({}), 400),
        (Value::Null, 400),
        (json!({ "code": 403, "reason": "Forbidden", "message": "no" }), 403),
        (json!({ "reason": "Odd" }), 400),
        (json!({ "reason": "NotFound", "message": "no" }), 400),
        (json!({ "code": 200, "status": "Success", "message": "no" }), 400),
        (
            json!({ "code": 422, "reason": "Invalid", "message": "no", "details": {
            "name": "n", "kind": "k", "causes": [{ "reason": "r", "message": "m", "field": "f" }],
        } }),
            422,
        ),
        (json!({ "code": 500, "message": "broken" }), 500),
        (json!({ "code": 418, "message": "short and stout", "metadata": {} }), 418),
        (json!({ "code": 429, "message": "later", "details": { "retryAfterSeconds": 3 } }), 429),
    ];
    for (status, code) in table {
        talk.serve_webhook("hook", move |review| deny(review, &status))?;
        talk.post(CONFIG_MAPS, &config_map("c", "1")).await?.expect(code)?;
    }
    Ok(())
}

async fn denies_every_way(talk: &mut Session) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map("c", "1")).await?;
    install_validating(talk, |review| deny(review, &json!({ "message": "no" }))).await?;
    let path = object_path(CONFIG_MAPS, "c");
    talk.put(&path, &config_map("c", "2")).await?.expect(400)?;
    let change = json!({ "data": { "a": "2" } });
    talk.patch(&path, PatchType::Merge, &change).await?.expect(400)?;
    talk.patch(&path, PatchType::Strategic, &change).await?.expect(400)?;
    let operations = json!([{ "op": "replace", "path": "/data/a", "value": "2" }]);
    talk.patch(&path, PatchType::Json, &operations).await?.expect(400)?;
    let applied = with_query(&path, "fieldManager=one&force=true");
    talk.patch(&applied, PatchType::Apply, &config_map("c", "2")).await?.expect(400)?;
    let applied = with_query(&object_path(CONFIG_MAPS, "new"), "fieldManager=one");
    talk.patch(&applied, PatchType::Apply, &config_map("new", "2")).await?.expect(400)?;
    talk.delete(&path).await?.expect(400)?;
    talk.delete(CONFIG_MAPS).await?.expect(400)?;
    talk.get(&path).await?.expect(200)?.has_value("/data/a", &json!("1"))
}

async fn sees_creation(talk: &mut Session) -> Outcome {
    let config = talk.serve_webhook("changes", allow)?;
    install(talk, Kind::Mutating, "one", &[webhook("m", &config)]).await?;
    let config = talk.serve_webhook("objects", allow)?;
    install(talk, Kind::Validating, "one", &[webhook("v", &config)]).await?;
    talk.create(CONFIG_MAPS, &config_map("c", "1")).await?;
    record_calls(talk, "changes")?;
    let heard = record_calls(talk, "objects")?;
    expect_equal("the time it has", &json!("timeout=10s"), &first_call(&heard)["query"])?;
    expect_equal(
        "nothing was there",
        &Value::Null,
        &first_call(&heard)["body"]["request"]["oldObject"],
    )
}

async fn sees_update(talk: &mut Session) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map("c", "1")).await?;
    install_validating(talk, allow).await?;
    talk.put(&object_path(CONFIG_MAPS, "c"), &config_map("c", "2")).await?.expect(200)?;
    let heard = record_calls(talk, "hook")?;
    let request = &first_call(&heard)["body"]["request"];
    expect_equal("before", &json!("1"), &request["oldObject"]["data"]["a"])?;
    expect_equal("after", &json!("2"), &request["object"]["data"]["a"])
}

async fn sees_patch(talk: &mut Session) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map("c", "1")).await?;
    install_validating(talk, allow).await?;
    let path = with_query(&object_path(CONFIG_MAPS, "c"), "fieldManager=me&fieldValidation=Strict");
    let change = json!({ "data": { "b": "2" } });
    talk.patch(&path, PatchType::Merge, &change).await?.expect(200)?;
    record_calls(talk, "hook").map(drop)
}

async fn sees_apply(talk: &mut Session) -> Outcome {
    install_validating(talk, allow).await?;
    let path = with_query(&object_path(CONFIG_MAPS, "c"), "fieldManager=me&force=true");
    talk.patch(&path, PatchType::Apply, &config_map("c", "1")).await?.expect(201)?;
    talk.patch(&path, PatchType::Apply, &config_map("c", "2")).await?.expect(200)?;
    record_calls(talk, "hook").map(drop)
}

async fn sees_deletion(talk: &mut Session) -> Outcome {
    for name in ["c", "d"] {
        talk.create(CONFIG_MAPS, &config_map(name, "1")).await?;
    }
    install_validating(talk, allow).await?;
    talk.delete(&object_path(CONFIG_MAPS, "c")).await?.expect(200)?;
    let options = json!({
        "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background",
        "gracePeriodSeconds": 0,
    });
    talk.send(RequestSpec::delete(object_path(CONFIG_MAPS, "d")).json(&options))
        .await?
        .expect(200)?;
    let heard = record_calls(talk, "hook")?;
    expect_equal(
        "nothing will be there",
        &Value::Null,
        &first_call(&heard)["body"]["request"]["object"],
    )
}

async fn sees_collection(talk: &mut Session) -> Outcome {
    for name in ["c", "d"] {
        talk.create(CONFIG_MAPS, &config_map(name, "1")).await?;
    }
    install_validating(talk, allow).await?;
    talk.delete(&with_query(CONFIG_MAPS, "fieldSelector=metadata.name%3Dc")).await?.expect(200)?;
    let heard = record_calls(talk, "hook")?;
    expect_equal("one call per object", &1, &heard.len())
}

async fn sees_status(talk: &mut Session) -> Outcome {
    talk.create(DEPLOYMENTS, &deployment("d")).await?;
    let config = talk.serve_webhook("hook", allow)?;
    let mut hook = webhook("w", &config);
    hook["rules"] = json!([rule(&["*"], "apps", "deployments/status")]);
    install(talk, Kind::Validating, "one", &[hook]).await?;
    let change = json!({ "metadata": { "labels": { "x": "y" } } });
    talk.patch(&object_path(DEPLOYMENTS, "d"), PatchType::Merge, &change).await?.expect(200)?;
    let status = json!({ "status": { "replicas": 1, "observedGeneration": 1 } });
    talk.patch(&object_path(DEPLOYMENTS, "d/status"), PatchType::Merge, &status)
        .await?
        .expect(200)?;
    let heard = record_calls(talk, "hook")?;
    expect_equal("only the status", &1, &heard.len())?;
    expect_equal(
        "the part",
        &json!("status"),
        &first_call(&heard)["body"]["request"]["subResource"],
    )
}

async fn sees_scale(talk: &mut Session) -> Outcome {
    talk.create(DEPLOYMENTS, &deployment("d")).await?;
    let config = talk.serve_webhook("hook", allow)?;
    let mut hook = webhook("w", &config);
    hook["rules"] = json!([rule(&["*"], "apps", "deployments/scale")]);
    install(talk, Kind::Validating, "one", &[hook]).await?;
    let change = json!({ "spec": { "replicas": 3 } });
    talk.patch(&object_path(DEPLOYMENTS, "d/scale"), PatchType::Merge, &change)
        .await?
        .expect(200)?;
    let heard = record_calls(talk, "hook")?;
    let kind = json!({ "group": "autoscaling", "version": "v1", "kind": "Scale" });
    expect_equal("the kind", &kind, &first_call(&heard)["body"]["request"]["kind"])
}

async fn sees_generated_names(talk: &mut Session) -> Outcome {
    let config = talk.serve_webhook("changes", allow)?;
    install(talk, Kind::Mutating, "one", &[webhook("m", &config)]).await?;
    let config = talk.serve_webhook("objects", allow)?;
    install(talk, Kind::Validating, "one", &[webhook("v", &config)]).await?;
    let object = json!({ "metadata": { "generateName": "c-" } });
    let made = talk.create(CONFIG_MAPS, &object).await?;
    let first = talk.webhook_calls("changes")?;
    let request = &first_call(&first)["body"]["request"];
    expect_true("no name yet", request.get("name").is_none())?;
    expect_true("none in the object either", request["object"]["metadata"].get("name").is_none())?;
    let second = talk.webhook_calls("objects")?;
    let request = &first_call(&second)["body"]["request"];
    expect_equal("the name", made.at("/metadata/name"), &request["object"]["metadata"]["name"])
}

async fn sees_dry_runs(talk: &mut Session) -> Outcome {
    let config = talk.serve_webhook("hook", |review| {
        let dry = review["request"]["dryRun"] == true;
        respond(review, &json!({ "allowed": true, "warnings": [format!("dry run: {dry}")] }))
    })?;
    let mut hook = webhook("w", &config);
    hook["sideEffects"] = json!("NoneOnDryRun");
    install(talk, Kind::Validating, "one", &[hook]).await?;
    let path = with_query(CONFIG_MAPS, "dryRun=All");
    talk.post(&path, &config_map("c", "1")).await?.expect(201)?.has_warnings(&["dry run: true"])?;
    talk.create(CONFIG_MAPS, &config_map("c", "1")).await?.has_warnings(&["dry run: false"])?;
    let path = with_query(&object_path(CONFIG_MAPS, "c"), "dryRun=All");
    talk.delete(&path).await?.expect(200)?.has_warnings(&["dry run: true"])?;
    record_calls(talk, "hook").map(drop)
}

async fn sees_no_change(talk: &mut Session) -> Outcome {
    let made = talk.create(CONFIG_MAPS, &config_map("c", "1")).await?;
    install_validating(talk, allow).await?;
    let answer = talk.put(&object_path(CONFIG_MAPS, "c"), made.json()).await?.expect(200)?;
    expect_equal("nothing was stored", &made.revision(), &answer.revision())?;
    expect_equal("it was asked all the same", &1, &talk.webhook_calls("hook")?.len())
}

async fn warns(talk: &mut Session) -> Outcome {
    install_validating(talk, |review| {
        let warnings = ["first", "with \"quotes\"", "two\nlines", "", "first"];
        respond(review, &json!({ "allowed": true, "warnings": warnings }))
    })
    .await?;
    talk.create(CONFIG_MAPS, &config_map("c", "1")).await?;
    talk.delete(&object_path(CONFIG_MAPS, "c")).await?.expect(200)?;
    Ok(())
}

async fn warns_and_denies(talk: &mut Session) -> Outcome {
    install_validating(talk, |review| {
        let status = json!({ "message": "no" });
        let warnings = ["think again"];
        respond(review, &json!({ "allowed": false, "status": status, "warnings": warnings }))
    })
    .await?;
    talk.post(CONFIG_MAPS, &config_map("c", "1")).await?.expect(400)?.has_warnings(&["think again"])
}

async fn old_reviews(talk: &mut Session) -> Outcome {
    let config = talk.serve_webhook("hook", |review| {
        let mut answer = json!({ "response": { "allowed": true } });
        answer["apiVersion"] = review["apiVersion"].clone();
        answer["kind"] = json!("AdmissionReview");
        Reply::Json(answer)
    })?;
    let mut hook = webhook("w", &config);
    hook["admissionReviewVersions"] = json!(["v0", "v1beta1", "v1"]);
    install(talk, Kind::Validating, "one", &[hook]).await?;
    talk.create(CONFIG_MAPS, &config_map("c", "1")).await?;
    let heard = record_calls(talk, "hook")?;
    expect_equal(
        "the form",
        &json!("admission.k8s.io/v1beta1"),
        &first_call(&heard)["body"]["apiVersion"],
    )
}
