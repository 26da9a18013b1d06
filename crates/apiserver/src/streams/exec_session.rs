//! An exec or attach session, from the first frame to the last.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use gantry_process::clock::Clock;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::activity::Activity;
use super::protocol::{ChannelDecoder, ClientMessage, Protocol, STATUS, STDERR, STDOUT};
use crate::streams::kubelet_client::{
    BoxFuture, ExitCode, KubeletClient, KubeletError, PodTarget, Session, SessionStreams,
    TerminalSize,
};
use crate::streams::websocket_frames::{Decoder, WebSocketMessage, frame, prefixed};

/// Chunks of one stream that wait for the other side. With chunks of [`READ_BUFFER_BYTES`] bytes
/// this is half a megabyte: enough to keep both sides busy, little enough for many sessions.
const MAX_QUEUED_CHUNKS: usize = 8;
/// The size of one read.
const READ_BUFFER_BYTES: usize = 64 * 1024;
/// Pongs that wait to be sent. A client pings every few seconds; one that floods the server gets
/// fewer pongs than pings.
const MAX_QUEUED_PONGS: usize = 4;
/// How often the server sends a pong of its own. While the command does not read its input the
/// server does not read the client's pings, and clients disconnect after a minute without a pong;
/// also, this is how a disconnected client is detected that the server does not read from.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(20);
/// How long the server reads after the last frame. Closing before the client has read it, and with
/// unread data of the client, would reset the connection and lose the frame.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

const BINARY: u8 = 0x2;
const CLOSE: u8 = 0x8;
const PONG: u8 = 0xA;

/// Everything a session needs besides its connection.
#[derive(Debug)]
pub(super) struct ExecSession {
    pub(super) nodes: Arc<dyn KubeletClient>,
    pub(super) target: PodTarget,
    pub(super) session: Session,
    pub(super) requested: RequestedStreams,
    pub(super) protocol: Protocol,
    pub(super) clock: Clock,
    pub(super) stop: CancellationToken,
}

/// The streams a client requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestedStreams {
    pub(super) stdin: bool,
    pub(super) stdout: bool,
    pub(super) stderr: bool,
}

/// Why a session is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionEnd {
    /// The command has ended and all output was sent.
    Completed,
    /// The client closed it.
    ClientClosed,
    /// The client broke the protocol.
    ProtocolViolation,
    /// The client has disconnected.
    ClientGone,
    /// The server stops.
    Stopping,
    /// There was no activity for too long.
    Idle,
}

impl SessionEnd {
    /// Returns the code of the close frame; `None` when the client would not read it.
    fn close_code(self) -> Option<u16> {
        match self {
            Self::Completed | Self::ClientClosed => Some(1000),
            Self::Stopping => Some(1001),
            Self::ProtocolViolation => Some(1002),
            Self::ClientGone | Self::Idle => None,
        }
    }
}

