//! The registry without sockets: requests in, responses out.

use std::io;

use futures_util::stream;
use gantry_oci::{Digest, MediaType};
use gantry_process::clock::FakeClock;
use http::HeaderMap;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};

use super::*;
use crate::storage::StorageLimits;

/// Users are named by their tokens; a token `<user>` may do what is listed after a colon.
#[derive(Debug)]
struct TestAccess {
    anonymous: bool,
}

impl Access for TestAccess {
    type User = String;

    async fn authenticate(
        &self,
        presented: PresentedCredentials,
    ) -> Result<Option<String>, AccessUnavailable> {
        let token = match &presented {
            PresentedCredentials::Bearer(token) => token,
            PresentedCredentials::Basic { password, .. } => password,
        };
        match token.reveal() {
            "down" => Err(AccessUnavailable("the API server does not respond".to_owned())),
            "admin" | "reader" => Ok(Some(token.reveal().to_owned())),
            _ => Ok(None),
        }
    }

    async fn authorize(
        &self,
        user: Option<&String>,
        verb: Verb,
        repository: Option<&RepositoryName>,
    ) -> Result<bool, AccessUnavailable> {
        let secret = repository.is_some_and(|it| it.as_str().starts_with("secret"));
        Ok(match user.map(String::as_str) {
            Some("admin") => true,
            Some(_) => matches!(verb, Verb::Pull | Verb::Ping) && !secret,
            None => verb == Verb::Pull && !secret,
        })
    }

    fn anonymous(&self) -> bool {
        self.anonymous
    }
}

struct TestRegistry {
    registry: Registry<TestAccess>,
    hand: FakeClock,
    folder: tempfile::TempDir,
}

#[derive(Debug)]
struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Bytes,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |it| it.to_str().unwrap())
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    fn code(&self) -> String {
        self.json()["errors"][0]["code"].as_str().unwrap().to_owned()
    }
}

type TestBody = http_body_util::combinators::BoxBody<Bytes, io::Error>;

fn whole(bytes: &[u8]) -> TestBody {
    Full::new(Bytes::copy_from_slice(bytes)).map_err(|never| match never {}).boxed()
}

/// A body whose connection breaks after some bytes.
fn broken(bytes: &[u8]) -> TestBody {
    let pieces = bytes.chunks(3).map(|it| Ok(Frame::data(Bytes::copy_from_slice(it))));
    let pieces: Vec<_> =
        pieces.chain([Err(io::Error::from(io::ErrorKind::ConnectionReset))]).collect();
    BodyExt::boxed(StreamBody::new(stream::iter(pieces)))
}

impl TestRegistry {
    fn new() -> Self {
        Self::with(|_, _| {}, false)
    }

    fn with(change: impl FnOnce(&mut ServerSettings, &mut StorageLimits), anonymous: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (mut settings, mut limits) = (ServerSettings::default(), StorageLimits::default());
        change(&mut settings, &mut limits);
        let storage = Storage::open(&folder.path().join("registry"), limits).unwrap();
        let hand = FakeClock::at("2026-11-18T10:00:00Z".parse().unwrap());
        let random = fastrand::Rng::with_seed(1);
        let access = TestAccess { anonymous };
        let registry = Registry::new(storage, access, hand.clock(), random, settings);
        Self { registry, hand, folder }
    }

