//! One case talking to one server, written down.

mod request;
mod socket;
mod webhook;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_testkit::http::{Client, SendCause, SendError, Stream};
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};

use crate::case::{CaseError, Outcome};
use crate::response::{Body, Response};
use crate::transcript::{Caller, Exchange, RecordedRequest, Transcript};

pub use request::{PatchType, RequestSpec};
pub use socket::{WEBSOCKET_ACCEPT, WebSocketWatch};

/// Stands for the namespace of the case in paths, bodies and expected texts.
pub const NAMESPACE_PLACEHOLDER: &str = "{ns}";

/// The safety net for anything that must come: many times what a loaded real server needs, so that
/// it ends a hopeless wait and decides nothing else.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// Between two looks at something that changes by itself.
const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// A case talking to a server.
#[derive(Debug)]
pub struct Session {
    clients: Clients,
    clock: Clock,
    transcript: Transcript,
    /// Paths of cluster-wide objects to delete at the end.
    cleanup_paths: Vec<String>,
}

/// The two parties a case may speak as.
#[derive(Clone, Debug)]
pub struct Clients {
    /// May do everything.
    pub admin: Client,
    /// Shows no credentials.
    pub anonymous: Client,
}

/// A watch that is open while the case goes on.
#[derive(Debug)]
pub struct Watch {
    request: RecordedRequest,
    stream: Stream,
    /// The exchanges so far.
    events: Vec<Value>,
    /// Whether the server has ended it.
    ended: bool,
}

/// When a case has seen enough of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After this many events. Bookmarks that come by a timer do not count.
    Events(usize),
    /// After the bookmark that ends the initial events.
    InitialEventsEnd,
    /// After the first bookmark of any kind.
    Bookmark,
    /// When the server ends it.
    Ended,
}

impl Session {
    /// A conversation in the namespace `place`, which does not exist yet.
    #[must_use]
    pub fn new(clients: Clients, clock: Clock, case: &str, place: &str, server: &str) -> Self {
        let transcript = Transcript::new(case, place, server);
        Self { clients, clock, transcript, cleanup_paths: Vec::new() }
    }

    /// Creates the namespace. Not part of the transcript.
    ///
    /// # Errors
    /// The server cannot be reached or refuses.
    pub async fn begin(&mut self) -> Outcome {
        let body = json!({ "metadata": { "name": NAMESPACE_PLACEHOLDER } });
        self.send_unrecorded(RequestSpec::post("/api/v1/namespaces", &body)).await?.expect(201)?;
        Ok(())
    }

    /// Asks the server to delete everything the case has made; does not wait for it. Returns what
    /// was said.
    ///
    /// # Errors
    /// The server cannot be reached. The transcript is lost then: it is of no use.
    pub async fn end(mut self) -> Result<Transcript, CaseError> {
        for path in std::mem::take(&mut self.cleanup_paths) {
            self.send_unrecorded(RequestSpec::delete(path)).await?;
        }
        self.send_unrecorded(RequestSpec::delete("/api/v1/namespaces/{ns}")).await?;
        Ok(self.transcript)
    }

    /// What was said so far.
    #[must_use]
    pub fn transcript(&self) -> &Transcript {
        &self.transcript
    }

    /// A text with the namespace filled in.
    #[must_use]
    pub fn with_namespace(&self, text: &str) -> String {
        text.replace(NAMESPACE_PLACEHOLDER, &self.transcript.namespace)
    }

    /// Deletes a cluster-wide object when the case is over.
    pub fn delete_at_end(&mut self, path: &str) {
        self.cleanup_paths.push(path.to_owned());
    }

    /// Sends a request and records it with its answer.
    ///
    /// # Errors
    /// There was no answer.
    pub async fn send(&mut self, ask: RequestSpec) -> Result<Response, CaseError> {
        let request = ask.resolve(&self.transcript.namespace);
        let answer = self.send_with_retries(&request).await?;
        self.record(request, answer.clone());
        Ok(answer)
    }

    /// GET.
    ///
    /// # Errors
    /// There was no answer.
    pub async fn get(&mut self, path: &str) -> Result<Response, CaseError> {
        self.send(RequestSpec::get(path)).await
    }

