//! One connection from its first byte to its last.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use gantry_process::clock::{Clock, Moment};
use gantry_process::tasks::TaskError;
use http::header::{CONTENT_LENGTH, UPGRADE};
use http::{HeaderValue, Method, Request, Response};
use hyper::body::{Body as _, Incoming};
use hyper::rt::{Executor, Read, Write};
use hyper::server::conn::{http1, http2};
use hyper::service::{HttpService, service_fn};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::body::{self, Body};
use crate::listener::{Options, Service};
use crate::peer::Acquaintance;
use crate::upgrade::Upgrade;
use crate::vitals::{Buffering, Patience, Tracked, Verdict, Vitals, Watched};

/// What is spoken on a connection. It is settled before the first request: by ALPN, and on plain
/// connections because there is only one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

/// The body of one HTTP/2 frame and of one buffer: upstream's figure, 99 of 100 objects fit in.
const OBJECT: u32 = 256 * 1024;
/// What a client may send ahead on one HTTP/2 connection. Upstream allows a buffer per stream
/// (25 MiB); sixteen are plenty for writes and bound what a stranger can make us hold.
const AHEAD: u32 = 16 * OBJECT;
/// What is made of one HTTP/2 answer before the client has taken it: as much as a watch or a list
/// makes at once. hyper's 400 KiB would be 40 MiB for a connection that is not read.
const UNSENT: usize = 64 * 1024;
/// Streams that a client may open and reset before we have come to them, after which the connection
/// is ended: as many as it may have open. More is an attack (rapid reset).
const RESET_EARLY: usize = 100;
/// Streams that may be reset for the client's own faults before the connection is ended.
const RESET_FOR_FAULTS: usize = 256;
/// The count of headers in one HTTP/1 head. hyper's hundred is too few for a proxy that passes on
/// somebody's groups, one header each.
const HEADERS: usize = 1_000;
/// hyper refuses a smaller buffer.
const SMALLEST_BUFFER: usize = 8 * 1024;

/// How a connection ended, as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Either side closed it in order.
    Closed,
    /// The client broke off or broke the protocol.
    Broken,
    /// Nobody used it.
    Idle,
    HeadTooSlow,
    Stalled,
    /// It did not finish in the time to drain.
    Cut,
}

/// Why a connection takes no more requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closing {
    Idle,
    Stopping,
}

/// Everything a connection needs besides its socket.
#[derive(Clone)]
pub(crate) struct Setting<S> {
    pub(crate) service: S,
    pub(crate) options: Arc<Options>,
    pub(crate) clock: Clock,
    pub(crate) stop: CancellationToken,
}

/// Answers the requests of one client.
///
/// # Errors
/// A request panicked; what that means is for the owner of the connection to say.
pub(crate) async fn converse<Io, S>(
    io: Io,
    protocol: Protocol,
    peer: Acquaintance,
    setting: Setting<S>,
) -> Result<End, TaskError>
where
    Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service,
{
    let (options, clock) = (&setting.options, &setting.clock);
    let timeouts = &options.timeouts;
    let (head, buffering) = match protocol {
        Protocol::Http1 => (Some(timeouts.head), Buffering::HoldBack),
        Protocol::Http2 => (None, Buffering::Bounded),
    };
    let patience = Patience { idle: timeouts.idle, head, stall: timeouts.stall };
    let vitals = Vitals::new(clock.clone(), patience);
    let io = TokioIo::new(Watched { io, vitals: Arc::clone(&vitals) });
    let streams = Streams::default();
    let answers = Answers {
        service: setting.service.clone(),
        peer,
        clock: clock.clone(),
        vitals: Arc::clone(&vitals),
        streams: streams.clone(),
        buffering,
    };
    let service = service_fn(move |request| answers.clone().answer(request));
    let owner = Owner(streams);
    match protocol {
        Protocol::Http1 => {
            let connection = http1::Builder::new()
                .timer(clock.hyper_timer())
                // Ours; see `vitals`.
                .header_read_timeout(None)
                .max_headers(HEADERS)
                .max_header_size(options.max_head)
                .max_buf_size(options.max_head.max(SMALLEST_BUFFER))
                .serve_connection(io, service)
                .with_upgrades();
            owner.run(connection, &vitals, &setting).await
        }
        Protocol::Http2 => {
            let connection = http2::Builder::new(owner.0.clone())
                .timer(clock.hyper_timer())
                .max_concurrent_streams(options.max_streams)
                .max_header_list_size(u32::try_from(options.max_head).unwrap_or(u32::MAX))
                .initial_stream_window_size(OBJECT)
                .initial_connection_window_size(AHEAD)
                .max_frame_size(OBJECT)
                .max_send_buf_size(UNSENT)
                .max_pending_accept_reset_streams(RESET_EARLY)
                .max_local_error_reset_streams(RESET_FOR_FAULTS)
                .keep_alive_interval(timeouts.ping)
                .keep_alive_timeout(timeouts.pong)
                .serve_connection(io, service);
            owner.run(connection, &vitals, &setting).await
        }
    }
}

