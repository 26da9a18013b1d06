//! Admission webhooks: what they see, and what they may say.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gantry_testkit::hook::Reply;
use serde_json::{Value, json};

use super::objects::{CONFIG_MAPS, DEPLOYMENTS, at, config_map, deployment, with};
use crate::case::{Case, Outcome, case, holds, same};
use crate::conversation::{Ask, Conversation, Patch};

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

    fn word(self) -> &'static str {
        match self {
            Self::Mutating => "MutatingWebhookConfiguration",
            Self::Validating => "ValidatingWebhookConfiguration",
        }
    }
}

/// Objects with this label are there to see whether a configuration is in effect; the webhooks of
/// the case do not see them.
const PROBE: &str = "probe";

/// A webhook for config maps of the case's namespace.
pub(super) fn webhook(name: &str, config: &Value) -> Value {
    json!({
        "name": format!("{name}.case.test"),
        "clientConfig": config,
        "rules": [rule(&["CREATE", "UPDATE", "DELETE"], "", "configmaps")],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": "{ns}" } },
        "objectSelector": { "matchExpressions": [{ "key": PROBE, "operator": "DoesNotExist" }] },
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
    talk: &mut Conversation,
    kind: Kind,
    name: &str,
    webhooks: &[Value],
) -> Outcome {
    let full = format!("{{ns}}-{name}");
    // One of its own for each configuration, or another one would answer for it.
    let probe_of = format!("{}-{name}", kind.word().to_lowercase());
    let config = talk.hook(&probe_of, |review| deny(review, &json!({ "message": "probed" })))?;
    let mut probe = webhook("probe", &config);
    probe["objectSelector"] = json!({ "matchLabels": { PROBE: probe_of } });
    let webhooks: Vec<&Value> = webhooks.iter().chain([&probe]).collect();
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind.word(),
        "metadata": { "name": full }, "webhooks": webhooks,
    });
    talk.delete_at_end(&at(kind.path(), &full));
    talk.ask_unrecorded(Ask::post(kind.path(), &configuration)).await?.expect(201)?;
    let mut object = config_map("probe", "x");
    object["metadata"]["labels"] = json!({ PROBE: probe_of });
    let ask = Ask::post(with(CONFIG_MAPS, "dryRun=All"), &object);
    let probed = |message: &str| message.ends_with("probe.case.test\" denied the request: probed");
    talk.ask_until_unrecorded(ask, |answer| probed(&answer.string("/message"))).await?;
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
async fn validating(
    talk: &mut Conversation,
    answer: impl Fn(&Value) -> Reply + Send + Sync + 'static,
) -> Outcome {
    let config = talk.hook("hook", answer)?;
    install(talk, Kind::Validating, "one", &[webhook("w", &config)]).await
}

/// The first call, or null.
pub(super) fn first_of(heard: &[Value]) -> &Value {
    heard.first().unwrap_or(&Value::Null)
}

/// Writes down what the webhook has heard, apart from who asked.
pub(super) fn record(
    talk: &mut Conversation,
    name: &str,
) -> Result<Vec<Value>, crate::case::CaseError> {
    talk.record_heard(name)
}

async fn allows(talk: &mut Conversation) -> Outcome {
    validating(talk, allow).await?;
    talk.create(CONFIG_MAPS, &config_map("c", "1")).await?;
    talk.put(&at(CONFIG_MAPS, "c"), &config_map("c", "2")).await?.expect(200)?;
    talk.delete(&at(CONFIG_MAPS, "c")).await?.expect(200)?;
    same("three calls", &3, &talk.heard("hook")?.len())
}

async fn denies(talk: &mut Conversation) -> Outcome {
    validating(talk, |review| deny(review, &json!({ "message": "not today" }))).await?;
    let answer = talk.post(CONFIG_MAPS, &config_map("c", "1")).await?.expect(400)?;
    let message = "admission webhook \"w.case.test\" denied the request: not today";
    answer.is("/message", &json!(message))?;
    talk.get(&at(CONFIG_MAPS, "c")).await?.expect(404)?;
    Ok(())
}

async fn denies_with_status(talk: &mut Conversation) -> Outcome {
    validating(talk, allow).await?;
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
        talk.hook("hook", move |review| deny(review, &status))?;
        talk.post(CONFIG_MAPS, &config_map("c", "1")).await?.expect(code)?;
    }
    Ok(())
}

