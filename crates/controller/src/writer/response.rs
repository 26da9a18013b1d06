//! Turns responses into outcomes.

use gantry_reconcile::{Outcome, Refusal, Write};
use http::StatusCode;
use serde_json::Value;

use super::WriteResponse;
use crate::api_request::{ApiResponse, Status};

/// The outcome of a write, by the server's response.
pub(super) fn parse_response(write: &Write, reply: &ApiResponse) -> WriteResponse {
    if reply.status.is_success() {
        return done(reply).into();
    }
    let status = reply.error_status();
    let wait = reply.retry_delay(&status);
    let outcome = match reply.status {
        StatusCode::CONFLICT | StatusCode::PRECONDITION_FAILED => Outcome::Conflict(status.message),
        // A wrong UID in a body is an attempt to change it, which is invalid.
        StatusCode::UNPROCESSABLE_ENTITY if is_about_identity(&status) => {
            Outcome::Conflict(status.message)
        }
        StatusCode::NOT_FOUND if is_about_object(write, &status) => Outcome::NotFound,
        StatusCode::TOO_MANY_REQUESTS if is_disruption_budget(write, &status) => {
            Outcome::Refused(Refusal {
                code: status.code,
                message: budget_message(&status),
                reason: status.reason,
            })
        }
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => {
            Outcome::Unknown(status.message)
        }
        code if code.is_server_error() => Outcome::Unknown(status.message),
        code => {
            let Status { message, reason, .. } = status;
            Outcome::Refused(Refusal { code: code.as_u16(), reason, message })
        }
    };
    WriteResponse { outcome, retry_after: wait }
}

/// The object in a successful response. A binding, and an immediate deletion, are answered with a
/// `Status`.
fn done(reply: &ApiResponse) -> Outcome {
    match serde_json::from_slice::<Value>(&reply.body) {
        Ok(body) if body["kind"] == "Status" => Outcome::Done(None),
        Ok(body) => Outcome::Done(Some(body)),
        // The response was cut short, or comes from a proxy.
        Err(error) => Outcome::Unknown(format!("cannot decode the response: {error}")),
    }
}

fn is_about_identity(status: &Status) -> bool {
    let causes = status.details.as_ref().map(|it| it.causes.as_slice()).unwrap_or_default();
    causes.iter().any(|cause| cause.field == "metadata.uid")
}

/// Whether an eviction was refused because of a PodDisruptionBudget. A server that is overloaded
/// has the same code, and has not decided anything.
fn is_disruption_budget(write: &Write, status: &Status) -> bool {
    matches!(write, Write::Evict { .. })
        && status.details.iter().flat_map(|it| &it.causes).any(|it| it.reason == DISRUPTION_BUDGET)
}

/// The reason of the cause in the response to an eviction that would violate a budget.
const DISRUPTION_BUDGET: &str = "DisruptionBudget";

/// The message of the server, with which budget it is about and what that lacks.
fn budget_message(status: &Status) -> String {
    let causes = status.details.iter().flat_map(|it| &it.causes);
    let causes = causes.map(|it| it.message.as_str()).filter(|it| !it.is_empty());
    [status.message.as_str()].into_iter().chain(causes).collect::<Vec<_>>().join(" ")
}

/// Whether the object was not found, and not its namespace or its kind.
fn is_about_object(write: &Write, status: &Status) -> bool {
    if let Write::Create { .. } = write {
        return false;
    }
    let Some(details) = &status.details else { return false };
    let elsewhere = details.kind == "namespaces" && write.resource().plural != "namespaces";
    details.name == write.key().name() && !elsewhere
}
