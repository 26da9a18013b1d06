//! What a whole cluster does: a server with all of its controllers.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::objects::{CONFIG_MAPS, PODS, SECRETS, config_map, object_path, wait_until, with_query};
use crate::case::{Case, CaseError, Outcome, case, expect_equal, expect_true, unexpected};
use crate::response::Response;
use crate::session::{PatchType, RequestSpec, Session};

pub(super) const CASES: &[Case] = &[
    case!("circles-of-owners-end", [23], owner_cycle),
    case!("quota-status-is-corrected", [], quota_status),
    case!("token-secrets-are-filled-in", [], token_secret),
    case!("token-secrets-without-an-account", [], orphaned_secret),
    case!("token-secrets-end-with-their-account", [], account_deletion),
    case!("replication-controllers-make-pods", [], replication),
];

async fn create_unrecorded(
    talk: &mut Session,
    path: &str,
    body: &Value,
) -> Result<Response, CaseError> {
    talk.send_unrecorded(RequestSpec::post(path, body)).await?.expect(201)
}

async fn wait_until_deleted(talk: &mut Session, path: &str) -> Outcome {
    wait_until(talk, path, |answer| answer.status == 404).await
}

async fn owner_cycle(talk: &mut Session) -> Outcome {
    let owner = |name: &str, uid: &str| {
        json!([{
            "apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid,
            "blockOwnerDeletion": true,
        }])
    };
    let first =
        create_unrecorded(talk, CONFIG_MAPS, &config_map("a", "x")).await?.string("/metadata/uid");
    let mut second = config_map("b", "x");
    second["metadata"]["ownerReferences"] = owner("a", &first);
    let second = create_unrecorded(talk, CONFIG_MAPS, &second).await?.string("/metadata/uid");
    let patch = json!({ "metadata": { "ownerReferences": owner("b", &second) } });
    talk.send_unrecorded(RequestSpec::patch(
        object_path(CONFIG_MAPS, "a"),
        PatchType::Merge,
        &patch,
    ))
    .await?
    .expect(200)?;
    let options = json!({ "propagationPolicy": "Foreground" });
    let answer = talk
        .send_unrecorded(RequestSpec::delete(object_path(CONFIG_MAPS, "a")).json(&options))
        .await?;
    answer.expect(200)?.has_value("/metadata/finalizers", &json!(["foregroundDeletion"]))?;
    wait_until_deleted(talk, &object_path(CONFIG_MAPS, "a")).await?;
    wait_until_deleted(talk, &object_path(CONFIG_MAPS, "b")).await
}

async fn quota_status(talk: &mut Session) -> Outcome {
    const QUOTAS: &str = "/api/v1/namespaces/{ns}/resourcequotas";
    let quota = json!({
        "metadata": { "name": "q" }, "spec": { "hard": { "count/secrets": "5" } },
    });
    create_unrecorded(talk, QUOTAS, &quota).await?;
    let path = object_path(QUOTAS, "q");
    let used = |count: &'static str| {
        move |answer: &Response| answer.at("/status/used/count~1secrets") == count
    };
    wait_until(talk, &path, used("0")).await?;
    for name in ["one", "two"] {
        create_unrecorded(talk, SECRETS, &json!({ "metadata": { "name": name } })).await?;
    }
    wait_until(talk, &path, used("2")).await?;
    let forged = json!({ "status": { "used": { "count/secrets": "4" } } });
    let ask = RequestSpec::patch(format!("{path}/status"), PatchType::Merge, &forged);
    talk.send_unrecorded(ask).await?.expect(200)?;
    // A controller manager looks every five minutes, and whenever something is freed.
    talk.send_unrecorded(RequestSpec::delete(object_path(SECRETS, "two"))).await?.expect(200)?;
    wait_until(talk, &path, used("1")).await
}

const ACCOUNTS: &str = "/api/v1/namespaces/{ns}/serviceaccounts";
const SELF: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// A Secret for a token of this account.
fn secret_of(name: &str, account: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "annotations": { "kubernetes.io/service-account.name": account },
        },
        "type": "kubernetes.io/service-account-token",
    })
}

/// Makes an account and a Secret for its token; returns the Secret when it has one, and the token.
async fn token_of(talk: &mut Session) -> Result<(Response, String), CaseError> {
    create_unrecorded(talk, ACCOUNTS, &json!({ "metadata": { "name": "a" } })).await?;
    create_unrecorded(talk, SECRETS, &secret_of("s", "a")).await?;
    let ask = RequestSpec::get(object_path(SECRETS, "s"));
    let has = |answer: &Response| answer.at("/data/token").is_string();
    let secret = talk.send_until_unrecorded(ask, has).await?;
    let token = STANDARD.decode(secret.string("/data/token")).unwrap_or_default();
    let token = String::from_utf8(token).unwrap_or_default();
    Ok((secret, token))
}

