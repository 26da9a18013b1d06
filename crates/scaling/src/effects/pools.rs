//! The pools of one cluster: listed for plans, and changed by their calls.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gantry_controller::outside::{self, AnyInquiry, Asks, Later, Responder, ResponderContext};
use gantry_process::clock::{Clock, Moment};
use gantry_reconcile::{Call, Refusal, Reply};
use http::StatusCode;
use serde_json::json;

use super::call::CallError;
use super::ocm::{Cluster, Ocm};
use crate::pool::{CREATE, DELETE, PROTOCOL, Pool, PoolInquiry, PoolListing, RESIZE, WhichPools};
use crate::settings::PoolKind;

/// The longest pause that the service may ask for. What it asks for beyond that is asked for again.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// The pools of one cluster. Clones are the same.
#[derive(Clone)]
pub struct Pools(Arc<Inner>);

struct Inner {
    ocm: Ocm,
    cluster: Cluster,
    clock: Clock,
    /// Until when the service asked to be left alone.
    paused: Mutex<Option<Moment>>,
}

impl fmt::Debug for Pools {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Pools({})", self.0.cluster.id)
    }
}

impl Pools {
    /// The pools of a cluster.
    #[must_use]
    pub fn new(ocm: Ocm, cluster: Cluster, clock: Clock) -> Self {
        Self(Arc::new(Inner { ocm, cluster, clock, paused: Mutex::new(None) }))
    }

    /// Which pools the cluster has.
    #[must_use]
    pub fn kind(&self) -> PoolKind {
        self.0.cluster.kind
    }

    /// Has the pools listed.
    #[must_use]
    pub fn inquiry(&self) -> Arc<dyn AnyInquiry> {
        Arc::new(Asks::new(PoolInquiry, self.clone()))
    }

    /// Carries out calls about pools.
    #[must_use]
    pub fn caller(&self) -> Arc<dyn outside::Caller> {
        Arc::new(self.clone())
    }
}

impl Responder<PoolListing> for Pools {
    fn answer<'a>(
        &'a self,
        _: &'a WhichPools,
        _: &'a ResponderContext,
    ) -> Later<'a, Result<PoolListing, String>> {
        Box::pin(self.list())
    }
}

impl Pools {
    /// The pools that there are now.
    pub(super) async fn list(&self) -> Result<PoolListing, String> {
        let listed = self.0.within_pause(self.0.ocm.pools(&self.0.cluster)).await;
        let pools = listed.map_err(|error| error.to_string())?;
        let pools = pools.into_iter().map(|it| (it.name.clone(), it)).collect();
        Ok(PoolListing { cluster: self.0.cluster.id.clone(), pools })
    }
}

impl outside::Caller for Pools {
    fn protocol(&self) -> &'static str {
        PROTOCOL
    }

    fn call<'a>(&'a self, call: &'a Call) -> Later<'a, Result<Reply, outside::CallError>> {
        Box::pin(async move {
            match self.0.within_pause(self.0.carry_out(call)).await {
                Ok(pool) => Ok(Reply::Done(json!(pool))),
                Err(CallError::Refused { code, what, why }) => Ok(Reply::Refused(refusal(
                    code,
                    format!("{what} was refused with {code}: {why}"),
                ))),
                Err(error) => Err(outside::CallError(error.to_string())),
            }
        })
    }
}

impl Inner {
    /// Does what a call asks for. Returns the pool as it is then, if there is one.
    async fn carry_out(&self, call: &Call) -> Result<Option<Pool>, CallError> {
        let (name, request) = (&call.target.address, &call.request);
        let invalid = |why: String| CallError::Refused {
            what: format!("{} a pool", call.purpose),
            code: StatusCode::UNPROCESSABLE_ENTITY.as_u16(),
            why,
        };
        if call.target.uid.as_str() != self.cluster.id {
            let why = format!("pool {name:?} of another cluster was meant");
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
            other => Err(invalid(format!("nobody can {other} a pool"))),
        }
    }

    /// Asks the service, unless it asked to be left alone for a while.
    async fn within_pause<T>(
        &self,
        request: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let now = self.clock.moment();
        let paused = self.paused().filter(|until| *until > now);
        if let Some(until) = paused {
            let (what, wait) = ("call the service".to_owned(), until - now);
            let why = format!("it asked not to be called for another {} seconds", wait.as_secs());
            return Err(CallError::Later { what, why, wait: Some(wait) });
        }
        let answer = request.await;
        if let Err(CallError::Later { wait: Some(wait), .. }) = &answer {
            let until = self.clock.moment() + (*wait).min(LONGEST_PAUSE);
            // No code of others runs under the lock, so a poisoned one is still good.
            *self.paused.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
        }
        answer
    }

    fn paused(&self) -> Option<Moment> {
        *self.paused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A refusal in the words of Kubernetes.
fn refusal(code: u16, message: String) -> Refusal {
    let reason = match code {
        409 => "AlreadyExists",
        401 | 403 => "Forbidden",
        // A pool that is not there is no refusal: this is about the cluster.
        404 => "ClusterNotFound",
        _ => "Invalid",
    };
    Refusal { code, reason: reason.to_owned(), message }
}
