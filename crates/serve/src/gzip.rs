//! Compresses complete responses that are large enough to be worth it.

use std::io::{self, Write as _};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, VARY};
use http::{HeaderMap, HeaderValue, Response};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Frame};

use crate::body::Body;

/// Responses up to this size are not compressed: on a local network the time to compress them is
/// longer than the time it saves. It is upstream's threshold, and so is the level below.
pub const COMPRESSION_THRESHOLD: u64 = 128 * 1024;
/// Within a third of the best size for a fraction of its cost.
const COMPRESSION_LEVEL: u32 = 1;
/// The most that is compressed in one go. The body of a large list may be one piece of many
/// megabytes, and a thread that compresses it whole blocks all other requests meanwhile.
const MAX_CHUNK_BYTES: usize = 64 * 1024;

/// Compresses the body when the client accepts gzip and the body is known to be large.
///
/// A document knows its length, or at least how much of it there is already. Streams (watches,
/// logs) do not, so they are never compressed: a compressor would delay events until it has enough
/// of them.
///
/// `Vary` is added to compressed responses only, as upstream does.
#[must_use]
pub fn compress(response: Response<Body>, request: &HeaderMap) -> Response<Body> {
    let large = response.body().size_hint().lower() > COMPRESSION_THRESHOLD;
    if !large || !offers_gzip(request) || response.headers().contains_key(CONTENT_ENCODING) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    parts.headers.remove(CONTENT_LENGTH);
    parts.headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    parts.headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
    Response::from_parts(parts, Gzip::new(body).boxed_unsync())
}

/// Whether the first `Accept-Encoding` names gzip, alone or in a list. As upstream, a weight after
/// the name is not understood and counts as no offer.
fn offers_gzip(headers: &HeaderMap) -> bool {
    let offered = headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    offered.is_some_and(|offered| offered.split(',').any(|name| name.trim() == "gzip"))
}

/// A body that is compressed while it is sent.
struct Gzip {
    body: Body,
    /// Bytes of the body that are not compressed yet.
    rest: Bytes,
    /// `None` once the end was written.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl Gzip {
    fn new(body: Body) -> Self {
        let encoder = GzEncoder::new(
            Vec::with_capacity(MAX_CHUNK_BYTES),
            Compression::new(COMPRESSION_LEVEL),
        );
        Self { body, rest: Bytes::new(), encoder: Some(encoder) }
    }
}

impl hyper::body::Body for Gzip {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = &mut *self;
        loop {
            let Some(encoder) = &mut this.encoder else { return Poll::Ready(None) };
            if !this.rest.is_empty() {
                let bite = this.rest.split_to(this.rest.len().min(MAX_CHUNK_BYTES));
                if let Err(error) = encoder.write_all(&bite) {
                    return Poll::Ready(Some(Err(error)));
                }
                if encoder.get_ref().len() >= MAX_CHUNK_BYTES / 2 {
                    let done =
                        std::mem::replace(encoder.get_mut(), Vec::with_capacity(MAX_CHUNK_BYTES));
                    return Poll::Ready(Some(Ok(Frame::data(done.into()))));
                }
                continue;
            }
            match std::task::ready!(Pin::new(&mut this.body).poll_frame(context)) {
                Some(Ok(frame)) => {
                    // Trailers would come after the end of the compressed data; this server sends
                    // none.
                    if let Ok(data) = frame.into_data() {
                        this.rest = data;
                    }
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => {
                    let end = this.encoder.take().map(GzEncoder::finish);
                    return Poll::Ready(end.map(|end| end.map(|end| Frame::data(end.into()))));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;

    use super::*;
    use crate::body;

    fn offer(value: Option<&'static str>) -> HeaderMap {
        let value = value.map(|value| (ACCEPT_ENCODING, HeaderValue::from_static(value)));
        value.into_iter().collect()
    }

    /// Returns text that does not repeat, so that the result has more than one piece.
    fn text(length: usize) -> Bytes {
        let mut numbers = fastrand::Rng::with_seed(7);
        (0..length).map(|_| numbers.alphanumeric() as u8).collect()
    }

    #[tokio::test]
    async fn large_complete_responses_are_compressed_on_request() {
        let large = 128 * 1024 + 1;
        let table = [
            ("offered and large", Some("gzip"), large, true),
            ("among others", Some("deflate, gzip , br"), large, true),
            ("at the threshold", Some("gzip"), large - 1, false),
            ("not offered", None, large, false),
            ("something else offered", Some("br"), large, false),
            ("a weight is not understood upstream either", Some("gzip;q=1"), large, false),
            ("much larger", Some("gzip"), 3_000_000, true),
        ];
        for (why, offered, length, expected) in table {
            let plain = text(length);
            let mut response = Response::new(body::full(plain.clone()));
            response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
            response.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
            let (parts, body) = compress(response, &offer(offered)).into_parts();
            let sent = body.collect().await.unwrap().to_bytes();
            assert_eq!(parts.headers.contains_key(CONTENT_ENCODING), expected, "{why}");
            let vary: Vec<_> = parts.headers.get_all(VARY).iter().collect();
            if expected {
                assert_eq!(parts.headers[CONTENT_ENCODING], "gzip", "{why}");
                assert_eq!(vary, ["Accept", "Accept-Encoding"], "{why}");
                assert!(!parts.headers.contains_key(CONTENT_LENGTH), "{why}");
                assert!(sent.len() < plain.len(), "{why}");
                let mut back = Vec::new();
                GzDecoder::new(&*sent).read_to_end(&mut back).unwrap();
                assert!(back == plain, "{why}");
            } else {
                assert_eq!(vary, ["Accept"], "{why}");
                assert!(sent == plain, "{why}");
            }
        }
    }

    #[tokio::test]
    async fn streams_and_encoded_responses_are_not_compressed() {
        struct Once(Option<Bytes>);
        impl hyper::body::Body for Once {
            type Data = Bytes;
            type Error = io::Error;
            fn poll_frame(
                mut self: Pin<&mut Self>,
                _: &mut Context<'_>,
            ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
                Poll::Ready(self.0.take().map(|data| Ok(Frame::data(data))))
            }
        }
        let stream = Response::new(Once(Some(text(1 << 20))).boxed_unsync());
        let response = compress(stream, &offer(Some("gzip")));
        assert!(!response.headers().contains_key(CONTENT_ENCODING), "length unknown");

        let mut encoded = Response::new(body::full(text(1 << 20)));
        encoded.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("zstd"));
        let response = compress(encoded, &offer(Some("gzip")));
        assert_eq!(response.headers()[CONTENT_ENCODING], "zstd", "already encoded");
        assert!(!response.headers().contains_key(VARY));
    }

    #[tokio::test]
    async fn a_body_that_breaks_stays_broken() {
        struct Broken(bool);
        impl hyper::body::Body for Broken {
            type Data = Bytes;
            type Error = io::Error;
            fn poll_frame(
                mut self: Pin<&mut Self>,
                _: &mut Context<'_>,
            ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
                self.0 = !self.0;
                Poll::Ready(Some(if self.0 {
                    Ok(Frame::data(text(200_000)))
                } else {
                    Err(io::Error::other("disk"))
                }))
            }
            fn size_hint(&self) -> hyper::body::SizeHint {
                hyper::body::SizeHint::with_exact(400_000)
            }
        }
        let response = Response::new(Broken(false).boxed_unsync());
        let response = compress(response, &offer(Some("gzip")));
        assert_eq!(response.headers()[CONTENT_ENCODING], "gzip");
        let error = response.into_body().collect().await.unwrap_err();
        assert_eq!(error.to_string(), "disk");
    }
}
