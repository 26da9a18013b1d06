//! Access to the API server as the service accounts of pods.
//!
//! Every request has a token that is bound to the pod: the server accepts it while the pod and its
//! account exist, and RBAC decides what it may do.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::programs::{Accounts, ApiBody, BoxFuture, PodApi, PodIdentity, Token};
use bytes::Bytes;
use gantry_controller::read::{self, ReadBounds};
use gantry_process::clock::Clock;
use gantry_reconcile::ApiPath;
use http::header::{AUTHORIZATION, HeaderValue, USER_AGENT};
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

/// The limits of a token request.
const TOKEN_REQUEST_BOUNDS: ReadBounds =
    ReadBounds { time: Duration::from_secs(9), bytes: 64 << 10 };
/// How long tokens of requests are valid, in seconds.
const TOKEN_SECONDS: i64 = 3600;
/// How long before its expiry a token is no longer used.
const TOKEN_EXPIRY_MARGIN: SignedDuration = SignedDuration::from_mins(10);

/// Sends a request with a token to the API server.
pub type Transport = Arc<
    dyn Fn(Request<Bytes>) -> BoxFuture<'static, Result<Response<ApiBody>, String>> + Send + Sync,
>;

/// Creates a transport to a server over the network. The client must have no credentials of its
/// own.
#[must_use]
pub fn over_network(client: kube::Client) -> Transport {
    Arc::new(move |request| {
        let client = client.clone();
        Box::pin(async move {
            let request = request.map(|body| kube::client::Body::from(body.to_vec()));
            let answer = client.send(request).await.map_err(|error| error.to_string())?;
            Ok(answer.map(|body| body.map_err(Into::into).boxed_unsync()))
        })
    })
}

/// Sends requests to one API server as the service accounts of pods.
#[derive(Clone)]
pub struct PodAccounts {
    /// Requests tokens, as the user of the simulated nodes.
    client: kube::Client,
    clock: Clock,
    transport: Transport,
}

impl std::fmt::Debug for PodAccounts {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("PodAccounts")
    }
}

impl PodAccounts {
    /// Creates accounts that request tokens with `client`, and send requests with them by
    /// `transport`.
    #[must_use]
    pub fn new(client: kube::Client, clock: Clock, transport: Transport) -> Self {
        Self { client, clock, transport }
    }

    async fn request_token(
        self,
        pod: PodIdentity,
        audience: String,
        seconds: i64,
    ) -> Result<Token, String> {
        let (namespace, account) = (pod.pod.namespace(), &pod.account);
        let path = ApiPath::object("v1", namespace, "serviceaccounts", account);
        let path = path.and_then(|it| it.item("token")).map_err(|error| error.to_string())?;
        let audiences = if audience.is_empty() { vec![] } else { vec![audience] };
        let bound = json!({
            "apiVersion": "v1", "kind": "Pod", "name": pod.pod.name(), "uid": pod.uid.as_str(),
        });
        let body = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {
                "audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": bound,
            },
        });
        let body = ("application/json", Some(&body));
        let answer =
            read::send(&self.client, &self.clock, Method::POST, &path, body, TOKEN_REQUEST_BOUNDS)
                .await;
        let answer = answer.map_err(|error| error.to_string())?;
        let status = &answer["status"];
        let text = status["token"].as_str().ok_or("the response has no token")?.to_owned();
        let expires = status["expirationTimestamp"].as_str().and_then(|it| it.parse().ok());
        Ok(Token { text, expires: expires.ok_or("the response has no expiration time")? })
    }
}

impl Accounts for PodAccounts {
    fn api(&self, pod: &PodIdentity) -> Box<dyn PodApi> {
        let (accounts, pod) = (self.clone(), pod.clone());
        Box::new(PodAccountApi { accounts, pod, token: Arc::default() })
    }

    fn token(
        &self,
        pod: &PodIdentity,
        audience: &str,
        expiration_seconds: i64,
    ) -> BoxFuture<'static, Result<Token, String>> {
        let asked =
            self.clone().request_token(pod.clone(), audience.to_owned(), expiration_seconds);
        Box::pin(asked)
    }
}

/// Access to the API server as the service account of one pod.
struct PodAccountApi {
    accounts: PodAccounts,
    pod: PodIdentity,
    token: Arc<Mutex<Option<Token>>>,
}

/// Returns the token if it is valid for a while yet.
fn unexpired_token(token: &Mutex<Option<Token>>, now: Timestamp) -> Option<Token> {
    // No foreign code runs under the lock, so a poisoned one is still consistent.
    let token = token.lock().unwrap_or_else(PoisonError::into_inner).clone();
    token.filter(|it| it.expires.duration_since(now) > TOKEN_EXPIRY_MARGIN)
}

impl PodApi for PodAccountApi {
    fn send(
        &self,
        mut request: Request<Bytes>,
    ) -> BoxFuture<'static, Result<Response<ApiBody>, String>> {
        let (accounts, token) = (self.accounts.clone(), self.token());
        Box::pin(async move {
            let bearer = format!("Bearer {}", token.await?.text);
            let mut bearer = HeaderValue::from_str(&bearer).map_err(|error| error.to_string())?;
            bearer.set_sensitive(true);
            request.headers_mut().insert(AUTHORIZATION, bearer);
            let agent = HeaderValue::from_static("gantry-program");
            request.headers_mut().entry(USER_AGENT).or_insert(agent);
            (accounts.transport)(request).await
        })
    }

    fn token(&self) -> BoxFuture<'static, Result<Token, String>> {
        let (accounts, pod) = (self.accounts.clone(), self.pod.clone());
        let kept = Arc::clone(&self.token);
        Box::pin(async move {
            if let Some(token) = unexpired_token(&kept, accounts.clock.now()) {
                return Ok(token);
            }
            let token = accounts.token(&pod, "", TOKEN_SECONDS).await?;
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            *kept = Some(token.clone());
            Ok(token)
        })
    }
}
