//! What an answer means.

use gantry_reconcile::{Outcome, Refusal, Write};
use http::StatusCode;
use serde_json::Value;

use super::Answer;
use crate::ask::{Reply, Status};

/// What became of a write, by the server's answer.
pub(super) fn read(write: &Write, reply: &Reply) -> Answer {
    if reply.status.is_success() {
        return done(reply).into();
    }
    let status = reply.refusal();
    let wait = reply.wait(&status);
    let outcome = match reply.status {
        StatusCode::CONFLICT | StatusCode::PRECONDITION_FAILED => Outcome::Stale(status.message),
        // A wrong identity in a body is an attempt to change it, which is invalid.
        StatusCode::UNPROCESSABLE_ENTITY if is_about_identity(&status) => {
            Outcome::Stale(status.message)
        }
        StatusCode::NOT_FOUND if is_about_object(write, &status) => Outcome::Absent,
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => {
            Outcome::Unanswered(status.message)
        }
        code if code.is_server_error() => Outcome::Unanswered(status.message),
        code => {
            let Status { message, reason, .. } = status;
            Outcome::Refused(Refusal { code: code.as_u16(), reason, message })
        }
    };
    Answer { outcome, wait }
}

/// The object of a good answer. A binding, and a deletion at once, are answered with a `Status`.
fn done(reply: &Reply) -> Outcome {
    match serde_json::from_slice::<Value>(&reply.body) {
        Ok(body) if body["kind"] == "Status" => Outcome::Done(None),
        Ok(body) => Outcome::Done(Some(body)),
        // It broke off, or something in between answered.
        Err(error) => Outcome::Unanswered(format!("cannot read the answer: {error}")),
    }
}

fn is_about_identity(status: &Status) -> bool {
    let causes = status.details.as_ref().map(|it| it.causes.as_slice()).unwrap_or_default();
    causes.iter().any(|cause| cause.field == "metadata.uid")
}

/// Whether it is the object that was not found, and not its namespace or its kind.
fn is_about_object(write: &Write, status: &Status) -> bool {
    if let Write::Create { .. } = write {
        return false;
    }
    let Some(details) = &status.details else { return false };
    let elsewhere = details.kind == "namespaces" && write.resource().plural != "namespaces";
    details.name == write.key().name() && !elsewhere
}
