//! Tokens: asked for, shown, reviewed, forged, and ended with what they are bound to.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::objects::{CONFIG_MAPS, PODS, SECRETS, object_path, with_query};
use crate::case::{Case, CaseError, Outcome, case, expect_equal, expect_true, unexpected};
use crate::response::Response;
use crate::session::{RequestSpec, Session};

pub(super) const CASES: &[Case] = &[
    case!("token-requests", [], requests),
    case!("token-requests-that-are-wrong", [], invalid_requests),
    case!("token-claims", [], claims),
    case!("bound-tokens", [], bound),
    case!("bound-tokens-that-are-wrong", [], wrongly_bound),
    case!("bound-tokens-end", [], bound_object_deletion),
    case!("tokens-end-with-their-account", [], account_deletion),
    case!("token-reviews", [], reviews),
    case!("token-reviews-for-others", [], audiences),
    case!("token-reviews-that-are-wrong", [], invalid_reviews),
    case!("forged-tokens", [], forged),
    case!("authorization-headers", [], headers),
    case!("issuer-documents", [], documents),
];

const ACCOUNTS: &str = "/api/v1/namespaces/{ns}/serviceaccounts";
const TOKENS: &str = "/api/v1/namespaces/{ns}/serviceaccounts/a/token";
const NODES: &str = "/api/v1/nodes";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const SELF: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// Makes something that is no part of what is compared.
async fn create_unrecorded(
    talk: &mut Session,
    path: &str,
    body: &Value,
) -> Result<Response, CaseError> {
    talk.send_unrecorded(RequestSpec::post(path, body)).await?.expect(201)
}

/// Makes the account `a`.
async fn create_account(talk: &mut Session) -> Outcome {
    create_unrecorded(talk, ACCOUNTS, &json!({ "metadata": { "name": "a" } })).await?;
    Ok(())
}

/// A pod of the account `a`.
fn pod(name: &str) -> Value {
    json!({ "metadata": { "name": name }, "spec": {
        "serviceAccountName": "a", "containers": [{ "name": "c", "image": "registry.test/c:1" }],
    } })
}

fn bound_to(kind: &str, name: &str) -> Value {
    json!({ "spec": { "boundObjectRef": { "apiVersion": "v1", "kind": kind, "name": name } } })
}

/// A new token of the account `a`.
async fn request_token(talk: &mut Session, request: &Value) -> Result<String, CaseError> {
    Ok(create_unrecorded(talk, TOKENS, request).await?.string("/status/token"))
}

/// Who am I? Asked with a token alone.
fn self_subject_review(token: &str) -> RequestSpec {
    RequestSpec::post(SELF, &json!({}))
        .header("authorization", format!("Bearer {token}"))
        .anonymously()
}

/// One part of a token.
fn token_section(token: &str, place: usize) -> Result<Value, CaseError> {
    let text = token.split('.').nth(place).unwrap_or_default();
    let bytes = URL_SAFE_NO_PAD.decode(text).unwrap_or_default();
    serde_json::from_slice(&bytes).map_err(|_| unexpected("a part of a token", "JSON", text))
}

fn section_text(part: &Value) -> String {
    URL_SAFE_NO_PAD.encode(part.to_string())
}

async fn requests(talk: &mut Session) -> Outcome {
    create_account(talk).await?;
    let table = [
        json!({}),
        json!({ "spec": {} }),
        json!({ "spec": { "boundObjectRef": null } }),
        json!({ "spec": { "audiences": ["x", "y"], "expirationSeconds": 600 } }),
        json!({ "spec": { "expirationSeconds": 86400 } }),
        json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "metadata": { "name": "a", "namespace": "{ns}", "labels": { "a": "b" } },
            "status": { "token": "forged", "expirationTimestamp": "2001-01-01T00:00:00Z" } }),
        json!({ "spec": { "unknown": 1 } }),
    ];
    for body in table {
        talk.post(TOKENS, &body).await?.expect(201)?;
    }
    talk.post(&with_query(TOKENS, "dryRun=All&fieldManager=me"), &json!({})).await?.expect(201)?;
    let yaml = "spec:\n  audiences: [x]\n";
    talk.send(RequestSpec::new("POST", TOKENS).text("application/yaml", yaml))
        .await?
        .expect(201)?;
    Ok(())
}