    async fn send(&self, line: &str, headers: &[(&str, &str)], body: TestBody) -> Answer {
        let (method, path) = line.split_once(' ').unwrap();
        let mut request = Request::builder().method(method).uri(path);
        if !headers.iter().any(|(name, _)| *name == "authorization") {
            request = request.header("authorization", "Bearer admin");
        }
        for (name, value) in headers.iter().filter(|(_, value)| !value.is_empty()) {
            request = request.header(*name, *value);
        }
        let response = self.registry.handle(request.body(body).unwrap(), None).await;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    async fn get(&self, path: &str) -> Answer {
        self.send(&format!("GET {path}"), &[], whole(b"")).await
    }

    async fn call(&self, line: &str, body: &[u8]) -> Answer {
        self.send(line, &[], whole(body)).await
    }

    async fn push_blob(&self, repository: &str, content: &[u8]) -> Digest {
        let digest = Digest::sha256(content);
        let line = format!("POST /v2/{repository}/blobs/uploads/?digest={digest}");
        let answer = self.call(&line, content).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        digest
    }

    async fn push_image(&self, repository: &str, layer: &str, tag: &str) -> (Digest, Vec<u8>) {
        let config = self.push_blob(repository, b"{}").await;
        let layer = self.push_blob(repository, layer.as_bytes()).await;
        let body = image(&config, &layer);
        let answer = self.put_manifest(&format!("/v2/{repository}/manifests/{tag}"), &body).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        (Digest::sha256(&body), body)
    }

    async fn put_manifest(&self, path: &str, body: &[u8]) -> Answer {
        let kind = MediaType::OciManifest;
        self.send(&format!("PUT {path}"), &[("content-type", kind.as_str())], whole(body)).await
    }
}

fn image(config: &Digest, layer: &Digest) -> Vec<u8> {
    let body = json!({
        "schemaVersion": 2, "mediaType": MediaType::OciManifest.as_str(),
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": config.as_str(), "size": 2},
        "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar",
            "digest": layer.as_str(), "size": 5}],
    });
    body.to_string().into_bytes()
}

#[tokio::test]
async fn reg_10_users_are_challenged_authenticated_and_authorized() {
    let test = TestRegistry::new();
    let basic = |text: &str| {
        let encoded = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text);
        format!("Basic {encoded}")
    };
    let any_name = basic("any:admin");
    let wrong = basic("admin:wrong");
    let table = [
        // request, authorization, status, code
        ("GET /v2/", "", 401, "UNAUTHORIZED"),
        ("GET /v2/", "Bearer wrong", 401, "UNAUTHORIZED"),
        ("GET /v2/", wrong.as_str(), 401, "UNAUTHORIZED"),
        ("GET /v2/", "Nonsense", 401, "UNAUTHORIZED"),
        ("GET /v2/", "Bearer reader", 200, ""),
        ("GET /v2/", any_name.as_str(), 200, ""),
        ("GET /v2/", "Bearer down", 503, "UNKNOWN"),
        ("GET /v2/_catalog", "Bearer reader", 403, "DENIED"),
        ("GET /v2/a/tags/list", "Bearer reader", 404, "NAME_UNKNOWN"),
        ("GET /v2/secret/tags/list", "Bearer reader", 403, "DENIED"),
        ("POST /v2/a/blobs/uploads/", "Bearer reader", 403, "DENIED"),
        ("DELETE /v2/a/manifests/v1", "Bearer reader", 403, "DENIED"),
        ("PUT /v2/a/manifests/v1", "Bearer reader", 403, "DENIED"),
        ("POST /v2/a/blobs/uploads/", "", 401, "UNAUTHORIZED"),
        ("POST /v2/", "Bearer admin", 405, "UNSUPPORTED"),
        ("GET /v2/a/blobs/uploads/", "Bearer admin", 405, "UNSUPPORTED"),
        ("GET /elsewhere", "Bearer admin", 404, "UNSUPPORTED"),
        ("GET /elsewhere", "", 401, "UNAUTHORIZED"),
    ];
    for (line, authorization, status, code) in table {
        let answer = test.send(line, &[("authorization", authorization)], whole(b"")).await;
        assert_eq!(answer.status, status, "{line} {authorization}");
        assert_eq!(answer.header("docker-distribution-api-version"), "registry/2.0");
        if !code.is_empty() {
            assert_eq!(answer.code(), code, "{line} {authorization}");
        }
        let challenged = answer.header("www-authenticate").starts_with("Basic realm=\"");
        assert_eq!(challenged, status == 401, "{line} {authorization}");
    }
    let user = Some("admin".to_owned());
    let request = Request::get("/v2/_catalog").body(whole(b"")).unwrap();
    assert_eq!(test.registry.handle(request, user).await.status(), 200, "by the connection");
}

