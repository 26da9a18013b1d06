//! What a whole cluster does: a server with all of its controllers.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::objects::{CONFIG_MAPS, PODS, SECRETS, at, config_map, wait_until, with};
use crate::answer::Answer;
use crate::case::{Case, CaseError, Outcome, case, holds, same, unexpected};
use crate::conversation::{Ask, Conversation, Patch};

pub(super) const CASES: &[Case] = &[
    case!("circles-of-owners-end", [23], circle),
    case!("quota-status-is-corrected", [], quota_status),
    case!("token-secrets-are-filled-in", [], token_secret),
    case!("token-secrets-without-an-account", [], stray_secret),
    case!("token-secrets-end-with-their-account", [], account_end),
    case!("replication-controllers-make-pods", [], replication),
];

async fn given(talk: &mut Conversation, path: &str, body: &Value) -> Result<Answer, CaseError> {
    talk.ask_unrecorded(Ask::post(path, body)).await?.expect(201)
}

async fn gone(talk: &mut Conversation, path: &str) -> Outcome {
    wait_until(talk, path, |answer| answer.status == 404).await
}

async fn circle(talk: &mut Conversation) -> Outcome {
    let owner = |name: &str, uid: &str| {
        json!([{
            "apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid,
            "blockOwnerDeletion": true,
        }])
    };
    let first = given(talk, CONFIG_MAPS, &config_map("a", "x")).await?.string("/metadata/uid");
    let mut second = config_map("b", "x");
    second["metadata"]["ownerReferences"] = owner("a", &first);
    let second = given(talk, CONFIG_MAPS, &second).await?.string("/metadata/uid");
    let patch = json!({ "metadata": { "ownerReferences": owner("b", &second) } });
    talk.ask_unrecorded(Ask::patch(at(CONFIG_MAPS, "a"), Patch::Merge, &patch))
        .await?
        .expect(200)?;
    let options = json!({ "propagationPolicy": "Foreground" });
    let answer = talk.ask_unrecorded(Ask::delete(at(CONFIG_MAPS, "a")).json(&options)).await?;
    answer.expect(200)?.is("/metadata/finalizers", &json!(["foregroundDeletion"]))?;
    gone(talk, &at(CONFIG_MAPS, "a")).await?;
    gone(talk, &at(CONFIG_MAPS, "b")).await
}

async fn quota_status(talk: &mut Conversation) -> Outcome {
    const QUOTAS: &str = "/api/v1/namespaces/{ns}/resourcequotas";
    let quota = json!({
        "metadata": { "name": "q" }, "spec": { "hard": { "count/secrets": "5" } },
    });
    given(talk, QUOTAS, &quota).await?;
    let path = at(QUOTAS, "q");
    let used = |count: &'static str| {
        move |answer: &Answer| answer.at("/status/used/count~1secrets") == count
    };
    wait_until(talk, &path, used("0")).await?;
    for name in ["one", "two"] {
        given(talk, SECRETS, &json!({ "metadata": { "name": name } })).await?;
    }
    wait_until(talk, &path, used("2")).await?;
    let forged = json!({ "status": { "used": { "count/secrets": "4" } } });
    let ask = Ask::patch(format!("{path}/status"), Patch::Merge, &forged);
    talk.ask_unrecorded(ask).await?.expect(200)?;
    // A controller manager looks every five minutes, and whenever something is freed.
    talk.ask_unrecorded(Ask::delete(at(SECRETS, "two"))).await?.expect(200)?;
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
async fn token_of(talk: &mut Conversation) -> Result<(Answer, String), CaseError> {
    given(talk, ACCOUNTS, &json!({ "metadata": { "name": "a" } })).await?;
    given(talk, SECRETS, &secret_of("s", "a")).await?;
    let ask = Ask::get(at(SECRETS, "s"));
    let has = |answer: &Answer| answer.at("/data/token").is_string();
    let secret = talk.ask_until_unrecorded(ask, has).await?;
    let token = STANDARD.decode(secret.string("/data/token")).unwrap_or_default();
    let token = String::from_utf8(token).unwrap_or_default();
    Ok((secret, token))
}