    /// POST of JSON.
    ///
    /// # Errors
    /// There was no answer.
    pub async fn post(&mut self, path: &str, body: &Value) -> Result<Response, CaseError> {
        self.send(RequestSpec::post(path, body)).await
    }

    /// POST of JSON that must create something.
    ///
    /// # Errors
    /// There was no answer, or another one than 201.
    pub async fn create(&mut self, path: &str, body: &Value) -> Result<Response, CaseError> {
        self.post(path, body).await?.expect(201)
    }

    /// PUT of JSON.
    ///
    /// # Errors
    /// There was no answer.
    pub async fn put(&mut self, path: &str, body: &Value) -> Result<Response, CaseError> {
        self.send(RequestSpec::put(path, body)).await
    }

    /// PATCH.
    ///
    /// # Errors
    /// There was no answer.
    pub async fn patch(
        &mut self,
        path: &str,
        form: PatchType,
        body: &Value,
    ) -> Result<Response, CaseError> {
        self.send(RequestSpec::patch(path, form, body)).await
    }

    /// DELETE without options.
    ///
    /// # Errors
    /// There was no answer.
    pub async fn delete(&mut self, path: &str) -> Result<Response, CaseError> {
        self.send(RequestSpec::delete(path)).await
    }

    /// Asks until the answer is as wanted, and records only that one.
    ///
    /// # Errors
    /// [`CaseError::TimedOut`] with the last answer if it never is.
    pub async fn send_until(
        &mut self,
        ask: RequestSpec,
        wanted: impl Fn(&Response) -> bool,
    ) -> Result<Response, CaseError> {
        let request = ask.clone().resolve(&self.transcript.namespace);
        let answer = self.send_until_unrecorded(ask, wanted).await?;
        self.record(request, answer.clone());
        Ok(answer)
    }

    /// Asks until the answer is as wanted, and records nothing.
    ///
    /// # Errors
    /// [`CaseError::TimedOut`] with the last answer if it never is.
    pub async fn send_until_unrecorded(
        &mut self,
        ask: RequestSpec,
        wanted: impl Fn(&Response) -> bool,
    ) -> Result<Response, CaseError> {
        let request = ask.resolve(&self.transcript.namespace);
        let give_up = self.clock.moment() + WAIT_TIMEOUT;
        loop {
            let answer = self.send_with_retries(&request).await?;
            if wanted(&answer) {
                return Ok(answer);
            }
            if self.clock.moment() >= give_up {
                let what = format!("{} {}; last answer:\n{answer}", request.method, request.path);
                return Err(CaseError::TimedOut { what });
            }
            self.clock.sleep(POLL_INTERVAL).await;
        }
    }

    /// Opens a watch; it is recorded when it is read with [`Session::finish_watch`].
    ///
    /// # Errors
    /// There was no answer.
    pub async fn watch(&mut self, ask: RequestSpec) -> Result<Watch, CaseError> {
        let request = ask.resolve(&self.transcript.namespace);
        let give_up = self.clock.moment() + WAIT_TIMEOUT;
        loop {
            let stream = self.clients.admin.open(request::to_http_request(&request)?).await?;
            let again = stream.status == StatusCode::TOO_MANY_REQUESTS;
            if !again || self.clock.moment() >= give_up {
                return Ok(Watch { request, stream, events: Vec::new(), ended: false });
            }
            self.clock.sleep(POLL_INTERVAL).await;
        }
    }