#[tokio::test]
async fn reg_11_anonymous_users_pull_only_where_the_host_allows_it() {
    let test = TestRegistry::with(|_, _| {}, true);
    test.push_image("a", "layer", "v1").await;
    let none = [("authorization", "")];
    assert_eq!(test.send("GET /v2/a/manifests/v1", &none, whole(b"")).await.status, 200);
    for line in ["GET /v2/secret/tags/list", "POST /v2/a/blobs/uploads/", "GET /v2/_catalog"] {
        assert_eq!(test.send(line, &none, whole(b"")).await.status, 401, "{line}");
    }
    let wrong = [("authorization", "Bearer wrong")];
    let answer = test.send("GET /v2/a/manifests/v1", &wrong, whole(b"")).await;
    assert_eq!(answer.status, 401, "wrong credentials are not no credentials");
}

#[tokio::test]
async fn reg_1_images_are_pushed_and_pulled_byte_for_byte() {
    let test = TestRegistry::new();
    let (digest, body) = test.push_image("team/app", "layer", "v1").await;
    for name in ["v1", digest.as_str()] {
        let path = format!("/v2/team/app/manifests/{name}");
        let answer = test.get(&path).await;
        assert_eq!((answer.status, answer.body.as_ref()), (200, body.as_slice()));
        assert_eq!(answer.header("docker-content-digest"), digest.as_str());
        assert_eq!(answer.header("content-type"), MediaType::OciManifest.as_str());
        let head = test.call(&format!("HEAD {path}"), b"").await;
        assert_eq!((head.status, head.body.len()), (200, 0));
        assert_eq!(head.header("content-length"), body.len().to_string());
    }
    let layer = Digest::sha256(b"layer");
    let path = format!("/v2/team/app/blobs/{layer}");
    let answer = test.get(&path).await;
    assert_eq!((answer.status, answer.body.as_ref()), (200, b"layer".as_slice()));
    let table = [
        ("bytes=1-2", 206, "ay", "bytes 1-2/5"),
        ("bytes=3-", 206, "er", "bytes 3-4/5"),
        ("bytes=-1", 206, "r", "bytes 4-4/5"),
        ("bytes=9-", 416, "", "bytes */5"),
        ("lines=1-2", 200, "layer", ""),
    ];
    for (range, status, text, stated) in table {
        let answer = test.send(&format!("GET {path}"), &[("range", range)], whole(b"")).await;
        assert_eq!((answer.status, answer.header("content-range")), (status, stated), "{range}");
        if status != 416 {
            assert_eq!(answer.body.as_ref(), text.as_bytes(), "{range}");
        }
    }
    let head = test.call(&format!("HEAD {path}"), b"").await;
    assert_eq!((head.status, head.header("content-length")), (200, "5"));
    assert_eq!(test.get(&format!("/v2/other/blobs/{layer}")).await.code(), "BLOB_UNKNOWN");
    assert_eq!(test.get("/v2/team/app/manifests/v2").await.code(), "MANIFEST_UNKNOWN");
}

#[tokio::test]
async fn reg_6_manifests_are_checked_before_they_are_stored() {
    let test = TestRegistry::with(|_, limits| limits.manifest_bytes = 1000, false);
    let config = test.push_blob("a", b"{}").await;
    let missing = Digest::sha256(b"missing");
    let answer = test.put_manifest("/v2/a/manifests/v1", &image(&config, &missing)).await;
    assert_eq!((answer.status, answer.code().as_str()), (400, "MANIFEST_BLOB_UNKNOWN"));
    assert!(answer.json()["errors"][0]["message"].as_str().unwrap().contains(missing.as_str()));
    let answer = test.put_manifest("/v2/a/manifests/v1", b"not json").await;
    assert_eq!((answer.status, answer.code().as_str()), (400, "MANIFEST_INVALID"));
    let body = image(&config, &config);
    let path = format!("/v2/a/manifests/{missing}");
    let answer = test.put_manifest(&path, &body).await;
    assert_eq!((answer.status, answer.code().as_str()), (400, "DIGEST_INVALID"));
    let answer = test.put_manifest("/v2/a/manifests/v1", &[b' '; 1001]).await;
    assert_eq!((answer.status, answer.code().as_str()), (413, "SIZE_INVALID"));
    let answer = test.put_manifest("/v2/other/manifests/v1", &body).await;
    assert_eq!(answer.code(), "MANIFEST_BLOB_UNKNOWN", "blobs of other repositories do not count");
    let answer = test.send("PUT /v2/a/manifests/v1", &[], broken(&body)).await;
    assert_eq!(answer.status, 400);
    assert_eq!(test.get("/v2/a/manifests/v1").await.status, 404, "nothing of it was stored");
    let digest = Digest::compute(gantry_oci::Algorithm::Sha512, &body);
    let answer = test.put_manifest(&format!("/v2/a/manifests/{digest}"), &body).await;
    assert_eq!((answer.status, answer.header("docker-content-digest")), (201, digest.as_str()));
}

