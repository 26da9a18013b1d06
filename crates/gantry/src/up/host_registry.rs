//! The embedded registry, for subsystems that ask which images it has.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use gantry_apiserver::Api;
use gantry_controller::external::BoxFuture;
use gantry_kernel_modules::effects::HostRegistry;
use gantry_reconcile::ApiPath;
use gantry_registry::CredentialFile;
use http::{Method, StatusCode};
use serde_json::json;

use super::InProcessClient;

/// How long a token for the registry is valid.
const TOKEN_SECONDS: u32 = 600;

/// The registry beside the embedded API server. Each namespace is asked for with a token of its own
/// default service account, so that it sees its own repositories only.
#[derive(Clone, Debug)]
pub(super) struct EmbeddedRegistry {
    server: InProcessClient,
    addresses: Vec<String>,
    roots: Bytes,
}

impl EmbeddedRegistry {
    /// The registry at a port of this machine, verified with these certificates.
    pub(super) fn new(api: &Api, port: u16, roots: &str) -> Self {
        let hosts = ["127.0.0.1", "localhost"];
        Self {
            server: InProcessClient::as_server(api),
            addresses: hosts.iter().map(|host| format!("{host}:{port}")).collect(),
            roots: Bytes::copy_from_slice(roots.as_bytes()),
        }
    }

    async fn token(&self, namespace: &str) -> anyhow::Result<String> {
        let path = ApiPath::object("v1", namespace, "serviceaccounts", "default")?;
        let path = path.subresource("token");
        let body = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"expirationSeconds": TOKEN_SECONDS},
        });
        let sent = self.server.request(Method::POST, &path, "application/json", Some(&body));
        let (status, reply) = sent.await?;
        anyhow::ensure!(
            status == StatusCode::CREATED,
            "the server issues no token for namespace {namespace}: {}",
            reply["message"].as_str().unwrap_or_default()
        );
        Ok(reply["status"]["token"].as_str().unwrap_or_default().to_owned())
    }
}

impl HostRegistry for EmbeddedRegistry {
    fn addresses(&self) -> Vec<String> {
        self.addresses.clone()
    }

    fn roots(&self) -> Bytes {
        self.roots.clone()
    }

    fn credentials<'a>(
        &'a self,
        namespace: &'a str,
    ) -> BoxFuture<'a, Result<CredentialFile, String>> {
        Box::pin(async move {
            let token = self.token(namespace).await.map_err(|error| format!("{error:#}"))?;
            let auth = STANDARD.encode(format!("gantry:{token}"));
            let entries = self.addresses.iter().map(|it| (it.clone(), json!({"auth": auth})));
            let file = json!({"auths": serde_json::Map::from_iter(entries)});
            CredentialFile::parse(file.to_string().as_bytes()).map_err(|error| error.to_string())
        })
    }
}
