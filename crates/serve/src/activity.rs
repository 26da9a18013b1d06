//! Tracks the activity of one connection and decides when inactivity ends it.
//!
//! hyper's own time limit for a request head also runs while a connection is idle, so a kept-alive
//! connection would be closed after 32 seconds instead of 90. Here the two are separate: a head
//! begins with the first bytes that arrive while no request is in progress.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use gantry_process::clock::{Clock, Moment};
use hyper::body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::body::Body;

/// How long a connection may be inactive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ActivityTimeouts {
    /// Without a request in progress.
    pub(crate) idle: Duration,
    /// From the first byte of a head to its last; `None` where bytes without a request are normal.
    pub(crate) head: Option<Duration>,
    /// While the client does not read pending response data.
    pub(crate) stall: Duration,
}

/// Why a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeoutReason {
    /// It is idle.
    Idle,
    /// A head was begun and not finished.
    HeadTooSlow,
    /// The client does not read.
    Stalled,
}

#[derive(Debug)]
pub(crate) struct ConnectionActivity {
    clock: Clock,
    timeouts: ActivityTimeouts,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Requests whose responses are not complete yet.
    active: usize,
    idle_since: Moment,
    head_since: Option<Moment>,
    blocked_since: Option<Moment>,
    /// The response task that waits until the client reads again.
    waiting: Option<Waker>,
}

impl ConnectionActivity {
    pub(crate) fn new(clock: Clock, patience: ActivityTimeouts) -> Arc<Self> {
        let idle_since = clock.moment();
        let (head_since, blocked_since, waiting) = (None, None, None);
        let state = State { active: 0, idle_since, head_since, blocked_since, waiting };
        Arc::new(Self { clock, timeouts: patience, state: Mutex::new(state) })
    }

    /// Records a new request; it is in progress until the returned guard is dropped.
    pub(crate) fn request_started(self: &Arc<Self>) -> ActiveRequest {
        let mut state = self.lock();
        state.active += 1;
        state.head_since = None;
        ActiveRequest(Arc::clone(self))
    }

    /// Returns when the connection is closed if nothing more happens, and why.
    pub(crate) fn next_timeout(&self) -> Option<(Moment, TimeoutReason)> {
        let state = self.lock();
        let idle = (state.active == 0).then(|| match (state.head_since, self.timeouts.head) {
            (Some(since), Some(patience)) => (since + patience, TimeoutReason::HeadTooSlow),
            (Some(_) | None, _) => (state.idle_since + self.timeouts.idle, TimeoutReason::Idle),
        });
        let blocked = state.blocked_since;
        let stalled = blocked.map(|since| (since + self.timeouts.stall, TimeoutReason::Stalled));
        idle.into_iter().chain(stalled).min_by_key(|(moment, _)| *moment)
    }

    fn received(&self) {
        let mut state = self.lock();
        if state.active == 0 && state.head_since.is_none() {
            state.head_since = Some(self.clock.moment());
        }
    }

    fn sent(&self, moved: bool) {
        let mut state = self.lock();
        if moved {
            state.blocked_since = None;
            if let Some(waiting) = state.waiting.take() {
                waiting.wake();
            }
        } else if state.blocked_since.is_none() {
            state.blocked_since = Some(self.clock.moment());
        }
    }

    /// Whether the client does not read now; if so, the task is woken when it reads again.
    fn is_write_blocked(&self, context: &Context<'_>) -> bool {
        let mut state = self.lock();
        let blocks = state.blocked_since.is_some();
        if blocks {
            state.waiting = Some(context.waker().clone());
        }
        blocks
    }

    /// Locks the state, even if the lock is poisoned: the state is consistent after every statement
    /// that changes it.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One request in progress.
#[derive(Debug)]
pub(crate) struct ActiveRequest(Arc<ConnectionActivity>);

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        let now = self.0.clock.moment();
        let mut state = self.0.lock();
        state.active -= 1;
        state.idle_since = now;
    }
}

/// The body of a response; the request is in progress until the body is sent or dropped.
pub(crate) struct TrackedBody {
    body: Body,
    active: ActiveRequest,
    buffering: Buffering,
}

/// What limits how much of a response is produced before the client reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Buffering {
    /// The flow control of the protocol, per stream.
    Bounded,
    /// This server, by producing nothing while the socket accepts nothing. hyper has one setting
    /// for what it buffers of an HTTP/1 response and for the largest head it reads, and that is a
    /// megabyte: too much for every watcher that does not read.
    WhileWritable,
}

impl TrackedBody {
    pub(crate) fn new(body: Body, active: ActiveRequest, buffering: Buffering) -> Self {
        Self { body, active, buffering }
    }
}