/// Who am I? Asked with a token alone.
fn who(token: &str) -> Ask {
    Ask::post(SELF, &json!({})).header("authorization", format!("Bearer {token}")).by_stranger()
}

async fn token_secret(talk: &mut Conversation) -> Outcome {
    let (secret, token) = token_of(talk).await?;
    let text = |field: &str| STANDARD.decode(secret.string(field)).unwrap_or_default();
    same("the namespace", &talk.fill("{ns}").into_bytes(), &text("/data/namespace"))?;
    holds("root certificates", text("/data/ca.crt").starts_with(b"-----BEGIN CERTIFICATE-----"))?;
    let account = talk.ask_unrecorded(Ask::get(at(ACCOUNTS, "a"))).await?.expect(200)?;
    let uid = account.at("/metadata/uid");
    secret.is("/metadata/annotations/kubernetes.io~1service-account.uid", uid)?;
    let part = token.split('.').nth(1).unwrap_or_default();
    let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap_or_default())
        .map_err(|_| unexpected("the claims", "JSON", part))?;
    let name = talk.fill("system:serviceaccount:{ns}:a");
    let expected = json!({
        "iss": "kubernetes/serviceaccount",
        "kubernetes.io/serviceaccount/namespace": talk.fill("{ns}"),
        "kubernetes.io/serviceaccount/secret.name": "s",
        "kubernetes.io/serviceaccount/service-account.name": "a",
        "kubernetes.io/serviceaccount/service-account.uid": uid,
        "sub": name,
    });
    same("the claims", &expected, &claims)?;
    let known = talk.ask_unrecorded(who(&token)).await?.expect(201)?;
    known.is("/status/userInfo/username", &json!(name))?;
    known.is("/status/userInfo/uid", uid)?;
    talk.ask_unrecorded(Ask::delete(at(SECRETS, "s"))).await?.expect(200)?;
    // A server may remember for some seconds whom it has just believed.
    talk.ask_until_unrecorded(who(&token), |answer| answer.status == 401).await.map(drop)
}

async fn stray_secret(talk: &mut Conversation) -> Outcome {
    given(talk, SECRETS, &secret_of("s", "nobody")).await?;
    gone(talk, &at(SECRETS, "s")).await?;
    let mut nameless = secret_of("s", "");
    nameless["metadata"]["annotations"] = json!({});
    talk.post(SECRETS, &nameless).await?.expect(422)?;
    Ok(())
}

async fn account_end(talk: &mut Conversation) -> Outcome {
    let (_, token) = token_of(talk).await?;
    talk.ask_unrecorded(Ask::delete(at(ACCOUNTS, "a"))).await?.expect(200)?;
    gone(talk, &at(SECRETS, "s")).await?;
    talk.ask_until_unrecorded(who(&token), |answer| answer.status == 401).await.map(drop)
}

async fn replication(talk: &mut Conversation) -> Outcome {
    const CONTROLLERS: &str = "/api/v1/namespaces/{ns}/replicationcontrollers";
    let path = at(CONTROLLERS, "rc");
    // A namespace that is new has no account for pods yet; whoever makes them tries again.
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
    let made = given(talk, CONTROLLERS, &controller).await?;
    let has = |count: i64| {
        move |answer: &Answer| {
            let status = answer.at("/status");
            status["replicas"] == count
                && status["fullyLabeledReplicas"].as_i64().unwrap_or_default() == count
                && status["observedGeneration"] == *answer.at("/metadata/generation")
        }
    };
    wait_until(talk, &path, has(2)).await?;
    let pods = with(PODS, "labelSelector=app%3Drc");
    let found = talk.ask_unrecorded(Ask::get(&pods)).await?.expect(200)?;
    let owner = json!({
        "apiVersion": "v1", "kind": "ReplicationController", "name": "rc",
        "uid": made.at("/metadata/uid"), "controller": true, "blockOwnerDeletion": true,
    });
    found.is("/items/0/metadata/ownerReferences/0", &owner)?;
    same("the pods", &2, &found.names().len())?;
    let fewer = json!({ "spec": { "replicas": 1 } });
    talk.ask_unrecorded(Ask::patch(&path, Patch::Merge, &fewer)).await?.expect(200)?;
    wait_until(talk, &path, has(1)).await
}
