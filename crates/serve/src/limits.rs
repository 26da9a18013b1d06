//! What one client may ask for before it hurts the others: size, time, and number.
//!
//! The limits know nothing of what a request means. Which requests are long-running, and which may
//! pass when the house is full, is said by the [`Class`] that the caller's function gives them.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use gantry_process::clock::Clock;
use http::header::{CONNECTION, EXPECT};
use http::{HeaderValue, Method, Request, Response, Version};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::body::Body;
use crate::counters::Counters;
use crate::status::Refusal;
use crate::upgrade::Upgrade;

/// The limits, with upstream's figures where it has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// The largest body, in bytes.
    pub body: usize,
    /// The time for a body when nothing of it has come yet.
    pub body_patience: Duration,
    /// What every second of more patience costs, in bytes.
    pub body_rate: u32,
    /// The time for a body, however much of it has come.
    pub body_deadline: Duration,
    /// The time for an answer that is not long-running.
    pub deadline: Duration,
    /// The longest path and query, in bytes.
    pub url: usize,
    /// Reads in progress.
    pub reads: usize,
    /// Changes in progress.
    pub changes: usize,
    /// Long-running requests in progress, watches most of all.
    pub long_running: usize,
}

impl Default for Figures {
    fn default() -> Self {
        Self {
            body: 3 * 1024 * 1024,
            body_patience: Duration::from_secs(10),
            // A tenth of the slowest modem line anybody might administer a cluster over.
            body_rate: 500,
            body_deadline: Duration::from_secs(60),
            deadline: Duration::from_secs(60),
            url: 16 * 1024,
            reads: 400,
            changes: 200,
            long_running: 10_000,
        }
    }
}

/// Which limits a request is under.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// It must get through when the house is full: health, and whatever holds the cluster together.
    Exempt,
    /// It changes nothing.
    Read,
    /// It may change something.
    Change,
    /// It ends when it ends (watch, log, exec, proxy): no deadline, and a count of its own.
    LongRunning,
}

impl Class {
    /// The class of a request that is neither exempt nor long-running.
    #[must_use]
    pub fn of_method(method: &Method) -> Self {
        if [Method::GET, Method::HEAD, Method::OPTIONS].contains(method) {
            Self::Read
        } else {
            Self::Change
        }
    }

