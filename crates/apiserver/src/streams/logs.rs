//! `pods/{name}/log`.

use http::header::{CACHE_CONTROL, HeaderValue};
use http::{Response, StatusCode};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use gantry_schema::Invalid;

use super::Located;
use crate::answer;
use crate::api::{Api, Ask};
use crate::body::{self, Body};
use crate::negotiate::LOG;
use crate::nodes::{Fault, LogOptions};
use crate::query::Query;
use crate::status::{Details, Refusal};

impl Api {
    /// Answers with the log of a container.
    pub(super) async fn log(&self, ask: &Ask) -> Result<Response<Body>, Refusal> {
        let name = &ask.target.name;
        let options = read(&ask.query, name, ask.now)?;
        let target = match self.locate(ask, Some(ask.query.text("container")))? {
            Located::On(target) => target,
            Located::Nowhere => return Ok(nothing()),
        };
        let nodes = self.nodes("log")?;
        let opened = nodes.logs(target, options).await;
        let chunks = opened.map_err(|fault| refusal(fault, name))?;
        let stop = self.0.stop.clone();
        let body = body::unfold((chunks, stop), |(mut chunks, stop)| async move {
            let next = tokio::select! {
                // Each may be dropped: the log waits where it is kept, and the other only waits.
                next = chunks.next() => next,
                () = stop.cancelled() => None,
            };
            next.map(|bytes| (bytes, (chunks, stop)))
        });
        Ok(answer::with_body(StatusCode::OK, LOG, body))
    }
}

/// The log of a pod that is on no node yet.
fn nothing() -> Response<Body> {
    let mut response = Response::new(body::full(""));
    *response.status_mut() = StatusCode::NO_CONTENT;
    let control = HeaderValue::from_static("no-cache, private");
    response.headers_mut().insert(CACHE_CONTROL, control);
    response
}

/// Reads and checks the options of a request for the log of `pod`.
fn read(query: &Query, pod: &str, now: Timestamp) -> Result<LogOptions, Refusal> {
    let flag = |name: &str| query.flag(name).unwrap_or(false);
    let tail = number(query, "tailLines")?;
    let limit = number(query, "limitBytes")?;
    let seconds = number(query, "sinceSeconds")?;
    let time = match query.get("sinceTime") {
        Some(text) => Some(gantry_builtin::whole_seconds(text).map_err(Refusal::bad_request)?),
        None => None,
    };
    let mut faults = Vec::new();
    if let Some(lines) = tail.filter(|lines| *lines < 0) {
        let rule = "must be greater than or equal to 0";
        faults.push(Invalid::value("tailLines", &json!(lines), rule));
    }
    let positive = "must be greater than 0";
    if let Some(bytes) = limit.filter(|bytes| *bytes < 1) {
        faults.push(Invalid::value("limitBytes", &json!(bytes), positive));
    }
    match (seconds, time) {
        (Some(_), Some(_)) => faults.push(Invalid::forbidden(
            // As Kubernetes writes the path that leads nowhere.
            "[]",
            "at most one of `sinceTime` or `sinceSeconds` may be specified",
        )),
        (Some(seconds), None) if seconds < 1 => {
            faults.push(Invalid::value("sinceSeconds", &json!(seconds), positive));
        }
        (Some(_) | None, None) | (None, Some(_)) => {}
    }
    if query.get("stream").is_some() {
        faults.push(Invalid::forbidden("stream", "may not be specified"));
    }
    if !faults.is_empty() {
        return Err(Refusal::invalid("", "PodLogOptions", pod, &faults));
    }
    let ago = |seconds| now.checked_sub(SignedDuration::from_secs(seconds));
    Ok(LogOptions {
        follow: flag("follow"),
        previous: flag("previous"),
        timestamps: flag("timestamps"),
        // Longer ago than any calendar has is the same as not said.
        since: time.or_else(|| seconds.and_then(|seconds| ago(seconds).ok())),
        tail: tail.and_then(|lines| u64::try_from(lines).ok()),
        limit: limit.and_then(|bytes| u64::try_from(bytes).ok()),
    })
}

/// A whole number. Unlike other parameters it may not be empty.
fn number(query: &Query, name: &str) -> Result<Option<i64>, Refusal> {
    match query.get(name) {
        Some("") => Err(Refusal::bad_request("strconv.ParseInt: parsing \"\": invalid syntax")),
        Some(_) | None => query.number(name),
    }
}

/// What a client is told when the node refuses.
fn refusal(fault: Fault, pod: &str) -> Refusal {
    match fault {
        Fault::NotNow(words) | Fault::Forbidden(words) => Refusal::bad_request(words),
        Fault::Failed(words) => Refusal::internal(&words),
        Fault::Unreachable(words) => Refusal::failure(words),
        // The words of the node are lost on the way.
        Fault::Unknown(_) => {
            let words = "the server could not find the requested resource";
            let words = format!("{words} ( pods/log {pod})");
            let mut refusal = Refusal::verdict(StatusCode::NOT_FOUND, "NotFound", words);
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
            let read = read(&Query::read(Some(query)), "p", now());
            assert_eq!(read.unwrap(), expected, "{query}");
        }
    }

    #[test]
    fn options_that_are_wrong_are_named() {
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
            let refusal = read(&Query::read(Some(query)), "p", now()).unwrap_err();
            assert_eq!((refusal.code.as_u16(), refusal.message), (code, words), "{query}");
        }
    }

    #[test]
    fn a_node_refuses_in_the_words_of_a_real_server() {
        let words = || "it is so".to_owned();
        let table = [
            (Fault::NotNow(words()), 400, "BadRequest", "it is so"),
            (Fault::Failed(words()), 500, "InternalError", "Internal error occurred: it is so"),
            (Fault::Unreachable(words()), 500, "", "it is so"),
            (
                Fault::Unknown(words()),
                404,
                "NotFound",
                "the server could not find the requested resource ( pods/log p)",
            ),
        ];
        for (fault, code, reason, message) in table {
            let refusal = refusal(fault, "p");
            let said = (refusal.code.as_u16(), refusal.reason, refusal.message.as_str());
            assert_eq!(said, (code, reason, message));
        }
    }
}
