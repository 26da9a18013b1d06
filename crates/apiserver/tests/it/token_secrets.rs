//! Service account tokens that are stored in Secrets.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gantry_apiserver::ClientCertificate;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Value, json};

use crate::Server;

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

async fn start() -> Server {
    Server::start_with(|settings| {
        settings.token_secrets = true;
        "PEM".clone_into(&mut settings.ca_certificate);
    })
    .await
}

/// Returns a Secret for a token of this service account.
fn secret(name: &str, account: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "annotations": { "kubernetes.io/service-account.name": account },
        },
        "type": "kubernetes.io/service-account-token",
    })
}

/// Waits until the Secret has a token, and returns both.
async fn wait_until_filled(server: &Server, name: &str) -> (Value, String) {
    let has = |_: StatusCode, it: &Value| it["data"]["token"].is_string();
    let secret = server.wait_until(&format!("{SECRETS}/{name}"), "had a token", has).await;
    let token = STANDARD.decode(secret["data"]["token"].as_str().unwrap()).unwrap();
    (secret, String::from_utf8(token).unwrap())
}

/// Returns the user of this token, if it is valid.
fn authenticated_user(server: &Server, token: &str) -> Option<String> {
    let mut headers = HeaderMap::new();
    let value = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
    headers.insert(AUTHORIZATION, value);
    server.api.authenticate(&headers, ClientCertificate::Absent).map(|caller| caller.name)
}

/// Returns the error of a token review.
async fn token_error(server: &Server, token: &str) -> String {
    let answer = server.create(REVIEWS, json!({ "spec": { "token": token } })).await;
    answer["status"]["error"].as_str().unwrap_or_default().to_owned()
}

async fn delete(server: &Server, path: &str) {
    let (status, answer) = server.send_request("DELETE", path, "application/json", "").await;
    assert_eq!(status, StatusCode::OK, "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_get_a_token_that_is_valid_while_they_hold_it() {
    let server = start().await;
    let account = server.create(ACCOUNTS, json!({ "metadata": { "name": "a" } })).await;
    server.create(SECRETS, secret("s", "a")).await;
    let (stored, token) = wait_until_filled(&server, "s").await;
    assert_eq!(stored["data"]["ca.crt"], STANDARD.encode("PEM"));
    assert_eq!(stored["data"]["namespace"], STANDARD.encode("default"));
    let uid = &stored["metadata"]["annotations"]["kubernetes.io/service-account.uid"];
    assert_eq!(*uid, account["metadata"]["uid"]);
    assert_eq!(
        authenticated_user(&server, &token).as_deref(),
        Some("system:serviceaccount:default:a")
    );
    assert_eq!(token_error(&server, &token).await, "");

    // An emptied Secret gets another token, and the previous one becomes invalid.
    let path = format!("{SECRETS}/s");
    let patch = json!({ "data": { "token": null, "ca.crt": "eA==" } });
    server.send_request("PATCH", &path, "application/merge-patch+json", patch).await;
    let (again, other) = wait_until_filled(&server, "s").await;
    assert_ne!(other, token);
    assert_eq!(again["data"]["ca.crt"], STANDARD.encode("PEM"));
    assert_eq!(authenticated_user(&server, &token), None);
    let words = "[invalid bearer token, Token does not match server's copy]";
    assert_eq!(token_error(&server, &token).await, words);
    assert!(authenticated_user(&server, &other).is_some());

    let mark = json!({ "metadata": { "labels": {
        "kubernetes.io/legacy-token-invalid-since": "2026-01-01",
    } } });
    server.send_request("PATCH", &path, "application/merge-patch+json", mark).await;
    assert_eq!(authenticated_user(&server, &other), None);
    let unmark = json!({ "metadata": { "labels": null } });
    server.send_request("PATCH", &path, "application/merge-patch+json", unmark).await;
    assert!(authenticated_user(&server, &other).is_some());

    delete(&server, &path).await;
    assert_eq!(authenticated_user(&server, &other), None);
    let words = "[invalid bearer token, Token has been invalidated]";
    assert_eq!(token_error(&server, &other).await, words);
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_deleted_with_their_account() {
    let server = start().await;
    server.create(ACCOUNTS, json!({ "metadata": { "name": "a" } })).await;
    server.create(SECRETS, secret("s", "a")).await;
    let mut old = secret("other-uid", "a");
    let annotations = &mut old["metadata"]["annotations"];
    annotations["kubernetes.io/service-account.uid"] = json!("7");
    let strays = [secret("stray", "nobody"), old];
    for stray in strays {
        let name = stray["metadata"]["name"].clone();
        server.create(SECRETS, stray).await;
        let path = format!("{SECRETS}/{}", name.as_str().unwrap());
        server.wait_until(&path, "went", |status, _| status == StatusCode::NOT_FOUND).await;
    }
    // One of another type may have the same data.
    let mut plain = secret("plain", "nobody");
    plain["type"] = json!("Opaque");
    server.create(SECRETS, plain).await;
    let (_, token) = wait_until_filled(&server, "s").await;
    delete(&server, &format!("{ACCOUNTS}/a")).await;
    assert_eq!(authenticated_user(&server, &token), None);
    let path = format!("{SECRETS}/s");
    server.wait_until(&path, "went", |status, _| status == StatusCode::NOT_FOUND).await;
    // Another service account of the same name is not the same user.
    server.create(ACCOUNTS, json!({ "metadata": { "name": "a" } })).await;
    assert_eq!(authenticated_user(&server, &token), None);
    let (status, _) =
        server.send_request("GET", &format!("{SECRETS}/plain"), "application/json", "").await;
    assert_eq!(status, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_not_filled_in_without_the_token_controller() {
    let server = Server::start().await;
    server.create(ACCOUNTS, json!({ "metadata": { "name": "a" } })).await;
    let made = server.create(SECRETS, secret("s", "a")).await;
    let (_, found) =
        server.send_request("GET", &format!("{SECRETS}/s"), "application/json", "").await;
    assert_eq!(found, made);
}
