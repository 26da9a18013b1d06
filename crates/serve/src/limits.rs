//! Limits on the size, duration and number of requests, so that one client cannot starve others.
//!
//! The limits do not interpret requests. Which requests are long-running, and which are exempt
//! under overload, is decided by the [`RequestClass`] that the caller's function returns.

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
use crate::status::RequestRejection;
use crate::upgrade::Upgrade;

/// The limits, with upstream's figures where it has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLimits {
    /// The largest body, in bytes.
    pub max_body_bytes: usize,
    /// The time limit for a body of which nothing has arrived yet.
    pub body_timeout: Duration,
    /// The number of bytes that extend the time limit by one second.
    pub min_body_rate: u32,
    /// The time limit for a body, however much of it has arrived.
    pub max_body_timeout: Duration,
    /// The time limit for a request that is not long-running.
    pub request_timeout: Duration,
    /// The longest path and query, in bytes.
    pub max_url_bytes: usize,
    /// Concurrent requests that read.
    pub max_read_only: usize,
    /// Concurrent requests that change something.
    pub max_mutating: usize,
    /// Concurrent long-running requests, mostly watches.
    pub max_long_running: usize,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self {
            max_body_bytes: 3 * 1024 * 1024,
            body_timeout: Duration::from_secs(10),
            // A tenth of the slowest modem line that a cluster might be administered over.
            min_body_rate: 500,
            max_body_timeout: Duration::from_secs(60),
            request_timeout: Duration::from_secs(60),
            max_url_bytes: 16 * 1024,
            max_read_only: 400,
            max_mutating: 200,
            max_long_running: 10_000,
        }
    }
}

/// The class of a request, which decides the limits that apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestClass {
    /// It is served even under overload: health checks, and requests that keep the cluster working.
    Exempt,
    /// It changes nothing.
    ReadOnly,
    /// It may change something.
    Mutating,
    /// It has no deadline (watch, log, exec, proxy), and a limit on their number of its own.
    LongRunning,
}

impl RequestClass {
    /// Returns the class of a request that is neither exempt nor long-running.
    #[must_use]
    pub fn of_method(method: &Method) -> Self {
        if [Method::GET, Method::HEAD, Method::OPTIONS].contains(method) {
            Self::ReadOnly
        } else {
            Self::Mutating
        }
    }

    /// Whether a path is exempt: the probes, which must distinguish an overloaded server from a
    /// dead one, and leases, whose holders must not lose them because of queued requests.
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

/// Enforces the limits before a service. Clones share the counts.
#[derive(Clone)]
pub struct Limits(Arc<Shared>);

struct Shared {
    limits: RequestLimits,
    clock: Clock,
    counters: Counters,
    classify: Box<dyn Fn(&http::request::Parts) -> RequestClass + Send + Sync>,
    read_only: Arc<Semaphore>,
    mutating: Arc<Semaphore>,
    long_running: Arc<Semaphore>,
}

impl Limits {
    /// Makes limits with these figures; `classify` is called once for every request.
    pub fn new(
        figures: RequestLimits,
        clock: Clock,
        counters: Counters,
        classify: impl Fn(&http::request::Parts) -> RequestClass + Send + Sync + 'static,
    ) -> Self {
        let semaphore = |size| Arc::new(Semaphore::new(size));
        Self(Arc::new(Shared {
            limits: figures,
            clock,
            counters,
            classify: Box::new(classify),
            read_only: semaphore(figures.max_read_only),
            mutating: semaphore(figures.max_mutating),
            long_running: semaphore(figures.max_long_running),
        }))
    }

    /// Serves a request with `service`, or refuses it.
    ///
    /// The service is dropped when its deadline expires. A slot is held until the response is
    /// built, not until it is sent: by then the work is done, and a client that does not read must
    /// not block others. Long-running requests hold their slot until their body or their upgraded
    /// stream has ended.
    pub async fn handle<Service, Answer>(
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
            Err(refusal) => self.reject(refusal, version),
        }
    }

