//! The client against the embedded registry, over sockets of this machine.

#![expect(clippy::unwrap_used, reason = "all of this is tests")]

mod access;
mod embedded;
mod faults;
mod full_disk;
mod images;
mod killed;
mod registry_process;

use std::time::Duration;

use bytes::Bytes;
use gantry_http_client::AddressPolicy;
use gantry_oci::{Digest, MediaType, Reference, Repository};
use gantry_process::clock::Clock;
use gantry_process::tasks::Backoff;
use gantry_registry::{
    BlobPush, Client, ClientSettings, CredentialFile, Fallback, PushOutcome, RegistryError,
    RegistrySettings, TlsVerification,
};
use serde_json::json;

use embedded::Embedded;

/// Settings for a registry of this machine.
fn settings(server: &Embedded) -> ClientSettings {
    let mut settings = ClientSettings::new("test");
    settings.addresses = AddressPolicy::AllowLoopback;
    settings.backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(2));
    settings.default_registry.fallback = Fallback::PlainHttp;
    settings.credentials = vec![credentials(&server.address.to_string(), "right")];
    settings
}

fn credentials(key: &str, password: &str) -> CredentialFile {
    let file = json!({"auths": {key: {"username": "ann", "password": password}}});
    CredentialFile::parse(file.to_string().as_bytes()).unwrap()
}

fn client(settings: ClientSettings) -> Client {
    Client::new(Clock::system(), fastrand::Rng::with_seed(3), settings)
}

fn plain_client(server: &Embedded) -> Client {
    client(settings(server))
}

fn repository(server: &Embedded, path: &str) -> Repository {
    format!("{}/{path}", server.address).parse().unwrap()
}

fn reference(server: &Embedded, text: &str) -> Reference {
    format!("{}/{text}", server.address).parse().unwrap()
}

async fn push(
    client: &Client,
    repository: &Repository,
    content: &Bytes,
) -> Result<PushOutcome, RegistryError> {
    let digest = Digest::sha256(content);
    let size = content.len() as u64;
    let push = BlobPush { repository, digest: &digest, size, source: content, mount_from: &[] };
    client.push_blob(push).await
}

async fn pull(
    client: &Client,
    repository: &Repository,
    content: &[u8],
) -> Result<Bytes, RegistryError> {
    let (digest, size) = (Digest::sha256(content), content.len() as u64);
    client.pull_small_blob(repository, &digest, size, 1 << 30).await
}

/// Pushes an image with one layer; returns its digest and bytes.
async fn push_image(client: &Client, reference: &Reference, layer: &str) -> (Digest, Bytes) {
    let (config, layer) = (Bytes::from_static(b"{}"), Bytes::from(layer.to_owned()));
    push(client, reference.repository(), &config).await.unwrap();
    push(client, reference.repository(), &layer).await.unwrap();
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MediaType::OciManifest.as_str(),
        "config": {"mediaType": MediaType::OciConfig.as_str(),
            "digest": Digest::sha256(&config).as_str(), "size": config.len()},
        "layers": [{"mediaType": MediaType::OciLayer.as_str(),
            "digest": Digest::sha256(&layer).as_str(), "size": layer.len()}],
    });
    // Not as a serializer would write it, to see that bytes are kept.
    let bytes = Bytes::from(format!(" {manifest}\n"));
    let pushed = client.push_manifest(reference, &MediaType::OciManifest, bytes.clone()).await;
    (pushed.unwrap(), bytes)
}

/// Bytes that differ everywhere.
fn content(length: usize) -> Bytes {
    let mut random = fastrand::Rng::with_seed(length as u64);
    std::iter::repeat_with(|| random.u8(..)).take(length).collect()
}

fn tls_settings(server: &Embedded, verification: TlsVerification) -> ClientSettings {
    let mut settings = settings(server);
    settings.default_registry = RegistrySettings { verification, ..RegistrySettings::default() };
    settings
}