async fn invalid_requests(talk: &mut Session) -> Outcome {
    create_account(talk).await?;
    let table = [
        (json!({ "spec": { "expirationSeconds": 599 } }), 422),
        (json!({ "spec": { "expirationSeconds": 0 } }), 422),
        (json!({ "spec": { "expirationSeconds": -1 } }), 422),
        (json!({ "spec": { "expirationSeconds": 4_294_967_297_i64 } }), 422),
        (json!({ "spec": { "expirationSeconds": "a" } }), 400),
        (json!({ "spec": { "audiences": "x" } }), 400),
        (json!({ "metadata": { "name": "b" } }), 422),
        (json!({ "metadata": { "namespace": "other" } }), 400),
        (json!({ "metadata": { "uid": "7" } }), 409),
        (json!({ "apiVersion": "v1", "kind": "ServiceAccount" }), 400),
        (json!({ "apiVersion": "authentication.k8s.io/v1beta1", "kind": "TokenRequest" }), 400),
    ];
    for (body, status) in table {
        talk.post(TOKENS, &body).await?.expect(status)?;
    }
    let strict = with_query(TOKENS, "fieldValidation=Strict");
    talk.post(&strict, &json!({ "spec": { "unknown": 1 } })).await?.expect(400)?;
    talk.post(&object_path(ACCOUNTS, "none/token"), &json!({})).await?.expect(404)?;
    talk.send(RequestSpec::new("POST", TOKENS).text("application/json", "")).await?.expect(400)?;
    for ask in [
        RequestSpec::get(TOKENS),
        RequestSpec::put(TOKENS, &json!({})),
        RequestSpec::delete(TOKENS),
    ] {
        talk.send(ask).await?.expect(405)?;
    }
    Ok(())
}

async fn claims(talk: &mut Session) -> Outcome {
    create_account(talk).await?;
    let made =
        create_unrecorded(talk, TOKENS, &json!({ "spec": { "expirationSeconds": 700 } })).await?;
    let (token, uid) = (made.string("/status/token"), made.string("/metadata/uid"));
    let (header, claims) = (token_section(&token, 0)?, token_section(&token, 1)?);
    let keys = |of: &Value| -> Vec<String> {
        of.as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect()
    };
    expect_equal("the header", &vec!["alg".to_owned(), "kid".to_owned()], &keys(&header))?;
    let expected = ["aud", "exp", "iat", "iss", "jti", "kubernetes.io", "nbf", "sub"];
    expect_equal("the claims", &expected.map(str::to_owned).to_vec(), &keys(&claims))?;
    let number = |name: &str| claims[name].as_i64().unwrap_or_default();
    expect_equal("how long it is good", &700, &(number("exp") - number("iat")))?;
    expect_equal("from when on it is good", &number("iat"), &number("nbf"))?;
    expect_equal("for whom it is", &json!([claims["iss"]]), &claims["aud"])?;
    let name = talk.with_namespace("system:serviceaccount:{ns}:a");
    expect_equal("the subject", &json!(name), &claims["sub"])?;
    let place = talk.with_namespace("{ns}");
    let about = json!({ "namespace": place, "serviceaccount": { "name": "a", "uid": uid } });
    expect_equal("the account", &about, &claims["kubernetes.io"])
}

async fn bound(talk: &mut Session) -> Outcome {
    create_account(talk).await?;
    create_unrecorded(talk, PODS, &pod("p")).await?;
    create_unrecorded(talk, SECRETS, &json!({ "metadata": { "name": "s" } })).await?;
    create_unrecorded(talk, NODES, &json!({ "metadata": { "name": "{ns}-n" } })).await?;
    talk.delete_at_end(&object_path(NODES, "{ns}-n"));
    let mut placed = pod("placed");
    placed["spec"]["nodeName"] = json!("{ns}-n");
    create_unrecorded(talk, PODS, &placed).await?;
    placed["metadata"]["name"] = json!("lost");
    placed["spec"]["nodeName"] = json!("{ns}-none");
    create_unrecorded(talk, PODS, &placed).await?;
    let table =
        [("Pod", "p"), ("Secret", "s"), ("Node", "{ns}-n"), ("Pod", "placed"), ("Pod", "lost")];
    for (kind, name) in table {
        let made = talk.post(TOKENS, &bound_to(kind, name)).await?.expect(201)?;
        talk.send(self_subject_review(&made.string("/status/token"))).await?.expect(201)?;
    }
    // Pods whose programs read the token once: it outlives what was asked for.
    let mut long = bound_to("Pod", "p");
    long["spec"]["expirationSeconds"] = json!(3607);
    let made = talk.post(TOKENS, &long).await?.expect(201)?;
    let claims = token_section(&made.string("/status/token"), 1)?;
    let number = |of: &Value| of.as_i64().unwrap_or_default();
    let life = number(&claims["exp"]) - number(&claims["iat"]);
    expect_equal("how long it is good", &(365 * 24 * 60 * 60), &life)?;
    let warned = number(&claims["kubernetes.io"]["warnafter"]) - number(&claims["iat"]);
    expect_equal("when it should be fetched again", &3607, &warned)
}

