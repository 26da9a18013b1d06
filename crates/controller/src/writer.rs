//! Sends writes, fenced and with a timeout.
//!
//! The server refuses a write when the object it was planned from has changed, and the writer
//! refuses it when this process may no longer be the leader. No write is retried here: the next
//! plan is made from the objects as they are then.

use std::sync::Arc;
use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_process::error_chain;
use gantry_reconcile::{InvalidPath, ObjectReference, Outcome, Refusal, User, Write};
use http::{Method, StatusCode};
use serde::Deserialize;

use crate::api_request::{build_request, send_request};
use crate::lease::{NotLeading, Permit};
use crate::rate::RateLimiter;
use crate::run::Actor;

mod request;
mod response;

pub use request::{WriteRequest, write_request};

/// Sends writes.
#[derive(Clone, Debug)]
pub struct Writer {
    pub(crate) clock: Clock,
    pub(crate) limiter: Arc<RateLimiter>,
    pub(crate) permit: Permit,
    /// The timeout of one write.
    pub(crate) timeout: Duration,
}

/// The user that a request impersonates, in the extensions of the request. It never leaves the
/// process: an extension is not a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImpersonatedUser(pub User);

/// The outcome of a write, and the delay the server asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct WriteResponse {
    /// The outcome.
    pub outcome: Outcome,
    /// The delay the server asked for.
    pub retry_after: Option<Duration>,
}

impl From<Outcome> for WriteResponse {
    fn from(outcome: Outcome) -> Self {
        Self { outcome, retry_after: None }
    }
}

impl Writer {
    /// A writer without leader election and rate limit, for occasional writes.
    #[must_use]
    pub fn standalone(clock: Clock, limit: Duration) -> Self {
        let limiter = Arc::new(RateLimiter::new(clock.clone(), None));
        Self { permit: Permit::always(clock.clone()), clock, limiter, timeout: limit }
    }

    /// Sends one write as an actor, or as the user that it impersonates.
    ///
    /// A write is not sent after the permit has lapsed, and one in flight is cancelled then: the
    /// lease is longer than the permit by more than a write that was sent takes to arrive. Dropping
    /// the future cancels the write in the same way.
    pub async fn write(&self, actor: &Actor, write: &Write, user: Option<&User>) -> WriteResponse {
        let request = match write_request(write, &actor.field_manager) {
            Ok(form) => form.request(),
            // It can never be sent: that is a refusal as a server would give it.
            Err(invalid) => return invalid_path_refused(&invalid).into(),
        };
        let mut request = match request {
            Ok(request) => request,
            Err(error) => return Outcome::Unknown(error_chain(&error)).into(),
        };
        if let Some(user) = user {
            if !actor.can_impersonate {
                return Outcome::Refused(impersonation_refused(user)).into();
            }
            request.extensions_mut().insert(ImpersonatedUser(user.clone()));
        }
        self.limiter.wait().await;
        // The last check before it is sent.
        if let Err(no) = self.permit.check() {
            return Outcome::Unknown(no.to_string()).into();
        }
        tokio::select! {
            // In this order: a process that was suspended for a while checks the time first.
            biased;
            // Cancel-safe: it only waits.
            () = self.permit.lapsed() => Outcome::Unknown(NotLeading.to_string()).into(),
            // Cancelled, the outcome is unknown, and that is what is returned.
            reply = send_request(&actor.client, &self.clock, self.timeout, request) => match reply {
                Ok(reply) => response::parse_response(write, &reply),
                Err(error) => Outcome::Unknown(error_chain(&error)).into(),
            },
        }
    }
}

impl Writer {
    /// Checks that an object exists and is not terminating.
    ///
    /// # Errors
    /// The outcome of a write that requires it: a conflict, or unknown.
    pub async fn check_present(
        &self,
        actor: &Actor,
        object: &ObjectReference,
    ) -> Result<(), WriteResponse> {
        let ObjectReference { resource, key, uid, .. } = object;
        match self.read_identity(actor, object).await? {
            Some(found) if found.uid == uid.as_str() && found.deletion_timestamp.is_none() => {
                Ok(())
            }
            Some(_) | None => {
                Err(Outcome::Conflict(format!("{resource} {key} does not exist or is terminating"))
                    .into())
            }
        }
    }

    /// Checks that an object no longer exists.
    ///
    /// # Errors
    /// The outcome of a write that requires it: a conflict, or unknown.
    pub async fn check_absent(
        &self,
        actor: &Actor,
        object: &ObjectReference,
    ) -> Result<(), WriteResponse> {
        let ObjectReference { resource, key, uid, .. } = object;
        match self.read_identity(actor, object).await? {
            Some(found) if found.uid == uid.as_str() => {
                Err(Outcome::Conflict(format!("{resource} {key} still exists")).into())
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Reads the UID and deletion timestamp of the object that has the key, if there is one.
    async fn read_identity(
        &self,
        actor: &Actor,
        object: &ObjectReference,
    ) -> Result<Option<IdentityMetadata>, WriteResponse> {
        self.limiter.wait().await;
        let unanswered = |why: String| Err(Outcome::Unknown(why).into());
        // An object with an invalid path cannot exist.
        let Ok(path) = object.resource.path(&object.key) else { return Ok(None) };
        let request = match build_request(Method::GET, &path, "", Vec::new()) {
            Ok(request) => request,
            Err(error) => return unanswered(error_chain(&error)),
        };
        match send_request(&actor.client, &self.clock, self.timeout, request).await {
            Ok(reply) if reply.status == StatusCode::NOT_FOUND => Ok(None),
            Ok(reply) if reply.status.is_success() => match serde_json::from_slice(&reply.body) {
                Ok(IdentityOnly { metadata }) => Ok(Some(metadata)),
                Err(error) => unanswered(format!("cannot decode the response: {error}")),
            },
            Ok(reply) => unanswered(reply.error_status().message),
            Err(error) => unanswered(error_chain(&error)),
        }
    }
}

fn impersonation_refused(user: &User) -> Refusal {
    Refusal {
        code: 403,
        reason: "Forbidden".to_owned(),
        message: format!("cannot impersonate user \"{}\" on this server", user.name),
    }
}

/// The outcome of a write to an object whose path is invalid.
fn invalid_path_refused(invalid: &InvalidPath) -> Outcome {
    let code = StatusCode::BAD_REQUEST.as_u16();
    let (reason, message) = ("BadRequest".to_owned(), invalid.to_string());
    Outcome::Refused(Refusal { code, reason, message })
}

/// The part of an object that tells whether it exists and stays.
#[derive(Deserialize)]
struct IdentityOnly {
    metadata: IdentityMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct IdentityMetadata {
    uid: String,
    deletion_timestamp: Option<String>,
}

#[cfg(test)]
mod tests;