/// Answers one request after the other, or many at a time.
#[derive(Clone)]
struct Answers<S> {
    service: S,
    peer: Acquaintance,
    clock: Clock,
    vitals: Arc<Vitals>,
    streams: Streams,
    buffering: Buffering,
}

impl<S: Service> Answers<S> {
    /// Not `async`: the request counts from the moment it is here, not from when it is first polled.
    fn answer(
        self,
        mut request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<Tracked>, Infallible>> + Send + 'static {
        let active = self.vitals.begin();
        let upgraded =
            request.headers().contains_key(UPGRADE).then(|| hyper::upgrade::on(&mut request));
        let only_head = request.method() == Method::HEAD;
        let answer = (self.service)(request, self.peer.at(self.clock.now()));
        async move {
            let mut response: Response<Body> = answer.await;
            if let Some(work) = Upgrade::detach(&mut response)
                && let Some(upgraded) = upgraded
            {
                self.streams.execute(async move {
                    // Fails when the client left before the answer was out.
                    if let Ok(bytes) = upgraded.await {
                        work(TokioIo::new(bytes)).await;
                    }
                });
            }
            if only_head {
                response = without_body(response);
            }
            Ok(response.map(|body| Tracked::new(body, active, self.buffering)))
        }
    }
}

/// The answer to a HEAD: what a GET would say about its body, and no body. In HTTP/2 hyper would
/// send it, which ends the stream with an error.
fn without_body(mut response: Response<Body>) -> Response<Body> {
    if let Some(length) = response.body().size_hint().exact() {
        response.headers_mut().entry(CONTENT_LENGTH).or_insert_with(|| HeaderValue::from(length));
    }
    response.map(|_| body::empty())
}

/// The tasks of one connection: the streams of HTTP/2, and what an upgrade left behind.
///
/// They are tasks of their own so that the many requests of one client use all processors. They
/// belong to their connection and not to the process: a client that leaves takes them along.
#[derive(Clone, Debug, Default)]
struct Streams(Arc<Mutex<JoinSet<()>>>);