/// Who am I? Asked with a token alone.
fn self_subject_review(token: &str) -> RequestSpec {
    RequestSpec::post(SELF, &json!({}))
        .header("authorization", format!("Bearer {token}"))
        .anonymously()
}

async fn token_secret(talk: &mut Session) -> Outcome {
    let (secret, token) = token_of(talk).await?;
    let text = |field: &str| STANDARD.decode(secret.string(field)).unwrap_or_default();
    expect_equal(
        "the namespace",
        &talk.with_namespace("{ns}").into_bytes(),
        &text("/data/namespace"),
    )?;
    expect_true(
        "root certificates",
        text("/data/ca.crt").starts_with(b"-----BEGIN CERTIFICATE-----"),
    )?;
    let account =
        talk.send_unrecorded(RequestSpec::get(object_path(ACCOUNTS, "a"))).await?.expect(200)?;
    let uid = account.at("/metadata/uid");
    secret.has_value("/metadata/annotations/kubernetes.io~1service-account.uid", uid)?;
    let part = token.split('.').nth(1).unwrap_or_default();
    let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap_or_default())
        .map_err(|_| unexpected("the claims", "JSON", part))?;
    let name = talk.with_namespace("system:serviceaccount:{ns}:a");
    let expected = json!({
        "iss": "kubernetes/serviceaccount",
        "kubernetes.io/serviceaccount/namespace": talk.with_namespace("{ns}"),
        "kubernetes.io/serviceaccount/secret.name": "s",
        "kubernetes.io/serviceaccount/service-account.name": "a",
        "kubernetes.io/serviceaccount/service-account.uid": uid,
        "sub": name,
    });
    expect_equal("the claims", &expected, &claims)?;
    let known = talk.send_unrecorded(self_subject_review(&token)).await?.expect(201)?;
    known.has_value("/status/userInfo/username", &json!(name))?;
    known.has_value("/status/userInfo/uid", uid)?;
    talk.send_unrecorded(RequestSpec::delete(object_path(SECRETS, "s"))).await?.expect(200)?;
    // A server may cache for some seconds which credentials it has just accepted.
    talk.send_until_unrecorded(self_subject_review(&token), |answer| answer.status == 401)
        .await
        .map(drop)
}

async fn orphaned_secret(talk: &mut Session) -> Outcome {
    create_unrecorded(talk, SECRETS, &secret_of("s", "nobody")).await?;
    wait_until_deleted(talk, &object_path(SECRETS, "s")).await?;
    let mut nameless = secret_of("s", "");
    nameless["metadata"]["annotations"] = json!({});
    talk.post(SECRETS, &nameless).await?.expect(422)?;
    Ok(())
}

async fn account_deletion(talk: &mut Session) -> Outcome {
    let (_, token) = token_of(talk).await?;
    talk.send_unrecorded(RequestSpec::delete(object_path(ACCOUNTS, "a"))).await?.expect(200)?;
    wait_until_deleted(talk, &object_path(SECRETS, "s")).await?;
    talk.send_until_unrecorded(self_subject_review(&token), |answer| answer.status == 401)
        .await
        .map(drop)
}

async fn replication(talk: &mut Session) -> Outcome {
    const CONTROLLERS: &str = "/api/v1/namespaces/{ns}/replicationcontrollers";
    let path = object_path(CONTROLLERS, "rc");
    // A new namespace has no service account for pods yet; controllers that create pods retry.
    let controller = json!({
        "apiVersion": "v1", "kind": "ReplicationController", "metadata": { "name": "rc" },
        "spec": {
            "replicas": 2,
            "selector": { "app": "rc" },
            "template": {
                "metadata": { "labels": { "app": "rc" } },
                "spec": { "containers": [{ "name": "c", "image": "registry.test/c:1" }] },
            },
        },
    });
    let made = create_unrecorded(talk, CONTROLLERS, &controller).await?;
    let has = |count: i64| {
        move |answer: &Response| {
            let status = answer.at("/status");
            status["replicas"] == count
                && status["fullyLabeledReplicas"].as_i64().unwrap_or_default() == count
                && status["observedGeneration"] == *answer.at("/metadata/generation")
        }
    };
    wait_until(talk, &path, has(2)).await?;
    let pods = with_query(PODS, "labelSelector=app%3Drc");
    let found = talk.send_unrecorded(RequestSpec::get(&pods)).await?.expect(200)?;
    let owner = json!({
        "apiVersion": "v1", "kind": "ReplicationController", "name": "rc",
        "uid": made.at("/metadata/uid"), "controller": true, "blockOwnerDeletion": true,
    });
    found.has_value("/items/0/metadata/ownerReferences/0", &owner)?;
    expect_equal("the pods", &2, &found.names().len())?;
    let fewer = json!({ "spec": { "replicas": 1 } });
    talk.send_unrecorded(RequestSpec::patch(&path, PatchType::Merge, &fewer)).await?.expect(200)?;
    wait_until(talk, &path, has(1)).await
}