impl hyper::body::Body for TrackedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.buffering == Buffering::WhileWritable && self.active.0.is_write_blocked(context) {
            return Poll::Pending;
        }
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A socket that records its reads and writes in the activity of the connection.
#[derive(Debug)]
pub(crate) struct MonitoredIo<Io> {
    pub(crate) io: Io,
    pub(crate) activity: Arc<ConnectionActivity>,
}

impl<Io: AsyncRead + Unpin> AsyncRead for MonitoredIo<Io> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.io).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.activity.received();
        }
        read
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for MonitoredIo<Io> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(context, bytes);
        self.activity.sent(written.is_ready());
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(context, slices);
        self.activity.sent(written.is_ready());
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(context);
        self.activity.sent(flushed.is_ready());
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = Pin::new(&mut self.io).poll_shutdown(context);
        self.activity.sent(closed.is_ready());
        closed
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use gantry_process::clock::FakeClock;
    use hyper::body::Body as _;
    use jiff::Timestamp;

    use super::*;

    fn second(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn each_timeout_has_its_own_limit() {
        let hand = FakeClock::at(Timestamp::UNIX_EPOCH);
        let start = hand.clock().moment();
        let patience =
            ActivityTimeouts { idle: second(90), head: Some(second(32)), stall: second(60) };
        let vitals = ConnectionActivity::new(hand.clock(), patience);
        let at = |seconds| Some(start + second(seconds));
        let due = || vitals.next_timeout().map(|(moment, _)| moment);
        let why = || vitals.next_timeout().map(|(_, verdict)| verdict);

        assert_eq!((due(), why()), (at(90), Some(TimeoutReason::Idle)), "idle from the start");
        hand.jump_to(start + second(10));
        vitals.received();
        hand.jump_to(start + second(20));
        vitals.received();
        assert_eq!(
            (due(), why()),
            (at(42), Some(TimeoutReason::HeadTooSlow)),
            "from the first byte"
        );
        let active = vitals.request_started();
        assert_eq!(due(), None, "a request may take its time");
        vitals.received();
        vitals.sent(false);
        hand.jump_to(start + second(30));
        vitals.sent(false);
        assert_eq!(
            (due(), why()),
            (at(80), Some(TimeoutReason::Stalled)),
            "from the first refusal"
        );
        vitals.sent(true);
        let second_request = vitals.request_started();
        drop(active);
        assert_eq!(due(), None, "another is in progress");
        drop(second_request);
        assert_eq!(
            (due(), why()),
            (at(120), Some(TimeoutReason::Idle)),
            "idle from the last response"
        );
    }

    /// Counts how often a task is woken.
    #[derive(Default)]
    struct WakeCounter(AtomicUsize);

    impl Wake for WakeCounter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn no_frames_are_produced_while_writes_are_blocked() {
        let hand = FakeClock::at(Timestamp::UNIX_EPOCH);
        let patience =
            ActivityTimeouts { idle: second(90), head: Some(second(32)), stall: second(60) };
        let vitals = ConnectionActivity::new(hand.clock(), patience);
        let bell = Arc::new(WakeCounter::default());
        let waker = Waker::from(Arc::clone(&bell));
        let mut context = Context::from_waker(&waker);
        let whole = || crate::body::full("text");
        let mut ours =
            TrackedBody::new(whole(), vitals.request_started(), Buffering::WhileWritable);
        let mut theirs = TrackedBody::new(whole(), vitals.request_started(), Buffering::Bounded);

        vitals.sent(false);
        assert!(Pin::new(&mut ours).poll_frame(&mut context).is_pending());
        assert!(Pin::new(&mut theirs).poll_frame(&mut context).is_ready(), "streams have a bound");
        vitals.sent(false);
        assert_eq!(bell.0.load(Ordering::SeqCst), 0, "still blocked");
        vitals.sent(true);
        assert_eq!(bell.0.load(Ordering::SeqCst), 1, "the client takes something again");
        assert!(Pin::new(&mut ours).poll_frame(&mut context).is_ready());
    }

    #[test]
    fn bytes_without_a_request_are_normal_in_http2() {
        let hand = FakeClock::at(Timestamp::UNIX_EPOCH);
        let patience = ActivityTimeouts { idle: second(90), head: None, stall: second(60) };
        let vitals = ConnectionActivity::new(hand.clock(), patience);
        vitals.received();
        let verdict = vitals.next_timeout();
        assert_eq!(verdict, Some((hand.clock().moment() + second(90), TimeoutReason::Idle)));
    }
}
