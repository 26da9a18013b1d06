//! The registry of a cluster: users of the cluster push and pull images, as their roles allow.

use bytes::Bytes;
use gantry_oci::{Digest, MediaType, Reference};
use gantry_registry::{
    BlobPush, Client as RegistryClient, ClientSettings, CredentialFile, RegistryError,
    TlsVerification,
};

use super::*;

/// A client of the cluster's registry with a token as password.
pub(super) fn registry(cluster: &Cluster, token: Option<&str>) -> RegistryClient {
    let mut settings = ClientSettings::new("test");
    settings.addresses = gantry_http_client::AddressPolicy::AllowLoopback;
    let authority = cluster.process.target().authority.clone();
    settings.default_registry.verification = TlsVerification::Bundle(authority.into());
    if let Some(token) = token {
        let entry = json!({"username": "any", "password": token});
        let file = json!({"auths": {host(cluster): entry}});
        settings.credentials.push(CredentialFile::parse(file.to_string().as_bytes()).unwrap());
    }
    RegistryClient::new(cluster.clock.clone(), fastrand::Rng::with_seed(1), settings)
}

pub(super) fn host(cluster: &Cluster) -> String {
    cluster.process.target().base.trim_start_matches("https://").to_owned()
}

/// Pushes an image with a small configuration and no layers.
async fn push(client: &RegistryClient, image: &Reference) -> Result<Digest, RegistryError> {
    let config = Bytes::from_static(b"{\"architecture\":\"amd64\",\"os\":\"linux\"}");
    let digest = Digest::sha256(&config);
    let size = config.len() as u64;
    let repository = image.repository();
    let blob = BlobPush { repository, digest: &digest, size, source: &config, mount_from: &[] };
    client.push_blob(blob).await?;
    let manifest = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": digest.to_string(), "size": size,
        },
        "layers": [],
    });
    client.push_manifest(image, &MediaType::OciManifest, manifest.to_string().into()).await
}

/// A service account of a namespace, and a token of it.
async fn token(cluster: &Cluster, namespace: &str) -> String {
    let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    cluster.post("/api/v1/namespaces", &json!({"metadata": {"name": namespace}})).await;
    cluster.post(&accounts, &json!({"metadata": {"name": "builder"}})).await;
    let asked = cluster.post(&format!("{accounts}/builder/token"), &json!({"spec": {}})).await;
    asked["status"]["token"].as_str().unwrap().to_owned()
}

async fn bind(cluster: &Cluster, namespace: &str, role: &str) {
    let path = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings");
    let binding = json!({
        "metadata": {"name": role},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": "builder", "namespace": "team-a"}],
    });
    cluster.post(&path, &binding).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reg_13_users_push_and_pull_images_as_their_roles_allow() {
    let folder = tempfile::tempdir().unwrap();
    let plan = || Plan::new(env!("CARGO_BIN_EXE_gantry")).data(folder.path());
    let cluster = Cluster::start(plan()).await;
    let image = |cluster: &Cluster, name: &str| -> Reference {
        format!("{}/{name}", host(cluster)).parse().unwrap()
    };
    let driver = image(&cluster, "team-a/driver:v1");
    let anonymous = push(&registry(&cluster, None), &driver).await.unwrap_err();
    assert!(matches!(anonymous, RegistryError::Unauthorized { .. }), "{anonymous}");
    let wrong = push(&registry(&cluster, Some("wrong")), &driver).await.unwrap_err();
    assert!(matches!(wrong, RegistryError::Unauthorized { .. }), "{wrong}");

    let token = token(&cluster, "team-a").await;
    let builder = registry(&cluster, Some(&token));
    let refused = push(&builder, &driver).await.unwrap_err();
    assert!(matches!(refused, RegistryError::Denied { .. }), "no role yet: {refused}");
    bind(&cluster, "team-a", "view").await;
    let refused = push(&builder, &driver).await.unwrap_err();
    assert!(matches!(refused, RegistryError::Denied { .. }), "viewers do not push: {refused}");
    bind(&cluster, "team-a", "edit").await;
    let digest = push(&builder, &driver).await.unwrap();
    let pulled = builder.pull_manifest(&driver).await.unwrap();
    assert_eq!(pulled.digest, digest);
    for other in ["team-b/driver:v1", "driver:v1"] {
        let refused = push(&builder, &image(&cluster, other)).await.unwrap_err();
        assert!(matches!(refused, RegistryError::Denied { .. }), "{other}: {refused}");
    }

    // The command of administrators.
    let kubeconfig = cluster.process.kubeconfig().to_str().unwrap().to_owned();
    let command = |words: &[&str]| {
        gantry(&[&["registry", "--kubeconfig", kubeconfig.as_str()], words].concat())
    };
    push(&builder, &image(&cluster, "team-a/driver:v2")).await.unwrap();
    assert_eq!(command(&["ls"]).out, "team-a/driver\n");
    assert_eq!(command(&["ls", "team-a/driver"]).out, "v1\nv2\n");
    let removed = command(&["rm", "team-a/driver:v2"]);
    assert_eq!((removed.code, removed.out.as_str()), (0, "team-a/driver:v2 removed\n"));
    assert_eq!(command(&["ls", "team-a/driver"]).out, "v1\n");
    let missing = command(&["rm", "team-a/driver:v3"]);
    assert_eq!(missing.code, 1);
    assert!(missing.err.contains("the registry refused"), "{}", missing.err);
    let collected = command(&["gc"]);
    assert_eq!(collected.code, 0, "{}", collected.err);
    assert!(collected.out.contains("contents removed"), "{}", collected.out);

    // What was acknowledged is there after a crash.
    cluster.stop(Signal::KILL).await;
    let cluster = Cluster::start(plan()).await;
    let builder = registry(&cluster, Some(&token));
    let driver = image(&cluster, "team-a/driver:v1");
    assert_eq!(builder.pull_manifest(&driver).await.unwrap().digest, digest);
    cluster.stop(Signal::TERM).await;
}
