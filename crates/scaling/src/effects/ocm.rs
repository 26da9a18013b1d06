//! The service that manages clusters: its paths, bodies, pages and tokens.

use std::time::Duration;

use gantry_process::clock::{Clock, Moment};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::call::{Answer, CallError, Caller, Content, Endpoints, encode};
use super::secret::Secret;
use crate::pool::Pool;
use crate::settings::PoolKind;

/// The client that offline tokens are handed out to.
const CLIENT: &str = "cloud-services";

/// How many items are on a page.
const PAGE: usize = 100;

/// How many pages are read: no cluster has so many pools, and a service that never ends must.
const PAGES: usize = 100;

/// A token is not used so shortly before it ends: the request must still arrive.
const MARGIN: Duration = Duration::from_secs(60);

/// A client of the service. Clones are not made: it holds the token for all.
#[derive(Debug)]
pub struct Ocm {
    caller: Caller,
    clock: Clock,
    endpoints: Endpoints,
    offline: Secret,
    access: Mutex<Option<Access>>,
}

/// A token that is good for a while.
#[derive(Clone, Debug)]
struct Access {
    token: Secret,
    until: Moment,
}

/// A cluster that the service manages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// What the service knows it by.
    pub id: String,
    /// Which pools it has.
    pub kind: PoolKind,
}

impl Ocm {
    /// A client that has not asked anything yet.
    ///
    /// # Errors
    /// There is no TLS.
    pub fn new(clock: Clock, endpoints: Endpoints, offline: Secret) -> Result<Self, CallError> {
        let caller = Caller::new(clock.clone())?;
        Ok(Self { caller, clock, endpoints, offline, access: Mutex::new(None) })
    }

    /// The cluster that calls itself so.
    ///
    /// # Errors
    /// The service knows none, or could not be asked.
    pub async fn cluster(&self, external_id: &str) -> Result<Cluster, CallError> {
        let what = "find the cluster";
        let refused = |why: String| CallError::Refused { what: what.to_owned(), code: 404, why };
        let plain = |it: char| it.is_ascii_alphanumeric() || it == '-';
        if external_id.is_empty() || !external_id.chars().all(plain) {
            return Err(refused(format!("{external_id:?} is no identity of a cluster")));
        }
        let search = encode(&format!("external_id = '{external_id}'"));
        let path = format!("/api/clusters_mgmt/v1/clusters?search={search}&size=1");
        let answer = self.ask(what, Method::GET, &path, None).await?.success(what)?;
        let found = &answer["items"][0];
        let Some(id) = found["id"].as_str() else {
            return Err(refused(format!("the service manages no cluster {external_id:?}")));
        };
        let hosted = found["hypershift"]["enabled"].as_bool().unwrap_or(false);
        let kind = if hosted { PoolKind::Node } else { PoolKind::Machine };
        Ok(Cluster { id: id.to_owned(), kind })
    }

    /// All pools of a cluster.
    ///
    /// # Errors
    /// The service could not be asked, or said no. Half a list is none.
    pub async fn pools(&self, cluster: &Cluster) -> Result<Vec<Pool>, CallError> {
        let what = "list pools";
        let mut found: Vec<Pool> = Vec::new();
        for page in 1..=PAGES {
            let path = format!("{}?page={page}&size={PAGE}", collection(cluster));
            let answer = self.ask(what, Method::GET, &path, None).await?.success(what)?;
            let items = answer["items"].as_array().map(Vec::as_slice).unwrap_or_default();
            for item in items {
                let pool = read(item).ok_or_else(|| unreadable(what))?;
                // A pool that was made between two pages may be on both.
                if !found.iter().any(|it| it.name == pool.name) {
                    found.push(pool);
                }
            }
            let total = answer["total"].as_u64().and_then(|it| usize::try_from(it).ok());
            let read = page * PAGE;
            if items.is_empty() || total.is_none_or(|total| read >= total) {
                return Ok(found);
            }
        }
        let why = format!("there are more than {PAGES} pages");
        Err(CallError::Refused { what: what.to_owned(), code: 500, why })
    }

    /// One pool; nothing if there is none.
    ///
    /// # Errors
    /// The service could not be asked, or said no.
    pub async fn pool(&self, cluster: &Cluster, id: &str) -> Result<Option<Pool>, CallError> {
        let what = "read a pool";
        let path = format!("{}/{}", collection(cluster), encode(id));
        let answer = self.ask(what, Method::GET, &path, None).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        read(&answer.success(what)?).map(Some).ok_or_else(|| unreadable(what))
    }