#[tokio::test]
async fn reg_2_uploads_that_break_at_any_byte_are_resumed() {
    let test = TestRegistry::new();
    let content = b"0123456789abcdef";
    let digest = Digest::sha256(content);
    for cut in 0..=content.len() {
        let repository = format!("a{cut}");
        let started = test.call(&format!("POST /v2/{repository}/blobs/uploads/"), b"").await;
        assert_eq!((started.status, started.header("range")), (202, "0-0"));
        let location = started.header("location").to_owned();
        let answer = test.send(&format!("PATCH {location}"), &[], broken(&content[..cut])).await;
        assert_eq!(answer.status, 400, "{answer:?}");
        let status = test.get(&location).await;
        assert_eq!((status.status, status.header("location")), (204, location.as_str()));
        let range = format!("0-{}", cut.saturating_sub(1));
        assert_eq!(status.header("range"), range, "what arrived is kept");
        if cut < content.len() {
            let wrong = [("content-range", "1000-1001")];
            let answer = test.send(&format!("PATCH {location}"), &wrong, whole(b"xx")).await;
            assert_eq!((answer.status, answer.header("range")), (416, range.as_str()));
            let right = format!("{cut}-{}", content.len() - 1);
            let right = [("content-range", right.as_str())];
            let answer =
                test.send(&format!("PATCH {location}"), &right, whole(&content[cut..])).await;
            assert_eq!((answer.status, answer.header("range")), (202, "0-15"), "{cut}");
        }
        let answer = test.call(&format!("PUT {location}?digest={digest}"), b"").await;
        assert_eq!((answer.status, answer.header("docker-content-digest")), (201, digest.as_str()));
        let answer = test.get(&format!("/v2/{repository}/blobs/{digest}")).await;
        assert_eq!(answer.body.as_ref(), content);
        assert_eq!(test.get(&location).await.code(), "BLOB_UPLOAD_UNKNOWN");
    }
    assert_eq!(test.registry.open_uploads(), 0);
}

#[tokio::test]
async fn reg_3_uploads_are_verified_cancelled_and_limited() {
    let change = |settings: &mut ServerSettings, limits: &mut StorageLimits| {
        settings.uploads.open = 1;
        limits.blob_bytes = 10;
    };
    let test = TestRegistry::with(change, false);
    let digest = Digest::sha256(b"abc");
    let start = || test.call("POST /v2/a/blobs/uploads/", b"");
    let location = start().await.header("location").to_owned();
    assert_eq!(start().await.status, 429);
    let answer = test.call(&format!("PUT {location}?digest={digest}"), b"abd").await;
    assert_eq!((answer.status, answer.code().as_str()), (400, "DIGEST_INVALID"));
    assert_eq!(test.get(&format!("/v2/a/blobs/{digest}")).await.status, 404);
    let location = start().await.header("location").to_owned();
    let answer = test.call(&format!("PATCH {location}"), b"01234567890").await;
    assert_eq!((answer.status, answer.code().as_str()), (413, "SIZE_INVALID"));
    assert_eq!(test.call(&format!("PUT {location}"), b"").await.code(), "DIGEST_INVALID");
    let headers = [("content-range", "0-1"), ("content-length", "3")];
    let answer = test.send(&format!("PATCH {location}"), &headers, whole(b"abc")).await;
    assert_eq!(answer.code(), "SIZE_INVALID");
    let headers = [("content-range", "nonsense")];
    let answer = test.send(&format!("PATCH {location}"), &headers, whole(b"abc")).await;
    assert_eq!((answer.status, answer.code().as_str()), (400, "BLOB_UPLOAD_INVALID"));
    let other = location.replace("/a/", "/b/");
    assert_eq!(test.get(&other).await.status, 404, "an upload belongs to one repository");
    assert_eq!(test.call(&format!("DELETE {location}"), b"").await.status, 204);
    assert_eq!(test.call(&format!("DELETE {location}"), b"").await.status, 404);
    assert_eq!(start().await.status, 202);
}