async fn wrongly_bound(talk: &mut Session) -> Outcome {
    create_account(talk).await?;
    let mut other = pod("other");
    other["spec"]["serviceAccountName"] = json!("b");
    create_unrecorded(talk, ACCOUNTS, &json!({ "metadata": { "name": "b" } })).await?;
    create_unrecorded(talk, PODS, &other).await?;
    create_unrecorded(talk, SECRETS, &json!({ "metadata": { "name": "s" } })).await?;
    let reference = |reference: Value| json!({ "spec": { "boundObjectRef": reference } });
    let table = [
        (bound_to("Pod", "none"), 404),
        (bound_to("Secret", "none"), 404),
        (bound_to("Node", "{ns}-none"), 404),
        (bound_to("Pod", "other"), 400),
        (bound_to("ConfigMap", "x"), 400),
        (reference(json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "x" })), 400),
        (reference(json!({ "apiVersion": "v1", "kind": "Secret", "name": "s", "uid": "7" })), 409),
    ];
    for (body, status) in table {
        talk.post(TOKENS, &body).await?.expect(status)?;
    }
    Ok(())
}

async fn bound_object_deletion(talk: &mut Session) -> Outcome {
    create_account(talk).await?;
    let node = json!({ "metadata": { "name": "{ns}-n" } });
    let table = [
        ("Pod", "p", PODS, pod("p")),
        ("Secret", "s", SECRETS, json!({ "metadata": { "name": "s" } })),
        ("Node", "{ns}-n", NODES, node),
    ];
    for (kind, name, path, object) in table {
        create_unrecorded(talk, path, &object).await?;
        // Not shown before: the real server remembers for some seconds what it believed.
        let token = request_token(talk, &bound_to(kind, name)).await?;
        talk.send_unrecorded(RequestSpec::delete(object_path(path, name))).await?.expect(200)?;
        talk.send_until(self_subject_review(&token), |answer| answer.status == 401).await?;
        let review = json!({ "spec": { "token": token } });
        talk.post(REVIEWS, &review).await?.expect(201)?;
        // Another of the same name is another.
        create_unrecorded(talk, path, &object).await?;
        let ask = RequestSpec::post(REVIEWS, &review);
        let seen = |answer: &Response| answer.string("/status/error").contains("does not match");
        talk.send_until(ask, seen).await?;
        talk.send(self_subject_review(&token)).await?.expect_error(
            401,
            "Unauthorized",
            "Unauthorized",
        )?;
    }
    talk.delete_at_end(&object_path(NODES, "{ns}-n"));
    Ok(())
}

async fn account_deletion(talk: &mut Session) -> Outcome {
    create_account(talk).await?;
    let token = request_token(talk, &json!({})).await?;
    talk.send_unrecorded(RequestSpec::delete(object_path(ACCOUNTS, "a"))).await?.expect(200)?;
    talk.send_until(self_subject_review(&token), |answer| answer.status == 401).await?;
    let review = json!({ "spec": { "token": token } });
    talk.post(REVIEWS, &review).await?.has_value("/status/authenticated", &Value::Null)?;
    create_account(talk).await?;
    let seen = |answer: &Response| answer.string("/status/error").contains("does not match");
    talk.send_until(RequestSpec::post(REVIEWS, &review), seen).await?;
    talk.send(self_subject_review(&token)).await?.expect(401)?;
    Ok(())
}

