//! Serves one connection from its first byte to its last.

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

use crate::activity::{
    ActivityTimeouts, Buffering, ConnectionActivity, MonitoredIo, TimeoutReason, TrackedBody,
};
use crate::body::{self, Body};
use crate::listener::{Options, Service};
use crate::peer::PeerIdentity;
use crate::upgrade::Upgrade;

/// The protocol of a connection. It is determined before the first request: by ALPN, and on plain
/// connections because there is only one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

/// The body of one HTTP/2 frame and of one buffer: upstream's figure; 99 of 100 objects fit.
const MAX_FRAME_SIZE: u32 = 256 * 1024;
/// How much a client may send ahead on one HTTP/2 connection. Upstream allows a buffer per stream
/// (25 MiB); sixteen are plenty for writes and bound the memory an unauthenticated client can use.
const CONNECTION_WINDOW_SIZE: u32 = 16 * MAX_FRAME_SIZE;
/// How much of one HTTP/2 response is produced before the client has read it: as much as a watch or
/// a list produces at once. hyper's 400 KiB would be 40 MiB for a connection that is not read.
const MAX_SEND_BUFFER: usize = 64 * 1024;
/// Streams that a client may open and reset before they are handled, after which the connection is
/// closed: as many as it may have open. More is an attack (rapid reset).
const MAX_PENDING_RESET_STREAMS: usize = 100;
/// Streams that may be reset because of protocol errors of the client before the connection is
/// closed.
const MAX_ERROR_RESET_STREAMS: usize = 256;
/// The largest number of headers in one HTTP/1 head. hyper's hundred is too few for a proxy that
/// forwards the groups of a user, one header each.
const MAX_HEADERS: usize = 1_000;
/// The smallest buffer that hyper accepts.
const MIN_BUFFER_SIZE: usize = 8 * 1024;

/// How a connection ended, for the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionEnd {
    /// Either side closed it cleanly.
    Closed,
    /// The client disconnected or broke the protocol.
    Broken,
    /// It was idle.
    Idle,
    HeadTooSlow,
    Stalled,
    /// It did not finish within the drain time.
    DrainTimeout,
}

/// Why a connection accepts no more requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CloseReason {
    Idle,
    Stopping,
}

/// Everything a connection needs besides its socket.
#[derive(Clone)]
pub(crate) struct ConnectionContext<S> {
    pub(crate) service: S,
    pub(crate) options: Arc<Options>,
    pub(crate) clock: Clock,
    pub(crate) stop: CancellationToken,
}

/// Serves the requests of one client.
///
/// # Errors
/// A request panicked; the owner of the connection decides what that means.
pub(crate) async fn serve_connection<Io, S>(
    io: Io,
    protocol: Protocol,
    peer: PeerIdentity,
    setting: ConnectionContext<S>,
) -> Result<ConnectionEnd, TaskError>
where
    Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service,
{
    let (options, clock) = (&setting.options, &setting.clock);
    let timeouts = &options.timeouts;
    let (head, buffering) = match protocol {
        Protocol::Http1 => (Some(timeouts.head), Buffering::WhileWritable),
        Protocol::Http2 => (None, Buffering::Bounded),
    };
    let patience = ActivityTimeouts { idle: timeouts.idle, head, stall: timeouts.stall };
    let vitals = ConnectionActivity::new(clock.clone(), patience);
    let io = TokioIo::new(MonitoredIo { io, activity: Arc::clone(&vitals) });
    let streams = ConnectionTasks::default();
    let answers = RequestHandler {
        service: setting.service.clone(),
        peer,
        clock: clock.clone(),
        activity: Arc::clone(&vitals),
        streams: streams.clone(),
        buffering,
    };
    let service = service_fn(move |request| answers.clone().handle(request));
    let owner = TaskOwner(streams);
    match protocol {
        Protocol::Http1 => {
            let connection = http1::Builder::new()
                .timer(clock.hyper_timer())
                // Replaced by the time limits in `activity`.
                .header_read_timeout(None)
                .max_headers(MAX_HEADERS)
                .max_header_size(options.max_head)
                .max_buf_size(options.max_head.max(MIN_BUFFER_SIZE))
                .serve_connection(io, service)
                .with_upgrades();
            owner.run(connection, &vitals, &setting).await
        }
        Protocol::Http2 => {
            let connection = http2::Builder::new(owner.0.clone())
                .timer(clock.hyper_timer())
                .max_concurrent_streams(options.max_streams)
                .max_header_list_size(u32::try_from(options.max_head).unwrap_or(u32::MAX))
                .initial_stream_window_size(MAX_FRAME_SIZE)
                .initial_connection_window_size(CONNECTION_WINDOW_SIZE)
                .max_frame_size(MAX_FRAME_SIZE)
                .max_send_buf_size(MAX_SEND_BUFFER)
                .max_pending_accept_reset_streams(MAX_PENDING_RESET_STREAMS)
                .max_local_error_reset_streams(MAX_ERROR_RESET_STREAMS)
                .keep_alive_interval(timeouts.ping)
                .keep_alive_timeout(timeouts.pong)
                .serve_connection(io, service);
            owner.run(connection, &vitals, &setting).await
        }
    }
}

