//! Request and response bodies.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use gantry_process::clock::{Clock, Moment};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use tokio::sync::OwnedSemaphorePermit;

use crate::BoxError;
use crate::client::Bounds;
use crate::error::{ClientError, Phase, ResponsePart};

/// The body of a request: bytes, or a stream of them.
pub struct Body(Content);

enum Content {
    Whole(Bytes),
    Stream(UnsyncBoxBody<Bytes, BoxError>),
}

impl Body {
    /// No body.
    #[must_use]
    pub fn empty() -> Self {
        Self(Content::Whole(Bytes::new()))
    }

    /// Makes a body whose bytes are produced while it is sent. It cannot be sent again after a
    /// redirect.
    pub fn stream<Source>(source: Source) -> Self
    where
        Source: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        Self(Content::Stream(source.map_err(Into::into).boxed_unsync()))
    }

    /// Returns a copy of the body, if it can be sent a second time.
    pub(crate) fn try_clone(&self) -> Option<Self> {
        match &self.0 {
            Content::Whole(bytes) => Some(Self(Content::Whole(bytes.clone()))),
            Content::Stream(_) => None,
        }
    }

    pub(crate) fn upload(self, progress: Progress) -> Upload {
        Upload { content: self.0, progress }
    }
}

impl<Data: Into<Bytes>> From<Data> for Body {
    fn from(data: Data) -> Self {
        Self(Content::Whole(data.into()))
    }
}

impl fmt::Debug for Body {
    /// Never shows what is sent: it may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Content::Whole(bytes) => write!(f, "Body({} bytes)", bytes.len()),
            Content::Stream(_) => f.write_str("Body(stream)"),
        }
    }
}

/// Records when the connection last accepted a piece of the request.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    clock: Clock,
    last: Arc<Mutex<Moment>>,
}

impl Progress {
    pub(crate) fn new(clock: &Clock) -> Self {
        Self { clock: clock.clone(), last: Arc::new(Mutex::new(clock.moment())) }
    }

    pub(crate) fn last(&self) -> Moment {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record_progress(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = self.clock.moment();
    }
}

/// A request body while it is being sent.
pub(crate) struct Upload {
    content: Content,
    progress: Progress,
}

impl HttpBody for Upload {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let frame = match &mut this.content {
            Content::Whole(bytes) if bytes.is_empty() => None,
            Content::Whole(bytes) => Some(Ok(Frame::data(std::mem::take(bytes)))),
            Content::Stream(stream) => ready!(Pin::new(stream).poll_frame(context)),
        };
        this.progress.record_progress();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Whole(bytes) => bytes.is_empty(),
            Content::Stream(stream) => stream.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(bytes) => {
                SizeHint::with_exact(u64::try_from(bytes.len()).unwrap_or(u64::MAX))
            }
            Content::Stream(stream) => stream.size_hint(),
        }
    }
}

/// The body of a response, read as it arrives and within its bounds.
///
/// After an error the body ends. Dropping it before its end aborts the request.
pub struct ResponseBody {
    incoming: Incoming,
    reading: ReadLimits,
    /// Bytes that may still come.
    left: usize,
    timer: Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
    /// The client's permit for one concurrent request; returned at the end of the body.
    permit: Option<OwnedSemaphorePermit>,
}

/// The bounds within which a body is read.
pub(crate) struct ReadLimits {
    pub(crate) clock: Clock,
    pub(crate) bounds: Bounds,
    pub(crate) deadline: Moment,
    pub(crate) idle: Duration,
    pub(crate) header_limit: usize,
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody").field("left", &self.left).finish_non_exhaustive()
    }
}

impl ResponseBody {
    pub(crate) fn new(
        incoming: Incoming,
        reading: ReadLimits,
        turn: OwnedSemaphorePermit,
    ) -> Result<Self, ClientError> {
        let limit = reading.bounds.bytes;
        // A body whose announced length is too large is not read at all.
        if incoming.size_hint().lower() > u64::try_from(limit).unwrap_or(u64::MAX) {
            return Err(ClientError::TooLarge { part: ResponsePart::Body, limit });
        }
        Ok(Self { incoming, reading, left: limit, timer: None, permit: Some(turn) })
    }

    /// Returns the next piece, or `None` after the last. Trailers are skipped.
    ///
    /// # Errors
    /// The body is late, too large or incomplete.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, ClientError> {
        while let Some(frame) = self.frame().await {
            if let Ok(data) = frame?.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }

    /// Reads the whole rest of the body.
    ///
    /// # Errors
    /// The body is late, too large or incomplete.
    pub async fn read_to_end(self) -> Result<Bytes, ClientError> {
        Ok(self.collect().await?.to_bytes())
    }

    fn finish(&mut self) {
        self.permit = None;
        self.timer = None;
    }

    fn poll_within(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ClientError>>> {
        let ReadLimits { clock, bounds, deadline, idle, header_limit } = &self.reading;
        let late = |phase, limit| Poll::Ready(Some(Err(ClientError::Timeout { phase, limit })));
        let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(context) else {
            let timer = self.timer.get_or_insert_with(|| {
                let (clock, until) = (clock.clone(), (clock.moment() + *idle).min(*deadline));
                Box::pin(async move { clock.sleep_until(until).await })
            });
            ready!(timer.as_mut().poll(context));
            return match clock.moment() >= *deadline {
                true => late(Phase::Total, bounds.time),
                false => late(Phase::Idle, *idle),
            };
        };
        self.timer = None;
        let Some(frame) = frame else { return Poll::Ready(None) };
        // The deadline holds even for a peer that always has another piece ready.
        if clock.moment() > *deadline {
            return late(Phase::Total, bounds.time);
        }
        let frame = frame.map_err(|error| ClientError::from_exchange(error, *header_limit));
        let size = frame.as_ref().ok().and_then(Frame::data_ref).map_or(0, Bytes::len);
        let Some(left) = self.left.checked_sub(size) else {
            let limit = bounds.bytes;
            return Poll::Ready(Some(Err(ClientError::TooLarge {
                part: ResponsePart::Body,
                limit,
            })));
        };
        self.left = left;
        Poll::Ready(Some(frame))
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = ClientError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ClientError>>> {
        if self.permit.is_none() {
            return Poll::Ready(None);
        }
        let frame = ready!(self.poll_within(context));
        if !matches!(frame, Some(Ok(_))) {
            self.finish();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.permit.is_none() || self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
