//! Pools as objects: read from the service now and then, written where an API server would.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use gantry_process::clock::Clock;
use gantry_reconcile::{Key, Revision, View as _};
use http::{Method, Request, StatusCode};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::answer::{Reply, absent, done, failed, object, refusal};
use super::call::CallError;
use super::ocm::{Cluster, Found, Ocm};
use crate::pool::{Polled, Pool};
use crate::settings::PoolKind;

/// The pools of one cluster.
#[derive(Debug)]
pub struct Pools {
    ocm: Ocm,
    cluster: Cluster,
    /// Counts what was seen and done, so that a copy can be told from a newer one.
    revision: AtomicU64,
    /// What was seen of each pool last, and when.
    seen: Mutex<BTreeMap<String, (Found, u64)>>,
}

/// All pools at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The pools, in JSON.
    pub pools: Vec<String>,
    /// That they are known, in JSON.
    pub polled: String,
    /// What was known when the service was asked: nothing that was learned later is taken back.
    pub revision: Revision,
}

impl Pools {
    /// The pools of a cluster, of which nothing is known yet.
    #[must_use]
    pub fn new(ocm: Ocm, cluster: Cluster) -> Self {
        Self { ocm, cluster, revision: AtomicU64::new(1), seen: Mutex::default() }
    }

    /// Which pools the cluster has.
    #[must_use]
    pub fn kind(&self) -> PoolKind {
        self.cluster.kind
    }

    /// Asks the service what there is.
    ///
    /// # Errors
    /// The service could not be asked, or said no.
    pub async fn list(&self) -> Result<Listing, CallError> {
        let asked = self.tick();
        let found = self.ocm.pools(&self.cluster).await?;
        let mut seen = self.seen();
        seen.retain(|id, (_, at)| *at > asked || found.iter().any(|it| it.id == *id));
        let mut pools = Vec::new();
        for pool in found {
            let known = seen.get(&pool.id).map(|(before, at)| (*before == pool, *at));
            let at = match known {
                Some((true, at)) => at,
                // What was done to it after the service was asked is newer than what it said.
                Some((false, at)) if at > asked => at,
                Some((false, _)) | None => asked,
            };
            pools.push(self.show(&pool, at).to_string());
            if at == asked {
                seen.insert(pool.id.clone(), (pool, at));
            }
        }
        let polled = json!({"metadata": {
            "name": Polled::NAME, "uid": self.cluster.id, "resourceVersion": "1",
        }});
        Ok(Listing { pools, polled: polled.to_string(), revision: Revision(asked) })
    }