/// Runs a session until it is over.
pub(super) async fn run_session<Io: AsyncRead + AsyncWrite>(stream: Io, call: ExecSession) {
    let ExecSession { nodes, target, session, requested, protocol, clock, stop } = call;
    let (mut reader, mut writer) = tokio::io::split(stream);
    let gone = CancellationToken::new();
    let guard = gone.clone().drop_guard();
    let activity = Activity::new(&clock);
    let (ours, ends) = connect(requested, gone);
    let ServerStreams { input: input_reader, output: output_writer } = ours;
    let action = session.action.clone();
    let nothing = !requested.stdin && !requested.stdout && !requested.stderr;
    let running: BoxFuture<'_, Result<ExitCode, KubeletError>> = match nothing {
        false => nodes.run(target, session, ends),
        true => {
            let words = "you must specify at least 1 of stdin, stdout, stderr";
            Box::pin(async move { Err(KubeletError::NotReady(words.to_owned())) })
        }
    };
    let end = {
        let mut frames = FrameWriter { writer: &mut writer, activity: &activity };
        let write_output = async {
            // Tells the client that the stream is open.
            frames.send_channel(lowest_channel(requested), b"").await?;
            let end = output_writer.run(running, &mut frames, &clock).await?;
            match protocol.outcome(&action, end) {
                Some(status) => frames.send_channel(STATUS, &status).await,
                None => Ok(()),
            }
        };
        let read_input = input_reader.run(&mut reader, protocol, &activity);
        // Cancel-safe: when one is over, the session has ended.
        tokio::select! {
            biased;
            done = write_output => done.map_or(SessionEnd::ClientGone, |()| SessionEnd::Completed),
            end = read_input => end,
            () = stop.cancelled() => SessionEnd::Stopping,
            () = activity.wait_until_idle() => SessionEnd::Idle,
        }
    };
    // The command is dropped by now; this cancels what it has started elsewhere.
    drop(guard);
    let Some(code) = end.close_code() else { return };
    let close = async {
        writer.write_all(&frame(CLOSE, &code.to_be_bytes())).await?;
        writer.shutdown().await?;
        let mut rest = BytesMut::with_capacity(READ_BUFFER_BYTES);
        while reader.read_buf(&mut rest).await? > 0 {
            rest.clear();
        }
        io::Result::Ok(())
    };
    // A client that does not read the close frame needs none.
    let _ = clock.timeout(CLOSE_TIMEOUT, pin!(close)).await;
}

/// Returns the channel for the empty message by which a client learns that the session is open.
fn lowest_channel(requested: RequestedStreams) -> u8 {
    match requested {
        RequestedStreams { stdout: true, .. } => STDOUT,
        RequestedStreams { stderr: true, .. } => STDERR,
        RequestedStreams { stdout: false, stderr: false, stdin: _ } => STATUS,
    }
}

/// The server's ends of the streams.
struct ServerStreams {
    input: ClientInputReader,
    output: ClientOutputWriter,
}

/// Makes both ends of the requested streams.
fn connect(
    requested: RequestedStreams,
    gone: CancellationToken,
) -> (ServerStreams, SessionStreams) {
    let pair = |wanted: bool| match wanted {
        true => {
            let (sender, receiver) = mpsc::channel(MAX_QUEUED_CHUNKS);
            (Some(sender), Some(receiver))
        }
        false => (None, None),
    };
    let (stdin, theirs) = pair(requested.stdin);
    let (out, stdout) = pair(requested.stdout);
    let (err, stderr) = pair(requested.stderr);
    let (size, sizes) = watch::channel(None);
    let (pongs, asked) = mpsc::channel(MAX_QUEUED_PONGS);
    let ours = ServerStreams {
        input: ClientInputReader { stdin, size, pongs },
        output: ClientOutputWriter { stdout, stderr, pings: asked },
    };
    (
        ours,
        SessionStreams { stdin: theirs, stdout: out, stderr: err, size: sizes, disconnected: gone },
    )
}

/// Reads from the client.
struct ClientInputReader {
    /// `None` once the client or the command has closed the input.
    stdin: Option<mpsc::Sender<Bytes>>,
    size: watch::Sender<Option<TerminalSize>>,
    pongs: mpsc::Sender<Bytes>,
}

