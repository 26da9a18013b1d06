//! `pods/{name}/log`.

use http::header::{CACHE_CONTROL, HeaderValue};
use http::{Response, StatusCode};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use gantry_schema::FieldError;

use super::PodLocation;
use crate::api::{Api, ResourceRequest};
use crate::request::body::{self, Body};
use crate::request::negotiate::LOG_MEDIA_TYPE;
use crate::request::query::Query;
use crate::response;
use crate::response::status::{Details, StatusError};
use crate::streams::kubelet_client::{KubeletError, LogOptions};

impl Api {
    /// Responds with the log of a container.
    pub(super) async fn log(&self, ask: &ResourceRequest) -> Result<Response<Body>, StatusError> {
        let name = &ask.target.name;
        let options = read_options(&ask.query, name, ask.now)?;
        let target = match self.locate(ask, Some(ask.query.text("container")))? {
            PodLocation::Scheduled(target) => target,
            PodLocation::Unscheduled => return Ok(empty_log()),
        };
        let nodes = self.kubelet_client("log")?;
        let opened = nodes.logs(target, options).await;
        let chunks = opened.map_err(|fault| log_error(fault, name))?;
        let stop = self.0.stop.clone();
        let body = body::unfold((chunks, stop), |(mut chunks, stop)| async move {
            let next = tokio::select! {
                // Cancel-safe: the log is not consumed, and the other branch only waits.
                next = chunks.next() => next,
                () = stop.cancelled() => None,
            };
            next.map(|bytes| (bytes, (chunks, stop)))
        });
        Ok(response::with_body(StatusCode::OK, LOG_MEDIA_TYPE, body))
    }
}

/// Returns the response for a pod that is on no node yet.
fn empty_log() -> Response<Body> {
    let mut response = Response::new(body::full(""));
    *response.status_mut() = StatusCode::NO_CONTENT;
    let control = HeaderValue::from_static("no-cache, private");
    response.headers_mut().insert(CACHE_CONTROL, control);
    response
}

/// Reads and checks the options of a request for the log of `pod`.
fn read_options(query: &Query, pod: &str, now: Timestamp) -> Result<LogOptions, StatusError> {
    let flag = |name: &str| query.flag(name).unwrap_or(false);
    let tail = number(query, "tailLines")?;
    let limit = number(query, "limitBytes")?;
    let seconds = number(query, "sinceSeconds")?;
    let time = match query.get("sinceTime") {
        Some(text) => Some(gantry_builtin::whole_seconds(text).map_err(StatusError::bad_request)?),
        None => None,
    };
    let mut faults = Vec::new();
    if let Some(lines) = tail.filter(|lines| *lines < 0) {
        let rule = "must be greater than or equal to 0";
        faults.push(FieldError::invalid("tailLines", &json!(lines), rule));
    }
    let positive = "must be greater than 0";
    if let Some(bytes) = limit.filter(|bytes| *bytes < 1) {
        faults.push(FieldError::invalid("limitBytes", &json!(bytes), positive));
    }
    match (seconds, time) {
        (Some(_), Some(_)) => faults.push(FieldError::forbidden(
            // The field path that Kubernetes has here.
            "[]",
            "at most one of `sinceTime` or `sinceSeconds` may be specified",
        )),
        (Some(seconds), None) if seconds < 1 => {
            faults.push(FieldError::invalid("sinceSeconds", &json!(seconds), positive));
        }
        (Some(_) | None, None) | (None, Some(_)) => {}
    }
    if query.get("stream").is_some() {
        faults.push(FieldError::forbidden("stream", "may not be specified"));
    }
    if !faults.is_empty() {
        return Err(StatusError::invalid("", "PodLogOptions", pod, &faults));
    }
    let ago = |seconds| now.checked_sub(SignedDuration::from_secs(seconds));
    Ok(LogOptions {
        follow: flag("follow"),
        previous: flag("previous"),
        timestamps: flag("timestamps"),
        // A time before the range of timestamps counts as not given.
        since: time.or_else(|| seconds.and_then(|seconds| ago(seconds).ok())),
        tail: tail.and_then(|lines| u64::try_from(lines).ok()),
        limit: limit.and_then(|bytes| u64::try_from(bytes).ok()),
    })
}

/// Reads an integer. Unlike other parameters it may not be empty.
fn number(query: &Query, name: &str) -> Result<Option<i64>, StatusError> {
    match query.get(name) {
        Some("") => Err(StatusError::bad_request("strconv.ParseInt: parsing \"\": invalid syntax")),
        Some(_) | None => query.number(name),
    }
}

