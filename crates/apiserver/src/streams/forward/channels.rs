//! A session over the channels of a WebSocket: one connection for each port, from the beginning.

use bytes::{Buf as _, Bytes, BytesMut};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::super::activity::Activity;
use super::connection::{Connection, Link, Streams};
use super::outbox::{self, Carrier, Message, OUTBOX};
use super::{Forwarder, GOODBYE_TIMEOUT, INBOX, READ};
use crate::frames::{Decoder, Piece};

/// Serves a session until all connections have ended, the client leaves, the pod stops or the server
/// does.
pub(super) async fn serve<Io>(io: Io, ports: &[u16], forwarder: Forwarder)
where
    Io: AsyncRead + AsyncWrite,
{
    let (mut reader, mut writer) = tokio::io::split(io);
    let activity = Activity::new(forwarder.clock());
    let (outbox, messages) = mpsc::channel(OUTBOX);
    let (mut inboxes, mut connections) = (Vec::new(), Vec::new());
    // There are at most as many ports as have two channels each.
    for (&port, data) in ports.iter().zip((0_u8..=u8::MAX - 1).step_by(2)) {
        let (sender, inbox) = tokio::io::duplex(INBOX);
        inboxes.push(sender);
        let streams = Streams::Channels { data, error: data + 1 };
        let link = Link { outbox: outbox.clone(), streams };
        connections.push(Connection { port, inbox, reset: CancellationToken::new(), link });
    }
    let read = read(&mut reader, inboxes, outbox.clone(), &activity);
    let write = outbox::write(messages, &mut writer, Carrier::Tunnel, &activity);
    let carry = async {
        let code = tokio::select! {
            // What is left of the connections is dropped with the session.
            () = carry(connections, &outbox, &forwarder) => 1000,
            () = forwarder.stop().cancelled() => 1001,
            () = forwarder.stopped() => 1000,
            () = activity.idle() => 1000,
        };
        let goodbye = async {
            let _ = outbox.send(Message::Goodbye(code)).await;
            // The writer ends the session once it is out.
            std::future::pending::<()>().await;
        };
        let _ = forwarder.clock().timeout(GOODBYE_TIMEOUT, goodbye).await;
    };
    // Each may be dropped: when one is over, there is nobody to speak to or nothing to say.
    tokio::select! {
        biased;
        _ = write => {}
        () = read => {}
        () = carry => {}
    }
}

/// Names the port of each channel, as clients expect it, and carries all connections.
async fn carry(
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

/// Reads what the client sends until it leaves. While a pod does not take what it is sent, nothing
/// is read.
async fn read<Reader: AsyncRead + Unpin>(
    reader: &mut Reader,
    mut inboxes: Vec<DuplexStream>,
    outbox: mpsc::Sender<Message>,
    activity: &Activity,
) {
    let (mut decoder, mut input) = (Decoder::default(), BytesMut::new());
    // The channel of the message we are inside of, once its first byte has come.
    let mut channel = None;
    loop {
        input.reserve(READ);
        match (&mut *reader).take(READ as u64).read_buf(&mut input).await {
            Ok(0) | Err(_) => return,
            Ok(_) => activity.note(),
        }
        loop {
            let (mut bytes, first) = match decoder.next(&mut input) {
                Ok(None) => break,
                Ok(Some(Piece::Data { bytes, first, .. })) => (bytes, first),
                Ok(Some(Piece::Ping(bytes))) => {
                    // Those who ask faster than they listen are not owed every answer.
                    let _ = outbox.try_send(Message::Pong(bytes));
                    continue;
                }
                Ok(Some(Piece::Pong)) => continue,
                Ok(Some(Piece::Close)) | Err(_) => return,
            };
            if first {
                channel = None;
            }
            if channel.is_none() && !bytes.is_empty() {
                channel = Some(bytes.get_u8());
            }
            // As a real node does it: what nobody listens to is dropped.
            let data = channel.filter(|it| it % 2 == 0);
            let inbox = data.and_then(|it| inboxes.get_mut(usize::from(it / 2)));
            if let Some(inbox) = inbox {
                // Fails when the connection has ended meanwhile.
                let _ = inbox.write_all(&bytes).await;
            }
        }
    }
}