async fn denies_every_way(talk: &mut Conversation) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map("c", "1")).await?;
    validating(talk, |review| deny(review, &json!({ "message": "no" }))).await?;
    let path = at(CONFIG_MAPS, "c");
    talk.put(&path, &config_map("c", "2")).await?.expect(400)?;
    let change = json!({ "data": { "a": "2" } });
    talk.patch(&path, Patch::Merge, &change).await?.expect(400)?;
    talk.patch(&path, Patch::Strategic, &change).await?.expect(400)?;
    let operations = json!([{ "op": "replace", "path": "/data/a", "value": "2" }]);
    talk.patch(&path, Patch::Json, &operations).await?.expect(400)?;
    let applied = with(&path, "fieldManager=one&force=true");
    talk.patch(&applied, Patch::Apply, &config_map("c", "2")).await?.expect(400)?;
    let applied = with(&at(CONFIG_MAPS, "new"), "fieldManager=one");
    talk.patch(&applied, Patch::Apply, &config_map("new", "2")).await?.expect(400)?;
    talk.delete(&path).await?.expect(400)?;
    talk.delete(CONFIG_MAPS).await?.expect(400)?;
    talk.get(&path).await?.expect(200)?.is("/data/a", &json!("1"))
}

async fn sees_creation(talk: &mut Conversation) -> Outcome {
    let config = talk.hook("changes", allow)?;
    install(talk, Kind::Mutating, "one", &[webhook("m", &config)]).await?;
    let config = talk.hook("objects", allow)?;
    install(talk, Kind::Validating, "one", &[webhook("v", &config)]).await?;
    talk.create(CONFIG_MAPS, &config_map("c", "1")).await?;
    record(talk, "changes")?;
    let heard = record(talk, "objects")?;
    same("the time it has", &json!("timeout=10s"), &first_of(&heard)["query"])?;
    same("nothing was there", &Value::Null, &first_of(&heard)["body"]["request"]["oldObject"])
}

async fn sees_update(talk: &mut Conversation) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map("c", "1")).await?;
    validating(talk, allow).await?;
    talk.put(&at(CONFIG_MAPS, "c"), &config_map("c", "2")).await?.expect(200)?;
    let heard = record(talk, "hook")?;
    let request = &first_of(&heard)["body"]["request"];
    same("before", &json!("1"), &request["oldObject"]["data"]["a"])?;
    same("after", &json!("2"), &request["object"]["data"]["a"])
}

async fn sees_patch(talk: &mut Conversation) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map("c", "1")).await?;
    validating(talk, allow).await?;
    let path = with(&at(CONFIG_MAPS, "c"), "fieldManager=me&fieldValidation=Strict");
    let change = json!({ "data": { "b": "2" } });
    talk.patch(&path, Patch::Merge, &change).await?.expect(200)?;
    record(talk, "hook").map(drop)
}

async fn sees_apply(talk: &mut Conversation) -> Outcome {
    validating(talk, allow).await?;
    let path = with(&at(CONFIG_MAPS, "c"), "fieldManager=me&force=true");
    talk.patch(&path, Patch::Apply, &config_map("c", "1")).await?.expect(201)?;
    talk.patch(&path, Patch::Apply, &config_map("c", "2")).await?.expect(200)?;
    record(talk, "hook").map(drop)
}

async fn sees_deletion(talk: &mut Conversation) -> Outcome {
    for name in ["c", "d"] {
        talk.create(CONFIG_MAPS, &config_map(name, "1")).await?;
    }
    validating(talk, allow).await?;
    talk.delete(&at(CONFIG_MAPS, "c")).await?.expect(200)?;
    let options = json!({
        "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background",
        "gracePeriodSeconds": 0,
    });
    talk.ask(Ask::delete(at(CONFIG_MAPS, "d")).json(&options)).await?.expect(200)?;
    let heard = record(talk, "hook")?;
    same("nothing will be there", &Value::Null, &first_of(&heard)["body"]["request"]["object"])
}

async fn sees_collection(talk: &mut Conversation) -> Outcome {
    for name in ["c", "d"] {
        talk.create(CONFIG_MAPS, &config_map(name, "1")).await?;
    }
    validating(talk, allow).await?;
    talk.delete(&with(CONFIG_MAPS, "fieldSelector=metadata.name%3Dc")).await?.expect(200)?;
    let heard = record(talk, "hook")?;
    same("one call per object", &1, &heard.len())
}

async fn sees_status(talk: &mut Conversation) -> Outcome {
    talk.create(DEPLOYMENTS, &deployment("d")).await?;
    let config = talk.hook("hook", allow)?;
    let mut hook = webhook("w", &config);
    hook["rules"] = json!([rule(&["*"], "apps", "deployments/status")]);
    install(talk, Kind::Validating, "one", &[hook]).await?;
    let change = json!({ "metadata": { "labels": { "x": "y" } } });
    talk.patch(&at(DEPLOYMENTS, "d"), Patch::Merge, &change).await?.expect(200)?;
    let status = json!({ "status": { "replicas": 1, "observedGeneration": 1 } });
    talk.patch(&at(DEPLOYMENTS, "d/status"), Patch::Merge, &status).await?.expect(200)?;
    let heard = record(talk, "hook")?;
    same("only the status", &1, &heard.len())?;
    same("the part", &json!("status"), &first_of(&heard)["body"]["request"]["subResource"])
}

