//! Connections that break, registries that fail, and content that is wrong.

use embedded::Fault;
use gantry_process::clock::FakeClock;

use super::*;

#[tokio::test]
async fn pulls_that_break_at_any_byte_are_resumed_where_they_broke() {
    let server = Embedded::plain().await;
    let client = plain_client(&server);
    let (here, content) = (repository(&server, "a"), content(24));
    push(&client, &here, &content).await.unwrap();
    for cut in 0..24 {
        server.seen();
        server.fault("GET", "blobs", Fault::CutResponse(cut));
        assert_eq!(pull(&client, &here, &content).await.unwrap(), content, "cut at {cut}");
        let seen = server.seen();
        let range = seen.last().unwrap().headers.get("range").map(|it| it.to_str().unwrap());
        let expected = (cut > 0).then(|| format!("bytes={cut}-"));
        assert_eq!(range, expected.as_deref(), "nothing is sent twice");
    }
    // A registry that ignores the range sends everything again.
    server.fault("GET", "blobs", Fault::CutResponse(10));
    server.fault("GET", "blobs", Fault::IgnoreRange);
    assert_eq!(pull(&client, &here, &content).await.unwrap(), content);
    assert_eq!(server.faults_left(), 0);
    // One that sends another part is not believed.
    server.fault("GET", "blobs", Fault::CutResponse(10));
    let wrong = vec![("content-range", "bytes 3-23/24".to_owned())];
    server.fault("GET", "blobs", Fault::Respond(206, wrong, "xxxxx"));
    let error = pull(&client, &here, &content).await.unwrap_err();
    assert!(error.to_string().contains("another part than it was asked for"), "{error}");
}

#[tokio::test]
async fn pulls_end_after_too_many_failures() {
    let server = Embedded::plain().await;
    let client = plain_client(&server);
    let (here, content) = (repository(&server, "a"), content(24));
    push(&client, &here, &content).await.unwrap();
    for _ in 0..20 {
        server.fault("GET", "blobs", Fault::CutResponse(0));
    }
    let error = pull(&client, &here, &content).await.unwrap_err();
    assert!(matches!(error, RegistryError::Unreachable { .. }), "{error}");
    assert!(error.may_pass());
    assert_eq!(server.faults_left(), 20 - 5, "one attempt and four retries");
}

#[tokio::test]
async fn pushes_that_break_at_any_byte_are_resumed() {
    let server = Embedded::plain().await;
    let mut settings = settings(&server);
    settings.chunk_bytes = 8;
    let client = client(settings);
    let content = content(24);
    for cut in 0..=8 {
        let here = repository(&server, &format!("a{cut}"));
        server.fault("PATCH", "uploads", Fault::CutRequest(cut));
        push(&client, &here, &content).await.unwrap();
        assert_eq!(pull(&client, &here, &content).await.unwrap(), content, "cut at {cut}");
    }
    // Lost responses: of a chunk, of the last request, of the start.
    for (number, method) in ["PATCH", "PUT", "POST"].into_iter().enumerate() {
        let here = repository(&server, &format!("b{number}"));
        server.fault(method, "uploads", Fault::LoseResponse);
        push(&client, &here, &content).await.unwrap();
        assert_eq!(pull(&client, &here, &content).await.unwrap(), content, "{method}");
    }
    // A registry that has forgotten the upload, and one that is at another byte.
    for (number, status) in [404, 416, 503].into_iter().enumerate() {
        let here = repository(&server, &format!("c{number}"));
        server.fault("PATCH", "uploads", Fault::Respond(status, vec![], ""));
        push(&client, &here, &content).await.unwrap();
        assert_eq!(pull(&client, &here, &content).await.unwrap(), content, "{status}");
    }
    // Small blobs go in one request.
    let small = Bytes::from_static(b"small");
    let here = repository(&server, "d");
    server.fault("PUT", "uploads", Fault::CutRequest(2));
    push(&client, &here, &small).await.unwrap();
    assert_eq!(pull(&client, &here, &small).await.unwrap(), small);
    assert_eq!(server.faults_left(), 0);
}

