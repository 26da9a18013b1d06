//! The API server in the names of pods' service accounts.
//!
//! Every request carries a token that is bound to the pod: the server believes it while the pod and its
//! account are there, and RBAC decides what it may do.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::programs::{Accounts, ApiBody, Later, PodApi, PodIdentity, Token};
use bytes::Bytes;
use gantry_controller::read::{self, Bounds};
use gantry_process::clock::Clock;
use gantry_reconcile::ApiPath;
use http::header::{AUTHORIZATION, HeaderValue, USER_AGENT};
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

/// What asking for a token may take.
const BOUNDS: Bounds = Bounds { time: Duration::from_secs(9), bytes: 64 << 10 };
/// For how long tokens of requests are good, in seconds.
const TOKEN_SECONDS: i64 = 3600;
/// How long before its end a token is not used any more.
const TOKEN_MARGIN: SignedDuration = SignedDuration::from_mins(10);

/// Hands a request with a token over to the API server.
pub type Transport =
    Arc<dyn Fn(Request<Bytes>) -> Later<'static, Result<Response<ApiBody>, String>> + Send + Sync>;

/// A way to a server over the network. The client must have no credentials of its own.
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

/// Speaks to one API server in the names of pods' accounts.
#[derive(Clone)]
pub struct PodAccounts {
    /// Asks for tokens, in the name of the simulated nodes.
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
    /// Asks for tokens with `client`, and sends requests that carry them by `transport`.
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
        let answer = read::send(&self.client, &self.clock, Method::POST, &path, body, BOUNDS).await;
        let answer = answer.map_err(|error| error.to_string())?;
        let status = &answer["status"];
        let text = status["token"].as_str().ok_or("the answer has no token")?.to_owned();
        let expires = status["expirationTimestamp"].as_str().and_then(|it| it.parse().ok());
        Ok(Token { text, expires: expires.ok_or("the answer has no time of its end")? })
    }
}

impl Accounts for PodAccounts {
    fn api(&self, pod: &PodIdentity) -> Box<dyn PodApi> {
        let (accounts, pod) = (self.clone(), pod.clone());
        Box::new(OneAccount { accounts, pod, token: Arc::default() })
    }

    fn token(
        &self,
        pod: &PodIdentity,
        audience: &str,
        expiration_seconds: i64,
    ) -> Later<'static, Result<Token, String>> {
        let asked =
            self.clone().request_token(pod.clone(), audience.to_owned(), expiration_seconds);
        Box::pin(asked)
    }
}

/// The API server in the name of one pod's account.
struct OneAccount {
    accounts: PodAccounts,
    pod: PodIdentity,
    token: Arc<Mutex<Option<Token>>>,
}

/// A token that is still good for a while.
fn usable(token: &Mutex<Option<Token>>, now: Timestamp) -> Option<Token> {
    // No code of others runs under the lock, so a poisoned one is still good.
    let token = token.lock().unwrap_or_else(PoisonError::into_inner).clone();
    token.filter(|it| it.expires.duration_since(now) > TOKEN_MARGIN)
}

impl PodApi for OneAccount {
    fn send(
        &self,
        mut request: Request<Bytes>,
    ) -> Later<'static, Result<Response<ApiBody>, String>> {
        let (accounts, pod) = (self.accounts.clone(), self.pod.clone());
        let kept = Arc::clone(&self.token);
        Box::pin(async move {
            let token = match usable(&kept, accounts.clock.now()) {
                Some(token) => token,
                None => {
                    let token = accounts.token(&pod, "", TOKEN_SECONDS).await?;
                    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                    *kept = Some(token.clone());
                    token
                }
            };
            let bearer = format!("Bearer {}", token.text);
            let mut bearer = HeaderValue::from_str(&bearer).map_err(|error| error.to_string())?;
            bearer.set_sensitive(true);
            request.headers_mut().insert(AUTHORIZATION, bearer);
            let agent = HeaderValue::from_static("gantry-program");
            request.headers_mut().entry(USER_AGENT).or_insert(agent);
            (accounts.transport)(request).await
        })
    }
}
