//! The writer of a session, shared by all of its connections.

use std::io;

use bytes::Bytes;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;

use super::super::activity::Activity;
use crate::streams::spdy::{Encoder, Frame};
use crate::streams::websocket_frames::{frame, prefixed};

const BINARY: u8 = 0x2;
const CLOSE: u8 = 0x8;
const PONG: u8 = 0xA;

/// Messages that wait to be written. Most are at most 16 KiB.
pub(super) const MAX_QUEUED_MESSAGES: usize = 8;

/// A message to the client.
#[derive(Debug)]
pub(super) enum Message {
    /// A frame of SPDY.
    Frame(Frame),
    /// Bytes on a channel of a WebSocket.
    Channel(u8, Bytes),
    /// A pong of a WebSocket.
    Pong(Bytes),
    /// The last message, with the close code of a WebSocket.
    Close(u16),
}

/// How messages are framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carrier {
    /// Plain: messages are written as they are.
    Plain,
    /// A WebSocket; each message has a frame around it.
    Tunnel,
}

/// Writes messages until the last one is sent.
pub(super) async fn write<Writer: AsyncWrite + Unpin>(
    mut messages: mpsc::Receiver<Message>,
    writer: &mut Writer,
    carrier: Carrier,
    activity: &Activity,
) -> io::Result<()> {
    let mut encoder = Encoder::default();
    while let Some(message) = messages.recv().await {
        let bytes = match message {
            Message::Frame(message) => match carrier {
                Carrier::Plain => encoder.encode(&message),
                Carrier::Tunnel => frame(BINARY, &encoder.encode(&message)),
            },
            Message::Channel(channel, bytes) => prefixed(BINARY, &[channel], &bytes),
            Message::Pong(bytes) => frame(PONG, &bytes),
            Message::Close(code) => {
                if carrier == Carrier::Tunnel {
                    writer.write_all(&frame(CLOSE, &code.to_be_bytes())).await?;
                }
                break;
            }
        };
        writer.write_all(&bytes).await?;
        activity.record();
        if messages.is_empty() {
            writer.flush().await?;
        }
    }
    writer.flush().await?;
    writer.shutdown().await
}