    /// Whether a path belongs to those that are exempt: the probes, which must tell an overloaded
    /// server from a dead one, and leases, whose holders must not lose them to a queue.
    #[must_use]
    pub fn is_exempt(path: &str) -> bool {
        const PROBES: [&str; 3] = ["/healthz", "/livez", "/readyz"];
        let probe = PROBES.iter().any(|probe| {
            path.strip_prefix(probe).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        let leases = path
            .strip_prefix("/apis/coordination.k8s.io/")
            .is_some_and(|rest| rest.split('/').any(|part| part == "leases"));
        probe || leases
    }
}

/// Stands before a service. Clones share the counts.
#[derive(Clone)]
pub struct Limits(Arc<Shared>);

struct Shared {
    figures: Figures,
    clock: Clock,
    counters: Counters,
    classify: Box<dyn Fn(&http::request::Parts) -> Class + Send + Sync>,
    reads: Arc<Semaphore>,
    changes: Arc<Semaphore>,
    long_running: Arc<Semaphore>,
}

impl Limits {
    /// Limits with these figures; `classify` is asked once for every request.
    pub fn new(
        figures: Figures,
        clock: Clock,
        counters: Counters,
        classify: impl Fn(&http::request::Parts) -> Class + Send + Sync + 'static,
    ) -> Self {
        let room = |size| Arc::new(Semaphore::new(size));
        Self(Arc::new(Shared {
            figures,
            clock,
            counters,
            classify: Box::new(classify),
            reads: room(figures.reads),
            changes: room(figures.changes),
            long_running: room(figures.long_running),
        }))
    }

    /// Answers with `service`, or refuses.
    ///
    /// The service is dropped when its deadline passes. A place is held until the answer is there,
    /// not until it is sent: by then the work is done, and a client that does not read must not
    /// keep others out. Long-running requests hold theirs until their body or their upgraded
    /// conversation has ended.
    pub async fn answer<Service, Answer>(
        &self,
        request: Request<Incoming>,
        service: Service,
    ) -> Response<Body>
    where
        Service: FnOnce(Request<RequestBody>) -> Answer,
        Answer: Future<Output = Response<Body>>,
    {
        let version = request.version();
        match self.admit(request, service).await {
            Ok(response) => response,
            Err(refusal) => self.refuse(refusal, version),
        }
    }

    async fn admit<Service, Answer>(
        &self,
        request: Request<Incoming>,
        service: Service,
    ) -> Result<Response<Body>, Refusal>
    where
        Service: FnOnce(Request<RequestBody>) -> Answer,
        Answer: Future<Output = Response<Body>>,
    {
        let _busy = self.0.counters.begin();
        let figures = &self.0.figures;
        let (parts, incoming) = request.into_parts();
        let length = parts.uri.path_and_query().map_or(0, |all| all.as_str().len());
        if length > figures.url {
            return Err(Refusal::UrlTooLong { limit: figures.url });
        }
        let class = (self.0.classify)(&parts);
        let room = match class {
            Class::Exempt => None,
            Class::Read => Some(&self.0.reads),
            Class::Change => Some(&self.0.changes),
            Class::LongRunning => Some(&self.0.long_running),
        };
        let place = match room.map(|room| Arc::clone(room).try_acquire_owned()) {
            None => None,
            Some(Ok(place)) => Some(place),
            Some(Err(_full)) => return Err(Refusal::TooMany),
        };
        let version = parts.version;
        let waits = parts.headers.contains_key(EXPECT);
        let body = RequestBody { incoming, version, waits, limits: self.clone() };
        let answer = service(Request::from_parts(parts, body));
        match class {
            Class::LongRunning => Ok(hold(answer.await, place)),
            Class::Exempt | Class::Read | Class::Change => {
                let answer = self.0.clock.timeout(figures.deadline, answer).await;
                answer.map_err(|_late| Refusal::Deadline)
            }
        }
    }

    fn refuse(&self, refusal: Refusal, version: Version) -> Response<Body> {
        self.0.counters.refused(refusal);
        let mut response = refusal.response();
        // The rest of the body is on its way, and in HTTP/1 the next request would come after it.
        let unread = match refusal {
            Refusal::BodyTooLarge { .. } | Refusal::BodyTooSlow | Refusal::BodyBroken => true,
            Refusal::UrlTooLong { .. }
            | Refusal::TooMany
            | Refusal::Deadline
            | Refusal::Stopping => false,
        };
        if unread && version <= Version::HTTP_11 {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

impl fmt::Debug for Limits {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Limits").field(&self.0.figures).finish()
    }
}

/// Lets the place go when the body, or the conversation after an upgrade, has ended.
fn hold(mut response: Response<Body>, place: Option<OwnedSemaphorePermit>) -> Response<Body> {
    let place = Arc::new(place);
    Upgrade::keep_alive(&mut response, Arc::clone(&place));
    response.map(|body| Held { body, _place: place }.boxed_unsync())
}

struct Held {
    body: Body,
    _place: Arc<Option<OwnedSemaphorePermit>>,
}

impl hyper::body::Body for Held {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of a request, not read yet: who asks is settled before we keep anything for them.
#[derive(Debug)]
pub struct RequestBody {
    incoming: Incoming,
    version: Version,
    /// The client sends nothing before it is told to go on.
    waits: bool,
    limits: Limits,
}

impl RequestBody {
    /// Reads the whole body.
    ///
    /// # Errors
    /// The answer to give instead: it is too large, comes too slowly, or broke off.
    pub async fn read(mut self) -> Result<Bytes, Box<Response<Body>>> {
        match self.collect().await {
            Ok(bytes) => Ok(bytes),
            Err(refusal) => Err(Box::new(self.limits.refuse(refusal, self.version))),
        }
    }

    /// The body as it comes, without limits; for what is passed on and not kept.
    pub fn into_stream(self) -> Incoming {
        self.incoming
    }

    async fn collect(&mut self) -> Result<Bytes, Refusal> {
        let Figures { body: limit, body_patience, body_rate, body_deadline, .. } =
            self.limits.0.figures;
        let clock = self.limits.0.clock.clone();
        let begun = clock.moment();
        let announced = usize::try_from(self.incoming.size_hint().lower()).unwrap_or(usize::MAX);
        let mut fits = announced <= limit;
        // Many clients write everything before they read, and closing on them loses the answer. What
        // is a little too large is therefore read to its end and forgotten.
        let bearable = limit.saturating_mul(2);
        if !fits && (self.waits || announced > bearable) {
            return Err(Refusal::BodyTooLarge { limit });
        }
        // The first piece is often all of it and then needs no copy.
        let (mut first, mut rest) = (Bytes::new(), BytesMut::new());
        let mut received = 0_usize;
        loop {
            // Whoever trickles must not hold a place for the whole minute.
            let earned = u32::try_from(received).unwrap_or(u32::MAX) / body_rate.max(1);
            let patience = body_patience + Duration::from_secs(earned.into());
            let deadline = begun + patience.min(body_deadline);
            let left = deadline - clock.moment();
            let Ok(frame) = clock.timeout(left, self.incoming.frame()).await else {
                return Err(Refusal::BodyTooSlow);
            };
            let data = match frame {
                None => break,
                Some(Err(_gone)) => return Err(Refusal::BodyBroken),
                // Trailers say nothing we use.
                Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
            };
            received = received.saturating_add(data.len());
            if !fits || received > limit {
                fits = false;
                (first, rest) = (Bytes::new(), BytesMut::new());
                if received > bearable {
                    break;
                }
            } else if received == data.len() {
                first = data;
            } else {
                if rest.is_empty() {
                    rest.reserve(announced);
                    rest.extend_from_slice(&std::mem::take(&mut first));
                }
                rest.extend_from_slice(&data);
            }
        }
        match fits {
            true if rest.is_empty() => Ok(first),
            true => Ok(rest.freeze()),
            false => Err(Refusal::BodyTooLarge { limit }),
        }
    }
}

#[cfg(test)]
mod tests;