async fn reviews(talk: &mut Session) -> Outcome {
    create_account(talk).await?;
    let token = request_token(talk, &json!({})).await?;
    let review = json!({
        "metadata": { "name": "q", "namespace": "none", "labels": { "a": "b" } },
        "spec": { "token": token }, "status": { "authenticated": false },
    });
    let answer = talk.post(REVIEWS, &review).await?.expect(201)?;
    answer.has_value("/status/authenticated", &json!(true))?;
    talk.send(self_subject_review(&token)).await?.expect(201)?;
    // A token authenticates a user, and roles authorise it: there are none here.
    let ask = RequestSpec::get(CONFIG_MAPS).header("authorization", format!("Bearer {token}"));
    let answer = talk.send(ask.anonymously()).await?;
    let words = talk.with_namespace(
        "configmaps is forbidden: User \"system:serviceaccount:{ns}:a\" cannot list resource \
         \"configmaps\" in API group \"\" in the namespace \"{ns}\"",
    );
    answer.expect_error(403, "Forbidden", &words)?;
    Ok(())
}

async fn audiences(talk: &mut Session) -> Outcome {
    create_account(talk).await?;
    let own = request_token(talk, &json!({})).await?;
    let issuer = token_section(&own, 1)?["iss"].as_str().unwrap_or_default().to_owned();
    let others = request_token(talk, &json!({ "spec": { "audiences": ["x", "y"] } })).await?;
    let both = request_token(talk, &json!({ "spec": { "audiences": ["x", issuer] } })).await?;
    for token in [own, others, both] {
        for asked in [json!([]), json!(["x"]), json!(["z", "y", "x"]), json!([issuer, "x"])] {
            let review = json!({ "spec": { "token": token, "audiences": asked } });
            talk.post(REVIEWS, &review).await?.expect(201)?;
        }
        talk.send(self_subject_review(&token)).await?;
    }
    Ok(())
}

async fn invalid_reviews(talk: &mut Session) -> Outcome {
    for body in [json!({}), json!({ "spec": {} }), json!({ "spec": { "token": "" } })] {
        let words = "token is required for TokenReview in authentication";
        talk.post(REVIEWS, &body).await?.expect_error(400, "BadRequest", words)?;
    }
    talk.post(REVIEWS, &json!({ "spec": { "token": 7 } })).await?.expect(400)?;
    for token in ["x", "a.b.c", "..", "x y", "\u{fc}"] {
        let answer = talk.post(REVIEWS, &json!({ "spec": { "token": token } })).await?;
        answer.has_value("/status", &json!({ "user": {}, "error": "invalid bearer token" }))?;
    }
    talk.get(REVIEWS).await?.expect(405)?;
    Ok(())
}