/// The name of an upload that one request starts and finishes is not known to its client.
#[tokio::test]
async fn reg_5_an_upload_in_one_request_that_breaks_is_discarded() {
    let test = TestRegistry::new();
    let line = format!("POST /v2/a/blobs/uploads/?digest={}", Digest::sha256(b"abcdef"));
    let temporary = || {
        let folder = test.folder.path().join("registry/temporary");
        std::fs::read_dir(folder).unwrap().count()
    };
    assert_eq!(test.send(&line, &[], broken(b"abc")).await.status, 400);
    assert_eq!((test.registry.open_uploads(), temporary()), (0, 0));
    let answer = test.call(&line, b"abcxyz").await;
    assert_eq!((answer.status, answer.code().as_str()), (400, "DIGEST_INVALID"));
    assert_eq!((test.registry.open_uploads(), temporary()), (0, 0));
    // The connection is closed while the server waits for more.
    let first = stream::once(async { Ok(Frame::data(Bytes::from_static(b"abc"))) });
    let endless = futures_util::StreamExt::chain(first, stream::pending());
    let sent = Box::pin(test.send(&line, &[], BodyExt::boxed(StreamBody::new(endless))));
    let waiting = Box::pin(async {
        while test.hand.waiting() == 0 {
            tokio::task::yield_now().await;
        }
    });
    drop(futures_util::future::select(sent, waiting).await);
    let removed = async {
        while (test.registry.open_uploads(), temporary()) != (0, 0) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), removed).await.unwrap();
    assert_eq!(test.call(&line, b"abcdef").await.status, 201);
}

#[tokio::test]
async fn reg_4_a_client_that_stops_sending_is_given_up() {
    let test = TestRegistry::new();
    let location = test.call("POST /v2/a/blobs/uploads/", b"").await;
    let location = location.header("location").to_owned();
    let first = stream::once(async { Ok(Frame::data(Bytes::from_static(b"abc"))) });
    let endless = futures_util::StreamExt::chain(first, stream::pending());
    let body = BodyExt::boxed(StreamBody::new(endless));
    let send = async { test.send(&format!("PATCH {location}"), &[], body).await };
    let wait = async {
        while test.hand.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        test.hand.advance(Duration::from_secs(60)).await;
    };
    let (answer, ()) = tokio::join!(send, wait);
    assert_eq!(answer.status, 400);
    let message = answer.json()["errors"][0]["message"].as_str().unwrap().to_owned();
    assert_eq!(message, "the client sent nothing for 60s");
    assert_eq!(test.get(&location).await.header("range"), "0-2", "what it sent is kept");
}

#[tokio::test]
async fn kms_60_blobs_are_mounted_only_from_repositories_that_the_user_may_read() {
    let test = TestRegistry::new();
    let digest = test.push_blob("secret/a", b"layer").await;
    let line = format!("POST /v2/b/blobs/uploads/?mount={digest}&from=secret/a");
    let answer = test.call(&line, b"").await;
    assert_eq!((answer.status, answer.header("docker-content-digest")), (201, digest.as_str()));
    assert_eq!(test.get(&format!("/v2/b/blobs/{digest}")).await.body.as_ref(), b"layer");
    for from in ["", "&from=nowhere", "&from=../x"] {
        let line = format!("POST /v2/c/blobs/uploads/?mount={digest}{from}");
        assert_eq!(test.call(&line, b"").await.status, 202, "{from}: upload it instead");
    }
    // The host may allow a user to push to one repository without reading another.
    let request = Request::post(format!("/v2/x/blobs/uploads/?mount={digest}&from=secret/a"));
    let user = "reader".to_owned();
    let parts = request.body(()).unwrap().into_parts().0;
    let target = "x".parse().unwrap();
    let mounted = test.registry.mount(&target, Some(&user), parts.uri.query(), &digest).await;
    assert_eq!(mounted, Ok(false));
}

