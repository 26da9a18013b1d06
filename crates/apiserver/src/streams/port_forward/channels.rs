//! A session over the channels of a WebSocket: one connection for each port, from the beginning.

use bytes::{Buf as _, Bytes, BytesMut};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::super::activity::Activity;
use super::connection::{ClientLink, Connection, Streams};
use super::outbox::{self, Carrier, MAX_QUEUED_MESSAGES, Message};
use super::{CLOSE_TIMEOUT, Forwarder, READ_BUFFER_BYTES, STREAM_WINDOW_BYTES};
use crate::streams::websocket_frames::{Decoder, WebSocketMessage};

/// Runs a session until all connections have ended, the client disconnects, the pod stops or the
/// server stops.
pub(super) async fn serve<Io>(io: Io, ports: &[u16], forwarder: Forwarder)
where
    Io: AsyncRead + AsyncWrite,
{
    let (mut reader, mut writer) = tokio::io::split(io);
    let activity = Activity::new(forwarder.clock());
    let (outbox, messages) = mpsc::channel(MAX_QUEUED_MESSAGES);
    let (mut inboxes, mut connections) = (Vec::new(), Vec::new());
    // The number of ports is limited, so that each has two channels.
    for (&port, data) in ports.iter().zip((0_u8..=u8::MAX - 1).step_by(2)) {
        let (sender, inbox) = tokio::io::duplex(STREAM_WINDOW_BYTES);
        inboxes.push(sender);
        let streams = Streams::Channels { data, error: data + 1 };
        let link = ClientLink { outbox: outbox.clone(), streams };
        connections.push(Connection { port, inbox, reset: CancellationToken::new(), link });
    }
    let read = read_client(&mut reader, inboxes, outbox.clone(), &activity);
    let write = outbox::write(messages, &mut writer, Carrier::Tunnel, &activity);
    let carry = async {
        let code = tokio::select! {
            // The remaining connections are dropped with the session.
            () = run_connections(connections, &outbox, &forwarder) => 1000,
            () = forwarder.stop().cancelled() => 1001,
            () = forwarder.stopped() => 1000,
            () = activity.wait_until_idle() => 1000,
        };
        let close = async {
            let _ = outbox.send(Message::Close(code)).await;
            // The writer ends the session once the close frame is sent.
            std::future::pending::<()>().await;
        };
        let _ = forwarder.clock().timeout(CLOSE_TIMEOUT, close).await;
    };
    // Cancel-safe: when one is over, the session has ended.
    tokio::select! {
        biased;
        _ = write => {}
        () = read => {}
        () = carry => {}
    }
}

/// Sends the port of each channel, as clients expect it, and runs all connections.
async fn run_connections(
    connections: Vec<Connection>,
    outbox: &mpsc::Sender<Message>,
    forwarder: &Forwarder,
) {
    let mut running = FuturesUnordered::new();
    for connection in connections {
        if let Streams::Channels { data, error } = connection.link.streams {
            let port = Bytes::copy_from_slice(&connection.port.to_le_bytes());
            for channel in [data, error] {
                // Fails when the session is over, which ends the connections as well.
                let _ = outbox.send(Message::Channel(channel, port.clone())).await;
            }
        }
        running.push(connection.run(forwarder));
    }
    while running.next().await.is_some() {}
}

/// Reads from the client until it disconnects. While a pod does not read its data, nothing is read.
async fn read_client<Reader: AsyncRead + Unpin>(
    reader: &mut Reader,
    mut inboxes: Vec<DuplexStream>,
    outbox: mpsc::Sender<Message>,
    activity: &Activity,
) {
    let (mut decoder, mut input) = (Decoder::default(), BytesMut::new());
    // The channel of the current message, once its first byte has arrived.
    let mut channel = None;
    loop {
        input.reserve(READ_BUFFER_BYTES);
        match (&mut *reader).take(READ_BUFFER_BYTES as u64).read_buf(&mut input).await {
            Ok(0) | Err(_) => return,
            Ok(_) => activity.record(),
        }
        loop {
            let (mut bytes, first) = match decoder.next(&mut input) {
                Ok(None) => break,
                Ok(Some(WebSocketMessage::Data { bytes, first, .. })) => (bytes, first),
                Ok(Some(WebSocketMessage::Ping(bytes))) => {
                    // A client that pings faster than it reads does not get every pong.
                    let _ = outbox.try_send(Message::Pong(bytes));
                    continue;
                }
                Ok(Some(WebSocketMessage::Pong)) => continue,
                Ok(Some(WebSocketMessage::Close)) | Err(_) => return,
            };
            if first {
                channel = None;
            }
            if channel.is_none() && !bytes.is_empty() {
                channel = Some(bytes.get_u8());
            }
            // As a real node does: data on unknown channels is dropped.
            let data = channel.filter(|it| it % 2 == 0);
            let inbox = data.and_then(|it| inboxes.get_mut(usize::from(it / 2)));
            if let Some(inbox) = inbox {
                // Fails when the connection has ended meanwhile.
                let _ = inbox.write_all(&bytes).await;
            }
        }
    }
}