    async fn admit<Service, Answer>(
        &self,
        request: Request<Incoming>,
        service: Service,
    ) -> Result<Response<Body>, RequestRejection>
    where
        Service: FnOnce(Request<RequestBody>) -> Answer,
        Answer: Future<Output = Response<Body>>,
    {
        let _busy = self.0.counters.request_started();
        let figures = &self.0.limits;
        let (parts, incoming) = request.into_parts();
        let length = parts.uri.path_and_query().map_or(0, |all| all.as_str().len());
        if length > figures.max_url_bytes {
            return Err(RequestRejection::UrlTooLong { limit: figures.max_url_bytes });
        }
        let class = (self.0.classify)(&parts);
        let semaphore = match class {
            RequestClass::Exempt => None,
            RequestClass::ReadOnly => Some(&self.0.read_only),
            RequestClass::Mutating => Some(&self.0.mutating),
            RequestClass::LongRunning => Some(&self.0.long_running),
        };
        let place = match semaphore.map(|semaphore| Arc::clone(semaphore).try_acquire_owned()) {
            None => None,
            Some(Ok(place)) => Some(place),
            Some(Err(_full)) => return Err(RequestRejection::TooManyRequests),
        };
        let version = parts.version;
        let waits = parts.headers.contains_key(EXPECT);
        let body = RequestBody { incoming, version, expects_continue: waits, limits: self.clone() };
        let answer = service(Request::from_parts(parts, body));
        match class {
            RequestClass::LongRunning => Ok(hold_permit(answer.await, place)),
            RequestClass::Exempt | RequestClass::ReadOnly | RequestClass::Mutating => {
                let answer = self.0.clock.timeout(figures.request_timeout, answer).await;
                answer.map_err(|_late| RequestRejection::Timeout)
            }
        }
    }

    fn reject(&self, refusal: RequestRejection, version: Version) -> Response<Body> {
        self.0.counters.request_rejected(refusal);
        let mut response = refusal.response();
        // The rest of the body is still in transit, and in HTTP/1 the next request would come after
        // it.
        let unread = match refusal {
            RequestRejection::BodyTooLarge { .. }
            | RequestRejection::BodyTooSlow
            | RequestRejection::BodyBroken => true,
            RequestRejection::UrlTooLong { .. }
            | RequestRejection::TooManyRequests
            | RequestRejection::Timeout
            | RequestRejection::Stopping => false,
        };
        if unread && version <= Version::HTTP_11 {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

impl fmt::Debug for Limits {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Limits").field(&self.0.limits).finish()
    }
}

/// Releases the slot when the body, or the stream after an upgrade, has ended.
fn hold_permit(
    mut response: Response<Body>,
    place: Option<OwnedSemaphorePermit>,
) -> Response<Body> {
    let place = Arc::new(place);
    Upgrade::hold_until_done(&mut response, Arc::clone(&place));
    response.map(|body| BodyWithPermit { body, _permit: place }.boxed_unsync())
}

struct BodyWithPermit {
    body: Body,
    _permit: Arc<Option<OwnedSemaphorePermit>>,
}

impl hyper::body::Body for BodyWithPermit {
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

/// The body of a request, not read yet: the caller is authenticated before memory is used for it.
#[derive(Debug)]
pub struct RequestBody {
    incoming: Incoming,
    version: Version,
    /// The client sent `Expect: 100-continue` and waits before it sends the body.
    expects_continue: bool,
    limits: Limits,
}

impl RequestBody {
    /// Reads the whole body.
    ///
    /// # Errors
    /// The response to send instead: the body is too large, too slow or incomplete.
    pub async fn read(mut self) -> Result<Bytes, Box<Response<Body>>> {
        match self.collect().await {
            Ok(bytes) => Ok(bytes),
            Err(refusal) => Err(Box::new(self.limits.reject(refusal, self.version))),
        }
    }

    /// Returns the body as a stream without limits; for bodies that are forwarded and not kept.
    pub fn into_stream(self) -> Incoming {
        self.incoming
    }

    async fn collect(&mut self) -> Result<Bytes, RequestRejection> {
        let RequestLimits {
            max_body_bytes: limit,
            body_timeout: body_patience,
            min_body_rate: body_rate,
            max_body_timeout: body_deadline,
            ..
        } = self.limits.0.limits;
        let clock = self.limits.0.clock.clone();
        let begun = clock.moment();
        let announced = usize::try_from(self.incoming.size_hint().lower()).unwrap_or(usize::MAX);
        let mut fits = announced <= limit;
        // Many clients write everything before they read, and closing the connection loses the
        // response. A body that is a little too large is therefore read to its end and discarded.
        let bearable = limit.saturating_mul(2);
        if !fits && (self.expects_continue || announced > bearable) {
            return Err(RequestRejection::BodyTooLarge { limit });
        }
        // The first piece is often the whole body and then needs no copy.
        let (mut first, mut rest) = (Bytes::new(), BytesMut::new());
        let mut received = 0_usize;
        loop {
            // A client that sends slowly must not hold a slot for the whole minute.
            let earned = u32::try_from(received).unwrap_or(u32::MAX) / body_rate.max(1);
            let patience = body_patience + Duration::from_secs(earned.into());
            let deadline = begun + patience.min(body_deadline);
            let left = deadline - clock.moment();
            let Ok(frame) = clock.timeout(left, self.incoming.frame()).await else {
                return Err(RequestRejection::BodyTooSlow);
            };
            let data = match frame {
                None => break,
                Some(Err(_gone)) => return Err(RequestRejection::BodyBroken),
                // Trailers are not used.
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
            false => Err(RequestRejection::BodyTooLarge { limit }),
        }
    }
}

#[cfg(test)]
mod tests;