    /// Reads a watch until the case has seen enough for now, and keeps it open.
    ///
    /// # Errors
    /// [`CaseError::TimedOut`] if what must come does not; a broken connection.
    pub async fn wait(&mut self, watch: &mut Watch, until: Until) -> Outcome {
        let give_up = self.clock.moment() + WAIT_TIMEOUT;
        while !watch.ended && !until.is_met(&watch.events) {
            let left = give_up - self.clock.moment();
            if left.is_zero() {
                let seen = Value::Array(watch.events.clone());
                let what = format!("{until} of {}; seen: {seen:#}", watch.request.path);
                return Err(CaseError::TimedOut { what });
            }
            match watch.stream.next_line(left).await {
                Ok(Some(line)) => watch.events.push(read_event(&line)),
                Ok(None) => watch.ended = true,
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Reads a watch until the case has seen enough, leaves it, and records it. What was read
    /// before counts.
    ///
    /// # Errors
    /// As [`Session::wait`].
    pub async fn finish_watch(
        &mut self,
        mut watch: Watch,
        until: Until,
    ) -> Result<Response, CaseError> {
        self.wait(&mut watch, until).await?;
        let Watch { request, stream, events, ended } = watch;
        let answer = Response {
            request_line: format!("{} {}", request.method, request.path),
            status: stream.status.as_u16(),
            headers: headers(&stream.headers),
            body: Body::Events { events, ended },
        };
        self.record(request, answer.clone());
        Ok(answer)
    }

    /// Opens a watch and reads it at once.
    ///
    /// # Errors
    /// As [`Session::watch`] and [`Session::finish_watch`].
    pub async fn watch_until(&mut self, path: &str, until: Until) -> Result<Response, CaseError> {
        let watch = self.watch(RequestSpec::get(path)).await?;
        self.finish_watch(watch, until).await
    }

    /// Sends a request that is no part of what is compared.
    ///
    /// # Errors
    /// There was no answer.
    pub async fn send_unrecorded(&mut self, ask: RequestSpec) -> Result<Response, CaseError> {
        self.send_with_retries(&ask.resolve(&self.transcript.namespace)).await
    }

    /// Sends a request and reads the whole answer, as often as the server asks for another try.
    async fn send_with_retries(&self, request: &RecordedRequest) -> Result<Response, CaseError> {
        let give_up = self.clock.moment() + WAIT_TIMEOUT;
        loop {
            let client = match request.caller {
                Caller::Admin => &self.clients.admin,
                Caller::Anonymous => &self.clients.anonymous,
            };
            let response = client.send(request::to_http_request(request)?).await?;
            let answer = Response {
                request_line: format!("{} {}", request.method, request.path),
                status: response.status.as_u16(),
                headers: headers(&response.headers),
                body: Body::read(&response.body),
            };
            if !is_retryable(&answer) || self.clock.moment() >= give_up {
                return Ok(answer);
            }
            self.clock.sleep(POLL_INTERVAL).await;
        }
    }

    /// Writes one exchange down.
    fn record(&mut self, request: RecordedRequest, answer: Response) {
        self.transcript.exchanges.push(Exchange { request, response: answer });
    }
}

impl Until {
    /// Whether enough was seen.
    fn is_met(self, events: &[Value]) -> bool {
        let is_bookmark = |event: &&Value| event["type"] == "BOOKMARK";
        let ends_list = |event: &Value| event.to_string().contains("k8s.io/initial-events-end");
        match self {
            Self::Events(count) => {
                let timed = events.iter().filter(is_bookmark).filter(|it| !ends_list(it)).count();
                events.len() - timed >= count
            }
            Self::InitialEventsEnd => events.iter().any(ends_list),
            Self::Bookmark => events.iter().any(|event| is_bookmark(&event)),
            Self::Ended => false,
        }
    }
}

impl fmt::Display for Until {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Events(count) => write!(f, "{count} events"),
            Self::InitialEventsEnd => f.write_str("the end of the initial events"),
            Self::Bookmark => f.write_str("a bookmark"),
            Self::Ended => f.write_str("the end"),
        }
    }
}

/// Whether a server only asks for patience: the real one reads a new definition's objects into its
/// cache first, and every client comes back after such an answer. It decides nothing.
fn is_retryable(answer: &Response) -> bool {
    answer.status == 429 && answer.string("/message") == "storage is (re)initializing"
}

/// One line of a watch. What is no JSON is kept as a text, so that a difference shows it.
fn read_event(line: &[u8]) -> Value {
    serde_json::from_slice(line)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(line).into_owned()))
}

/// Headers as a map; a value that is no text becomes an empty one.
fn headers(from: &HeaderMap) -> BTreeMap<String, Vec<String>> {
    let mut headers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in from {
        let value = value.to_str().unwrap_or_default().to_owned();
        headers.entry(name.as_str().to_owned()).or_default().push(value);
    }
    headers
}

/// Whether a stream was only slow.
fn is_timeout(error: &SendError) -> bool {
    matches!(error.cause, SendCause::TimedOut(_))
}
