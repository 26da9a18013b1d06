//! Carries writes out, fenced and within a time.
//!
//! A write is refused by the server when what it was planned from has changed, and refused here when
//! this process may no longer lead. Nothing is repeated: the next plan is made from what is true then.

use std::sync::Arc;
use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_process::error_chain;
use gantry_reconcile::{InvalidPath, Outcome, Reference, Refusal, User, Write};
use http::{Method, StatusCode};
use serde::Deserialize;

use crate::ask::{ask, request};
use crate::lease::{NotLeading, Permit};
use crate::rate::Limiter;
use crate::run::Actor;

mod answer;
mod form;

pub use form::{Form, form};

/// Sends writes.
#[derive(Clone, Debug)]
pub struct Writer {
    pub(crate) clock: Clock,
    pub(crate) limiter: Arc<Limiter>,
    pub(crate) permit: Permit,
    /// How long one write may take.
    pub(crate) limit: Duration,
}

/// The user in whose name a request is made, among the extensions of the request. It never leaves the process:
/// an extension is no header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnBehalfOf(pub User);

/// What became of a write, and when the server wants to hear of it again.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// What became of it.
    pub outcome: Outcome,
    /// The wait the server asked for.
    pub wait: Option<Duration>,
}

impl From<Outcome> for Answer {
    fn from(outcome: Outcome) -> Self {
        Self { outcome, wait: None }
    }
}

impl Writer {
    /// A writer for one who asks now and then, leads nobody and competes with nobody.
    #[must_use]
    pub fn alone(clock: Clock, limit: Duration) -> Self {
        let limiter = Arc::new(Limiter::new(clock.clone(), None));
        Self { permit: Permit::always(clock.clone()), clock, limiter, limit }
    }

    /// Carries out one write in the name of an actor, or of the user for whom it acts.
    ///
    /// A write is not sent after the permit has lapsed, and one that is under way then is dropped: the
    /// lease is longer than the permit by more than a write that was sent takes to arrive. Dropping the
    /// future gives the write up in the same way.
    pub async fn write(&self, actor: &Actor, write: &Write, user: Option<&User>) -> Answer {
        let request = match form(write, &actor.manager) {
            Ok(form) => form.request(),
            // It is never sent, and never will be: that is a refusal as a server would give it.
            Err(invalid) => return refused(&invalid).into(),
        };
        let mut request = match request {
            Ok(request) => request,
            Err(error) => return Outcome::Unanswered(error_chain(&error)).into(),
        };
        if let Some(user) = user {
            if !actor.acts_for_users {
                return Outcome::Refused(cannot_act_for(user)).into();
            }
            request.extensions_mut().insert(OnBehalfOf(user.clone()));
        }
        self.limiter.turn().await;
        // The last moment before it is sent.
        if let Err(no) = self.permit.check() {
            return Outcome::Unanswered(no.to_string()).into();
        }
        tokio::select! {
            // In this order: a process that was stopped for a while looks at the time first.
            biased;
            // May be dropped: it only waits.
            () = self.permit.lapsed() => Outcome::Unanswered(NotLeading.to_string()).into(),
            // May be dropped: nobody knows then whether the write took, and that is what is said.
            reply = ask(&actor.client, &self.clock, self.limit, request) => match reply {
                Ok(reply) => answer::read(write, &reply),
                Err(error) => Outcome::Unanswered(error_chain(&error)).into(),
            },
        }
    }
}

impl Writer {
    /// Makes sure that an object is there and not going.
    ///
    /// # Errors
    /// What becomes of a write that depends on it: it is stale, or nobody knows.
    pub async fn find(&self, actor: &Actor, object: &Reference) -> Result<(), Answer> {
        let Reference { resource, key, uid, .. } = object;
        match self.look(actor, object).await? {
            Some(found) if found.uid == uid.as_str() && found.deletion_timestamp.is_none() => {
                Ok(())
            }
            Some(_) | None => {
                Err(Outcome::Stale(format!("{resource} {key} is gone or going")).into())
            }
        }
    }

    /// Makes sure that an object is not there any more.
    ///
    /// # Errors
    /// What becomes of a write that depends on it: it is stale, or nobody knows.
    pub async fn miss(&self, actor: &Actor, object: &Reference) -> Result<(), Answer> {
        let Reference { resource, key, uid, .. } = object;
        match self.look(actor, object).await? {
            Some(found) if found.uid == uid.as_str() => {
                Err(Outcome::Stale(format!("{resource} {key} is still there")).into())
            }
            Some(_) | None => Ok(()),
        }
    }

    /// What has the name of an object.
    async fn look(&self, actor: &Actor, object: &Reference) -> Result<Option<Identity>, Answer> {
        self.limiter.turn().await;
        let unanswered = |why: String| Err(Outcome::Unanswered(why).into());
        // What cannot be addressed cannot be there.
        let Ok(path) = object.resource.path(&object.key) else { return Ok(None) };
        let request = match request(Method::GET, &path, "", Vec::new()) {
            Ok(request) => request,
            Err(error) => return unanswered(error_chain(&error)),
        };
        match ask(&actor.client, &self.clock, self.limit, request).await {
            Ok(reply) if reply.status == StatusCode::NOT_FOUND => Ok(None),
            Ok(reply) if reply.status.is_success() => match serde_json::from_slice(&reply.body) {
                Ok(Named { metadata }) => Ok(Some(metadata)),
                Err(error) => unanswered(format!("cannot read the answer: {error}")),
            },
            Ok(reply) => unanswered(reply.refusal().message),
            Err(error) => unanswered(error_chain(&error)),
        }
    }
}

fn cannot_act_for(user: &User) -> Refusal {
    Refusal {
        code: 403,
        reason: "Forbidden".to_owned(),
        message: format!("cannot write in the name of user \"{}\" on this server", user.name),
    }
}

/// What becomes of a write to an object that no server can have.
fn refused(invalid: &InvalidPath) -> Outcome {
    let code = StatusCode::BAD_REQUEST.as_u16();
    let (reason, message) = ("BadRequest".to_owned(), invalid.to_string());
    Outcome::Refused(Refusal { code, reason, message })
}

/// As much of an object as tells whether it stays.
#[derive(Deserialize)]
struct Named {
    metadata: Identity,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Identity {
    uid: String,
    deletion_timestamp: Option<String>,
}

#[cfg(test)]
mod tests;
