//! Credentials, tokens, TLS and the addresses that are called.

use embedded::Fault;
use gantry_process::clock::FakeClock;
use gantry_registry::{CredentialError, SecretText};

use super::*;

#[tokio::test]
async fn kms_44_the_second_of_two_credentials_is_used_when_the_first_is_refused() {
    let server = Embedded::plain().await;
    let mut settings = settings(&server);
    let key = server.address.to_string();
    let other = credentials("other.example", "x");
    settings.credentials = vec![other, credentials(&key, "wrong"), credentials(&key, "right")];
    let client = client(settings);
    let image = reference(&server, "a:v1");
    push_image(&client, &image, "layer").await;
    server.seen();
    client.pull_manifest(&image).await.unwrap();
    let client = self::client({
        let mut settings = self::settings(&server);
        settings.credentials = vec![credentials(&key, "wrong")];
        settings
    });
    let error = client.pull_manifest(&image).await.unwrap_err();
    assert!(matches!(error, RegistryError::Unauthorized { .. }), "{error}");
    let text = format!("{error} {error:?}");
    assert!(text.contains("does not accept the credentials for it"), "{text}");
    assert!(!text.contains("wrong"), "{text}");
}

#[tokio::test]
async fn kms_46_a_denied_request_is_not_a_missing_image_and_a_limit_says_how_long() {
    let server = Embedded::plain().await;
    let mut settings = settings(&server);
    settings.retries = 0;
    let client = client(settings);
    let image = reference(&server, "forbidden:v1");
    for error in [
        client.head_manifest(&image).await.unwrap_err(),
        client.pull_manifest(&image).await.unwrap_err(),
    ] {
        assert!(matches!(error, RegistryError::Denied { .. }), "{error}");
        assert!(error.to_string().contains("the registry denies it"), "{error}");
        assert!(!error.may_pass());
    }
    assert!(!client.can_push(image.repository()).await.unwrap());
    let image = reference(&server, "new:v1");
    assert!(client.can_push(image.repository()).await.unwrap());
    assert_eq!(server.registry.open_uploads(), 0, "cancelled");
    let wait = vec![("retry-after", "77".to_owned())];
    server.fault("HEAD", "manifests", Fault::Respond(429, wait, ""));
    let error = client.head_manifest(&image).await.unwrap_err();
    let RegistryError::RateLimited { retry_after, .. } = &error else { panic!("{error}") };
    assert_eq!(*retry_after, Duration::from_secs(77));
    assert!(error.to_string().ends_with("try again after 77 seconds"), "{error}");
    // What is no registry does not say that an image is missing.
    server.fault("GET", "manifests", Fault::Respond(404, vec![], "<html>no such page</html>"));
    let error = client.head_manifest(&image).await.unwrap_err();
    assert!(matches!(error, RegistryError::Protocol { .. }), "{error}");
    let error = client.head_manifest(&image).await.unwrap_err();
    assert!(matches!(error, RegistryError::NotFound { .. }), "{error}");
}

