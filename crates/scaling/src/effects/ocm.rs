//! The service that manages clusters: its paths, bodies, pages and tokens.

use std::time::Duration;

use gantry_process::clock::{Clock, Moment};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::call::{CallError, Endpoints, HttpCaller, OcmResponse, RequestBody, encode};
use super::secret::Secret;
use crate::pool::Pool;
use crate::settings::PoolKind;

/// The OAuth client that offline tokens are issued to.
const OAUTH_CLIENT_ID: &str = "cloud-services";

/// The number of items on a page.
const PAGE_SIZE: usize = 100;

/// The maximum number of pages: no cluster has so many pools, and a listing must end.
const MAX_PAGES: usize = 100;

/// A token is not used this shortly before it expires: the request must still arrive.
const TOKEN_EXPIRY_MARGIN: Duration = Duration::from_secs(60);

/// A client of the service. It cannot be cloned: it holds the token for all callers.
#[derive(Debug)]
pub struct OcmClient {
    caller: HttpCaller,
    clock: Clock,
    endpoints: Endpoints,
    offline_token: Secret,
    access_token: Mutex<Option<AccessToken>>,
}

/// A token that is valid for a while.
#[derive(Clone, Debug)]
struct AccessToken {
    token: Secret,
    expires_at: Moment,
}

/// A cluster that the service manages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// The identifier of the cluster at the service.
    pub id: String,
    /// Which kind of pools it has.
    pub kind: PoolKind,
}

impl OcmClient {
    /// Creates a client that has not sent any request yet.
    ///
    /// # Errors
    /// Fails if there is no TLS.
    pub fn new(clock: Clock, endpoints: Endpoints, offline: Secret) -> Result<Self, CallError> {
        let caller = HttpCaller::new(clock.clone())?;
        Ok(Self {
            caller,
            clock,
            endpoints,
            offline_token: offline,
            access_token: Mutex::new(None),
        })
    }

    /// Returns the cluster with this external identifier.
    ///
    /// # Errors
    /// Fails if the service does not know it, or could not be reached.
    pub async fn cluster(&self, external_id: &str) -> Result<Cluster, CallError> {
        let what = "find the cluster";
        let refused = |why: String| CallError::Refused { what: what.to_owned(), code: 404, why };
        let plain = |it: char| it.is_ascii_alphanumeric() || it == '-';
        if external_id.is_empty() || !external_id.chars().all(plain) {
            return Err(refused(format!("{external_id:?} is no identity of a cluster")));
        }
        let search = encode(&format!("external_id = '{external_id}'"));
        let path = format!("/api/clusters_mgmt/v1/clusters?search={search}&size=1");
        let answer = self.request(what, Method::GET, &path, None).await?.into_success(what)?;
        let found = &answer["items"][0];
        let Some(id) = found["id"].as_str() else {
            return Err(refused(format!("the service manages no cluster {external_id:?}")));
        };
        let hosted = found["hypershift"]["enabled"].as_bool().unwrap_or(false);
        let kind = if hosted { PoolKind::Node } else { PoolKind::Machine };
        Ok(Cluster { id: id.to_owned(), kind })
    }

    /// Lists all pools of a cluster.
    ///
    /// # Errors
    /// Fails if the service could not be reached, or refused. A partial list is an error.
    pub async fn pools(&self, cluster: &Cluster) -> Result<Vec<Pool>, CallError> {
        let what = "list pools";
        let mut found: Vec<Pool> = Vec::new();
        for page in 1..=MAX_PAGES {
            let path = format!("{}?page={page}&size={PAGE_SIZE}", pools_path(cluster));
            let answer = self.request(what, Method::GET, &path, None).await?.into_success(what)?;
            let items = answer["items"].as_array().map(Vec::as_slice).unwrap_or_default();
            for item in items {
                let pool = read_pool(item).ok_or_else(|| unreadable(what))?;
                // A pool that was created between two pages may be on both.
                if !found.iter().any(|it| it.name == pool.name) {
                    found.push(pool);
                }
            }
            let total = answer["total"].as_u64().and_then(|it| usize::try_from(it).ok());
            let read = page * PAGE_SIZE;
            if items.is_empty() || total.is_none_or(|total| read >= total) {
                return Ok(found);
            }
        }
        let why = format!("there are more than {MAX_PAGES} pages");
        Err(CallError::Refused { what: what.to_owned(), code: 500, why })
    }

    /// Returns one pool; `None` if it does not exist.
    ///
    /// # Errors
    /// Fails if the service could not be reached, or refused.
    pub async fn pool(&self, cluster: &Cluster, id: &str) -> Result<Option<Pool>, CallError> {
        let what = "read a pool";
        let path = format!("{}/{}", pools_path(cluster), encode(id));
        let answer = self.request(what, Method::GET, &path, None).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        read_pool(&answer.into_success(what)?).map(Some).ok_or_else(|| unreadable(what))
    }

    /// Creates a pool. An existing one that is like it counts as created: the answer to the first
    /// request may have been lost.
    ///
    /// # Errors
    /// Fails if the service could not be reached, or refused.
    pub async fn create(&self, cluster: &Cluster, pool: &Pool) -> Result<Pool, CallError> {
        let what = "create a pool";
        let body = pool_body(cluster.kind, pool);
        let answer = self.request(what, Method::POST, &pools_path(cluster), Some(body)).await?;
        // Releases of the service differ in how they report that the name is taken.
        if matches!(answer.status, StatusCode::CONFLICT | StatusCode::BAD_REQUEST)
            && let Ok(Some(there)) = self.pool(cluster, &pool.name).await
        {
            return match there.labels == pool.labels && there.instance_type == pool.instance_type {
                true => Ok(there),
                false => Err(CallError::Refused {
                    what: what.to_owned(),
                    code: StatusCode::CONFLICT.as_u16(),
                    why: format!("pool {:?} exists and differs from the requested one", pool.name),
                }),
            };
        }
        let made = answer.into_success(what)?;
        Ok(read_pool(&made).unwrap_or_else(|| pool.clone()))
    }

