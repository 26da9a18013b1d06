//! A simulated OCM, the service that manages clusters: tokens, clusters, pools, pagination, errors.
//!
//! It serves the real paths and errors of OCM, as far as scaling needs them, over plain HTTP on
//! loopback. Tests can inject faults into its requests about pools, one after the other.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::http::header::{AUTHORIZATION, RETRY_AFTER};
use ::http::{HeaderValue, Method, Request, Response, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// The ID that the only cluster reports: `spec.clusterID` of its ClusterVersion.
pub const EXTERNAL_CLUSTER_ID: &str = "1b2c-3d";
/// The ID of the cluster in the service.
pub const CLUSTER: &str = "2a8f0cluster";
/// The only valid offline token.
pub const OFFLINE_TOKEN: &str = "offline-token/with+odd=characters";
/// The form in which it must be sent.
const TOKEN_REQUEST_FORM: &str = "grant_type=refresh_token&client_id=cloud-services&refresh_token=\
                    offline-token%2Fwith%2Bodd%3Dcharacters";

/// The fault of one request about pools.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// Nothing.
    Nothing,
    /// The request is rejected, optionally with a time after which to retry.
    Status(u16, Option<u64>),
    /// The request is carried out, and the answer never arrives.
    Lost,
    /// The connection is closed before the request is carried out.
    Closed,
    /// The request is never answered.
    Silent,
}

#[derive(Default)]
struct State {
    hosted: bool,
    pools: BTreeMap<String, Value>,
    requests: Vec<String>,
    tokens: usize,
    /// The only valid access token.
    current: usize,
    offline_refused: bool,
    faults: VecDeque<Fault>,
}

/// A service that runs until it is dropped.
pub struct OcmServer {
    state: Arc<Mutex<State>>,
    silent: Arc<Notify>,
    address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl fmt::Debug for OcmServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("address", &self.address).finish_non_exhaustive()
    }
}

impl OcmServer {
    /// Starts a service with one cluster, whose control plane is hosted or not: that decides which
    /// pools it has.
    ///
    /// # Errors
    /// There is no free port.
    pub async fn start(hosted: bool) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let state = Arc::new(Mutex::new(State { hosted, ..State::default() }));
        let silent = Arc::new(Notify::new());
        let mut tasks = JoinSet::new();
        let (shared, quiet) = (Arc::clone(&state), Arc::clone(&silent));
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                // A client that has disconnected is no reason to stop.
                let Ok((stream, _)) = listener.accept().await else { continue };
                let (state, silent) = (Arc::clone(&shared), Arc::clone(&quiet));
                connections.spawn(async move {
                    let serve = service_fn(move |request| {
                        handle(Arc::clone(&state), Arc::clone(&silent), request)
                    });
                    // The caller observes the same end of the connection as we do.
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), serve)
                        .await;
                });
            }
        });
        Ok(Self { state, silent, address, _tasks: tasks })
    }

    /// The URL of the service.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The URL that issues tokens.
    #[must_use]
    pub fn token_url(&self) -> String {
        format!("{}/token", self.url())
    }

    /// Injects faults into the next requests about pools, one after the other.
    pub fn inject_faults(&self, faults: impl IntoIterator<Item = Fault>) {
        self.state().faults.extend(faults);
    }

    /// Creates a pool, in the format of the service.
    pub fn put_pool(&self, id: &str, mut pool: Value) {
        pool["id"] = json!(id);
        self.state().pools.insert(id.to_owned(), pool);
    }

    /// A pool.
    #[must_use]
    pub fn pool(&self, id: &str) -> Option<Value> {
        self.state().pools.get(id).cloned()
    }

    /// All pools.
    #[must_use]
    pub fn pools(&self) -> Vec<Value> {
        self.state().pools.values().cloned().collect()
    }

    /// Returns every request, method and path, oldest first.
    #[must_use]
    pub fn requests(&self) -> Vec<String> {
        self.state().requests.clone()
    }

    /// Returns how many tokens were issued.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.state().tokens
    }

    /// Returns how many injected faults have not been used yet.
    #[must_use]
    pub fn pending_faults(&self) -> usize {
        self.state().faults.len()
    }

    /// Invalidates all issued access tokens.
    pub fn revoke(&self) {
        self.state().current = 0;
    }

    /// Invalidates the offline token.
    pub fn refuse_offline(&self) {
        self.state().offline_refused = true;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Returns when a request is left unanswered.
    pub async fn unanswered_request(&self) {
        self.silent.notified().await;
    }
}

/// The state is consistent after every call on it, so a poisoned lock can still be used.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

type Reply = Response<Full<Bytes>>;

