//! Pushing and pulling whole images.

use gantry_oci::Tag;
use gantry_registry::{FileSource, Mirror};

use super::*;

#[tokio::test]
async fn images_go_there_and_back_byte_for_byte() {
    let server = Embedded::plain().await;
    let client = plain_client(&server);
    let image = reference(&server, "team/app:v1");
    client.ping(image.repository()).await.unwrap();
    let (digest, bytes) = push_image(&client, &image, "layer").await;
    assert_eq!(digest, Digest::sha256(&bytes));
    for reference in [image.clone(), image.at_digest(digest.clone())] {
        let pulled = client.pull_manifest(&reference).await.unwrap();
        assert_eq!((pulled.digest, pulled.bytes), (digest.clone(), bytes.clone()));
        assert_eq!(pulled.media_type, MediaType::OciManifest);
        let head = client.head_manifest(&reference).await.unwrap();
        assert_eq!((head.digest, head.size), (digest.clone(), Some(bytes.len() as u64)));
        assert_eq!(head.media_type, Some(MediaType::OciManifest));
    }
    let blob = pull(&client, image.repository(), b"layer").await.unwrap();
    assert_eq!(blob.as_ref(), b"layer");
    client.delete_manifest(&image).await.unwrap();
    let error = client.pull_manifest(&image).await.unwrap_err();
    assert!(matches!(error, RegistryError::NotFound { .. }), "{error}");
    assert_eq!(
        error.to_string(),
        format!(
            "could not pull manifest v1 of {}/team/app: the registry does not have it; check the \
             name, or push it first",
            server.address
        )
    );
    client.delete_manifest(&image.at_digest(digest)).await.unwrap();
    let layer = Digest::sha256(b"layer");
    client.delete_blob(image.repository(), &layer).await.unwrap();
    let error = client.delete_blob(image.repository(), &layer).await.unwrap_err();
    assert!(matches!(error, RegistryError::NotFound { .. }), "{error}");
}

#[tokio::test]
async fn kms_60_blobs_are_skipped_mounted_or_uploaded() {
    let server = Embedded::plain().await;
    let mut settings = settings(&server);
    settings.chunk_bytes = 1000;
    let client = client(settings);
    let (one, two) = (repository(&server, "one"), repository(&server, "two"));
    for (length, requests) in [(0, 0), (1, 0), (1000, 0), (1001, 2), (3500, 4)] {
        let content = content(length);
        assert_eq!(push(&client, &one, &content).await.unwrap(), PushOutcome::Uploaded);
        let patches = server.lines().iter().filter(|it| it.starts_with("PATCH")).count();
        assert_eq!(patches, requests, "{length}");
        assert_eq!(push(&client, &one, &content).await.unwrap(), PushOutcome::AlreadyThere);
        assert_eq!(pull(&client, &one, &content).await.unwrap(), content);
    }
    let content = content(3500);
    let digest = Digest::sha256(&content);
    server.seen();
    let elsewhere: Repository = "else.example/one".parse().unwrap();
    let push = |repository, mount_from| BlobPush {
        repository,
        digest: &digest,
        size: 3500,
        source: &content,
        mount_from,
    };
    let from = [elsewhere.clone(), two.clone(), one.clone()];
    assert_eq!(client.push_blob(push(&two, &from)).await.unwrap(), PushOutcome::Mounted);
    assert_eq!(server.lines(), ["HEAD /v2/two/blobs/", "POST /v2/two/blobs/uploads/"]);
    let three = repository(&server, "three");
    let empty = [repository(&server, "empty"), repository(&server, "void")];
    assert_eq!(client.push_blob(push(&three, &empty)).await.unwrap(), PushOutcome::Uploaded);
    assert_eq!(server.registry.open_uploads(), 0, "the upload that was not needed was cancelled");
}

#[tokio::test]
async fn files_are_pushed_and_tags_are_listed_over_pages() {
    let server = Embedded::plain().await;
    let client = plain_client(&server);
    let folder = tempfile::tempdir().unwrap();
    let content = content(10_000);
    let path = folder.path().join("blob");
    std::fs::write(&path, &content).unwrap();
    let source = FileSource::new(std::fs::File::open(&path).unwrap());
    let (repository, digest) = (repository(&server, "a"), Digest::sha256(&content));
    let push = |size| BlobPush {
        repository: &repository,
        digest: &digest,
        size,
        source: &source,
        mount_from: &[],
    };
    let error = client.push_blob(push(10_001)).await.unwrap_err();
    assert!(matches!(error, RegistryError::Source { .. }), "{error}");
    client.push_blob(push(10_000)).await.unwrap();
    let error = client.tags(&self::repository(&server, "none")).await.unwrap_err();
    assert!(matches!(error, RegistryError::NotFound { .. }), "{error}");
    for tag in ["v1", "v2", "v3"] {
        push_image(&client, &reference(&server, &format!("a:{tag}")), "layer").await;
    }
    let first = "</v2/a/tags/list?n=2>; rel=\"next\"".to_owned();
    let page = vec![("link", first), ("content-type", "application/json".to_owned())];
    server.fault("GET", "tags", embedded::Fault::Respond(200, page, r#"{"tags":["v0"]}"#));
    let tags = client.tags(&repository).await.unwrap();
    let tags: Vec<&str> = tags.iter().map(Tag::as_str).collect();
    assert_eq!(tags, ["v0", "v1", "v2", "v3"]);
}

#[tokio::test]
async fn mirrors_are_asked_first_and_never_pushed_to() {
    let (main, mirror) = (Embedded::plain().await, Embedded::plain().await);
    let mut settings = settings(&main);
    settings.credentials.push(credentials(&mirror.address.to_string(), "right"));
    let own = RegistrySettings {
        fallback: Fallback::PlainHttp,
        mirrors: vec![
            Mirror { registry: "127.0.0.1:1".parse().unwrap(), prefix: String::new() },
            Mirror { registry: mirror.address.to_string().parse().unwrap(), prefix: "p".into() },
        ],
        ..RegistrySettings::default()
    };
    settings.registries.insert(main.address.to_string(), own);
    settings.retries = 0;
    let client = client(settings);
    let image = reference(&main, "a:v1");
    let (digest, _) = push_image(&client, &image, "layer").await;
    assert_eq!(mirror.seen().len(), 0, "pushed to the registry itself");
    assert_eq!(client.pull_manifest(&image).await.unwrap().digest, digest);
    assert_eq!(mirror.lines(), ["GET /v2/p/a/manifests/v1"; 2], "asked, and challenged");
    main.seen();
    let copy = reference(&mirror, "p/a:v1");
    push_image(&client, &copy, "other layer").await;
    assert_ne!(client.pull_manifest(&image).await.unwrap().digest, digest);
    pull(&client, image.repository(), b"other layer").await.unwrap();
    assert_eq!(main.seen().len(), 0, "the mirror has it");
    mirror.fault("GET", "manifests", embedded::Fault::Damage);
    assert_eq!(client.pull_manifest(&image).await.unwrap().digest, digest, "not that of a mirror");
    let error = pull(&client, image.repository(), b"nowhere").await.unwrap_err();
    let text = format!("of {}/a", main.address);
    assert!(error.to_string().contains(&text), "the error is about the registry: {error}");
}
