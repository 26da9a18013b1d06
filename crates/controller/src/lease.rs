//! Leader election: leases, and the permission to write that comes with one.
//!
//! A lease is an object that names its holder and is renewed every few seconds. No process trusts
//! another one's clock: a lease has expired when it was not renewed for its whole duration as
//! measured here, from when its last renewal was first observed. The holder counts from before it
//! sent the renewal, and for less than the duration. So when another process may take the lease,
//! the holder already knows that it may no longer write, whatever was delayed, lost or suspended in
//! between. Every renewal is fenced by the revision it was decided from.

use std::fmt;
use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_process::error_chain;
use gantry_process::tasks::TaskError;
use gantry_reconcile::{Parameter, Resource};
use http::{Method, Request, StatusCode};
use kube::Client;
use kube::client::Body;
use tokio::sync::oneshot;

use crate::api_request::{ApiResponse, build_request, send_request};
use crate::metrics::ControllerMetrics;

mod election;
mod permit;
mod record;

pub use election::{
    Action, Election, LeaseRequest, LeaseResponse, LossReason, Timing, TimingError,
};
pub use permit::{Grant, NotLeading, Permit};
pub use record::{LeaseRecord, ObservedLease};

/// The lease to acquire, and the identity of this process.
#[derive(Clone)]
pub struct LeaseSettings {
    /// The client for the lease, not shared with others: renewals must not wait behind other
    /// requests.
    pub client: Client,
    /// The namespace of the lease.
    pub namespace: String,
    /// The name of the lease.
    pub name: String,
    /// The identity of this process. It must differ between any two processes, also between one and
    /// its successor on the same machine.
    pub identity: String,
    /// The timings of the election.
    pub timing: Timing,
}

impl fmt::Debug for LeaseSettings {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { client: _, namespace, name, identity, timing } = self;
        write!(to, "Settings({namespace}/{name} as {identity}, {timing:?})")
    }
}

/// What to do with the lease on shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnStop {
    /// No write is in flight any more: release the lease, so that the next leader may start at
    /// once.
    Release,
    /// A write may still be in flight: let the lease expire by itself.
    Abandon,
}

/// The lease was held and is lost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("lost the lease {lease}: {why}")]
pub struct LeaseLost {
    /// The lease.
    pub lease: String,
    /// How it was lost.
    pub why: LossReason,
}

/// The leases resource.
const LEASE_RESOURCE: Resource =
    Resource::namespaced("coordination.k8s.io", "v1", "leases", "Lease").without_status();

/// Acquires a lease and renews it.
pub(crate) struct LeaderElector {
    settings: LeaseSettings,
    election: Election,
    clock: Clock,
    grant: Grant,
    meters: ControllerMetrics,
}

impl LeaderElector {
    pub(crate) fn new(
        settings: LeaseSettings,
        clock: Clock,
        grant: Grant,
        meters: ControllerMetrics,
        jitter: fastrand::Rng,
    ) -> Self {
        let election = Election::new(settings.identity.clone(), settings.timing, jitter);
        Self { settings, election, clock, grant, meters }
    }

    /// Competes for the lease until shutdown.
    ///
    /// # Errors
    /// [`LeaseLost`]. It does not compete again: what was planned as leader must not continue.
    pub(crate) async fn run(mut self, leave: oneshot::Receiver<OnStop>) -> Result<(), TaskError> {
        self.meters.leading(false);
        let end = tokio::select! {
            biased;
            // Either is cancel-safe. A request that is cancelled may still arrive: then the lease
            // is renewed once more, and expires a little later.
            leave = leave => Ok(leave.unwrap_or(OnStop::Abandon)),
            why = self.acquire_and_renew() => Err(why),
        };
        self.grant.revoke();
        self.meters.leading(false);
        let lease = format!("{}/{}", self.settings.namespace, self.settings.name);
        match end {
            Err(why) => Err(LeaseLost { lease, why }.into()),
            Ok(OnStop::Abandon) => Ok(()),
            Ok(OnStop::Release) => {
                self.release(&lease).await;
                Ok(())
            }
        }
    }

