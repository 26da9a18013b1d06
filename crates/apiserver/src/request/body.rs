//! Response bodies: complete, in chunks that are produced as they are read, or for as long as a
//! watch lasts.

pub(crate) mod rope;

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use gantry_serve::gzip;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Frame, SizeHint};

use crate::request::body::rope::{FRAME_BYTES, SendBuffer};

/// The body of a response.
pub type Body = UnsyncBoxBody<Bytes, io::Error>;

/// Makes a body from complete bytes.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// Makes a body whose pieces are produced as the client reads it.
///
/// Its beginning is produced at once: a body that ends there has a length, and a longer one is
/// known to be worth compressing.
pub fn pieces(pieces: impl Iterator<Item = Bytes> + Send + 'static) -> Body {
    let mut body = Pieces { pieces, ahead: SendBuffer::default(), complete: false };
    while body.buffered_bytes() <= gzip::COMPRESSION_THRESHOLD && !body.complete {
        body.buffer_next();
    }
    body.boxed_unsync()
}

struct Pieces<Source> {
    pieces: Source,
    /// Large pieces are not copied: a client that does not read holds no more than what is stored
    /// anyway.
    ahead: SendBuffer,
    /// Nothing comes after `ahead`.
    complete: bool,
}

impl<Source> Pieces<Source> {
    /// Bytes in `ahead`.
    fn buffered_bytes(&self) -> u64 {
        u64::try_from(self.ahead.len()).unwrap_or(u64::MAX)
    }
}

impl<Source: Iterator<Item = Bytes>> Pieces<Source> {
    /// Produces another piece.
    fn buffer_next(&mut self) {
        match self.pieces.next() {
            Some(piece) => self.ahead.push(piece),
            None => self.complete = true,
        }
    }
}

impl<Source> Unpin for Pieces<Source> {}

impl<Source: Iterator<Item = Bytes>> hyper::body::Body for Pieces<Source> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        while self.ahead.len() < FRAME_BYTES && !self.complete {
            self.buffer_next();
        }
        Poll::Ready(self.ahead.next().map(|frame| Ok(Frame::data(frame))))
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = SizeHint::new();
        hint.set_lower(self.buffered_bytes());
        if self.complete {
            hint.set_exact(self.buffered_bytes());
        }
        hint
    }
}

/// Makes a body that goes on as long as `step` returns more.
///
/// Nothing is produced ahead: while the client does not read, `step` is not called, so a slow
/// client costs no memory. Dropping the body drops the pending step.
pub fn unfold<State, Step, Made>(state: State, step: Step) -> Body
where
    State: Send + 'static,
    Step: FnMut(State) -> Made + Send + Unpin + 'static,
    Made: Future<Output = Option<(Bytes, State)>> + Send + 'static,
{
    Unfold { idle: Some(state), step, waiting: None }.boxed_unsync()
}

struct Unfold<State, Step, Made> {
    idle: Option<State>,
    step: Step,
    waiting: Option<Pin<Box<Made>>>,
}

impl<State, Step, Made> Unpin for Unfold<State, Step, Made> {}

impl<State, Step, Made> hyper::body::Body for Unfold<State, Step, Made>
where
    Step: FnMut(State) -> Made,
    Made: Future<Output = Option<(Bytes, State)>>,
{
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if let Some(state) = self.idle.take() {
            let made = (self.step)(state);
            self.waiting = Some(Box::pin(made));
        }
        let Some(waiting) = &mut self.waiting else { return Poll::Ready(None) };
        match waiting.as_mut().poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(None) => {
                self.waiting = None;
                Poll::Ready(None)
            }
            Poll::Ready(Some((bytes, state))) => {
                self.waiting = None;
                self.idle = Some(state);
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use hyper::body::Body as _;

    use super::*;

    #[tokio::test]
    async fn pieces_come_in_large_frames() {
        let piece = Bytes::from(vec![b'x'; 1000]);
        let body = pieces(std::iter::repeat_n(piece, 200));
        let mut body = body;
        let mut sizes = Vec::new();
        while let Some(frame) = body.frame().await {
            sizes.push(frame.unwrap().into_data().unwrap().len());
        }
        assert_eq!(sizes.iter().sum::<usize>(), 200_000);
        assert_eq!(sizes.len(), 4, "64 KiB each but the last");
    }

    #[tokio::test]
    async fn a_short_body_has_a_length_and_a_long_one_is_known_to_be_long() {
        let piece = Bytes::from(vec![b'x'; 1000]);
        let short = pieces(std::iter::repeat_n(piece.clone(), 100));
        assert_eq!(short.size_hint().exact(), Some(100_000));
        assert_eq!(short.collect().await.unwrap().to_bytes().len(), 100_000);
        let long = pieces(std::iter::repeat_n(piece, 1000));
        assert_eq!(long.size_hint().exact(), None);
        assert!(long.size_hint().lower() > gzip::COMPRESSION_THRESHOLD);
        assert_eq!(long.collect().await.unwrap().to_bytes().len(), 1_000_000);
        assert_eq!(pieces(std::iter::empty()).collect().await.unwrap().to_bytes().len(), 0);
    }

    #[tokio::test]
    async fn an_unfolded_body_ends_with_its_last_step() {
        let body = unfold(3_u8, |left| async move {
            (left > 0).then(|| (Bytes::from(left.to_string()), left - 1))
        });
        let all = body.collect().await.unwrap().to_bytes();
        assert_eq!(&all[..], b"321");
    }
}
