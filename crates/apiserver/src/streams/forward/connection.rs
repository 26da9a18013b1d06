//! One connection: carries bytes between a client's stream and a port of a pod.

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
use super::{Forwarder, Opened, READ};
use crate::nodes::Duplex;
use crate::spdy::{CANCEL, Frame, INITIAL_WINDOW};

/// How long a client may go on sending after the pod has ended its side, as with container runtimes.
const HALF_CLOSED_TIMEOUT: Duration = Duration::from_secs(1);

/// The client's end of a connection.
#[derive(Debug)]
pub(super) struct Connection {
    /// The port of the pod.
    pub(super) port: u16,
    /// What the client sends; it ends when the client will send no more.
    pub(super) inbox: DuplexStream,
    /// Cancelled when the client gives up.
    pub(super) reset: CancellationToken,
    pub(super) link: Link,
}

/// The way back to the client.
#[derive(Debug)]
pub(super) struct Link {
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
        /// The windows of the data stream and of the connection, and whether they are obeyed.
        window: Arc<Window>,
        total: Arc<Window>,
        obeyed: Arc<AtomicBool>,
    },
    /// Two channels of a WebSocket.
    Channels { data: u8, error: u8 },
}

/// The session is over: there is nobody to send to.
#[derive(Debug)]
pub(super) struct SessionOver;

impl Connection {
    /// Connects, and carries bytes until both sides have ended.
    pub(super) async fn run(self, forwarder: &Forwarder) {
        let Self { port, inbox, reset, link } = self;
        let carry = async {
            let Opened { io, place } = forwarder.open(port).await?;
            let carried = carry(io, inbox, &link, forwarder).await;
            drop(place);
            carried.map_err(|error| error.to_string())
        };
        // The work may be dropped: a client that has given up wants none of it.
        let outcome = tokio::select! {
            biased;
            () = reset.cancelled() => Ok(()),
            outcome = carry => outcome,
        };
        let words = outcome.err().map(|why| forwarder.failure(port, &why));
        // Nobody is left to hear it when the session is over.
        let _ = link.end(words).await;
    }
}

/// Carries bytes in both directions. Each side may end before the other.
async fn carry(
    io: Box<dyn Duplex>,
    mut inbox: DuplexStream,
    link: &Link,
    forwarder: &Forwarder,
) -> io::Result<()> {
    let (mut reader, mut writer) = tokio::io::split(io);
    let to_pod = async {
        let (mut buffer, mut untold) = (BytesMut::new(), 0);
        loop {
            buffer.reserve(READ);
            match (&mut inbox).take(READ as u64).read_buf(&mut buffer).await {
                Ok(0) | Err(_) => break,
                Ok(length) => untold += length,
            }
            let sent = async {
                writer.write_all_buf(&mut buffer).await?;
                writer.flush().await
            };
            // The program may not read any more. Whether it is well is known from what it says.
            if sent.await.is_err() || link.taken(&mut untold).await.is_err() {
                return;
            }
        }
        // The pod may be gone already; then there is nobody to tell.
        let _ = writer.shutdown().await;
    };
    let from_pod = async {
        let mut buffer = BytesMut::new();
        loop {
            buffer.reserve(READ);
            if (&mut reader).take(READ as u64).read_buf(&mut buffer).await? == 0 {
                break;
            }
            if link.send(buffer.split().freeze()).await.is_err() {
                return Ok(());
            }
        }
        // Nobody is left to hear it when the session is over.
        let _ = link.finish().await;
        io::Result::Ok(())
    };
    let (mut to_pod, mut from_pod) = (pin!(to_pod), pin!(from_pod));
    tokio::select! {
        // The one that is not over goes on below.
        () = &mut to_pod => from_pod.await,
        ended = &mut from_pod => {
            ended?;
            let _ = forwarder.clock().timeout(HALF_CLOSED_TIMEOUT, to_pod).await;
            Ok(())
        }
    }
}

impl Link {
    /// Sends bytes of the pod, as fast as the client takes them.
    async fn send(&self, mut bytes: Bytes) -> Result<(), SessionOver> {
        match &self.streams {
            Streams::Spdy { data, window, total, obeyed, .. } => {
                while !bytes.is_empty() {
                    let most = window.take(bytes.len(), obeyed).await;
                    let length = total.take(most, obeyed).await;
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

    /// Ends the data of the pod. Channels of a WebSocket cannot say it.
    async fn finish(&self) -> Result<(), SessionOver> {
        match &self.streams {
            Streams::Spdy { data, .. } => self.put(Message::Frame(fin(*data))).await,
            Streams::Channels { .. } => Ok(()),
        }
    }

    /// Tells the client that the pod took bytes, once it is worth a message.
    async fn taken(&self, untold: &mut usize) -> Result<(), SessionOver> {
        let Streams::Spdy { data, .. } = self.streams else { return Ok(()) };
        let delta = u32::try_from(*untold).unwrap_or(INITIAL_WINDOW);
        if delta < INITIAL_WINDOW / 2 {
            return Ok(());
        }
        *untold = 0;
        self.put(Message::Frame(Frame::WindowUpdate { stream: data, delta })).await
    }

    /// Ends both streams; with words when the port could not be forwarded.
    async fn end(&self, words: Option<String>) -> Result<(), SessionOver> {
        match (&self.streams, words) {
            (Streams::Spdy { data, error, .. }, Some(words)) => {
                let frame = Frame::Data { stream: *error, bytes: words.into(), fin: true };
                self.put(Message::Frame(frame)).await?;
                self.put(Message::Frame(Frame::Reset { stream: *data, status: CANCEL })).await
            }
            // The data has ended by now, or the client wants no more of it.
            (Streams::Spdy { error, .. }, None) => self.put(Message::Frame(fin(*error))).await,
            (Streams::Channels { error, .. }, Some(words)) => {
                self.put(Message::Channel(*error, words.into())).await
            }
            (Streams::Channels { .. }, None) => Ok(()),
        }
    }

    async fn put(&self, message: Message) -> Result<(), SessionOver> {
        self.outbox.send(message).await.map_err(|_| SessionOver)
    }
}

/// A frame that ends a stream.
fn fin(stream: u32) -> Frame {
    Frame::Data { stream, bytes: Bytes::new(), fin: true }
}