/// Serves one request after the other, or many at a time.
#[derive(Clone)]
struct RequestHandler<S> {
    service: S,
    peer: PeerIdentity,
    clock: Clock,
    activity: Arc<ConnectionActivity>,
    streams: ConnectionTasks,
    buffering: Buffering,
}

impl<S: Service> RequestHandler<S> {
    /// Not `async`: the request counts from the moment it arrives, not from when it is first
    /// polled.
    fn handle(
        self,
        mut request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<TrackedBody>, Infallible>> + Send + 'static {
        let active = self.activity.request_started();
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
                    // Fails when the client disconnected before the response was sent.
                    if let Ok(bytes) = upgraded.await {
                        work(TokioIo::new(bytes)).await;
                    }
                });
            }
            if only_head {
                response = without_body(response);
            }
            Ok(response.map(|body| TrackedBody::new(body, active, self.buffering)))
        }
    }
}

/// Builds the response to a HEAD: the headers of a GET without the body. In HTTP/2 hyper would send
/// the body, which ends the stream with an error.
fn without_body(mut response: Response<Body>) -> Response<Body> {
    if let Some(length) = response.body().size_hint().exact() {
        response.headers_mut().entry(CONTENT_LENGTH).or_insert_with(|| HeaderValue::from(length));
    }
    response.map(|_| body::empty())
}

/// The tasks of one connection: the streams of HTTP/2, and upgraded streams.
///
/// They are separate tasks so that the many requests of one client use all processors. They belong
/// to their connection and not to the process: they are aborted when the client disconnects.
#[derive(Clone, Debug, Default)]
struct ConnectionTasks(Arc<Mutex<JoinSet<()>>>);

impl ConnectionTasks {
    fn lock(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins tasks that have ended. Ready with an error when one panicked, and with `Ok` when there
    /// is none left.
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

impl<Task: Future<Output = ()> + Send + 'static> Executor<Task> for ConnectionTasks {
    fn execute(&self, task: Task) {
        self.lock().spawn(task);
    }
}

/// Owns the tasks of a connection. The tasks hold the set they are in, so dropping this breaks the
/// reference cycle.
struct TaskOwner(ConnectionTasks);

impl Drop for TaskOwner {
    fn drop(&mut self) {
        let streams = std::mem::take(&mut *self.0.lock());
        // Dropped outside the lock: the drop of a task may access the set.
        drop(streams);
    }
}

impl TaskOwner {
    /// Drives the connection and its tasks to their end.
    async fn run<C: Connection, S>(
        self,
        connection: C,
        vitals: &ConnectionActivity,
        setting: &ConnectionContext<S>,
    ) -> Result<ConnectionEnd, TaskError> {
        let end = {
            let mut connection = pin!(connection);
            self.drive(connection.as_mut(), vitals, setting).await?
        };
        // An upgraded stream goes on after the connection; streams of HTTP/2 cannot.
        if end == ConnectionEnd::Closed
            && !self.has_no_tasks()
            && !self.drain_tasks(setting).await?
        {
            return Ok(ConnectionEnd::DrainTimeout);
        }
        Ok(end)
    }