    /// Asks the service now and then, and tells what there is, until told to stop. What goes wrong is
    /// logged once for each time in a row, and the next time comes.
    pub async fn follow(
        &self,
        clock: &Clock,
        period: Duration,
        tell: impl Fn(Listing),
        stop: &CancellationToken,
    ) {
        let mut failures = 0_u32;
        loop {
            // May be dropped: it only reads.
            let listed = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                listed = self.list() => listed,
            };
            let wait = match listed {
                Ok(listing) => {
                    if failures > 0 {
                        tracing::info!(failures, "pools are known again");
                    }
                    failures = 0;
                    tell(listing);
                    period
                }
                Err(error) => {
                    failures = failures.saturating_add(1);
                    tracing::warn!(%error, failures, "could not list the pools of the cluster");
                    match error {
                        CallError::Later { wait: Some(wait), .. } => wait.max(period),
                        CallError::Later { wait: None, .. }
                        | CallError::Refused { .. }
                        | CallError::Address(_)
                        | CallError::Tls(_) => period,
                    }
                }
            };
            tokio::select! {
                biased;
                // Either may be dropped: both only wait.
                () = stop.cancelled() => return,
                () = clock.sleep(wait) => {}
            }
        }
    }

    /// Carries out a request about pools as an API server would; nothing if it is about anything else.
    pub async fn serve(&self, request: &Request<Bytes>) -> Option<Reply> {
        let collection = Pool::RESOURCE.collection("").ok()?;
        let rest = request.uri().path().strip_prefix(collection.as_str())?;
        let name = rest.trim_start_matches('/');
        if rest.starts_with(|it: char| it != '/') || name.contains('/') {
            return None;
        }
        let body: Value = serde_json::from_slice(request.body()).unwrap_or_default();
        Some(match *request.method() {
            Method::POST if name.is_empty() => self.create(&body).await,
            Method::PATCH if !name.is_empty() => self.resize(name, &body).await,
            Method::DELETE if !name.is_empty() => self.delete(name, &body).await,
            Method::GET if !name.is_empty() => self.read(name).await,
            _ => {
                let words = "pools are read and written one by one";
                refusal(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", name, words)
            }
        })
    }

    async fn create(&self, body: &Value) -> Reply {
        let name = body["metadata"]["name"].as_str().unwrap_or_default();
        let labels = body["metadata"]["labels"].as_object().into_iter().flatten();
        let labels =
            labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
        let replicas = body["replicas"].as_u64().and_then(|it| u32::try_from(it).ok());
        let pool = Found {
            id: name.to_owned(),
            instance_type: body["instanceType"].as_str().unwrap_or_default().to_owned(),
            replicas,
            labels: labels.collect(),
        };
        match self.ocm.create(&self.cluster, &pool).await {
            Ok(made) => object(StatusCode::CREATED, &self.learned(made)),
            Err(error) => failed(name, &error),
        }
    }

    async fn resize(&self, name: &str, body: &Value) -> Reply {
        if let Some(reply) = self.outside(name, &body["metadata"]["uid"]) {
            return reply;
        }
        let replicas = body["replicas"].as_u64().and_then(|it| u32::try_from(it).ok());
        let Some(replicas) = replicas else {
            let words = "nothing about a pool can be changed but the number of its nodes";
            return refusal(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", name, words);
        };
        match self.ocm.resize(&self.cluster, name, replicas).await {
            Ok(Some(pool)) => object(StatusCode::OK, &self.learned(pool)),
            Ok(None) => absent(name),
            Err(error) => failed(name, &error),
        }
    }

    async fn delete(&self, name: &str, body: &Value) -> Reply {
        if let Some(reply) = self.outside(name, &body["preconditions"]["uid"]) {
            return reply;
        }
        match self.ocm.delete(&self.cluster, name).await {
            Ok(true) => {
                self.seen().remove(name);
                done()
            }
            Ok(false) => absent(name),
            Err(error) => failed(name, &error),
        }
    }

    async fn read(&self, name: &str) -> Reply {
        match self.ocm.pool(&self.cluster, name).await {
            Ok(Some(pool)) => object(StatusCode::OK, &self.learned(pool)),
            Ok(None) => absent(name),
            Err(error) => failed(name, &error),
        }
    }

    /// The no to a write that was meant for a pool of another cluster.
    fn outside(&self, name: &str, uid: &Value) -> Option<Reply> {
        let fits = uid.is_null() || *uid == self.uid(name);
        let words = "the pool is another than the one that was meant";
        (!fits).then(|| refusal(StatusCode::CONFLICT, "Conflict", name, words))
    }

    /// A pool that was just written, as an object.
    fn learned(&self, pool: Found) -> Value {
        let at = self.tick();
        let shown = self.show(&pool, at);
        self.seen().insert(pool.id.clone(), (pool, at));
        shown
    }

    fn show(&self, pool: &Found, at: u64) -> Value {
        json!({
            "apiVersion": Pool::RESOURCE.api_version(),
            "kind": Pool::RESOURCE.kind,
            "metadata": {
                "name": Key::cluster(&pool.id).name(),
                "uid": self.uid(&pool.id),
                "resourceVersion": at.to_string(),
                "labels": pool.labels,
            },
            "instanceType": pool.instance_type,
            "replicas": pool.replicas,
        })
    }

    fn uid(&self, name: &str) -> String {
        format!("{}/{name}", self.cluster.id)
    }

    fn tick(&self) -> u64 {
        self.revision.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// No code of others runs under the lock, so a poisoned one is still good.
    fn seen(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, (Found, u64)>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