    /// Acquires the lease when it is free and renews it, until it is lost.
    async fn acquire_and_renew(&mut self) -> LossReason {
        loop {
            let now = self.clock.moment();
            let what = match self.election.step(now, self.clock.now()) {
                Action::Wait(until) => {
                    self.clock.sleep_until(until).await;
                    continue;
                }
                Action::Stop(why) => return why,
                Action::Send(what) => what,
            };
            let sent = self.clock.moment();
            let heard = self.send(&what, self.election.request_timeout(sent)).await;
            let was = self.election.leads_until().is_some();
            self.election.observe_response(&what, heard, sent, self.clock.moment());
            self.publish_term(was);
        }
    }

    /// Publishes until when this process may write.
    fn publish_term(&self, was: bool) {
        let Some(until) = self.election.leads_until() else { return };
        self.grant.until(until);
        if !was {
            self.meters.leading(true);
            let LeaseSettings { namespace, name, identity, .. } = &self.settings;
            tracing::info!(namespace, name, identity, "acquired the lease");
        }
    }

    /// Releases the lease. Our last renewal may have been cancelled in flight, so on a conflict the
    /// lease is read once to see whether the new revision is ours.
    async fn release(&mut self, lease: &str) {
        for _ in 0..2 {
            let Some(what) = self.election.release(self.clock.now()) else { return };
            let limit = self.settings.timing.renew_deadline / 2;
            match self.send(&what, limit).await {
                LeaseResponse::Written(_) => return tracing::info!(lease, "released the lease"),
                LeaseResponse::Unknown(why) => {
                    tracing::warn!(lease, why, "could not release the lease, it will expire");
                    return;
                }
                LeaseResponse::Found(_) | LeaseResponse::NotFound | LeaseResponse::Conflict => {}
            }
            let sent = self.clock.moment();
            let heard = self.send(&LeaseRequest::Read, limit).await;
            self.election.observe_response(&LeaseRequest::Read, heard, sent, self.clock.moment());
        }
    }

    /// Sends a request of the election and returns the response.
    async fn send(&self, what: &LeaseRequest, limit: Duration) -> LeaseResponse {
        let request = match self.request(what) {
            Ok(request) => request,
            Err(why) => return LeaseResponse::Unknown(why),
        };
        match send_request(&self.settings.client, &self.clock, limit, request).await {
            Ok(reply) => parse_response(what, &reply),
            Err(error) => LeaseResponse::Unknown(error_chain(&error)),
        }
    }

    /// The HTTP request. The namespace and the name of the lease are settings, which may be
    /// invalid.
    fn request(&self, what: &LeaseRequest) -> Result<Request<Body>, String> {
        let LeaseSettings { namespace, name, .. } = &self.settings;
        let collection = LEASE_RESOURCE.collection(namespace).map_err(|it| it.to_string())?;
        let path = collection.item(name).map_err(|it| it.to_string())?;
        let manager = Parameter::FieldManager("gantry-lease");
        let request = match what {
            LeaseRequest::Read => build_request(Method::GET, &path, "", Vec::new()),
            LeaseRequest::Create(record) => {
                let body = record.to_object(namespace, name).to_string().into_bytes();
                build_request(Method::POST, &collection.with(manager), "application/json", body)
            }
            LeaseRequest::Update(record, revision) => {
                let body = record.to_patch(revision).to_string().into_bytes();
                let content = "application/merge-patch+json";
                build_request(Method::PATCH, &path.with(manager), content, body)
            }
        };
        request.map_err(|error| error_chain(&error))
    }
}

/// The meaning of a response for the election.
fn parse_response(what: &LeaseRequest, reply: &ApiResponse) -> LeaseResponse {
    match (reply.status, what) {
        (code, _) if code.is_success() => match (ObservedLease::read(&reply.body), what) {
            (Some(seen), LeaseRequest::Read) => LeaseResponse::Found(seen),
            (Some(seen), LeaseRequest::Create(_) | LeaseRequest::Update(..)) => {
                LeaseResponse::Written(seen)
            }
            (None, _) => LeaseResponse::Unknown("the response is not a lease".to_owned()),
        },
        (StatusCode::CONFLICT, _) => LeaseResponse::Conflict,
        (StatusCode::NOT_FOUND, LeaseRequest::Read | LeaseRequest::Update(..)) => {
            LeaseResponse::NotFound
        }
        _ => LeaseResponse::Unknown(reply.error_status().message),
    }
}

#[cfg(test)]
mod tests;