    async fn drive<C: Connection, S>(
        &self,
        mut connection: Pin<&mut C>,
        vitals: &ConnectionActivity,
        setting: &ConnectionContext<S>,
    ) -> Result<ConnectionEnd, TaskError> {
        let mut stopped = pin!(setting.stop.cancelled());
        let mut alarm = ResettableTimer { clock: setting.clock.clone(), armed: None };
        // When the connection is closed forcibly, if it does not end before.
        let mut closing: Option<(Moment, CloseReason)> = None;
        let drain = setting.options.timeouts.drain;
        poll_fn(|context| {
            loop {
                // The connection first: its progress decides when its time is up.
                if let Poll::Ready(closed) = connection.as_mut().poll(context) {
                    // After a graceful shutdown has begun, errors of the client do not count.
                    return Poll::Ready(Ok(match (closing, closed) {
                        (Some((_, CloseReason::Idle)), _) => ConnectionEnd::Idle,
                        (Some((_, CloseReason::Stopping)), _) | (None, true) => {
                            ConnectionEnd::Closed
                        }
                        (None, false) => ConnectionEnd::Broken,
                    }));
                }
                if let Poll::Ready(Err(panicked)) = self.0.poll_join(context) {
                    return Poll::Ready(Err(panicked));
                }
                if closing.is_none_or(|(_, why)| why == CloseReason::Idle)
                    && stopped.as_mut().poll(context).is_ready()
                {
                    connection.as_mut().graceful_shutdown();
                    closing = Some((setting.clock.moment() + drain, CloseReason::Stopping));
                    continue;
                }
                let verdict = vitals.next_timeout();
                let stalled = verdict.filter(|(_, verdict)| *verdict == TimeoutReason::Stalled);
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
                    Some(TimeoutReason::Idle) => {
                        connection.as_mut().graceful_shutdown();
                        closing = Some((setting.clock.moment() + drain, CloseReason::Idle));
                    }
                    Some(TimeoutReason::HeadTooSlow) => {
                        return Poll::Ready(Ok(ConnectionEnd::HeadTooSlow));
                    }
                    Some(TimeoutReason::Stalled) => return Poll::Ready(Ok(ConnectionEnd::Stalled)),
                    None => {
                        let idle = closing.is_some_and(|(_, why)| why == CloseReason::Idle);
                        return Poll::Ready(Ok(if idle {
                            ConnectionEnd::Idle
                        } else {
                            ConnectionEnd::DrainTimeout
                        }));
                    }
                }
            }
        })
        .await
    }

    fn has_no_tasks(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Waits for the tasks; returns false when they did not end within the drain time.
    async fn drain_tasks<S>(&self, setting: &ConnectionContext<S>) -> Result<bool, TaskError> {
        let mut joined = pin!(poll_fn(|context| self.0.poll_join(context)));
        tokio::select! {
            biased;
            // Cancel-safe: joining loses nothing, and the other branch only waits.
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
struct ResettableTimer {
    clock: Clock,
    armed: Option<(Moment, Sleep)>,
}

type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

impl ResettableTimer {
    /// Ready when `due` has come. An earlier moment is armed at once; a later one is re-armed when
    /// the old one has come, which saves a timer per request.
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

/// The operations that both protocols have in common.
trait Connection {
    /// Ready when the connection is over: true when it ended cleanly.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<bool>;
    /// Accepts no new requests, finishes those in progress, then closes.
    fn graceful_shutdown(self: Pin<&mut Self>);
}

impl<I, S> Connection for http1::UpgradeableConnection<I, S>
where
    I: Read + Write + Unpin + Send + 'static,
    S: HttpService<Incoming, ResBody = TrackedBody>,
    S::Error: Into<TaskError>,
{
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<bool> {
        Future::poll(self, context).map(|end| end.is_ok())
    }

    fn graceful_shutdown(self: Pin<&mut Self>) {
        Self::graceful_shutdown(self);
    }
}

impl<I, S> Connection for http2::Connection<I, S, ConnectionTasks>
where
    I: Read + Write + Unpin,
    S: HttpService<Incoming, ResBody = TrackedBody>,
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
