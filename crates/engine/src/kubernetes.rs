//! A client of the API server for programs in pods: the few requests they need.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use gantry_http_client::{Bounds, Client, Roots, Settings};
use gantry_process::clock::Clock;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{Method, Request, Response, StatusCode};
use serde_json::Value;

/// A future that may be sent to another thread.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Where the account of a pod is mounted.
const ACCOUNT_DIRECTORY: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// How much a request may take.
const BOUNDS: Bounds = Bounds { time: Duration::from_secs(10), bytes: 4 << 20 };

/// Sends requests to the API server as the service account of a pod.
pub trait KubernetesApi: Send + Sync {
    /// Sends a request whose URI is a path, and returns the whole response.
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Bytes>, String>>;
}

/// Why the API server did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// There is no such object.
    #[error("{0} does not exist")]
    NotFound(String),
    /// It was changed, or created, by somebody else.
    #[error("{0} was changed by somebody else")]
    Conflict(String),
    /// It could not be asked, or it refused.
    #[error("could not {what}: {why}")]
    Failed {
        /// What was attempted.
        what: String,
        /// The answer, or why there is none.
        why: String,
    },
}

/// Sends a request with a JSON body, and returns the object in the response.
///
/// # Errors
/// The API server refuses, or does not answer.
pub async fn request(
    api: &dyn KubernetesApi,
    method: Method,
    path: &str,
    content_type: &str,
    body: Option<&Value>,
) -> Result<Value, ApiError> {
    let failed = |why: String| ApiError::Failed { what: format!("{method} {path}"), why };
    let content = body.map(Value::to_string).unwrap_or_default();
    let request = Request::builder().method(method.clone()).uri(path);
    let request = request.header(CONTENT_TYPE, content_type).body(Bytes::from(content));
    let request = request.map_err(|error| failed(error.to_string()))?;
    let answer = api.send(request).await.map_err(&failed)?;
    let object = serde_json::from_slice::<Value>(answer.body());
    match answer.status() {
        status if status.is_success() => object.map_err(|error| failed(error.to_string())),
        StatusCode::NOT_FOUND => Err(ApiError::NotFound(path.to_owned())),
        StatusCode::CONFLICT => Err(ApiError::Conflict(path.to_owned())),
        status => {
            let object = object.unwrap_or_default();
            let message = object["message"].as_str().unwrap_or("no reason was given");
            Err(failed(format!("{status}: {message}")))
        }
    }
}

/// The API server of the cluster that a container runs in.
#[derive(Debug)]
pub struct InCluster {
    client: Client,
    origin: String,
}

impl InCluster {
    /// Reads where the server is from the variables and files of a pod.
    ///
    /// # Errors
    /// This is not a container with a service account.
    pub fn new(clock: Clock, environment: &BTreeMap<String, String>) -> io::Result<Self> {
        let variable = |name: &str| {
            let found = environment.get(name).filter(|it| !it.is_empty());
            found.ok_or_else(|| {
                let message = format!(
                    "{name} is not set: the API server can only be found inside a pod with a \
                     service account"
                );
                io::Error::new(io::ErrorKind::NotFound, message)
            })
        };
        let (host, port) =
            (variable("KUBERNETES_SERVICE_HOST")?, variable("KUBERNETES_SERVICE_PORT")?);
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let roots = std::fs::read(Path::new(ACCOUNT_DIRECTORY).join("ca.crt"))?;
        let mut settings = Settings::new("gantry");
        settings.roots = Roots::Bundle(roots.into());
        settings.addresses = gantry_http_client::AddressPolicy::AllowLoopback;
        let client = Client::new(clock, settings).map_err(io::Error::other)?;
        Ok(Self { client, origin: format!("https://{host}:{port}") })
    }

    async fn exchange(&self, request: Request<Bytes>) -> Result<Response<Bytes>, String> {
        // Read each time: kubelets replace it before it expires.
        let token = tokio::fs::read_to_string(Path::new(ACCOUNT_DIRECTORY).join("token")).await;
        let token = token.map_err(|error| format!("could not read the pod's token: {error}"))?;
        let (mut parts, body) = request.into_parts();
        let uri = format!("{}{}", self.origin, parts.uri);
        parts.uri = uri.parse().map_err(|error| format!("{uri} is no URL: {error}"))?;
        let token = format!("Bearer {}", token.trim()).parse();
        parts.headers.insert(AUTHORIZATION, token.map_err(|_| "the pod's token is no header")?);
        let answer = self.client.fetch(Request::from_parts(parts, body.into()), BOUNDS).await;
        answer.map_err(|error| gantry_process::error_chain(&error))
    }
}

impl KubernetesApi for InCluster {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Bytes>, String>> {
        Box::pin(self.exchange(request))
    }
}
