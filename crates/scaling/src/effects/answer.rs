//! Answers in the form in which API servers give them.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};

use super::call::CallError;
use crate::pool::Pool;
use gantry_reconcile::View as _;

/// An answer.
pub(super) type Reply = Response<Full<Bytes>>;

/// An object.
pub(super) fn object(status: StatusCode, object: &Value) -> Reply {
    let mut reply = Response::new(Full::new(Bytes::from(object.to_string())));
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    reply
}

/// That it was done, and there is nothing to show.
pub(super) fn done() -> Reply {
    object(StatusCode::OK, &json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
}

/// A no.
pub(super) fn refusal(status: StatusCode, reason: &str, name: &str, message: &str) -> Reply {
    let body = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "reason": reason,
        "details": {"name": name, "kind": Pool::RESOURCE.plural, "group": Pool::RESOURCE.group},
        "code": status.as_u16(),
    });
    object(status, &body)
}

/// That there is no such pool.
pub(super) fn absent(name: &str) -> Reply {
    refusal(StatusCode::NOT_FOUND, "NotFound", name, &format!("pool {name:?} not found"))
}

/// Why the service did not do it. What may work later is told apart from what never will.
pub(super) fn failed(name: &str, error: &CallError) -> Reply {
    match error {
        CallError::Refused { code, .. } => {
            let status = StatusCode::from_u16(*code).unwrap_or(StatusCode::BAD_GATEWAY);
            let (status, reason) = match status {
                StatusCode::CONFLICT => (status, "AlreadyExists"),
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => (status, "Forbidden"),
                // A 404 here is the cluster's, and must not read as the pool's.
                StatusCode::NOT_FOUND => (StatusCode::FAILED_DEPENDENCY, "ClusterNotFound"),
                _ => (status, "Invalid"),
            };
            refusal(status, reason, name, &error.to_string())
        }
        CallError::Later { wait, .. } => {
            let status = StatusCode::SERVICE_UNAVAILABLE;
            let mut reply = refusal(status, "ServiceUnavailable", name, &error.to_string());
            if let Some(wait) = wait {
                reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from(wait.as_secs()));
            }
            reply
        }
        CallError::Address(_) | CallError::Tls(_) => {
            refusal(StatusCode::BAD_GATEWAY, "Unreachable", name, &error.to_string())
        }
    }
}
