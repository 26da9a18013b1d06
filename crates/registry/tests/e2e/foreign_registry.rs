//! Our client against Debian's registry.

use std::net::Ipv4Addr;
use std::path::Path;

use bytes::Bytes;
use gantry_http_client::AddressPolicy;
use gantry_oci::{Digest, MediaType, Reference, Repository, Tag};
use gantry_process::clock::Clock;
use gantry_registry::{
    BlobPush, Client, ClientSettings, CredentialFile, Fallback, PushOutcome, RegistryError,
    TlsVerification,
};
use gantry_testkit::docker_registry::DockerRegistry;
use gantry_testkit::pki::Authority;
use serde_json::json;

use super::program;

/// Debian's registry on loopback.
struct ForeignRegistry(DockerRegistry);

impl ForeignRegistry {
    fn start(program: &Path, authority: Option<&Authority>) -> Self {
        let host = Ipv4Addr::LOCALHOST.into();
        Self(DockerRegistry::start(program, host, authority).unwrap())
    }

    fn repository(&self, path: &str) -> Repository {
        format!("{}/{path}", self.0.address).parse().unwrap()
    }

    fn reference(&self, text: &str) -> Reference {
        format!("{}/{text}", self.0.address).parse().unwrap()
    }
}

fn settings() -> ClientSettings {
    let mut settings = ClientSettings::new("test");
    settings.addresses = AddressPolicy::AllowLoopback;
    settings.chunk_bytes = 64 << 10;
    settings.retries = 1;
    settings
}

fn client(settings: ClientSettings) -> Client {
    Client::new(Clock::system(), fastrand::Rng::with_seed(1), settings)
}

/// Everything that a client does with a registry.
async fn exercise(client: &Client, registry: &ForeignRegistry) {
    let (one, two) = (registry.repository("team/one"), registry.repository("two"));
    client.ping(&one).await.unwrap();
    let image = registry.reference("team/one:v1");
    for error in [
        client.head_manifest(&image).await.unwrap_err(),
        client.pull_manifest(&image).await.unwrap_err(),
    ] {
        assert!(matches!(error, RegistryError::NotFound { .. }), "{error}");
    }
    assert!(client.can_push(&one).await.unwrap());
    let small = Bytes::from_static(b"{\"architecture\":\"amd64\",\"os\":\"linux\"}");
    let large: Bytes = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    for content in [&small, &large] {
        let digest = Digest::sha256(content);
        let size = content.len() as u64;
        let push = |repository, mount_from| BlobPush {
            repository,
            digest: &digest,
            size,
            source: content,
            mount_from,
        };
        assert_eq!(client.push_blob(push(&one, &[])).await.unwrap(), PushOutcome::Uploaded);
        assert_eq!(client.push_blob(push(&one, &[])).await.unwrap(), PushOutcome::AlreadyThere);
        let from = std::slice::from_ref(&one);
        assert_eq!(client.push_blob(push(&two, from)).await.unwrap(), PushOutcome::Mounted);
        let pulled = client.pull_small_blob(&two, &digest, size, 1 << 30).await.unwrap();
        assert_eq!(pulled, content);
    }
    let (config, layer) = (Digest::sha256(&small), Digest::sha256(&large));
    for (tag, media_type, config_type, layer_type) in [
        ("v1", MediaType::OciManifest, MediaType::OciConfig, MediaType::OciLayer),
        ("v2", MediaType::DockerManifest, MediaType::DockerConfig, MediaType::DockerLayerGzip),
    ] {
        let manifest = json!({
            "schemaVersion": 2, "mediaType": media_type.as_str(),
            "config": {"mediaType": config_type.as_str(), "digest": config.as_str(),
                "size": small.len()},
            "layers": [{"mediaType": layer_type.as_str(), "digest": layer.as_str(),
                "size": large.len()}],
        });
        let bytes = Bytes::from(format!("{manifest:#}\n"));
        let image = registry.reference(&format!("team/one:{tag}"));
        let digest = client.push_manifest(&image, &media_type, bytes.clone()).await.unwrap();
        let pulled = client.pull_manifest(&image).await.unwrap();
        assert_eq!((pulled.bytes, pulled.digest), (bytes.clone(), digest.clone()));
        assert_eq!(pulled.media_type, media_type);
        let head = client.head_manifest(&image.at_digest(digest.clone())).await.unwrap();
        assert_eq!((head.digest, head.size), (digest, Some(bytes.len() as u64)));
    }
    let tags = client.tags(&one).await.unwrap();
    let mut tags: Vec<&str> = tags.iter().map(Tag::as_str).collect();
    tags.sort_unstable();
    assert_eq!(tags, ["v1", "v2"]);
    let digest = client.head_manifest(&image).await.unwrap().digest;
    client.delete_manifest(&image.at_digest(digest)).await.unwrap();
    let error = client.head_manifest(&image).await.unwrap_err();
    assert!(matches!(error, RegistryError::NotFound { .. }), "{error}");
    client.delete_blob(&two, &layer).await.unwrap();
}

#[tokio::test]
async fn kms_45_the_client_works_with_the_registry_of_debian_without_tls() {
    let Some(program) = program("docker-registry") else { return };
    let registry = ForeignRegistry::start(&program, None);
    let mut settings = settings();
    let error = client(settings.clone()).ping(&registry.repository("a")).await.unwrap_err();
    assert!(matches!(error, RegistryError::Unreachable { .. }), "not without TLS: {error}");
    settings.default_registry.fallback = Fallback::PlainHttp;
    exercise(&client(settings), &registry).await;
}

#[tokio::test]
async fn kms_44_the_client_works_with_the_registry_of_debian_with_tls_and_passwords() {
    let Some(program) = program("docker-registry") else { return };
    let authority = Authority::new("registry").unwrap();
    let registry = ForeignRegistry::start(&program, Some(&authority));
    let credentials = |password: &str| {
        let entry = json!({"username": "ann", "password": password});
        let file = json!({"auths": {(registry.0.address.as_str()): entry}});
        CredentialFile::parse(file.to_string().as_bytes()).unwrap()
    };
    let mut settings = settings();
    settings.credentials = vec![credentials("right")];
    let here = registry.repository("a");
    let error = client(settings.clone()).ping(&here).await.unwrap_err();
    assert!(matches!(error, RegistryError::Unreachable { .. }), "an unknown authority: {error}");
    let bundle = Bytes::from(authority.own.certificate.clone());
    settings.default_registry.verification = TlsVerification::Bundle(bundle);
    exercise(&client(settings.clone()), &registry).await;
    settings.credentials = vec![credentials("wrong"), credentials("right")];
    client(settings.clone()).ping(&here).await.unwrap();
    for credentials in [vec![credentials("wrong")], vec![]] {
        settings.credentials = credentials;
        let error = client(settings.clone()).ping(&here).await.unwrap_err();
        assert!(matches!(error, RegistryError::Unauthorized { .. }), "{error}");
    }
}