async fn forged(talk: &mut Session) -> Outcome {
    create_account(talk).await?;
    let token = request_token(talk, &json!({})).await?;
    let (header, claims) = (token_section(&token, 0)?, token_section(&token, 1)?);
    let parts: Vec<&str> = token.split('.').collect();
    let [first, second, third] = parts.as_slice() else {
        return expect_true("a token has three parts", false);
    };
    let headed = |change: &dyn Fn(&mut Value)| {
        let mut header = header.clone();
        change(&mut header);
        format!("{}.{second}.{third}", section_text(&header))
    };
    let claimed = |name: &str, value: Value| {
        let mut claims = claims.clone();
        claims[name] = value;
        format!("{first}.{}.{third}", section_text(&claims))
    };
    let deep =
        format!(r#"{{"iss":{},"x":{}{}}}"#, claims["iss"], "[".repeat(9_000), "]".repeat(9_000));
    let table = [
        headed(&|it| *it = json!({ "alg": "none" })),
        format!("{}.{second}.", section_text(&json!({ "alg": "none" }))),
        headed(&|it| it["alg"] = json!("HS256")),
        headed(&|it| it["alg"] = json!("PS512")),
        headed(&|it| it["kid"] = json!("other")),
        headed(&|it| it["crit"] = json!(["x"])),
        headed(&|it| *it = json!({})),
        claimed("sub", json!("system:serviceaccount:kube-system:admin")),
        claimed("iss", json!("https://other.test")),
        claimed("iss", json!(7)),
        claimed("exp", json!(1)),
        claimed("aud", json!(["x"])),
        format!("{first}.{second}"),
        format!("{token}.x"),
        format!("{first}.{second}."),
        format!("{first}.{second}.AAAA"),
        format!("{first}.{second}.{}", URL_SAFE_NO_PAD.encode([0; 64])),
        format!("{first}.{second}.!"),
        format!("{first}.{second}.{third}="),
        format!("{first}.{}.{third}", section_text(&json!([]))),
        format!("x.{second}.{third}"),
        format!("{first}.{}.{third}", URL_SAFE_NO_PAD.encode(deep)),
    ];
    for token in table {
        talk.send(self_subject_review(&token)).await?.expect_error(
            401,
            "Unauthorized",
            "Unauthorized",
        )?;
        let answer = talk.post(REVIEWS, &json!({ "spec": { "token": token } })).await?;
        answer.has_value("/status/authenticated", &Value::Null)?;
    }
    talk.send(self_subject_review(&token)).await?.expect(201)?;
    Ok(())
}

async fn headers(talk: &mut Session) -> Outcome {
    create_account(talk).await?;
    let token = request_token(talk, &json!({})).await?;
    let table = [
        (format!("bearer {token}"), 201),
        (format!("BEARER {token} and more"), 201),
        (format!("Bearer  {token}"), 403),
        ("Bearer".to_owned(), 403),
        ("Bearer x".to_owned(), 401),
        (format!("Basic {token}"), 403),
        (token.clone(), 403),
        (String::new(), 403),
        (format!("Bearer {}", "a".repeat(60_000)), 401),
    ];
    for (value, status) in table {
        let ask = RequestSpec::post(SELF, &json!({})).header("authorization", value).anonymously();
        talk.send(ask).await?.expect(status)?;
    }
    // An invalid token is refused even where no authentication is required.
    let ask = RequestSpec::get("/version").header("authorization", "Bearer x").anonymously();
    talk.send(ask).await?.expect(401)?;
    Ok(())
}

async fn documents(talk: &mut Session) -> Outcome {
    const CONFIGURATION: &str = "/.well-known/openid-configuration";
    const KEYS: &str = "/openid/v1/jwks";
    create_account(talk).await?;
    let token = request_token(talk, &json!({})).await?;
    let (header, claims) = (token_section(&token, 0)?, token_section(&token, 1)?);
    // The algorithms differ, so that the documents are not compared but checked.
    let configuration = talk.send_unrecorded(RequestSpec::get(CONFIGURATION)).await?.expect(200)?;
    configuration.has_header("content-type", "application/json")?;
    configuration.has_header("cache-control", "public, max-age=3600")?;
    configuration.has_values(&[
        ("/issuer", claims["iss"].clone()),
        ("/response_types_supported", json!(["id_token"])),
        ("/subject_types_supported", json!(["public"])),
        ("/id_token_signing_alg_values_supported", json!([header["alg"]])),
    ])?;
    let keys = configuration.string("/jwks_uri");
    expect_true(
        "the keys are below the server",
        keys.starts_with("https://") && keys.ends_with(KEYS),
    )?;
    let keys = talk.send_unrecorded(RequestSpec::get(KEYS)).await?.expect(200)?;
    keys.has_header("content-type", "application/jwk-set+json")?;
    keys.has_header("cache-control", "public, max-age=3600")?;
    keys.has_values(&[
        ("/keys/0/kid", header["kid"].clone()),
        ("/keys/0/alg", header["alg"].clone()),
        ("/keys/0/use", json!("sig")),
    ])?;
    talk.send(RequestSpec::get(KEYS).accept("application/json")).await?.expect(406)?;
    talk.send(RequestSpec::get(CONFIGURATION).accept("text/plain")).await?.expect(406)?;
    talk.post(KEYS, &json!({})).await?.expect(405)?;
    for path in [CONFIGURATION, KEYS] {
        // Service accounts may read them, strangers may not.
        talk.send(RequestSpec::get(path).anonymously()).await?.expect(403)?;
        let ask = RequestSpec::get(path).header("authorization", format!("Bearer {token}"));
        talk.send_unrecorded(ask.anonymously()).await?.expect(200)?;
    }
    talk.get("/openid/v1").await?.expect(404)?;
    Ok(())
}
