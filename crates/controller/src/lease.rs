//! Who leads: leases, and the permission to write that comes with one.
//!
//! A lease is an object that names its holder and is written anew every few seconds. Nobody trusts
//! anybody else's clock: a lease has run out when it was not written for its whole duration as measured
//! here, from when its last writing was first seen. The holder counts from before it sent the writing,
//! and for less than the duration. So when somebody else may take the lease, the holder knows already
//! that it may no longer write, whatever was delayed, lost or stopped in between. Every writing is
//! fenced by the revision it was decided from.

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

use crate::ask::{Reply, ask, request};
use crate::meters::Meters;

mod election;
mod permit;
mod record;

pub use election::{Action, Election, Ended, Heard, Move, Timing, TimingError};
pub use permit::{Grant, NotLeading, Permit};
pub use record::{Record, Seen};

/// What to compete for, and as whom.
#[derive(Clone)]
pub struct Settings {
    /// How the lease is read and written. Its own client: it must not wait behind other requests.
    pub client: Client,
    /// Where the lease is.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Who competes. It must differ between any two processes, also between one and its successor on
    /// the same machine.
    pub identity: String,
    /// How long things take.
    pub timing: Timing,
}

impl fmt::Debug for Settings {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { client: _, namespace, name, identity, timing } = self;
        write!(to, "Settings({namespace}/{name} as {identity}, {timing:?})")
    }
}

/// How to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// Nothing is under way any more: the next may begin at once.
    Release,
    /// Something may still be under way: the lease runs out by itself.
    Abandon,
}

/// The lease was held and is not any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("lost the lease {lease}: {why}")]
pub struct LeaseLost {
    /// The lease.
    pub lease: String,
    /// How that came.
    pub why: Ended,
}

/// Leases as the API addresses them.
const LEASES: Resource =
    Resource::namespaced("coordination.k8s.io", "v1", "leases", "Lease").without_status();

/// Competes for a lease and keeps it.
pub(crate) struct Keeper {
    settings: Settings,
    election: Election,
    clock: Clock,
    grant: Grant,
    meters: Meters,
}

impl Keeper {
    pub(crate) fn new(
        settings: Settings,
        clock: Clock,
        grant: Grant,
        meters: Meters,
        jitter: fastrand::Rng,
    ) -> Self {
        let election = Election::new(settings.identity.clone(), settings.timing, jitter);
        Self { settings, election, clock, grant, meters }
    }

    /// Competes until told to leave.
    ///
    /// # Errors
    /// [`LeaseLost`]. It does not compete again: what was planned as leader must not go on.
    pub(crate) async fn run(mut self, leave: oneshot::Receiver<Leave>) -> Result<(), TaskError> {
        self.meters.leading(false);
        let end = tokio::select! {
            biased;
            // Either may be dropped. A request that is given up may still arrive: then the lease is
            // written once more, and runs out a little later.
            leave = leave => Ok(leave.unwrap_or(Leave::Abandon)),
            why = self.compete() => Err(why),
        };
        self.grant.revoke();
        self.meters.leading(false);
        let lease = format!("{}/{}", self.settings.namespace, self.settings.name);
        match end {
            Err(why) => Err(LeaseLost { lease, why }.into()),
            Ok(Leave::Abandon) => Ok(()),
            Ok(Leave::Release) => {
                self.release(&lease).await;
                Ok(())
            }
        }
    }

    /// Takes the lease when it is free and keeps it, until it is lost.
    async fn compete(&mut self) -> Ended {
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
            let heard = self.send(&what, self.election.limit(sent)).await;
            let was = self.election.leads_until().is_some();
            self.election.heard(&what, heard, sent, self.clock.moment());
            self.show(was);
        }
    }

    /// Says how long one may write now.
    fn show(&self, was: bool) {
        let Some(until) = self.election.leads_until() else { return };
        self.grant.until(until);
        if !was {
            self.meters.leading(true);
            let Settings { namespace, name, identity, .. } = &self.settings;
            tracing::info!(namespace, name, identity, "took the lease");
        }
    }

    /// Gives the lease back. The last writing of ours may have been given up on its way, so who finds
    /// another revision looks once whether it is that.
    async fn release(&mut self, lease: &str) {
        for _ in 0..2 {
            let Some(what) = self.election.release(self.clock.now()) else { return };
            let limit = self.settings.timing.renew_deadline / 2;
            match self.send(&what, limit).await {
                Heard::Wrote(_) => return tracing::info!(lease, "gave the lease back"),
                Heard::Nothing(why) => {
                    tracing::warn!(lease, why, "could not give the lease back, it will run out");
                    return;
                }
                Heard::Found(_) | Heard::Absent | Heard::Stale => {}
            }
            let sent = self.clock.moment();
            let heard = self.send(&Move::Read, limit).await;
            self.election.heard(&Move::Read, heard, sent, self.clock.moment());
        }
    }

    /// Makes a move and says what was heard of it.
    async fn send(&self, what: &Move, limit: Duration) -> Heard {
        let request = match self.request(what) {
            Ok(request) => request,
            Err(why) => return Heard::Nothing(why),
        };
        match ask(&self.settings.client, &self.clock, limit, request).await {
            Ok(reply) => heard(what, &reply),
            Err(error) => Heard::Nothing(error_chain(&error)),
        }
    }

    /// The request of a move. The namespace and the name of the lease are settings, which may be wrong.
    fn request(&self, what: &Move) -> Result<Request<Body>, String> {
        let Settings { namespace, name, .. } = &self.settings;
        let collection = LEASES.collection(namespace).map_err(|it| it.to_string())?;
        let path = collection.item(name).map_err(|it| it.to_string())?;
        let manager = Parameter::FieldManager("gantry-lease");
        let request = match what {
            Move::Read => request(Method::GET, &path, "", Vec::new()),
            Move::Create(record) => {
                let body = record.to_object(namespace, name).to_string().into_bytes();
                request(Method::POST, &collection.with(manager), "application/json", body)
            }
            Move::Update(record, revision) => {
                let body = record.to_patch(revision).to_string().into_bytes();
                let content = "application/merge-patch+json";
                request(Method::PATCH, &path.with(manager), content, body)
            }
        };
        request.map_err(|error| error_chain(&error))
    }
}

/// What an answer means for the election.
fn heard(what: &Move, reply: &Reply) -> Heard {
    match (reply.status, what) {
        (code, _) if code.is_success() => match (Seen::read(&reply.body), what) {
            (Some(seen), Move::Read) => Heard::Found(seen),
            (Some(seen), Move::Create(_) | Move::Update(..)) => Heard::Wrote(seen),
            (None, _) => Heard::Nothing("the answer is no lease".to_owned()),
        },
        (StatusCode::CONFLICT, _) => Heard::Stale,
        (StatusCode::NOT_FOUND, Move::Read | Move::Update(..)) => Heard::Absent,
        _ => Heard::Nothing(reply.refusal().message),
    }
}

#[cfg(test)]
mod tests;
