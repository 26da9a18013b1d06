//! One forwarded connection: copies bytes between a client's stream and a port of a pod.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::outbox::Message;
use super::window::Window;
use super::{Forwarder, OpenConnection, READ_BUFFER_BYTES};
use crate::streams::kubelet_client::Duplex;
use crate::streams::spdy::{CANCEL, Frame, INITIAL_WINDOW};

/// How long a client may go on sending after the pod has ended its side, as with container
/// runtimes.
const HALF_CLOSED_TIMEOUT: Duration = Duration::from_secs(1);

/// The client's end of a connection.
#[derive(Debug)]
pub(super) struct Connection {
    /// The port of the pod.
    pub(super) port: u16,
    /// Data from the client; ends when the client will send no more.
    pub(super) inbox: DuplexStream,
    /// Cancelled when the client resets the connection.
    pub(super) reset: CancellationToken,
    pub(super) link: ClientLink,
}

/// The link to the client.
#[derive(Debug)]
pub(super) struct ClientLink {
    pub(super) outbox: mpsc::Sender<Message>,
    pub(super) streams: Streams,
}

/// Where data and errors go.
#[derive(Debug)]
pub(super) enum Streams {
    /// Two streams of SPDY.
    Spdy {
        data: u32,
        error: u32,
        /// The windows of the data stream and of the connection, and whether they are enforced.
        window: Arc<Window>,
        total: Arc<Window>,
        enforced: Arc<AtomicBool>,
    },
    /// Two channels of a WebSocket.
    Channels { data: u8, error: u8 },
}

/// The session is over, so nothing can be sent.
#[derive(Debug)]
pub(super) struct SessionClosed;

impl Connection {
    /// Connects, and copies bytes until both sides have ended.
    pub(super) async fn run(self, forwarder: &Forwarder) {
        let Self { port, inbox, reset, link } = self;
        let carry = async {
            let OpenConnection { io, permit: place } = forwarder.open(port).await?;
            let carried = copy_bidirectional(io, inbox, &link, forwarder).await;
            drop(place);
            carried.map_err(|error| error.to_string())
        };
        // May be dropped: the client has reset the connection.
        let outcome = tokio::select! {
            biased;
            () = reset.cancelled() => Ok(()),
            outcome = carry => outcome,
        };
        let words = outcome.err().map(|why| forwarder.failure_message(port, &why));
        // Fails when the session is over, which does not matter here.
        let _ = link.end(words).await;
    }
}

/// Copies bytes in both directions. Each side may end before the other.
async fn copy_bidirectional(
    io: Box<dyn Duplex>,
    mut inbox: DuplexStream,
    link: &ClientLink,
    forwarder: &Forwarder,
) -> io::Result<()> {
    let (mut reader, mut writer) = tokio::io::split(io);
    let to_pod = async {
        let (mut buffer, mut untold) = (BytesMut::new(), 0);
        loop {
            buffer.reserve(READ_BUFFER_BYTES);
            match (&mut inbox).take(READ_BUFFER_BYTES as u64).read_buf(&mut buffer).await {
                Ok(0) | Err(_) => break,
                Ok(length) => untold += length,
            }
            let sent = async {
                writer.write_all_buf(&mut buffer).await?;
                writer.flush().await
            };
            // The program may not read any more. Whether it failed is known from its output.
            if sent.await.is_err() || link.acknowledge(&mut untold).await.is_err() {
                return;
            }
        }
        // The pod may be gone already, so an error does not matter.
        let _ = writer.shutdown().await;
    };
    let from_pod = async {
        let mut buffer = BytesMut::new();
        loop {
            buffer.reserve(READ_BUFFER_BYTES);
            if (&mut reader).take(READ_BUFFER_BYTES as u64).read_buf(&mut buffer).await? == 0 {
                break;
            }
            if link.send(buffer.split().freeze()).await.is_err() {
                return Ok(());
            }
        }
        // Fails when the session is over, which does not matter here.
        let _ = link.finish().await;
        io::Result::Ok(())
    };
    let (mut to_pod, mut from_pod) = (pin!(to_pod), pin!(from_pod));
    tokio::select! {
        // The direction that is not over goes on below.
        () = &mut to_pod => from_pod.await,
        ended = &mut from_pod => {
            ended?;
            let _ = forwarder.clock().timeout(HALF_CLOSED_TIMEOUT, to_pod).await;
            Ok(())
        }
    }
}

impl ClientLink {
    /// Sends bytes of the pod, as fast as the client reads them.
    async fn send(&self, mut bytes: Bytes) -> Result<(), SessionClosed> {
        match &self.streams {
            Streams::Spdy { data, window, total, enforced: obeyed, .. } => {
                while !bytes.is_empty() {
                    let most = window.reserve(bytes.len(), obeyed).await;
                    let length = total.reserve(most, obeyed).await;
                    window.grow(i64::try_from(most - length).unwrap_or_default());
                    let bytes = bytes.split_to(length);
                    self.put(Message::Frame(Frame::Data { stream: *data, bytes, fin: false }))
                        .await?;
                }
                Ok(())
            }
            Streams::Channels { data, .. } => self.put(Message::Channel(*data, bytes)).await,
        }
    }

    /// Ends the data of the pod. Channels of a WebSocket cannot express it.
    async fn finish(&self) -> Result<(), SessionClosed> {
        match &self.streams {
            Streams::Spdy { data, .. } => self.put(Message::Frame(fin(*data))).await,
            Streams::Channels { .. } => Ok(()),
        }
    }

    /// Sends a window update for bytes the pod has read, once it is worth a message.
    async fn acknowledge(&self, untold: &mut usize) -> Result<(), SessionClosed> {
        let Streams::Spdy { data, .. } = self.streams else { return Ok(()) };
        let delta = u32::try_from(*untold).unwrap_or(INITIAL_WINDOW);
        if delta < INITIAL_WINDOW / 2 {
            return Ok(());
        }
        *untold = 0;
        self.put(Message::Frame(Frame::WindowUpdate { stream: data, delta })).await
    }

    /// Closes both streams; with an error message when the port could not be forwarded.
    async fn end(&self, words: Option<String>) -> Result<(), SessionClosed> {
        match (&self.streams, words) {
            (Streams::Spdy { data, error, .. }, Some(words)) => {
                let frame = Frame::Data { stream: *error, bytes: words.into(), fin: true };
                self.put(Message::Frame(frame)).await?;
                self.put(Message::Frame(Frame::Reset { stream: *data, status: CANCEL })).await
            }
            // The data has ended by now, or the client has reset it.
            (Streams::Spdy { error, .. }, None) => self.put(Message::Frame(fin(*error))).await,
            (Streams::Channels { error, .. }, Some(words)) => {
                self.put(Message::Channel(*error, words.into())).await
            }
            (Streams::Channels { .. }, None) => Ok(()),
        }
    }

    async fn put(&self, message: Message) -> Result<(), SessionClosed> {
        self.outbox.send(message).await.map_err(|_| SessionClosed)
    }
}

/// Makes a frame that ends a stream.
fn fin(stream: u32) -> Frame {
    Frame::Data { stream, bytes: Bytes::new(), fin: true }
}