impl ClientInputReader {
    /// Reads until the client disconnects. Waits while the command does not read its input.
    async fn run<Reader: AsyncRead + Unpin>(
        mut self,
        reader: &mut Reader,
        protocol: Protocol,
        activity: &Activity,
    ) -> SessionEnd {
        let (mut decoder, mut channels) = (Decoder::default(), ChannelDecoder::new(protocol));
        let mut input = BytesMut::new();
        loop {
            input.reserve(READ_BUFFER_BYTES);
            match (&mut *reader).take(READ_BUFFER_BYTES as u64).read_buf(&mut input).await {
                Ok(0) | Err(_) => return SessionEnd::ClientGone,
                Ok(_) => activity.record(),
            }
            loop {
                let message = match decoder.next(&mut input) {
                    Ok(None) => break,
                    Ok(Some(WebSocketMessage::Data { bytes, first, last })) => {
                        channels.decode(bytes, first, last)
                    }
                    Ok(Some(WebSocketMessage::Ping(bytes))) => {
                        // A client that pings faster than it reads does not get every pong.
                        let _ = self.pongs.try_send(bytes);
                        Ok(None)
                    }
                    Ok(Some(WebSocketMessage::Pong)) => Ok(None),
                    Ok(Some(WebSocketMessage::Close)) => return SessionEnd::ClientClosed,
                    Err(violation) => Err(violation),
                };
                match message {
                    Ok(Some(message)) => self.forward(message).await,
                    Ok(None) => {}
                    Err(_) => return SessionEnd::ProtocolViolation,
                }
            }
        }
    }

    async fn forward(&mut self, message: ClientMessage) {
        match message {
            ClientMessage::Input(bytes) => {
                if let Some(stdin) = &self.stdin
                    && stdin.send(bytes).await.is_err()
                {
                    // The command does not read any more.
                    self.stdin = None;
                }
            }
            ClientMessage::InputClosed => self.stdin = None,
            ClientMessage::Resized(size) => {
                self.size.send_replace(Some(size));
            }
        }
    }
}

/// Writes to the client.
struct ClientOutputWriter {
    stdout: Option<mpsc::Receiver<Bytes>>,
    stderr: Option<mpsc::Receiver<Bytes>>,
    pings: mpsc::Receiver<Bytes>,
}

impl ClientOutputWriter {
    /// Forwards the output of the command until it ends, and then its status. While the client does
    /// not read, the command is not polled.
    async fn run<Writer: AsyncWrite + Unpin>(
        mut self,
        mut running: BoxFuture<'_, Result<ExitCode, KubeletError>>,
        frames: &mut FrameWriter<'_, Writer>,
        clock: &Clock,
    ) -> io::Result<Result<ExitCode, KubeletError>> {
        let mut beat = clock.moment() + HEARTBEAT_INTERVAL;
        let end = loop {
            // Cancel-safe: chunks that are not received stay in their channel, the command keeps
            // its state, and the deadline does not move.
            tokio::select! {
                end = &mut running => break end,
                Some(bytes) = next(&mut self.stdout) => frames.send_channel(STDOUT, &bytes).await?,
                Some(bytes) = next(&mut self.stderr) => frames.send_channel(STDERR, &bytes).await?,
                Some(bytes) = self.pings.recv() => frames.pong(&bytes).await?,
                () = clock.sleep_until(beat) => {
                    frames.pong(b"").await?;
                    beat = clock.moment() + HEARTBEAT_INTERVAL;
                }
            }
        };
        for (channel, stream) in [(STDOUT, self.stdout), (STDERR, self.stderr)] {
            let Some(mut stream) = stream else { continue };
            while let Ok(bytes) = stream.try_recv() {
                frames.send_channel(channel, &bytes).await?;
            }
        }
        Ok(end)
    }
}

/// Returns the next chunk of a stream; `None` when it has ended or was not requested.
async fn next(stream: &mut Option<mpsc::Receiver<Bytes>>) -> Option<Bytes> {
    match stream {
        Some(stream) => stream.recv().await,
        None => None,
    }
}

/// Writes frames.
struct FrameWriter<'a, Writer> {
    writer: &'a mut Writer,
    activity: &'a Activity,
}

impl<Writer: AsyncWrite + Unpin> FrameWriter<'_, Writer> {
    async fn send_channel(&mut self, channel: u8, bytes: &[u8]) -> io::Result<()> {
        self.send(&prefixed(BINARY, &[channel], bytes)).await?;
        self.activity.record();
        Ok(())
    }

    async fn pong(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.send(&frame(PONG, bytes)).await
    }

    async fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        self.writer.write_all(frame).await?;
        self.writer.flush().await
    }
}

#[cfg(test)]
mod tests;