#[tokio::test]
async fn reg_7_lists_have_pages() {
    let test = TestRegistry::new();
    for tag in ["a", "b", "c"] {
        test.push_image("x", "layer", tag).await;
    }
    let answer = test.get("/v2/x/tags/list").await;
    assert_eq!(answer.json(), json!({"name": "x", "tags": ["a", "b", "c"]}));
    assert_eq!(answer.header("link"), "");
    let answer = test.get("/v2/x/tags/list?n=2").await;
    assert_eq!(answer.json()["tags"], json!(["a", "b"]));
    assert_eq!(answer.header("link"), "</v2/x/tags/list?n=2&last=b>; rel=\"next\"");
    let answer = test.get("/v2/x/tags/list?n=2&last=b").await;
    assert_eq!((answer.json()["tags"].clone(), answer.header("link")), (json!(["c"]), ""));
    assert_eq!(test.get("/v2/x/tags/list?n=0").await.json()["tags"], json!([]));
    assert_eq!(test.get("/v2/x/tags/list?n=x").await.status, 400);
    test.push_image("a/b", "layer", "v1").await;
    let answer = test.get("/v2/_catalog?n=1").await;
    assert_eq!(answer.json(), json!({"repositories": ["a/b"]}));
    assert_eq!(answer.header("link"), "</v2/_catalog?n=1&last=a%2Fb>; rel=\"next\"");
}

#[tokio::test]
async fn reg_8_referrers_are_listed_by_subject_and_type() {
    let test = TestRegistry::new();
    let (subject, _) = test.push_image("a", "layer", "v1").await;
    let config = Digest::sha256(b"{}");
    for kind in ["text/one", "text/two"] {
        let body = json!({
            "schemaVersion": 2, "artifactType": kind, "annotations": {"k": kind},
            "config": {"digest": config.as_str()}, "subject": {"digest": subject.as_str()},
        });
        let bytes = body.to_string();
        let digest = Digest::sha256(bytes.as_bytes());
        let path = format!("/v2/a/manifests/{digest}");
        let answer = test.put_manifest(&path, bytes.as_bytes()).await;
        assert_eq!(answer.header("oci-subject"), subject.as_str());
    }
    let answer = test.get(&format!("/v2/a/referrers/{subject}")).await;
    assert_eq!(answer.header("content-type"), MediaType::OciIndex.as_str());
    assert_eq!(answer.json()["manifests"].as_array().unwrap().len(), 2);
    let filtered = test.get(&format!("/v2/a/referrers/{subject}?artifactType=text%2Fone")).await;
    assert_eq!(filtered.header("oci-filters-applied"), "artifactType");
    let found = filtered.json()["manifests"].clone();
    assert_eq!(found.as_array().unwrap().len(), 1);
    assert_eq!(found[0]["annotations"], json!({"k": "text/one"}));
    let none = test.get(&format!("/v2/a/referrers/{config}")).await;
    assert_eq!((none.status, none.json()["manifests"].clone()), (200, json!([])));
}

#[tokio::test]
async fn reg_9_deleted_tags_manifests_and_blobs_are_gone() {
    let test = TestRegistry::new();
    let (digest, _) = test.push_image("a", "layer", "v1").await;
    test.push_image("a", "layer", "v2").await;
    assert_eq!(test.call("DELETE /v2/a/manifests/v1", b"").await.status, 202);
    assert_eq!(test.call("DELETE /v2/a/manifests/v1", b"").await.code(), "MANIFEST_UNKNOWN");
    assert_eq!(test.get("/v2/a/manifests/v2").await.status, 200);
    let path = format!("/v2/a/manifests/{digest}");
    assert_eq!(test.call(&format!("DELETE {path}"), b"").await.status, 202);
    assert_eq!(test.get("/v2/a/manifests/v2").await.status, 404, "its tags are gone too");
    let blob = format!("/v2/a/blobs/{}", Digest::sha256(b"layer"));
    assert_eq!(test.call(&format!("DELETE {blob}"), b"").await.status, 202);
    assert_eq!(test.call(&format!("DELETE {blob}"), b"").await.code(), "BLOB_UNKNOWN");
    test.hand.jump_to(test.hand.clock().moment() + Duration::from_secs(7200));
    let report = test.registry.collect_garbage(GarbageCollection::default()).await.unwrap();
    assert_eq!(report.contents, 3, "{report:?}");
}
