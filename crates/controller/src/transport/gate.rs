//! A connection that sends bytes only while this process may write.
//!
//! Between the check whether the process is the leader and the system call that sends a write there
//! are queues and other threads. A process that is suspended in between, and resumes when another
//! one has long taken the lease, would send what it was allowed to send before. So the check is
//! repeated where the bytes are sent, with nothing between the check and the system call.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use tower_service::Service;

use crate::lease::{NotLeading, Permit};

/// Lets bytes out while a permit lasts. Clones share the gate; it is closed until a permit is set.
#[derive(Clone, Debug, Default)]
pub struct WriteGate(Arc<OnceLock<Permit>>);

impl WriteGate {
    /// Sets the permit. The first one that is set stays.
    pub fn set_permit(&self, permit: Permit) {
        let _ = self.0.set(permit);
    }

    fn check(&self) -> io::Result<()> {
        let answer = self.0.get().map_or(Err(NotLeading), Permit::check);
        answer.map_err(|no| io::Error::new(io::ErrorKind::PermissionDenied, no))
    }
}

/// Connects, and gates each connection.
#[derive(Clone, Debug)]
pub(super) struct GatedConnector<Connector> {
    pub(super) connector: Connector,
    pub(super) gate: WriteGate,
}

type ConnectFuture<Stream, Error> = Pin<Box<dyn Future<Output = Result<Stream, Error>> + Send>>;

impl<Connector> Service<Uri> for GatedConnector<Connector>
where
    Connector: Service<Uri>,
    Connector::Future: Send + 'static,
{
    type Response = GatedStream<Connector::Response>;
    type Error = Connector::Error;
    type Future = ConnectFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.connector.poll_ready(context)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let (connecting, gate) = (self.connector.call(to), self.gate.clone());
        Box::pin(async move { Ok(GatedStream { stream: connecting.await?, gate }) })
    }
}

/// A gated connection. Reading is always allowed.
#[derive(Debug)]
pub(super) struct GatedStream<Stream> {
    stream: Stream,
    gate: WriteGate,
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

    use gantry_process::clock::{Clock, FakeClock};
    use http::Request;
    use jiff::Timestamp;
    use kube::Config;
    use kube::client::Body;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::transport::to_cluster_with_gate;

    /// Responds to the requests on one connection, and returns what was received.
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

    /// The check is made where the bytes are sent: a client with an open connection is blocked like
    /// one without.
    #[tokio::test]
    async fn nothing_leaves_without_a_permit() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let gate = WriteGate::default();
        let config = Config::new(format!("http://{at}").parse().unwrap());
        let client = to_cluster_with_gate(config, gate.clone()).unwrap();
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
            assert!(!ask("/before").await, "no permit is set");
            let hand = FakeClock::at(Timestamp::UNIX_EPOCH);
            let (grant, permit) = Permit::on_grant(hand.clock());
            gate.set_permit(permit);
            gate.set_permit(Permit::always(Clock::system()));
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
