//! The body of every answer: bytes that are there, or that come when they come.

use std::io;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};

/// A body of any kind behind one type. An error while it is being sent ends the connection, or the
/// stream of it: the client must not take half an answer for a whole one.
pub type Body = UnsyncBoxBody<Bytes, io::Error>;

/// A body that is there.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// No body.
#[must_use]
pub fn empty() -> Body {
    full(Bytes::new())
}
