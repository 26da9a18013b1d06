//! Serves HTTP: reads whole requests within bounds, and hands them to a function.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gantry_http_client::{
    AddressPolicy, Client, Limits as ClientLimits, PlainHttp, Settings, TlsError,
};
use gantry_process::clock::Clock;
use gantry_process::metrics::{BuildInfo, Metrics};
use gantry_process::tasks::{OnLoss, TaskMetrics, Tasks};
use gantry_serve::counters::Counters;
use gantry_serve::limits::{Limits, RequestClass, RequestLimits};
use gantry_serve::{Body, Options, Peer, ServeError, TransportSecurity, body};
use http::header::{ALLOW, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Connections of one listener at one time.
const MAX_CONNECTIONS: usize = 512;
/// Requests of one listener at one time: those that wait for a sleeping engine count.
const MAX_REQUESTS: usize = 512;
/// The largest head of a request.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// A request that was read.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    /// The path without its percent escapes.
    pub(crate) path: String,
    query: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Call {
    /// Returns the value of a query parameter; the last one if there are several.
    pub(crate) fn query(&self, name: &str) -> Option<String> {
        let pairs = self.query.rsplit('&').filter(|it| !it.is_empty());
        let pairs = pairs.map(|it| it.split_once('=').unwrap_or((it, "")));
        let mut decoded = pairs.map(|(name, value)| (decode(name, true), decode(value, true)));
        decoded.find(|(it, _)| it == name).map(|(_, value)| value)
    }

    /// Whether the caller presents a token.
    pub(crate) fn presents(&self, token: &str) -> bool {
        let given = self.headers.get(AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
        let expected = format!("Bearer {token}");
        // In constant time: how far a guess is right must not be measurable.
        aws_lc_rs::constant_time::verify_slices_are_equal(given, expected.as_bytes()).is_ok()
    }
}

/// Resolves percent escapes; what is no escape stays as it is.
fn decode(text: &str, plus_is_space: bool) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        let escaped = escaped.filter(|it| it.bytes().all(|it| it.is_ascii_hexdigit()));
        match escaped.and_then(|it| u8::from_str_radix(it, 16).ok()) {
            Some(byte) => {
                decoded.push(byte);
                at += 3;
            }
            None => {
                let is_space = plus_is_space && bytes[at] == b'+';
                decoded.push(if is_space { b' ' } else { bytes[at] });
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// Listens and answers each request with `answer`, until the tasks stop.
///
/// # Errors
/// The address cannot be listened on.
pub(crate) async fn listen<Answer, Answered>(
    tasks: &mut Tasks,
    name: &'static str,
    address: SocketAddr,
    bounds: ServerBounds,
    answer: Answer,
) -> Result<SocketAddr, ServeError>
where
    Answer: Fn(Call) -> Answered + Clone + Send + Sync + 'static,
    Answered: Future<Output = Response<Body>> + Send + 'static,
{
    let mut options = Options::new(address, TransportSecurity::PlainProtocol);
    options.max_connections = MAX_CONNECTIONS;
    options.max_head = MAX_HEAD_BYTES;
    options.timeouts.drain = bounds.drain;
    options.on_panic = OnLoss::CarryOn;
    let counters = new_counters();
    let limits = RequestLimits {
        max_body_bytes: bounds.max_body_bytes,
        max_long_running: MAX_REQUESTS,
        ..RequestLimits::default()
    };
    // What takes long here is bounded by what is waited for, not by a request's time.
    let classify = |_: &http::request::Parts| RequestClass::LongRunning;
    let limits = Limits::new(limits, tasks.clock().clone(), counters.clone(), classify);
    let service = move |request: Request<Incoming>, _: Arc<Peer>| {
        let (limits, answer) = (limits.clone(), answer.clone());
        async move {
            let answered = limits.handle(request, |request| async move {
                let (parts, content) = request.into_parts();
                let body = match content.read().await {
                    Ok(body) => body,
                    Err(refusal) => return *refusal,
                };
                answer(Call {
                    method: parts.method,
                    path: decode(parts.uri.path(), false),
                    query: parts.uri.query().unwrap_or_default().to_owned(),
                    headers: parts.headers,
                    body,
                })
                .await
            });
            answered.await
        }
    };
    gantry_serve::serve(tasks, name, options, counters, service).await
}

/// The bounds of a listener.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerBounds {
    pub(crate) max_body_bytes: usize,
    /// How long requests may take when the program stops.
    pub(crate) drain: Duration,
}

fn new_counters() -> Counters {
    let metrics = Metrics::new(&BuildInfo::default());
    Counters::register(&metrics).expect("the metrics were made right here and are empty")
}

/// Makes an owner of tasks for a program that is a process of its own.
#[must_use]
pub(crate) fn root_tasks(clock: Clock, stop: &CancellationToken) -> Tasks {
    let metrics = Metrics::new(&BuildInfo::default());
    let metrics =
        TaskMetrics::register(&metrics).expect("the metrics were made right here and are empty");
    Tasks::new(clock, metrics, fastrand::Rng::new(), stop)
}

/// Makes a client of programs in pods: plain HTTP, whose answers may take `idle`.
pub(crate) fn pod_client(clock: Clock, idle: Duration) -> Result<Client, TlsError> {
    let mut settings = Settings::new("gantry");
    settings.plain_http = PlainHttp::Anywhere;
    settings.addresses = AddressPolicy::AllowLoopback;
    settings.timeouts.idle = idle;
    settings.limits = ClientLimits { requests: MAX_REQUESTS, ..settings.limits };
    Client::new(clock, settings)
}

/// The URL of a path at an address.
pub(crate) fn url(address: IpAddr, port: u16, path_and_query: &str) -> String {
    format!("http://{}{path_and_query}", SocketAddr::from((address, port)))
}

/// Answers with text.
pub(crate) fn text(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    respond(status, "text/plain; charset=utf-8", text)
}

/// Answers with JSON.
pub(crate) fn json(status: StatusCode, value: &Value) -> Response<Body> {
    respond(status, "application/json", value.to_string())
}

/// Answers with an error in the form of the launcher.
pub(crate) fn detail(status: StatusCode, detail: impl Into<Value>) -> Response<Body> {
    json(status, &json!({"detail": detail.into()}))
}

/// Answers that a path has other methods.
pub(crate) fn method_not_allowed(allowed: &'static str) -> Response<Body> {
    let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed\n");
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

/// Answers with bytes of a type.
pub(crate) fn respond(
    status: StatusCode,
    content_type: &'static str,
    bytes: impl Into<Bytes>,
) -> Response<Body> {
    let mut response = Response::new(body::full(bytes));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_resolved() {
        let table = [
            ("a%20b", "a b"),
            ("%41%zz%4", "A%zz%4"),
            ("%+1", "%+1"),
            ("%", "%"),
            ("%c3%a4", "ä"),
            ("%ä1", "%ä1"),
        ];
        for (text, expected) in table {
            assert_eq!(decode(text, false), expected, "{text}");
        }
        assert_eq!(decode("a+b", true), "a b");
    }

    #[test]
    fn the_last_parameter_counts() {
        let call = Call {
            method: Method::GET,
            path: "/".to_owned(),
            query: "a=1&b&a=%32".to_owned(),
            headers: HeaderMap::new(),
            body: Bytes::new(),
        };
        assert_eq!(call.query("a").as_deref(), Some("2"));
        assert_eq!(call.query("b").as_deref(), Some(""));
        assert_eq!(call.query("c"), None);
        assert!(!call.presents("x"));
    }
}
