//! The pools of one cluster: listed for plans, and changed by their calls.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gantry_controller::external::{
    self, AnyInquiry, BoxFuture, InquiryWithResponder, Responder, ResponderContext,
};
use gantry_process::clock::{Clock, Moment};
use gantry_reconcile::{Call, Refusal, Reply};
use http::StatusCode;
use serde_json::json;

use super::call::CallError;
use super::ocm::{Cluster, OcmClient};
use crate::pool::{CREATE, DELETE, PROTOCOL, Pool, PoolInquiry, PoolListing, PoolQuery, RESIZE};
use crate::settings::PoolKind;

/// The longest delay that the service may request. A longer one is cut, and requested again.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(600);

/// The pools of one cluster. Clones share one state.
#[derive(Clone)]
pub struct Pools(Arc<Inner>);

struct Inner {
    ocm: OcmClient,
    cluster: Cluster,
    clock: Clock,
    /// Until when the service asked not to be called.
    retry_at: Mutex<Option<Moment>>,
}

impl fmt::Debug for Pools {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Pools({})", self.0.cluster.id)
    }
}

impl Pools {
    /// Creates the pools of a cluster.
    #[must_use]
    pub fn new(ocm: OcmClient, cluster: Cluster, clock: Clock) -> Self {
        Self(Arc::new(Inner { ocm, cluster, clock, retry_at: Mutex::new(None) }))
    }

    /// Returns which kind of pools the cluster has.
    #[must_use]
    pub fn kind(&self) -> PoolKind {
        self.0.cluster.kind
    }

    /// Returns the inquiry that lists the pools.
    #[must_use]
    pub fn inquiry(&self) -> Arc<dyn AnyInquiry> {
        Arc::new(InquiryWithResponder::new(PoolInquiry, self.clone()))
    }

    /// Returns the caller that carries out calls about pools.
    #[must_use]
    pub fn caller(&self) -> Arc<dyn external::Caller> {
        Arc::new(self.clone())
    }
}

impl Responder<PoolListing> for Pools {
    fn answer<'a>(
        &'a self,
        _: &'a PoolQuery,
        _: &'a ResponderContext,
    ) -> BoxFuture<'a, Result<PoolListing, String>> {
        Box::pin(self.list())
    }
}

impl Pools {
    /// Lists the current pools.
    pub(super) async fn list(&self) -> Result<PoolListing, String> {
        let listed = self.0.respect_retry_after(self.0.ocm.pools(&self.0.cluster)).await;
        let pools = listed.map_err(|error| error.to_string())?;
        let pools = pools.into_iter().map(|it| (it.name.clone(), it)).collect();
        Ok(PoolListing { cluster: self.0.cluster.id.clone(), pools })
    }
}

impl external::Caller for Pools {
    fn protocol(&self) -> &'static str {
        PROTOCOL
    }

    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Reply, external::CallError>> {
        Box::pin(async move {
            match self.0.respect_retry_after(self.0.execute(call)).await {
                Ok(pool) => Ok(Reply::Done(json!(pool))),
                Err(CallError::Refused { code, what, why }) => Ok(Reply::Refused(refusal(
                    code,
                    format!("{what} was refused with {code}: {why}"),
                ))),
                Err(error) => Err(external::CallError(error.to_string())),
            }
        })
    }
}

impl Inner {
    /// Carries out a call. Returns the pool after it, if there is one.
    async fn execute(&self, call: &Call) -> Result<Option<Pool>, CallError> {
        let (name, request) = (&call.target.address, &call.request);
        let invalid = |why: String| CallError::Refused {
            what: format!("{} a pool", call.purpose),
            code: StatusCode::UNPROCESSABLE_ENTITY.as_u16(),
            why,
        };
        if call.target.uid.as_str() != self.cluster.id {
            let why = format!("pool {name:?} belongs to another cluster");
            return Err(CallError::Refused {
                what: format!("{} a pool", call.purpose),
                code: StatusCode::CONFLICT.as_u16(),
                why,
            });
        }
        match call.purpose {
            CREATE => {
                let pool: Pool = serde_json::from_value(request.clone())
                    .map_err(|error| invalid(format!("the request is no pool: {error}")))?;
                self.ocm.create(&self.cluster, &pool).await.map(Some)
            }
            RESIZE => {
                let replicas = request["replicas"].as_u64().and_then(|it| u32::try_from(it).ok());
                let replicas = replicas
                    .ok_or_else(|| invalid(format!("{request} has no number of replicas")))?;
                self.ocm.resize(&self.cluster, name, replicas).await
            }
            DELETE => self.ocm.delete(&self.cluster, name).await.map(|_| None),
            other => Err(invalid(format!("{other:?} is not an operation on pools"))),
        }
    }

    /// Calls the service, unless it asked not to be called for a while.
    async fn respect_retry_after<T>(
        &self,
        request: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let now = self.clock.moment();
        let paused = self.retry_at().filter(|until| *until > now);
        if let Some(until) = paused {
            let (what, wait) = ("call the service".to_owned(), until - now);
            let why = format!("it asked not to be called for another {} seconds", wait.as_secs());
            return Err(CallError::Unavailable { what, why, retry_after: Some(wait) });
        }
        let answer = request.await;
        if let Err(CallError::Unavailable { retry_after: Some(wait), .. }) = &answer {
            let until = self.clock.moment() + (*wait).min(MAX_RETRY_AFTER);
            // No foreign code runs under the lock, so a poisoned one is still valid.
            *self.retry_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
        }
        answer
    }

    fn retry_at(&self) -> Option<Moment> {
        *self.retry_at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a refusal in the form of Kubernetes.
fn refusal(code: u16, message: String) -> Refusal {
    let reason = match code {
        409 => "AlreadyExists",
        401 | 403 => "Forbidden",
        // A missing pool is no refusal: this is about the cluster.
        404 => "ClusterNotFound",
        _ => "Invalid",
    };
    Refusal { code, reason: reason.to_owned(), message }
}