impl Streams {
    fn lock(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins what has ended. Ready with an error when one panicked, and with nothing when there is
    /// none left.
    fn poll_join(&self, context: &mut Context<'_>) -> Poll<Result<(), TaskError>> {
        let mut streams = self.lock();
        while let Some(ended) = ready!(streams.poll_join_next(context)) {
            if let Err(error) = ended
                && error.is_panic()
            {
                return Poll::Ready(Err(Box::new(error)));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<Task: Future<Output = ()> + Send + 'static> Executor<Task> for Streams {
    fn execute(&self, task: Task) {
        self.lock().spawn(task);
    }
}

/// Owns the tasks of a connection. They hold the set they are in, so somebody must break the ring.
struct Owner(Streams);

impl Drop for Owner {
    fn drop(&mut self) {
        let streams = std::mem::take(&mut *self.0.lock());
        // Outside the lock: a task that is dropped here may look at the set.
        drop(streams);
    }
}

impl Owner {
    /// Drives the connection to its end, and its tasks too.
    async fn run<C: Connection, S>(
        self,
        connection: C,
        vitals: &Vitals,
        setting: &Setting<S>,
    ) -> Result<End, TaskError> {
        let end = {
            let mut connection = pin!(connection);
            self.drive(connection.as_mut(), vitals, setting).await?
        };
        // An upgraded conversation goes on after the connection; streams of HTTP/2 cannot.
        if end == End::Closed && !self.lock_is_empty() && !self.outlast(setting).await? {
            return Ok(End::Cut);
        }
        Ok(end)
    }

    async fn drive<C: Connection, S>(
        &self,
        mut connection: Pin<&mut C>,
        vitals: &Vitals,
        setting: &Setting<S>,
    ) -> Result<End, TaskError> {
        let mut stopped = pin!(setting.stop.cancelled());
        let mut alarm = Alarm { clock: setting.clock.clone(), armed: None };
        // When the connection is cut, if it does not end before.
        let mut closing: Option<(Moment, Closing)> = None;
        let drain = setting.options.timeouts.drain;
        poll_fn(|context| {
            loop {
                // First the connection: what it does decides when its time is up.
                if let Poll::Ready(closed) = connection.as_mut().poll(context) {
                    // Once we have said goodbye, how the client leaves is its own affair.
                    return Poll::Ready(Ok(match (closing, closed) {
                        (Some((_, Closing::Idle)), _) => End::Idle,
                        (Some((_, Closing::Stopping)), _) | (None, true) => End::Closed,
                        (None, false) => End::Broken,
                    }));
                }
                if let Poll::Ready(Err(panicked)) = self.0.poll_join(context) {
                    return Poll::Ready(Err(panicked));
                }
                if closing.is_none_or(|(_, why)| why == Closing::Idle)
                    && stopped.as_mut().poll(context).is_ready()
                {
                    connection.as_mut().graceful_shutdown();
                    closing = Some((setting.clock.moment() + drain, Closing::Stopping));
                    continue;
                }
                let verdict = vitals.verdict();
                let stalled = verdict.filter(|(_, verdict)| *verdict == Verdict::Stalled);
                let (due, verdict) = match (closing, stalled) {
                    (None, _) => match verdict {
                        Some((due, verdict)) => (due, Some(verdict)),
                        None => return Poll::Pending,
                    },
                    (Some((cut, _)), Some((due, verdict))) if due < cut => (due, Some(verdict)),
                    (Some((cut, _)), Some(_) | None) => (cut, None),
                };
                ready!(alarm.poll(due, context));
                match verdict {
                    Some(Verdict::Idle) => {
                        connection.as_mut().graceful_shutdown();
                        closing = Some((setting.clock.moment() + drain, Closing::Idle));
                    }
                    Some(Verdict::HeadTooSlow) => return Poll::Ready(Ok(End::HeadTooSlow)),
                    Some(Verdict::Stalled) => return Poll::Ready(Ok(End::Stalled)),
                    None => {
                        let idle = closing.is_some_and(|(_, why)| why == Closing::Idle);
                        return Poll::Ready(Ok(if idle { End::Idle } else { End::Cut }));
                    }
                }
            }
        })
        .await
    }

    fn lock_is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Waits for the tasks; false when they did not end in the time to drain.
    async fn outlast<S>(&self, setting: &Setting<S>) -> Result<bool, TaskError> {
        let mut joined = pin!(poll_fn(|context| self.0.poll_join(context)));
        tokio::select! {
            biased;
            // Each may be dropped: joining forgets nothing, and the other only waits.
            joined = joined.as_mut() => return joined.map(|()| true),
            () = setting.stop.cancelled() => {}
        }
        match setting.clock.timeout(setting.options.timeouts.drain, joined).await {
            Ok(joined) => joined.map(|()| true),
            Err(_late) => Ok(false),
        }
    }
}

/// Wakes the task at a moment that may still move.
struct Alarm {
    clock: Clock,
    armed: Option<(Moment, Sleep)>,
}

type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Alarm {
    /// Ready when `due` has come. A moment that moved back is armed at once; one that moved on
    /// is looked at again when the old one has come, which spares a timer per request.
    fn poll(&mut self, due: Moment, context: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.clock.moment() >= due {
                return Poll::Ready(());
            }
            let armed = match &mut self.armed {
                Some((moment, sleep)) if *moment <= due => sleep,
                Some(_) | None => {
                    let clock = self.clock.clone();
                    let sleep = async move { clock.sleep_until(due).await };
                    &mut self.armed.insert((due, Box::pin(sleep))).1
                }
            };
            ready!(armed.as_mut().poll(context));
            self.armed = None;
        }
    }
}

/// What both protocols can do.
trait Connection {
    /// Ready when the connection is over: true when it ended in order.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<bool>;
    /// Takes no new requests, finishes those in progress, then closes.
    fn graceful_shutdown(self: Pin<&mut Self>);
}

impl<I, S> Connection for http1::UpgradeableConnection<I, S>
where
    I: Read + Write + Unpin + Send + 'static,
    S: HttpService<Incoming, ResBody = Tracked>,
    S::Error: Into<TaskError>,
{
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<bool> {
        Future::poll(self, context).map(|end| end.is_ok())
    }

    fn graceful_shutdown(self: Pin<&mut Self>) {
        Self::graceful_shutdown(self);
    }
}

impl<I, S> Connection for http2::Connection<I, S, Streams>
where
    I: Read + Write + Unpin,
    S: HttpService<Incoming, ResBody = Tracked>,
    S::Future: Send + 'static,
    S::Error: Into<TaskError>,
{
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<bool> {
        Future::poll(self, context).map(|end| end.is_ok())
    }

    fn graceful_shutdown(self: Pin<&mut Self>) {
        Self::graceful_shutdown(self);
    }
}