#[tokio::test]
async fn a_registry_that_acknowledges_too_much_or_nothing_is_not_believed() {
    let server = Embedded::plain().await;
    let mut settings = settings(&server);
    settings.chunk_bytes = 8;
    let client = client(settings);
    let content = content(24);
    let upload = |range: &str| {
        let location = ("location", "/v2/a/blobs/uploads/x".to_owned());
        Fault::Respond(202, vec![location, ("range", range.to_owned())], "")
    };
    server.fault("PATCH", "uploads", upload("0-100"));
    let error = push(&client, &repository(&server, "a"), &content).await.unwrap_err();
    assert!(error.to_string().contains("has more bytes than were sent"), "{error}");
    // Taking no bytes is not progress, so the number of retries ends it.
    for _ in 0..60 {
        server.fault("PATCH", "uploads", upload("0-7"));
    }
    let error = push(&client, &repository(&server, "b"), &content).await.unwrap_err();
    assert!(matches!(error, RegistryError::Unreachable { .. }), "{error}");
    assert!(server.faults_left() > 40, "{}", server.faults_left());
}

#[tokio::test]
async fn damaged_content_is_never_returned() {
    let server = Embedded::plain().await;
    let client = plain_client(&server);
    let image = reference(&server, "a:v1");
    let (digest, _) = push_image(&client, &image, "layer").await;
    client.pull_manifest(&image).await.unwrap();
    for reference in [image.clone(), image.at_digest(digest.clone())] {
        server.fault("GET", "manifests", Fault::Damage);
        let error = client.pull_manifest(&reference).await.unwrap_err();
        assert!(matches!(error, RegistryError::DigestMismatch { .. }), "{error}");
    }
    server.fault("GET", "blobs", Fault::Damage);
    let error = pull(&client, image.repository(), b"layer").await.unwrap_err();
    assert!(matches!(error, RegistryError::DigestMismatch { .. }), "{error}");
    let stated = vec![("docker-content-digest", Digest::sha256(b"other").to_string())];
    server.fault("HEAD", "manifests", Fault::Respond(200, stated.clone(), ""));
    let error = client.head_manifest(&image.at_digest(digest)).await.unwrap_err();
    assert!(matches!(error, RegistryError::DigestMismatch { .. }), "{error}");
    server.fault("PUT", "manifests", Fault::Respond(201, stated, ""));
    let kind = MediaType::OciManifest;
    let error = client.push_manifest(&image, &kind, Bytes::from_static(b"{}")).await.unwrap_err();
    assert!(matches!(error, RegistryError::DigestMismatch { .. }), "{error}");
}

#[tokio::test]
async fn sizes_are_bounded() {
    let server = Embedded::plain().await;
    let mut settings = settings(&server);
    settings.manifest_bytes = 1000;
    let client = client(settings);
    let image = reference(&server, "a:v1");
    let large: &'static str = Box::leak("x".repeat(70_000).into_boxed_str());
    server.fault("GET", "manifests", Fault::Respond(200, vec![], large));
    let error = client.pull_manifest(&image).await.unwrap_err();
    assert!(matches!(error, RegistryError::TooLarge { limit: 1000, .. }), "{error}");
    let kind = MediaType::OciManifest;
    let error = client.push_manifest(&image, &kind, content(1001)).await.unwrap_err();
    assert!(matches!(error, RegistryError::TooLarge { limit: 1000, .. }), "{error}");
    // Errors of any size are read up to a limit, and what they say is still known.
    server.fault("GET", "manifests", Fault::Respond(418, vec![], large));
    let error = client.pull_manifest(&image).await.unwrap_err();
    assert!(matches!(error, RegistryError::Protocol { .. }), "{error}");
    let digest = Digest::sha256(b"x");
    let error = client.pull_small_blob(image.repository(), &digest, 11, 10).await.unwrap_err();
    assert!(matches!(error, RegistryError::TooLarge { limit: 10, .. }), "{error}");
    // More content than the descriptor says.
    let here = image.repository();
    push(&client, here, &Bytes::from_static(b"0123456789")).await.unwrap();
    let digest = Digest::sha256(b"0123456789");
    for size in [9, 11] {
        let error = client.pull_small_blob(here, &digest, size, 100).await.unwrap_err();
        let expected = matches!(error, RegistryError::DigestMismatch { .. });
        assert!(expected, "{size}: {error}");
    }
}

