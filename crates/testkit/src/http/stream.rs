//! An answer that is read while the server is still writing it.

use std::time::Duration;

use ::http::{HeaderMap, StatusCode};
use bytes::{Bytes, BytesMut};
use gantry_process::clock::Clock;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use super::{SendCause, SendError};

/// The longest line that is assembled: several times the largest object a server stores, since a
/// watch event holds one object.
const MAX_LINE_BYTES: usize = 16 << 20;

/// An open answer. Dropping it cancels the request.
#[derive(Debug)]
pub struct Stream {
    /// The status; answers other than a success can be streamed too.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    line: String,
    clock: Clock,
    body: Incoming,
    /// Bytes that arrived and were not returned yet.
    rest: BytesMut,
    /// The length up to which `rest` is known to contain no line end.
    searched: usize,
}

impl Stream {
    pub(super) fn new(line: String, answer: hyper::Response<Incoming>, clock: Clock) -> Self {
        let (parts, body) = answer.into_parts();
        let (status, headers, rest) = (parts.status, parts.headers, BytesMut::new());
        Self { status, headers, line, clock, body, rest, searched: 0 }
    }

    /// Returns the next line without its end, or `None` when the server has ended the answer. An
    /// unterminated last line is returned as well.
    ///
    /// Dropping the future loses nothing: bytes that arrived are kept for the next call.
    ///
    /// # Errors
    /// No whole line came within `limit` (calling again is fine), the connection broke, or a line
    /// is longer than any server writes.
    pub async fn next_line(&mut self, limit: Duration) -> Result<Option<Bytes>, SendError> {
        let clock = self.clock.clone();
        let found = clock.timeout(limit, self.line_or_end()).await;
        self.explain(found.unwrap_or_else(|late| Err(late.into())))
    }

    /// Returns the next piece as it came off the wire, or `None` at the end; for bodies that are
    /// not lines.
    ///
    /// # Errors
    /// As in [`Stream::next_line`].
    pub async fn next_frame(&mut self, limit: Duration) -> Result<Option<Bytes>, SendError> {
        if !self.rest.is_empty() {
            return Ok(Some(self.take_all()));
        }
        let clock = self.clock.clone();
        let found = clock.timeout(limit, self.fill()).await;
        let found = found.unwrap_or_else(|late| Err(late.into()));
        let found = found.map(|more| more.then(|| self.take_all()));
        self.explain(found)
    }

    async fn line_or_end(&mut self) -> Result<Option<Bytes>, SendCause> {
        loop {
            let fresh = self.rest.get(self.searched..).unwrap_or_default();
            if let Some(end) = fresh.iter().position(|byte| *byte == b'\n') {
                let mut line = self.rest.split_to(self.searched + end + 1);
                line.truncate(line.len() - 1);
                self.searched = 0;
                return Ok(Some(line.freeze()));
            }
            self.searched = self.rest.len();
            if self.searched > MAX_LINE_BYTES {
                return Err(SendCause::TooLarge { limit: MAX_LINE_BYTES });
            }
            if !self.fill().await? {
                return Ok((!self.rest.is_empty()).then(|| self.take_all()));
            }
        }
    }

    /// Reads one piece into `rest`; false at the end.
    async fn fill(&mut self) -> Result<bool, SendCause> {
        loop {
            let Some(frame) = self.body.frame().await else { return Ok(false) };
            let frame = frame.map_err(|error| SendCause::Broken(error.into()))?;
            // Trailers end an answer and contain nothing we use.
            if let Ok(data) = frame.into_data()
                && !data.is_empty()
            {
                self.rest.extend_from_slice(&data);
                return Ok(true);
            }
        }
    }

    fn take_all(&mut self) -> Bytes {
        self.searched = 0;
        self.rest.split().freeze()
    }

    fn explain<T>(&self, found: Result<T, SendCause>) -> Result<T, SendError> {
        found.map_err(|cause| SendError { line: self.line.clone(), cause })
    }
}
