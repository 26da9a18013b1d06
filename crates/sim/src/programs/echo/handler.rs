//! The responses of the program `echo`.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use gantry_process::clock::Clock;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode, header};
use serde_json::{Map, Value, json};

use super::super::{ApiBody, BoxFuture, ProgramContext};
use super::{ALLOW_VARIABLE, API_TIMEOUT};

/// The largest file or API response that is shown.
const MAX_BODY_BYTES: usize = 1 << 20;

/// The program, and what it may show.
pub(super) struct EchoService {
    pub(super) context: ProgramContext,
    allowed: BTreeSet<String>,
    ready: AtomicBool,
}

impl EchoService {
    pub(super) fn new(context: ProgramContext) -> Self {
        let allowed =
            context.environment.get(ALLOW_VARIABLE).map(String::as_str).unwrap_or_default();
        let allowed = allowed.split(',').map(|it| it.trim().to_owned()).collect();
        Self { context, allowed, ready: AtomicBool::new(false) }
    }

    pub(super) fn set_ready(&self, is_ready: bool) {
        self.ready.store(is_ready, Ordering::SeqCst);
        (self.context.set_ready)(is_ready);
    }

    pub(super) async fn handle(
        &self,
        request: Request<Incoming>,
        clock: &Clock,
    ) -> Response<Full<Bytes>> {
        let path = request.uri().path().to_owned();
        let method = request.method().clone();
        match path.as_str() {
            "/healthz" => text_response(StatusCode::OK, "ok"),
            "/ready" if method == Method::GET => match self.ready.load(Ordering::SeqCst) {
                true => text_response(StatusCode::OK, "true"),
                false => text_response(StatusCode::SERVICE_UNAVAILABLE, "false"),
            },
            "/ready" | "/env" | "/devices" | "/file" | "/api" => {
                let what = path.trim_start_matches('/');
                if !self.allowed.contains(what) {
                    // Every user of this machine can connect to the addresses of pods.
                    let message = format!(
                        "not shown: set the variable {ALLOW_VARIABLE} of the container to a list \
                         that has {what} in it, such as {ALLOW_VARIABLE}=env,devices,file,api,ready"
                    );
                    return text_response(StatusCode::FORBIDDEN, &message);
                }
                // Not the request itself: its body cannot be shared between threads.
                let named = query_parameter(&request, "path");
                match what {
                    "ready" => self.change_ready(request).await,
                    "env" => json_response(&json!(self.context.environment)),
                    "devices" => json_response(&json!(self.context.devices)),
                    "file" => self.file(named).await,
                    _ => self.api(named, clock).await,
                }
            }
            _ => self.echo(&request),
        }
    }

    async fn change_ready(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let body = Limited::new(request.into_body(), 16).collect().await;
        let body = body.map(|it| it.to_bytes()).unwrap_or_default();
        match body.as_ref().trim_ascii() {
            b"true" => self.set_ready(true),
            b"false" => self.set_ready(false),
            _ => return text_response(StatusCode::BAD_REQUEST, "the body must be true or false"),
        }
        text_response(StatusCode::OK, "set")
    }

    /// Returns a file of a volume of this container, and no other.
    async fn file(&self, path: Option<String>) -> Response<Full<Bytes>> {
        let Some(path) = path else {
            return text_response(StatusCode::BAD_REQUEST, "name a file: /file?path=/etc/name");
        };
        match self.context.mounts.read(&path, MAX_BODY_BYTES).await {
            Ok(bytes) => Response::new(Full::new(bytes.into())),
            Err(error) => text_response(StatusCode::NOT_FOUND, &error.to_string()),
        }
    }

    /// Returns the response of the API server to the service account of this pod.
    async fn api(&self, path: Option<String>, clock: &Clock) -> Response<Full<Bytes>> {
        let Some(path) = path.filter(|it| it.starts_with('/')) else {
            return text_response(
                StatusCode::BAD_REQUEST,
                "name a path: /api?path=/api/v1/namespaces",
            );
        };
        let Some(api) = &self.context.api else {
            return text_response(StatusCode::NOT_IMPLEMENTED, "this pod has no API server");
        };
        let Ok(question) = Request::get(&path).body(Bytes::new()) else {
            return text_response(StatusCode::BAD_REQUEST, "the value of path is not a path");
        };
        match read_api_response(api.send(question), clock.clone()).await {
            Ok((status, body)) => {
                let mut response = Response::new(Full::new(body));
                *response.status_mut() = status;
                response
            }
            Err(message) => text_response(StatusCode::BAD_GATEWAY, &message),
        }
    }

    fn echo(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let text =
            |value: &header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let mut headers = Map::new();
        for (name, value) in request.headers() {
            headers.insert(name.to_string(), json!(text(value)));
        }
        json_response(&json!({
            "pod": self.context.pod.name(),
            "namespace": self.context.pod.namespace(),
            "method": request.method().as_str(),
            "path": request.uri().path_and_query().map_or("/", |it| it.as_str()),
            "headers": Value::Object(headers),
        }))
    }
}

type ApiResponseFuture = BoxFuture<'static, Result<Response<ApiBody>, String>>;

/// Reads the whole response of the API server, unless it is too large or too late.
fn read_api_response(
    asked: ApiResponseFuture,
    clock: Clock,
) -> BoxFuture<'static, Result<(StatusCode, Bytes), String>> {
    Box::pin(async move {
        let answer: BoxFuture<'static, Result<(StatusCode, Bytes), String>> =
            Box::pin(async move {
                let (head, mut body) = asked.await?.into_parts();
                let mut whole = Vec::new();
                while let Some(frame) = body.frame().await {
                    let frame = frame.map_err(|error| error.to_string())?;
                    let data = frame.into_data().unwrap_or_default();
                    if whole.len() + data.len() > MAX_BODY_BYTES {
                        return Err("the response is too large".to_owned());
                    }
                    whole.extend_from_slice(&data);
                }
                Ok((head.status, whole.into()))
            });
        clock.timeout(API_TIMEOUT, answer).await.map_err(|late| late.to_string())?
    })
}

fn text_response(status: StatusCode, message: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(format!("{message}\n"))));
    *response.status_mut() = status;
    response
}

fn json_response(body: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(format!("{body}\n"))));
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// Returns a parameter of the query, decoded.
fn query_parameter(request: &Request<Incoming>, name: &str) -> Option<String> {
    let query = request.uri().query()?;
    let pair = query.split('&').filter_map(|it| it.split_once('=')).find(|(it, _)| *it == name)?;
    let (mut bytes, mut rest) = (Vec::new(), pair.1.as_bytes());
    while let [first, after @ ..] = rest {
        rest = after;
        if *first == b'%' {
            let (digits, after) = after.split_at_checked(2)?;
            bytes.push(u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?);
            rest = after;
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).ok()
}