    /// Resizes a pool; `None` if it does not exist.
    ///
    /// # Errors
    /// Fails if the service could not be reached, or refused.
    pub async fn resize(
        &self,
        cluster: &Cluster,
        id: &str,
        replicas: u32,
    ) -> Result<Option<Pool>, CallError> {
        let what = "resize a pool";
        let path = format!("{}/{}", pools_path(cluster), encode(id));
        let body = json!({ "replicas": replicas });
        let answer = self.request(what, Method::PATCH, &path, Some(body)).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        read_pool(&answer.into_success(what)?).map(Some).ok_or_else(|| unreadable(what))
    }

    /// Deletes a pool. Returns whether it existed.
    ///
    /// # Errors
    /// Fails if the service could not be reached, or refused.
    pub async fn delete(&self, cluster: &Cluster, id: &str) -> Result<bool, CallError> {
        let what = "delete a pool";
        let path = format!("{}/{}", pools_path(cluster), encode(id));
        let answer = self.request(what, Method::DELETE, &path, None).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(false);
        }
        answer.into_success(what).map(|_| true)
    }

    /// Sends a request with a token. A rejected token is replaced once: it may have been revoked.
    async fn request(
        &self,
        what: &str,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<OcmResponse, CallError> {
        let url = format!("{}{path}", self.endpoints.api.trim_end_matches('/'));
        let token = self.token().await?;
        let content = |body: Option<Value>| body.map_or(RequestBody::Empty, RequestBody::Json);
        let first = self
            .caller
            .call(what, method.clone(), &url, Some(&token), content(body.clone()))
            .await?;
        if first.status != StatusCode::UNAUTHORIZED {
            return Ok(first);
        }
        self.discard_token(&token).await;
        let token = self.token().await?;
        self.caller.call(what, method, &url, Some(&token), content(body)).await
    }

    async fn discard_token(&self, token: &Secret) {
        let mut access = self.access_token.lock().await;
        if access.as_ref().is_some_and(|it| it.token == *token) {
            *access = None;
        }
    }

    /// Returns a valid token: the cached one, or a new one. Concurrent callers wait for the same
    /// one.
    async fn token(&self) -> Result<Secret, CallError> {
        let mut access = self.access_token.lock().await;
        if let Some(access) =
            access.as_ref().filter(|it| self.clock.moment() + TOKEN_EXPIRY_MARGIN < it.expires_at)
        {
            return Ok(access.token.clone());
        }
        let what = "get a token";
        let form = format!(
            "grant_type=refresh_token&client_id={OAUTH_CLIENT_ID}&refresh_token={}",
            encode(self.offline_token.reveal())
        );
        let asked = self.clock.moment();
        let url = &self.endpoints.tokens;
        let answer =
            self.caller.call(what, Method::POST, url, None, RequestBody::Form(form)).await?;
        let answer = answer.into_success(what)?;
        let token = answer["access_token"].as_str().and_then(Secret::new);
        let token = token.ok_or_else(|| unreadable(what))?;
        let seconds = answer["expires_in"].as_u64().unwrap_or_default();
        let until = asked + Duration::from_secs(seconds);
        *access = Some(AccessToken { token: token.clone(), expires_at: until });
        Ok(token)
    }
}

fn unreadable(what: &str) -> CallError {
    let why = "cannot read the answer: it is not what was asked for".to_owned();
    CallError::Unavailable { what: what.to_owned(), why, retry_after: None }
}

/// Returns the path of the pools of a cluster.
fn pools_path(cluster: &Cluster) -> String {
    let pools = match cluster.kind {
        PoolKind::Machine => "machine_pools",
        PoolKind::Node => "node_pools",
    };
    format!("/api/clusters_mgmt/v1/clusters/{}/{pools}", encode(&cluster.id))
}

fn pool_body(kind: PoolKind, pool: &Pool) -> Value {
    let mut body = json!({"id": pool.name, "replicas": pool.replicas, "labels": pool.labels});
    match kind {
        PoolKind::Machine => {
            body["kind"] = json!("MachinePool");
            body["instance_type"] = json!(pool.instance_type);
        }
        PoolKind::Node => {
            body["kind"] = json!("NodePool");
            body["aws_node_pool"] =
                json!({"kind": "AWSNodePool", "instance_type": pool.instance_type});
        }
    }
    body
}

/// Reads a pool of either kind.
fn read_pool(item: &Value) -> Option<Pool> {
    let name = item["id"].as_str().filter(|it| !it.is_empty())?.to_owned();
    let instance = item["instance_type"].as_str();
    let instance = instance.or_else(|| item["aws_node_pool"]["instance_type"].as_str());
    let labels = item["labels"].as_object().into_iter().flatten();
    let labels = labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
    Some(Pool {
        name,
        instance_type: instance.unwrap_or_default().to_owned(),
        replicas: item["replicas"].as_u64().and_then(|it| u32::try_from(it).ok()),
        labels: labels.collect(),
    })
}
