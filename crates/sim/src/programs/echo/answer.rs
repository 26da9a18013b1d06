//! What the program `echo` answers.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use gantry_process::clock::Clock;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode, header};
use serde_json::{Map, Value, json};

use super::super::{ApiBody, Later, Setting};
use super::{ALLOW, API_TIMEOUT};

/// The largest file or answer of the API server that is shown.
const SHOWN_BYTES: usize = 1 << 20;

/// The program, and what it may show.
pub(super) struct Service {
    pub(super) setting: Setting,
    allowed: BTreeSet<String>,
    ready: AtomicBool,
}

impl Service {
    pub(super) fn new(setting: Setting) -> Self {
        let allowed = setting.environment.get(ALLOW).map(String::as_str).unwrap_or_default();
        let allowed = allowed.split(',').map(|it| it.trim().to_owned()).collect();
        Self { setting, allowed, ready: AtomicBool::new(false) }
    }

    pub(super) fn set_ready(&self, is_ready: bool) {
        self.ready.store(is_ready, Ordering::SeqCst);
        (self.setting.set_ready)(is_ready);
    }

    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
        clock: &Clock,
    ) -> Response<Full<Bytes>> {
        let path = request.uri().path().to_owned();
        let method = request.method().clone();
        match path.as_str() {
            "/healthz" => text(StatusCode::OK, "ok"),
            "/ready" if method == Method::GET => match self.ready.load(Ordering::SeqCst) {
                true => text(StatusCode::OK, "true"),
                false => text(StatusCode::SERVICE_UNAVAILABLE, "false"),
            },
            "/ready" | "/env" | "/file" | "/api" => {
                let what = path.trim_start_matches('/');
                if !self.allowed.contains(what) {
                    // Everybody on this machine can connect to the addresses of pods.
                    let words = format!(
                        "not shown: set the variable {ALLOW} of the container to a list that has \
                         {what} in it, such as {ALLOW}=env,file,api,ready"
                    );
                    return text(StatusCode::FORBIDDEN, &words);
                }
                // Not the request itself: its body cannot be looked at by two at once.
                let named = parameter(&request, "path");
                match what {
                    "ready" => self.change_ready(request).await,
                    "env" => as_json(&json!(self.setting.environment)),
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
            _ => return text(StatusCode::BAD_REQUEST, "the body must be true or false"),
        }
        text(StatusCode::OK, "set")
    }

    /// A file of a volume of this container, and no other.
    async fn file(&self, path: Option<String>) -> Response<Full<Bytes>> {
        let Some(path) = path else {
            return text(StatusCode::BAD_REQUEST, "name a file: /file?path=/etc/name");
        };
        match self.setting.mounts.read(&path, SHOWN_BYTES).await {
            Ok(bytes) => Response::new(Full::new(bytes.into())),
            Err(error) => text(StatusCode::NOT_FOUND, &error.to_string()),
        }
    }

    /// What the API server answers the account of this pod.
    async fn api(&self, path: Option<String>, clock: &Clock) -> Response<Full<Bytes>> {
        let Some(path) = path.filter(|it| it.starts_with('/')) else {
            return text(StatusCode::BAD_REQUEST, "name a path: /api?path=/api/v1/namespaces");
        };
        let Some(api) = &self.setting.api else {
            return text(StatusCode::NOT_IMPLEMENTED, "this pod has no API server");
        };
        let Ok(question) = Request::get(&path).body(Bytes::new()) else {
            return text(StatusCode::BAD_REQUEST, "that is no path");
        };
        match ask(api.send(question), clock.clone()).await {
            Ok((status, body)) => {
                let mut response = Response::new(Full::new(body));
                *response.status_mut() = status;
                response
            }
            Err(words) => text(StatusCode::BAD_GATEWAY, &words),
        }
    }

    fn echo(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let text =
            |value: &header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let mut headers = Map::new();
        for (name, value) in request.headers() {
            headers.insert(name.to_string(), json!(text(value)));
        }
        as_json(&json!({
            "pod": self.setting.pod.name(),
            "namespace": self.setting.pod.namespace(),
            "method": request.method().as_str(),
            "path": request.uri().path_and_query().map_or("/", |it| it.as_str()),
            "headers": Value::Object(headers),
        }))
    }
}

type Asked = Later<'static, Result<Response<ApiBody>, String>>;

/// The whole answer of the API server, unless it is too large or too late.
fn ask(asked: Asked, clock: Clock) -> Later<'static, Result<(StatusCode, Bytes), String>> {
    Box::pin(async move {
        let answer: Later<'static, Result<(StatusCode, Bytes), String>> = Box::pin(async move {
            let (head, mut body) = asked.await?.into_parts();
            let mut whole = Vec::new();
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|error| error.to_string())?;
                let data = frame.into_data().unwrap_or_default();
                if whole.len() + data.len() > SHOWN_BYTES {
                    return Err("the answer is too large to be shown".to_owned());
                }
                whole.extend_from_slice(&data);
            }
            Ok((head.status, whole.into()))
        });
        clock.timeout(API_TIMEOUT, answer).await.map_err(|late| late.to_string())?
    })
}

fn text(status: StatusCode, words: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(format!("{words}\n"))));
    *response.status_mut() = status;
    response
}

fn as_json(body: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(format!("{body}\n"))));
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// A parameter of the query, decoded.
fn parameter(request: &Request<Incoming>, name: &str) -> Option<String> {
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