#[tokio::test]
async fn kms_45_tls_is_verified_unless_it_is_switched_off_and_plain_http_is_a_separate_switch() {
    let (tls, plain) = (Embedded::tls().await, Embedded::plain().await);
    let bundle = Bytes::from(tls.authority.own.certificate.clone());
    let tls_at = repository(&tls, "a");
    for verification in [TlsVerification::Bundle(bundle), TlsVerification::Skip] {
        let client = client(tls_settings(&tls, verification));
        client.ping(&tls_at).await.unwrap();
        push_image(&client, &reference(&tls, "a:v1"), "layer").await;
    }
    let error = client(tls_settings(&tls, TlsVerification::System)).ping(&tls_at).await;
    let error = error.unwrap_err();
    assert!(matches!(error, RegistryError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("certificate"), "the cause is shown: {error}");

    let plain_at = repository(&plain, "a");
    for verification in [TlsVerification::System, TlsVerification::Skip] {
        let error = client(tls_settings(&plain, verification)).ping(&plain_at).await.unwrap_err();
        assert!(matches!(error, RegistryError::Unreachable { .. }), "{error}");
    }
    assert_eq!(plain.seen().len(), 0, "nothing was sent without TLS");
    plain_client(&plain).ping(&plain_at).await.unwrap();
    // With both, TLS comes first, also with a certificate that is not trusted.
    let mut both = settings(&tls);
    both.default_registry.verification = TlsVerification::Skip;
    client(both).ping(&tls_at).await.unwrap();
}

#[tokio::test]
async fn loopback_and_helpers_are_refused_unless_they_are_allowed() {
    let server = Embedded::plain().await;
    let mut strict = settings(&server);
    strict.addresses = AddressPolicy::NoLoopback;
    let error = client(strict).ping(&repository(&server, "a")).await.unwrap_err();
    assert!(error.to_string().contains("connections to this machine are not allowed"), "{error}");
    let mut helper = settings(&server);
    let file = json!({"credHelpers": {server.address.to_string(): "cloud"}});
    helper.credentials = vec![CredentialFile::parse(file.to_string().as_bytes()).unwrap()];
    let error = client(helper).ping(&repository(&server, "a")).await.unwrap_err();
    let expected =
        matches!(error, RegistryError::Credentials { source: CredentialError::Helper { .. } });
    assert!(expected, "{error}");
    assert_eq!(server.seen().len(), 0);
}

/// Plans a challenge and a response of the token endpoint, which is the same server.
fn plan_token(server: &Embedded, token: &'static str) {
    let challenge = format!(
        "Bearer realm=\"http://{}/token\",service=\"r\",scope=\"repository:a:pull\"",
        server.address
    );
    let headers = vec![("www-authenticate", challenge)];
    server.fault("GET", "manifests", Fault::Respond(401, headers, ""));
    server.fault("GET", "/token", Fault::Respond(200, vec![], token));
    server.fault("POST", "/token", Fault::Respond(200, vec![], token));
}

#[tokio::test]
async fn tokens_are_asked_for_once_and_again_when_they_expire() {
    let server = Embedded::plain().await;
    let image = reference(&server, "a:v1");
    push_image(&plain_client(&server), &image, "layer").await;
    server.seen();
    let hand = FakeClock::at(Clock::system().now());
    let random = fastrand::Rng::with_seed(3);
    let client = Client::new(hand.clock(), random, settings(&server));
    plan_token(&server, r#"{"token":"right","expires_in":300}"#);
    client.pull_manifest(&image).await.unwrap();
    let seen = server.seen();
    assert_eq!(seen.len(), 3);
    assert!(!seen[0].headers.contains_key("authorization"), "nothing before it is asked for");
    assert_eq!(
        seen[1].line, "GET /token?service=r&scope=repository%3Aa%3Apull&account=ann",
        "the scope is not repeated"
    );
    let basic = seen[1].headers["authorization"].to_str().unwrap();
    assert!(basic.starts_with("Basic "), "{basic}");
    assert_eq!(seen[2].headers["authorization"], "Bearer right");
    client.pull_manifest(&image).await.unwrap();
    assert_eq!(server.seen().len(), 1, "the token is kept");
    hand.jump_to(hand.clock().moment() + Duration::from_secs(300));
    plan_token(&server, r#"{"access_token":"right"}"#);
    client.pull_manifest(&image).await.unwrap();
    assert_eq!(server.seen().len(), 3, "it has expired");
    // A token that is revoked earlier is replaced once.
    plan_token(&server, r#"{"token":"wrong"}"#);
    let error = client.pull_manifest(&image).await.unwrap_err();
    assert!(matches!(error, RegistryError::Unauthorized { .. }), "{error}");
}

#[tokio::test]
async fn identity_tokens_are_exchanged_and_registry_tokens_are_sent() {
    let server = Embedded::plain().await;
    let image = reference(&server, "a:v1");
    push_image(&plain_client(&server), &image, "layer").await;
    let with = |field: &str, token: &str| {
        let file = json!({"auths": {server.address.to_string(): {field: token}}});
        let mut settings = settings(&server);
        settings.credentials = vec![CredentialFile::parse(file.to_string().as_bytes()).unwrap()];
        client(settings)
    };
    with("registrytoken", "right").pull_manifest(&image).await.unwrap();
    let error = with("registrytoken", "secret-7").pull_manifest(&image).await.unwrap_err();
    assert!(matches!(error, RegistryError::Unauthorized { .. }), "{error}");
    assert!(!format!("{error:?}").contains("secret-7"));
    server.seen();
    plan_token(&server, r#"{"access_token":"right"}"#);
    with("identitytoken", "refresh").pull_manifest(&image).await.unwrap();
    let seen = server.seen();
    assert_eq!(seen[1].line, "POST /token");
    assert_eq!(seen[1].headers["content-type"], "application/x-www-form-urlencoded");
    assert!(!seen[1].headers.contains_key("authorization"));
}

#[tokio::test]
async fn credentials_are_not_sent_to_a_token_endpoint_without_tls() {
    let server = Embedded::tls().await;
    let challenge = format!("Bearer realm=\"http://{}/token\"", server.address);
    let headers = vec![("www-authenticate", challenge)];
    server.fault("GET", "manifests", Fault::Respond(401, headers, ""));
    let mut settings = tls_settings(&server, TlsVerification::Skip);
    settings.default_registry.fallback = Fallback::PlainHttp;
    let error = client(settings).pull_manifest(&reference(&server, "a:v1")).await.unwrap_err();
    assert!(matches!(error, RegistryError::Protocol { .. }), "{error}");
    assert!(error.to_string().contains("its token endpoint is not at https://"), "{error}");
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn redirects_and_uploads_elsewhere_do_not_see_credentials() {
    let (main, other) = (Embedded::plain().await, Embedded::plain().await);
    let client = plain_client(&main);
    let (here, content) = (repository(&main, "a"), content(100));
    push(&client, &here, &content).await.unwrap();
    let digest = Digest::sha256(&content);
    let target = format!("http://{}/stored/{digest}", other.address);
    main.fault("GET", "blobs", Fault::Respond(307, vec![("location", target)], ""));
    let body: &'static str = Box::leak(String::from_utf8_lossy(&[b'x'; 100]).into_owned().into());
    other.fault("GET", "stored", Fault::Respond(200, vec![], body));
    let error = pull(&client, &here, &content).await.unwrap_err();
    assert!(matches!(error, RegistryError::DigestMismatch { .. }), "{error}");
    let seen = other.seen();
    assert_eq!(seen.len(), 1);
    assert!(!seen[0].headers.contains_key("authorization"), "{seen:?}");

    // Redirects without end, and one to an address that is never called.
    for _ in 0..10 {
        let again = vec![("location", format!("/v2/a/blobs/{digest}"))];
        main.fault("GET", "blobs", Fault::Respond(307, again, ""));
    }
    let error = pull(&client, &here, &content).await.unwrap_err();
    assert!(error.to_string().contains("redirected more than 5 times"), "{error}");
    let main = Embedded::plain().await;
    let client = plain_client(&main);
    let metadata = vec![("location", "http://169.254.169.254/latest".to_owned())];
    main.fault("GET", "blobs", Fault::Respond(307, metadata, ""));
    let error = pull(&client, &repository(&main, "a"), b"x").await.unwrap_err();
    assert!(error.to_string().contains("link-local"), "{error}");

    let upload = vec![("location", format!("http://{}/upload", other.address))];
    main.fault("POST", "uploads", Fault::Respond(202, upload, ""));
    other.fault("PUT", "upload", Fault::Respond(201, vec![], ""));
    push(&client, &repository(&main, "a"), &content_of("new")).await.unwrap();
    let seen = other.seen();
    assert!(seen[0].line.starts_with("PUT /upload?digest=sha256"), "{seen:?}");
    assert!(!seen[0].headers.contains_key("authorization"), "{seen:?}");
}

fn content_of(text: &str) -> Bytes {
    Bytes::from(text.to_owned())
}

#[tokio::test]
async fn what_a_registry_says_is_shown_but_for_secrets_and_control_characters() {
    let server = Embedded::plain().await;
    let mut settings = settings(&server);
    settings.retries = 0;
    let client = client(settings);
    let table = [
        (
            r#"{"errors":[{"message":"ask \u001b[31mBob"}]}"#,
            "with the credentials for it (ask  [31mBob);",
        ),
        (r#"{"errors":[{"message":"password right is bad"}]}"#, "with the credentials for it;"),
        ("<html>", "with the credentials for it;"),
    ];
    for (body, expected) in table {
        server.fault("GET", "manifests", Fault::Respond(403, vec![], body));
        let error = client.pull_manifest(&reference(&server, "a:v1")).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    assert_eq!(format!("{:?}", SecretText::new("x")), "SecretText(…)");
}
