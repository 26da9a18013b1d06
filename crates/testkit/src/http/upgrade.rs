//! A connection that continues with another protocol.

use std::time::Duration;

use ::http::{HeaderMap, StatusCode};
use bytes::{Bytes, BytesMut};
use gantry_process::clock::Clock;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{Client, Request, SendCause, SendError};

/// A connection after the server agreed to another protocol. Dropping it closes it.
#[derive(Debug)]
pub struct Upgraded {
    /// The status; any other than 101 is a refusal.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    line: String,
    clock: Clock,
    stream: Option<TokioIo<hyper::upgrade::Upgraded>>,
}

impl Client {
    /// Sends a request with an `Upgrade` header and takes over the connection. It has to be one of
    /// [`Protocol::Http1`](super::Protocol::Http1).
    ///
    /// # Errors
    /// No status and headers came back, or the connection was lost at once.
    pub async fn upgrade(&self, request: Request) -> Result<Upgraded, SendError> {
        let line = request.request_line();
        let answer = self.clock.timeout(self.timeout, async {
            let answer = self.begin(request).await?;
            let (status, headers) = (answer.status(), answer.headers().clone());
            let stream = match status {
                StatusCode::SWITCHING_PROTOCOLS => {
                    let stream = hyper::upgrade::on(answer).await;
                    Some(TokioIo::new(stream.map_err(|error| SendCause::Broken(error.into()))?))
                }
                _ => None,
            };
            Ok((status, headers, stream))
        });
        match answer.await.unwrap_or_else(|late| Err(late.into())) {
            Ok((status, headers, stream)) => {
                Ok(Upgraded { status, headers, line, clock: self.clock.clone(), stream })
            }
            Err(cause) => Err(SendError { line, cause }),
        }
    }
}

impl Upgraded {
    /// Returns the next `count` bytes.
    ///
    /// # Errors
    /// They did not come within `limit`, the connection broke, or the server refused to upgrade.
    pub async fn read(&mut self, count: usize, limit: Duration) -> Result<Bytes, SendError> {
        let mut bytes = BytesMut::zeroed(count);
        let read = async {
            let stream = self.stream.as_mut().ok_or_else(refused)?;
            stream.read_exact(&mut bytes).await.map_err(|error| SendCause::Broken(error.into()))
        };
        let read = self.clock.timeout(limit, read).await.unwrap_or_else(|late| Err(late.into()));
        match read {
            Ok(_) => Ok(bytes.freeze()),
            Err(cause) => Err(SendError { line: self.line.clone(), cause }),
        }
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// The connection broke, or the server refused to upgrade.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), SendError> {
        let written = match &mut self.stream {
            Some(stream) => match stream.write_all(bytes).await {
                Ok(()) => stream.flush().await,
                Err(error) => Err(error),
            },
            None => return Err(SendError { line: self.line.clone(), cause: refused() }),
        };
        let broken = |error: std::io::Error| SendError {
            line: self.line.clone(),
            cause: SendCause::Broken(error.into()),
        };
        written.map_err(broken)
    }
}

fn refused() -> SendCause {
    SendCause::Broken("the server did not agree to another protocol".into())
}