#[tokio::test]
async fn schema_1_and_pages_of_others_are_not_manifests() {
    let server = Embedded::plain().await;
    let client = plain_client(&server);
    let image = reference(&server, "a:v1");
    let old = "application/vnd.docker.distribution.manifest.v1+prettyjws".to_owned();
    let table = [
        (vec![("content-type", old)], r#"{"schemaVersion":1}"#),
        (vec![("content-type", "text/html".to_owned())], "<html>"),
        (vec![], r#"{"schemaVersion":1}"#),
    ];
    for (headers, body) in table {
        server.fault("GET", "manifests", Fault::Respond(200, headers, body));
        let error = client.pull_manifest(&image).await.unwrap_err();
        assert!(matches!(error, RegistryError::Protocol { .. }), "{error}");
    }
    let body = r#"{"schemaVersion":2,"manifests":[]}"#;
    let plain = vec![("content-type", "application/json".to_owned())];
    server.fault("GET", "manifests", Fault::Respond(200, plain, body));
    let pulled = client.pull_manifest(&image).await.unwrap();
    assert_eq!(pulled.media_type, MediaType::OciIndex, "by its content");
}

/// Drives a fake clock until a future is done.
async fn drive<Output>(hand: &FakeClock, work: impl Future<Output = Output>) -> Output {
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            biased;
            output = &mut work => return output,
            () = tokio::time::sleep(Duration::from_millis(2)) => {
                if let Some(deadline) = hand.next_deadline() {
                    // Only delays between attempts are jumped over, not time-outs of connections.
                    if deadline - hand.clock().moment() < Duration::from_secs(25) {
                        hand.jump_to(deadline);
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn kms_46_requests_wait_as_long_as_the_registry_says_and_within_their_time() {
    let server = Embedded::plain().await;
    let image = reference(&server, "a:v1");
    push_image(&plain_client(&server), &image, "layer").await;
    let hand = FakeClock::at(Clock::system().now());
    let client = Client::new(hand.clock(), fastrand::Rng::with_seed(3), settings(&server));
    // Connected before the clock moves, so that no time-out of a connection passes.
    client.pull_manifest(&image).await.unwrap();
    let started = hand.clock().moment();
    for seconds in ["7", "11"] {
        let wait = vec![("retry-after", seconds.to_owned())];
        server.fault("GET", "manifests", Fault::Respond(429, wait, ""));
    }
    server.fault("GET", "manifests", Fault::Respond(502, vec![], ""));
    drive(&hand, client.pull_manifest(&image)).await.unwrap();
    let waited = hand.clock().moment() - started;
    assert!(waited >= Duration::from_secs(18) && waited < Duration::from_secs(30), "{waited:?}");
    // A wait that is longer than the operation may take is the caller's.
    let wait = vec![("retry-after", "3600".to_owned())];
    server.fault("GET", "manifests", Fault::Respond(429, wait, ""));
    let started = hand.clock().moment();
    let error = client.pull_manifest(&image).await.unwrap_err();
    assert!(matches!(error, RegistryError::RateLimited { .. }), "{error}");
    assert_eq!(hand.clock().moment(), started, "without waiting");
    server.seen();
    server.fault("GET", "manifests", Fault::Respond(501, vec![], ""));
    client.pull_manifest(&image).await.unwrap_err();
    assert_eq!(server.seen().len(), 1, "what the registry cannot do at all is not repeated");
}

#[tokio::test]
async fn a_peer_that_stops_sending_is_given_up() {
    use tokio::io::AsyncReadExt as _;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let hand = FakeClock::at(Clock::system().now());
    let mut settings = ClientSettings::new("test");
    settings.addresses = AddressPolicy::AllowLoopback;
    settings.default_registry.fallback = Fallback::PlainHttp;
    settings.retries = 0;
    let client = Client::new(hand.clock(), fastrand::Rng::with_seed(3), settings);
    let image: Reference = format!("{address}/a:v1").parse().unwrap();
    let silent = async {
        let mut open = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            // The first bytes of a request, and no response ever.
            let mut bytes = [0; 16];
            let _ = stream.read(&mut bytes).await;
            open.push(stream);
            assert!(open.len() < 100, "too many connections");
        }
    };
    let waiting = async {
        loop {
            tokio::time::sleep(Duration::from_millis(2)).await;
            if let Some(deadline) = hand.next_deadline() {
                hand.jump_to(deadline);
            }
        }
    };
    let error = tokio::select! {
        error = client.pull_manifest(&image) => error.unwrap_err(),
        () = silent => unreachable!(),
        () = waiting => unreachable!(),
    };
    assert!(matches!(error, RegistryError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("took longer than"), "{error}");
}
