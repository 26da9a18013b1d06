//! Response bodies: complete bytes, or a stream.

use std::io;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};

/// A body of any kind behind one type. An error while it is being sent ends the connection or the
/// HTTP/2 stream: the client must not mistake half a response for a complete one.
pub type Body = UnsyncBoxBody<Bytes, io::Error>;

/// Makes a body from complete bytes.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// Makes an empty body.
#[must_use]
pub fn empty() -> Body {
    full(Bytes::new())
}