async fn sees_scale(talk: &mut Conversation) -> Outcome {
    talk.create(DEPLOYMENTS, &deployment("d")).await?;
    let config = talk.hook("hook", allow)?;
    let mut hook = webhook("w", &config);
    hook["rules"] = json!([rule(&["*"], "apps", "deployments/scale")]);
    install(talk, Kind::Validating, "one", &[hook]).await?;
    let change = json!({ "spec": { "replicas": 3 } });
    talk.patch(&at(DEPLOYMENTS, "d/scale"), Patch::Merge, &change).await?.expect(200)?;
    let heard = record(talk, "hook")?;
    let kind = json!({ "group": "autoscaling", "version": "v1", "kind": "Scale" });
    same("the kind", &kind, &first_of(&heard)["body"]["request"]["kind"])
}

async fn sees_generated_names(talk: &mut Conversation) -> Outcome {
    let config = talk.hook("changes", allow)?;
    install(talk, Kind::Mutating, "one", &[webhook("m", &config)]).await?;
    let config = talk.hook("objects", allow)?;
    install(talk, Kind::Validating, "one", &[webhook("v", &config)]).await?;
    let object = json!({ "metadata": { "generateName": "c-" } });
    let made = talk.create(CONFIG_MAPS, &object).await?;
    let first = talk.heard("changes")?;
    let request = &first_of(&first)["body"]["request"];
    holds("no name yet", request.get("name").is_none())?;
    holds("none in the object either", request["object"]["metadata"].get("name").is_none())?;
    let second = talk.heard("objects")?;
    let request = &first_of(&second)["body"]["request"];
    same("the name", made.at("/metadata/name"), &request["object"]["metadata"]["name"])
}

async fn sees_dry_runs(talk: &mut Conversation) -> Outcome {
    let config = talk.hook("hook", |review| {
        let dry = review["request"]["dryRun"] == true;
        respond(review, &json!({ "allowed": true, "warnings": [format!("dry run: {dry}")] }))
    })?;
    let mut hook = webhook("w", &config);
    hook["sideEffects"] = json!("NoneOnDryRun");
    install(talk, Kind::Validating, "one", &[hook]).await?;
    let path = with(CONFIG_MAPS, "dryRun=All");
    talk.post(&path, &config_map("c", "1")).await?.expect(201)?.warns(&["dry run: true"])?;
    talk.create(CONFIG_MAPS, &config_map("c", "1")).await?.warns(&["dry run: false"])?;
    let path = with(&at(CONFIG_MAPS, "c"), "dryRun=All");
    talk.delete(&path).await?.expect(200)?.warns(&["dry run: true"])?;
    record(talk, "hook").map(drop)
}

async fn sees_no_change(talk: &mut Conversation) -> Outcome {
    let made = talk.create(CONFIG_MAPS, &config_map("c", "1")).await?;
    validating(talk, allow).await?;
    let answer = talk.put(&at(CONFIG_MAPS, "c"), made.json()).await?.expect(200)?;
    same("nothing was stored", &made.revision(), &answer.revision())?;
    same("it was asked all the same", &1, &talk.heard("hook")?.len())
}

async fn warns(talk: &mut Conversation) -> Outcome {
    validating(talk, |review| {
        let warnings = ["first", "with \"quotes\"", "two\nlines", "", "first"];
        respond(review, &json!({ "allowed": true, "warnings": warnings }))
    })
    .await?;
    talk.create(CONFIG_MAPS, &config_map("c", "1")).await?;
    talk.delete(&at(CONFIG_MAPS, "c")).await?.expect(200)?;
    Ok(())
}

async fn warns_and_denies(talk: &mut Conversation) -> Outcome {
    validating(talk, |review| {
        let status = json!({ "message": "no" });
        let warnings = ["think again"];
        respond(review, &json!({ "allowed": false, "status": status, "warnings": warnings }))
    })
    .await?;
    talk.post(CONFIG_MAPS, &config_map("c", "1")).await?.expect(400)?.warns(&["think again"])
}

async fn old_reviews(talk: &mut Conversation) -> Outcome {
    let config = talk.hook("hook", |review| {
        let mut answer = json!({ "response": { "allowed": true } });
        answer["apiVersion"] = review["apiVersion"].clone();
        answer["kind"] = json!("AdmissionReview");
        Reply::Json(answer)
    })?;
    let mut hook = webhook("w", &config);
    hook["admissionReviewVersions"] = json!(["v0", "v1beta1", "v1"]);
    install(talk, Kind::Validating, "one", &[hook]).await?;
    talk.create(CONFIG_MAPS, &config_map("c", "1")).await?;
    let heard = record(talk, "hook")?;
    same("the form", &json!("admission.k8s.io/v1beta1"), &first_of(&heard)["body"]["apiVersion"])
}
