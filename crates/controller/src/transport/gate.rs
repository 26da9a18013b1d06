//! A way to a server that is open only while this process may write.
//!
//! Between the question whether one leads and the system call that sends a write there are queues and
//! other threads. A process that is stopped in between, and goes on when somebody else has long taken
//! the lease, would send what it was allowed to send then. So the question is asked once more where
//! the bytes leave, with nothing between the answer and the call.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use tower_service::Service;

use crate::lease::{NotLeading, Permit};

/// Lets bytes out while a permit lasts. Clones are the same gate; it is closed until it is told which
/// permit that is.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<OnceLock<Permit>>);

impl Gate {
    /// From now on this permit decides. The first that is told stays.
    pub fn obey(&self, permit: Permit) {
        let _ = self.0.set(permit);
    }

    fn check(&self) -> io::Result<()> {
        let answer = self.0.get().map_or(Err(NotLeading), Permit::check);
        answer.map_err(|no| io::Error::new(io::ErrorKind::PermissionDenied, no))
    }
}

/// Connects, and puts the gate before each connection.
#[derive(Clone, Debug)]
pub(super) struct Gated<Connector> {
    pub(super) connector: Connector,
    pub(super) gate: Gate,
}

type Connecting<Stream, Error> = Pin<Box<dyn Future<Output = Result<Stream, Error>> + Send>>;

impl<Connector> Service<Uri> for Gated<Connector>
where
    Connector: Service<Uri>,
    Connector::Future: Send + 'static,
{
    type Response = GatedStream<Connector::Response>;
    type Error = Connector::Error;
    type Future = Connecting<Self::Response, Self::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.connector.poll_ready(context)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let (connecting, gate) = (self.connector.call(to), self.gate.clone());
        Box::pin(async move { Ok(GatedStream { stream: connecting.await?, gate }) })
    }
}

/// A connection behind the gate. Reading is always allowed.
#[derive(Debug)]
pub(super) struct GatedStream<Stream> {
    stream: Stream,
    gate: Gate,
}

impl<Stream: Connection> Connection for GatedStream<Stream> {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}

impl<Stream: Read + Unpin> Read for GatedStream<Stream> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<Stream: Write + Unpin> Write for GatedStream<Stream> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.gate.check()?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.gate.check()?;
        Pin::new(&mut self.stream).poll_write_vectored(context, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gantry_process::clock::{Clock, Hand};
    use http::Request;
    use jiff::Timestamp;
    use kube::Config;
    use kube::client::Body;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::transport::to_cluster_behind;

    /// Answers requests on one connection, and says which came.
    async fn serve(mut connection: TcpStream) -> String {
        let mut heard = Vec::new();
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = connection.read(&mut buffer).await {
            heard.extend_from_slice(&buffer[..count]);
            if heard.ends_with(b"\r\n\r\n") {
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
                connection.write_all(answer).await.unwrap();
            }
        }
        String::from_utf8(heard).unwrap()
    }

    /// What leaves is decided where it leaves: a client that has a connection is as closed as one
    /// that has none.
    #[tokio::test]
    async fn nothing_leaves_without_a_permit() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let gate = Gate::default();
        let config = Config::new(format!("http://{at}").parse().unwrap());
        let client = to_cluster_behind(config, gate.clone()).unwrap();
        let ask = async |path: &str| {
            let request = Request::get(path).body(Body::empty()).unwrap();
            client.send(request).await.is_ok()
        };
        let server = async {
            let mut heard = Vec::new();
            for _ in 0..2 {
                heard.push(serve(listener.accept().await.unwrap().0).await);
            }
            heard.concat()
        };
        let talk = async {
            assert!(!ask("/before").await, "nobody said who decides");
            let hand = Hand::at(Timestamp::UNIX_EPOCH);
            let (grant, permit) = Permit::on_grant(hand.clock());
            gate.obey(permit);
            gate.obey(Permit::always(Clock::system()));
            grant.until(hand.clock().moment() + Duration::from_secs(1));
            assert!(ask("/first").await && ask("/second").await);
            hand.advance(Duration::from_secs(1)).await;
            assert!(!ask("/late").await, "the first permit decides, and has lapsed");
        };
        let (heard, ()) = tokio::join!(server, talk);
        assert!(heard.contains("GET /first") && heard.contains("GET /second"), "{heard}");
        assert!(!heard.contains("/before") && !heard.contains("/late"), "{heard}");
    }
}