/// Returns the error for a client when the node refuses.
fn log_error(fault: KubeletError, pod: &str) -> StatusError {
    match fault {
        KubeletError::NotReady(words) | KubeletError::Forbidden(words) => {
            StatusError::bad_request(words)
        }
        KubeletError::Failed(words) => StatusError::internal(&words),
        KubeletError::Unreachable(words) => StatusError::failure(words),
        // The message of the node is dropped, as upstream.
        KubeletError::NotFound(_) => {
            let words = "the server could not find the requested resource";
            let words = format!("{words} ( pods/log {pod})");
            let mut refusal = StatusError::denial(StatusCode::NOT_FOUND, "NotFound", words);
            refusal.details = Some(Box::new(Details {
                name: pod.to_owned(),
                kind: "pods/log".to_owned(),
                ..Details::default()
            }));
            refusal
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-01-02T03:04:05.678Z".parse().unwrap()
    }

    #[test]
    fn options_are_read() {
        let moment = |text: &str| Some(text.parse::<Timestamp>().unwrap());
        let none = LogOptions::default;
        let table = [
            ("", none()),
            ("follow=false&previous=0&timestamps=False", none()),
            (
                "follow=true&previous=1&timestamps=",
                LogOptions { follow: true, previous: true, timestamps: true, ..none() },
            ),
            ("tailLines=0&limitBytes=1", LogOptions { tail: Some(0), limit: Some(1), ..none() }),
            ("sinceSeconds=5", LogOptions { since: moment("2026-01-02T03:04:00.678Z"), ..none() }),
            (
                "sinceTime=2026-01-02T04:04:00.9%2B01:00",
                LogOptions { since: moment("2026-01-02T03:04:00Z"), ..none() },
            ),
            ("sinceTime=", LogOptions { since: moment("0001-01-01T00:00:00Z"), ..none() }),
            ("sinceSeconds=9223372036854775807", none()),
            ("insecureSkipTLSVerifyBackend=true&unknown=1", none()),
        ];
        for (query, expected) in table {
            let read = read_options(&Query::read(Some(query)), "p", now());
            assert_eq!(read.unwrap(), expected, "{query}");
        }
    }

    #[test]
    fn invalid_options_are_named() {
        let invalid = |faults: &str| format!("PodLogOptions \"p\" is invalid: {faults}");
        let both = "[]: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified";
        let many = "[tailLines: Invalid value: -1: must be greater than or equal to 0, limitBytes: \
                    Invalid value: 0: must be greater than 0, sinceSeconds: Invalid value: 0: must \
                    be greater than 0]";
        let parse = |text: &str| format!("strconv.ParseInt: parsing \"{text}\": invalid syntax");
        let layout = "\"2006-01-02T15:04:05Z07:00\": cannot parse \"yesterday\" as \"2006\"";
        let table = [
            ("tailLines=-1&limitBytes=0&sinceSeconds=0", 422, invalid(many)),
            ("sinceSeconds=1&sinceTime=2020-01-01T00:00:00Z", 422, invalid(both)),
            ("sinceSeconds=0&sinceTime=", 422, invalid(both)),
            ("stream=All", 422, invalid("stream: Forbidden: may not be specified")),
            ("tailLines=x", 400, parse("x")),
            ("tailLines=", 400, parse("")),
            ("sinceTime=yesterday", 400, format!("parsing time \"yesterday\" as {layout}")),
        ];
        for (query, code, words) in table {
            let refusal = read_options(&Query::read(Some(query)), "p", now()).unwrap_err();
            assert_eq!((refusal.code.as_u16(), refusal.message), (code, words), "{query}");
        }
    }

    #[test]
    fn kubelet_errors_have_kubernetes_messages() {
        let words = || "it is so".to_owned();
        let table = [
            (KubeletError::NotReady(words()), 400, "BadRequest", "it is so"),
            (
                KubeletError::Failed(words()),
                500,
                "InternalError",
                "Internal error occurred: it is so",
            ),
            (KubeletError::Unreachable(words()), 500, "", "it is so"),
            (
                KubeletError::NotFound(words()),
                404,
                "NotFound",
                "the server could not find the requested resource ( pods/log p)",
            ),
        ];
        for (fault, code, reason, message) in table {
            let refusal = log_error(fault, "p");
            let said = (refusal.code.as_u16(), refusal.reason, refusal.message.as_str());
            assert_eq!(said, (code, reason, message));
        }
    }
}
