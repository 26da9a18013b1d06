//! The signs of life of one connection, and when their absence ends it.
//!
//! hyper's own time limit for a head also runs while a connection is idle, so a kept connection
//! would be closed under its client after 32 seconds instead of 90. Here the two are apart: bytes
//! that arrive while no request is in progress begin a head.

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

/// How long a connection may show no sign of life.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Without a request in progress.
    pub(crate) idle: Duration,
    /// From the first byte of a head to its last; none where bytes without a request are normal.
    pub(crate) head: Option<Duration>,
    /// While the client takes nothing of what we have for it.
    pub(crate) stall: Duration,
}

/// Why a connection shall end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nobody needs it.
    Idle,
    /// A head was begun and not finished.
    HeadTooSlow,
    /// The client does not read.
    Stalled,
}

#[derive(Debug)]
pub(crate) struct Vitals {
    clock: Clock,
    patience: Patience,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Requests whose answers are not whole yet.
    active: usize,
    idle_since: Moment,
    head_since: Option<Moment>,
    blocked_since: Option<Moment>,
    /// The answer that waits until the client takes something again.
    waiting: Option<Waker>,
}

impl Vitals {
    pub(crate) fn new(clock: Clock, patience: Patience) -> Arc<Self> {
        let idle_since = clock.moment();
        let (head_since, blocked_since, waiting) = (None, None, None);
        let state = State { active: 0, idle_since, head_since, blocked_since, waiting };
        Arc::new(Self { clock, patience, state: Mutex::new(state) })
    }

    /// A request has arrived; it is in progress until what is returned is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> Active {
        let mut state = self.lock();
        state.active += 1;
        state.head_since = None;
        Active(Arc::clone(self))
    }

    /// When the connection shall end if nothing more happens, and why.
    pub(crate) fn verdict(&self) -> Option<(Moment, Verdict)> {
        let state = self.lock();
        let idle = (state.active == 0).then(|| match (state.head_since, self.patience.head) {
            (Some(since), Some(patience)) => (since + patience, Verdict::HeadTooSlow),
            (Some(_) | None, _) => (state.idle_since + self.patience.idle, Verdict::Idle),
        });
        let blocked = state.blocked_since;
        let stalled = blocked.map(|since| (since + self.patience.stall, Verdict::Stalled));
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

    /// Whether the client takes nothing now; then the task is woken when it does again.
    fn blocks(&self, context: &Context<'_>) -> bool {
        let mut state = self.lock();
        let blocks = state.blocked_since.is_some();
        if blocks {
            state.waiting = Some(context.waker().clone());
        }
        blocks
    }

    /// The state is whole after every statement that changes it, so a poisoned lock is still good.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One request in progress.
#[derive(Debug)]
pub(crate) struct Active(Arc<Vitals>);

impl Drop for Active {
    fn drop(&mut self) {
        let now = self.0.clock.moment();
        let mut state = self.0.lock();
        state.active -= 1;
        state.idle_since = now;
    }
}

/// The body of an answer; the request is in progress until it is sent or given up.
pub(crate) struct Tracked {
    body: Body,
    active: Active,
    buffering: Buffering,
}

/// Who sees to it that little of an answer is made before the client takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Buffering {
    /// The protocol, stream by stream.
    Bounded,
    /// We do, by making nothing while the socket takes nothing. hyper has one figure for what it
    /// buffers of an HTTP/1 answer and for the largest head it reads, and that is a megabyte: too
    /// much for every watcher that does not read.
    HoldBack,
}

impl Tracked {
    pub(crate) fn new(body: Body, active: Active, buffering: Buffering) -> Self {
        Self { body, active, buffering }
    }
}

impl hyper::body::Body for Tracked {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.buffering == Buffering::HoldBack && self.active.0.blocks(context) {
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

/// A socket that tells the vitals what passes through it.
#[derive(Debug)]
pub(crate) struct Watched<Io> {
    pub(crate) io: Io,
    pub(crate) vitals: Arc<Vitals>,
}

impl<Io: AsyncRead + Unpin> AsyncRead for Watched<Io> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.io).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.vitals.received();
        }
        read
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for Watched<Io> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(context, bytes);
        self.vitals.sent(written.is_ready());
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(context, slices);
        self.vitals.sent(written.is_ready());
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(context);
        self.vitals.sent(flushed.is_ready());
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = Pin::new(&mut self.io).poll_shutdown(context);
        self.vitals.sent(closed.is_ready());
        closed
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use gantry_process::clock::Hand;
    use hyper::body::Body as _;
    use jiff::Timestamp;

    use super::*;

    fn second(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn each_silence_has_its_own_limit() {
        let hand = Hand::at(Timestamp::UNIX_EPOCH);
        let start = hand.clock().moment();
        let patience = Patience { idle: second(90), head: Some(second(32)), stall: second(60) };
        let vitals = Vitals::new(hand.clock(), patience);
        let at = |seconds| Some(start + second(seconds));
        let due = || vitals.verdict().map(|(moment, _)| moment);
        let why = || vitals.verdict().map(|(_, verdict)| verdict);

        assert_eq!((due(), why()), (at(90), Some(Verdict::Idle)), "idle from the start");
        hand.jump_to(start + second(10));
        vitals.received();
        hand.jump_to(start + second(20));
        vitals.received();
        assert_eq!((due(), why()), (at(42), Some(Verdict::HeadTooSlow)), "from the first byte");
        let active = vitals.begin();
        assert_eq!(due(), None, "a request may take its time");
        vitals.received();
        vitals.sent(false);
        hand.jump_to(start + second(30));
        vitals.sent(false);
        assert_eq!((due(), why()), (at(80), Some(Verdict::Stalled)), "from the first refusal");
        vitals.sent(true);
        let second_request = vitals.begin();
        drop(active);
        assert_eq!(due(), None, "another is in progress");
        drop(second_request);
        assert_eq!((due(), why()), (at(120), Some(Verdict::Idle)), "idle from the last answer");
    }

    /// Counts how often a task is woken.
    #[derive(Default)]
    struct Bell(AtomicUsize);

    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn nothing_is_made_for_a_client_that_takes_nothing() {
        let hand = Hand::at(Timestamp::UNIX_EPOCH);
        let patience = Patience { idle: second(90), head: Some(second(32)), stall: second(60) };
        let vitals = Vitals::new(hand.clock(), patience);
        let bell = Arc::new(Bell::default());
        let waker = Waker::from(Arc::clone(&bell));
        let mut context = Context::from_waker(&waker);
        let whole = || crate::body::full("text");
        let mut ours = Tracked::new(whole(), vitals.begin(), Buffering::HoldBack);
        let mut theirs = Tracked::new(whole(), vitals.begin(), Buffering::Bounded);

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
        let hand = Hand::at(Timestamp::UNIX_EPOCH);
        let patience = Patience { idle: second(90), head: None, stall: second(60) };
        let vitals = Vitals::new(hand.clock(), patience);
        vitals.received();
        let verdict = vitals.verdict();
        assert_eq!(verdict, Some((hand.clock().moment() + second(90), Verdict::Idle)));
    }
}