    /// Makes a pool. One that is there already and is like it counts as made: the answer to the first
    /// request may have been lost.
    ///
    /// # Errors
    /// The service could not be asked, or said no.
    pub async fn create(&self, cluster: &Cluster, pool: &Pool) -> Result<Pool, CallError> {
        let what = "create a pool";
        let body = body(cluster.kind, pool);
        let answer = self.ask(what, Method::POST, &collection(cluster), Some(body)).await?;
        // Releases of the service differ in how they say that the name is taken.
        if matches!(answer.status, StatusCode::CONFLICT | StatusCode::BAD_REQUEST)
            && let Ok(Some(there)) = self.pool(cluster, &pool.name).await
        {
            return match there.labels == pool.labels && there.instance_type == pool.instance_type {
                true => Ok(there),
                false => Err(CallError::Refused {
                    what: what.to_owned(),
                    code: StatusCode::CONFLICT.as_u16(),
                    why: format!("pool {:?} is there and is another", pool.name),
                }),
            };
        }
        let made = answer.success(what)?;
        Ok(read(&made).unwrap_or_else(|| pool.clone()))
    }

    /// Makes a pool larger or smaller; nothing if there is none.
    ///
    /// # Errors
    /// The service could not be asked, or said no.
    pub async fn resize(
        &self,
        cluster: &Cluster,
        id: &str,
        replicas: u32,
    ) -> Result<Option<Pool>, CallError> {
        let what = "resize a pool";
        let path = format!("{}/{}", collection(cluster), encode(id));
        let body = json!({ "replicas": replicas });
        let answer = self.ask(what, Method::PATCH, &path, Some(body)).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        read(&answer.success(what)?).map(Some).ok_or_else(|| unreadable(what))
    }

    /// Deletes a pool. Returns whether there was one.
    ///
    /// # Errors
    /// The service could not be asked, or said no.
    pub async fn delete(&self, cluster: &Cluster, id: &str) -> Result<bool, CallError> {
        let what = "delete a pool";
        let path = format!("{}/{}", collection(cluster), encode(id));
        let answer = self.ask(what, Method::DELETE, &path, None).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(false);
        }
        answer.success(what).map(|_| true)
    }

    /// Asks with a token. One that is no longer believed is replaced once: it may have been revoked.
    async fn ask(
        &self,
        what: &str,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Answer, CallError> {
        let url = format!("{}{path}", self.endpoints.api.trim_end_matches('/'));
        let token = self.token().await?;
        let content = |body: Option<Value>| body.map_or(Content::Nothing, Content::Json);
        let first = self
            .caller
            .call(what, method.clone(), &url, Some(&token), content(body.clone()))
            .await?;
        if first.status != StatusCode::UNAUTHORIZED {
            return Ok(first);
        }
        self.forget(&token).await;
        let token = self.token().await?;
        self.caller.call(what, method, &url, Some(&token), content(body)).await
    }

    async fn forget(&self, token: &Secret) {
        let mut access = self.access.lock().await;
        if access.as_ref().is_some_and(|it| it.token == *token) {
            *access = None;
        }
    }

    /// A token that is good for a while: the one there is, or a new one. Whoever asks meanwhile waits
    /// for the same.
    async fn token(&self) -> Result<Secret, CallError> {
        let mut access = self.access.lock().await;
        if let Some(access) = access.as_ref().filter(|it| self.clock.moment() + MARGIN < it.until) {
            return Ok(access.token.clone());
        }
        let what = "get a token";
        let form = format!(
            "grant_type=refresh_token&client_id={CLIENT}&refresh_token={}",
            encode(self.offline.reveal())
        );
        let asked = self.clock.moment();
        let url = &self.endpoints.tokens;
        let answer = self.caller.call(what, Method::POST, url, None, Content::Form(form)).await?;
        let answer = answer.success(what)?;
        let token = answer["access_token"].as_str().and_then(Secret::new);
        let token = token.ok_or_else(|| unreadable(what))?;
        let seconds = answer["expires_in"].as_u64().unwrap_or_default();
        let until = asked + Duration::from_secs(seconds);
        *access = Some(Access { token: token.clone(), until });
        Ok(token)
    }
}

fn unreadable(what: &str) -> CallError {
    let why = "cannot read the answer: it is not what was asked for".to_owned();
    CallError::Later { what: what.to_owned(), why, wait: None }
}

/// The path of the pools of a cluster.
fn collection(cluster: &Cluster) -> String {
    let pools = match cluster.kind {
        PoolKind::Machine => "machine_pools",
        PoolKind::Node => "node_pools",
    };
    format!("/api/clusters_mgmt/v1/clusters/{}/{pools}", encode(&cluster.id))
}

fn body(kind: PoolKind, pool: &Pool) -> Value {
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

/// A pool of either kind.
fn read(item: &Value) -> Option<Pool> {
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