async fn handle(
    state: Arc<Mutex<State>>,
    silent: Arc<Notify>,
    request: Request<Incoming>,
) -> Result<Reply, Box<dyn std::error::Error + Send + Sync>> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let path = parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    let about_pools = path.contains("_pools");
    let (reply, fault) = {
        let mut state = lock(&state);
        state.requests.push(format!("{} {path}", parts.method));
        if path == "/token" {
            (token(&mut state, &body), Fault::Nothing)
        } else if !is_authorized(&state, parts.headers.get(AUTHORIZATION)) {
            (error(401, "CLUSTERS-MGMT-401", "Token is invalid"), Fault::Nothing)
        } else {
            let fault = if about_pools { state.faults.pop_front() } else { None };
            let fault = fault.unwrap_or(Fault::Nothing);
            let done = matches!(fault, Fault::Nothing | Fault::Lost);
            let reply = match done {
                true => api(&mut state, &parts.method, &path, &body),
                false => error(500, "", ""),
            };
            (reply, fault)
        }
    };
    match fault {
        Fault::Nothing => Ok(reply),
        Fault::Status(code, wait) => {
            let mut reply = error(code, &format!("CLUSTERS-MGMT-{code}"), "the test says so");
            if let Some(wait) = wait {
                reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from(wait));
            }
            Ok(reply)
        }
        Fault::Lost | Fault::Closed => Err("closed".into()),
        Fault::Silent => {
            silent.notify_one();
            let never: Infallible = std::future::pending().await;
            match never {}
        }
    }
}

fn is_authorized(state: &State, bearer: Option<&HeaderValue>) -> bool {
    state.current > 0 && bearer.is_some_and(|it| *it == format!("Bearer access-{}", state.current))
}

fn token(state: &mut State, body: &[u8]) -> Reply {
    if body != TOKEN_REQUEST_FORM.as_bytes() {
        let words = "this is not how an offline token is exchanged";
        return reply(400, &json!({"error": "invalid_request", "error_description": words}));
    }
    if state.offline_refused {
        let body = json!({"error": "invalid_grant", "error_description": "Invalid refresh token"});
        return reply(400, &body);
    }
    state.tokens += 1;
    state.current = state.tokens;
    let access = format!("access-{}", state.current);
    reply(200, &json!({"access_token": access, "expires_in": 900, "token_type": "Bearer"}))
}

fn api(state: &mut State, method: &Method, path: &str, body: &[u8]) -> Reply {
    const ROOT: &str = "/api/clusters_mgmt/v1/clusters";
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let option = |name: &str| {
        let mut pairs = query.split('&').filter_map(|it| it.split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
    };
    if path == ROOT {
        let known = option("search").is_some_and(|it| it.contains(EXTERNAL_CLUSTER_ID));
        let cluster =
            json!({"kind": "Cluster", "id": CLUSTER, "hypershift": {"enabled": state.hosted}});
        let items = if known { vec![cluster] } else { vec![] };
        return reply(
            200,
            &json!({
                "kind": "ClusterList",
                "page": 1,
                "size": items.len(),
                "total": items.len(),
                "items": items,
            }),
        );
    }
    let (plural, kind) =
        if state.hosted { ("node_pools", "NodePool") } else { ("machine_pools", "MachinePool") };
    let pools = format!("{ROOT}/{CLUSTER}/{plural}");
    let Some(rest) = path.strip_prefix(&pools) else {
        return error(404, "CLUSTERS-MGMT-404", "no such resource");
    };
    let id = rest.trim_start_matches('/').to_owned();
    let missing = || error(404, "CLUSTERS-MGMT-404", &format!("{kind} with ID '{id}' not found"));
    let read: Value = serde_json::from_slice(body).unwrap_or_default();
    match (method, id.is_empty()) {
        (&Method::GET, true) => {
            let number = |name: &str| option(name).and_then(|it| it.parse::<usize>().ok());
            let (page, size) = (number("page").unwrap_or(1), number("size").unwrap_or(100));
            let items = state.pools.values().skip((page - 1) * size).take(size);
            let items: Vec<&Value> = items.collect();
            reply(
                200,
                &json!({
                    "kind": format!("{kind}List"), "page": page, "size": items.len(),
                    "total": state.pools.len(), "items": items,
                }),
            )
        }
        (&Method::POST, true) => {
            let id = read["id"].as_str().unwrap_or_default().to_owned();
            if id.is_empty() || read["kind"] != kind || read["replicas"].as_u64().is_none() {
                return error(400, "CLUSTERS-MGMT-400", &format!("this is no {kind}: {read}"));
            }
            if state.pools.contains_key(&id) {
                // Releases of OCM differ in the status code.
                let code = if state.hosted { 409 } else { 400 };
                let words = format!("{kind} with ID '{id}' already exists");
                return error(code, &format!("CLUSTERS-MGMT-{code}"), &words);
            }
            state.pools.insert(id, read.clone());
            reply(201, &read)
        }
        (&Method::GET, false) => state.pools.get(&id).map_or_else(missing, |it| reply(200, it)),
        (&Method::PATCH, false) => match state.pools.get_mut(&id) {
            None => missing(),
            Some(pool) => {
                pool["replicas"] = read["replicas"].clone();
                reply(200, pool)
            }
        },
        (&Method::DELETE, false) => match state.pools.remove(&id) {
            None => missing(),
            Some(_) => {
                let mut reply = Response::new(Full::default());
                *reply.status_mut() = StatusCode::NO_CONTENT;
                reply
            }
        },
        _ => error(405, "CLUSTERS-MGMT-405", "method not allowed"),
    }
}

fn error(status: u16, code: &str, reason: &str) -> Reply {
    let body = json!({
        "kind": "Error", "id": status.to_string(), "code": code, "reason": reason,
        "href": format!("/api/clusters_mgmt/v1/errors/{status}"), "operation_id": "op-1",
    });
    reply(status, &body)
}

fn reply(status: u16, body: &Value) -> Reply {
    let mut reply = Response::new(Full::new(Bytes::from(body.to_string())));
    *reply.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    reply
}
