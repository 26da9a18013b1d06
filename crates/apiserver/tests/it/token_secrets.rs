//! Tokens that are kept in Secrets.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gantry_apiserver::Certificate;
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
        "PEM".clone_into(&mut settings.authority);
    })
    .await
}

/// A Secret for a token of this account.
fn secret(name: &str, account: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "annotations": { "kubernetes.io/service-account.name": account },
        },
        "type": "kubernetes.io/service-account-token",
    })
}

/// The Secret when it has a token, and the token.
async fn filled(server: &Server, name: &str) -> (Value, String) {
    let has = |_: StatusCode, it: &Value| it["data"]["token"].is_string();
    let secret = server.until(&format!("{SECRETS}/{name}"), "had a token", has).await;
    let token = STANDARD.decode(secret["data"]["token"].as_str().unwrap()).unwrap();
    (secret, String::from_utf8(token).unwrap())
}

/// Who shows this token, if it is believed.
fn who(server: &Server, token: &str) -> Option<String> {
    let mut headers = HeaderMap::new();
    let value = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
    headers.insert(AUTHORIZATION, value);
    server.api.authenticate(&headers, Certificate::Absent).map(|caller| caller.name)
}

/// What a review says is wrong with a token.
async fn fault(server: &Server, token: &str) -> String {
    let answer = server.make(REVIEWS, json!({ "spec": { "token": token } })).await;
    answer["status"]["error"].as_str().unwrap_or_default().to_owned()
}

async fn delete(server: &Server, path: &str) {
    let (status, answer) = server.ask("DELETE", path, "application/json", "").await;
    assert_eq!(status, StatusCode::OK, "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_get_a_token_that_is_believed_while_they_hold_it() {
    let server = start().await;
    let account = server.make(ACCOUNTS, json!({ "metadata": { "name": "a" } })).await;
    server.make(SECRETS, secret("s", "a")).await;
    let (stored, token) = filled(&server, "s").await;
    assert_eq!(stored["data"]["ca.crt"], STANDARD.encode("PEM"));
    assert_eq!(stored["data"]["namespace"], STANDARD.encode("default"));
    let uid = &stored["metadata"]["annotations"]["kubernetes.io/service-account.uid"];
    assert_eq!(*uid, account["metadata"]["uid"]);
    assert_eq!(who(&server, &token).as_deref(), Some("system:serviceaccount:default:a"));
    assert_eq!(fault(&server, &token).await, "");

    // Whoever empties the Secret gets another token, and the one before is not believed any more.
    let path = format!("{SECRETS}/s");
    let patch = json!({ "data": { "token": null, "ca.crt": "eA==" } });
    server.ask("PATCH", &path, "application/merge-patch+json", patch).await;
    let (again, other) = filled(&server, "s").await;
    assert_ne!(other, token);
    assert_eq!(again["data"]["ca.crt"], STANDARD.encode("PEM"));
    assert_eq!(who(&server, &token), None);
    let words = "[invalid bearer token, Token does not match server's copy]";
    assert_eq!(fault(&server, &token).await, words);
    assert!(who(&server, &other).is_some());

    let mark = json!({ "metadata": { "labels": {
        "kubernetes.io/legacy-token-invalid-since": "2026-01-01",
    } } });
    server.ask("PATCH", &path, "application/merge-patch+json", mark).await;
    assert_eq!(who(&server, &other), None);
    let unmark = json!({ "metadata": { "labels": null } });
    server.ask("PATCH", &path, "application/merge-patch+json", unmark).await;
    assert!(who(&server, &other).is_some());

    delete(&server, &path).await;
    assert_eq!(who(&server, &other), None);
    let words = "[invalid bearer token, Token has been invalidated]";
    assert_eq!(fault(&server, &other).await, words);
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_go_with_their_account() {
    let server = start().await;
    server.make(ACCOUNTS, json!({ "metadata": { "name": "a" } })).await;
    server.make(SECRETS, secret("s", "a")).await;
    let mut old = secret("other-uid", "a");
    let annotations = &mut old["metadata"]["annotations"];
    annotations["kubernetes.io/service-account.uid"] = json!("7");
    let strays = [secret("stray", "nobody"), old];
    for stray in strays {
        let name = stray["metadata"]["name"].clone();
        server.make(SECRETS, stray).await;
        let path = format!("{SECRETS}/{}", name.as_str().unwrap());
        server.until(&path, "went", |status, _| status == StatusCode::NOT_FOUND).await;
    }
    // One of another type may say the same.
    let mut plain = secret("plain", "nobody");
    plain["type"] = json!("Opaque");
    server.make(SECRETS, plain).await;
    let (_, token) = filled(&server, "s").await;
    delete(&server, &format!("{ACCOUNTS}/a")).await;
    assert_eq!(who(&server, &token), None);
    let path = format!("{SECRETS}/s");
    server.until(&path, "went", |status, _| status == StatusCode::NOT_FOUND).await;
    // Another account of the same name is somebody else.
    server.make(ACCOUNTS, json!({ "metadata": { "name": "a" } })).await;
    assert_eq!(who(&server, &token), None);
    let (status, _) = server.ask("GET", &format!("{SECRETS}/plain"), "application/json", "").await;
    assert_eq!(status, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_alone_fills_in_nothing() {
    let server = Server::start().await;
    server.make(ACCOUNTS, json!({ "metadata": { "name": "a" } })).await;
    let made = server.make(SECRETS, secret("s", "a")).await;
    let (_, found) = server.ask("GET", &format!("{SECRETS}/s"), "application/json", "").await;
    assert_eq!(found, made);
}
