//! A conversation with a container, from the first frame to the last.

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
use super::protocol::{Channels, Protocol, STATUS, STDERR, STDOUT, Said};
use crate::frames::{Decoder, Piece, frame, prefixed};
use crate::nodes::{Ends, Exit, Fault, Later, Nodes, Session, Size, Target};

/// Pieces of one stream that wait for the other side. With pieces of [`READ`] bytes this is half a
/// megabyte: enough to keep both sides busy, little enough for many conversations.
const WAITING: usize = 8;
/// What is read at once.
const READ: usize = 64 * 1024;
/// Answers to the client's questions that wait to be sent. A client asks every few seconds; one that
/// floods us gets fewer answers than questions.
const PONGS: usize = 4;
/// How often the client hears that we are there. While the command does not read its input we do
/// not read the client's questions, and clients leave after a minute without an answer; also, this
/// is how we learn that a client has left that we do not read from.
const HEARTBEAT: Duration = Duration::from_secs(20);
/// How long we listen after the last word. Closing before the client has read it, and with something
/// of the client unread, would take it away from it.
const LINGER: Duration = Duration::from_secs(5);

const BINARY: u8 = 0x2;
const CLOSE: u8 = 0x8;
const PONG: u8 = 0xA;

/// Everything a conversation needs besides its connection.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) nodes: Arc<dyn Nodes>,
    pub(super) target: Target,
    pub(super) session: Session,
    pub(super) wants: Wants,
    pub(super) protocol: Protocol,
    pub(super) clock: Clock,
    pub(super) stop: CancellationToken,
}

/// The streams a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wants {
    pub(super) stdin: bool,
    pub(super) stdout: bool,
    pub(super) stderr: bool,
}

/// Why a conversation is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Everything was said.
    Said,
    /// The client said goodbye.
    Goodbye,
    /// The client broke the protocol.
    Broken,
    /// The client is not there any more.
    Gone,
    /// The server stops.
    Stopping,
    /// Nobody said anything for too long.
    Idle,
}

impl End {
    /// The code of the last frame; none when nobody would read it.
    fn code(self) -> Option<u16> {
        match self {
            Self::Said | Self::Goodbye => Some(1000),
            Self::Stopping => Some(1001),
            Self::Broken => Some(1002),
            Self::Gone | Self::Idle => None,
        }
    }
}

/// Holds a conversation until it is over.
pub(super) async fn hold<Io: AsyncRead + AsyncWrite>(stream: Io, call: Call) {
    let Call { nodes, target, session, wants, protocol, clock, stop } = call;
    let (mut reader, mut writer) = tokio::io::split(stream);
    let gone = CancellationToken::new();
    let guard = gone.clone().drop_guard();
    let activity = Activity::new(&clock);
    let (ours, ends) = connect(wants, gone);
    let Ours { hears, says } = ours;
    let action = session.action.clone();
    let nothing = !wants.stdin && !wants.stdout && !wants.stderr;
    let running: Later<'_, Result<Exit, Fault>> = match nothing {
        false => nodes.run(target, session, ends),
        true => {
            let words = "you must specify at least 1 of stdin, stdout, stderr";
            Box::pin(async move { Err(Fault::NotNow(words.to_owned())) })
        }
    };
    let end = {
        let mut mouth = Mouth { writer: &mut writer, activity: &activity };
        let speak = async {
            // Tells the client that it is heard.
            mouth.say(lowest(wants), b"").await?;
            let end = says.until(running, &mut mouth, &clock).await?;
            match protocol.outcome(&action, end) {
                Some(status) => mouth.say(STATUS, &status).await,
                None => Ok(()),
            }
        };
        let hear = hears.until(&mut reader, protocol, &activity);
        // Each may be dropped: when one is over, there is nobody to speak to or nothing to say.
        tokio::select! {
            biased;
            said = speak => said.map_or(End::Gone, |()| End::Said),
            end = hear => end,
            () = stop.cancelled() => End::Stopping,
            () = activity.idle() => End::Idle,
        }
    };
    // The command is dropped by now; whatever it has started elsewhere learns it from this.
    drop(guard);
    let Some(code) = end.code() else { return };
    let goodbye = async {
        writer.write_all(&frame(CLOSE, &code.to_be_bytes())).await?;
        writer.shutdown().await?;
        let mut rest = BytesMut::with_capacity(READ);
        while reader.read_buf(&mut rest).await? > 0 {
            rest.clear();
        }
        io::Result::Ok(())
    };
    // Whoever does not stay for the goodbye needs none.
    let _ = clock.timeout(LINGER, pin!(goodbye)).await;
}

/// The stream whose emptiness says that all is well.
fn lowest(wants: Wants) -> u8 {
    match wants {
        Wants { stdout: true, .. } => STDOUT,
        Wants { stderr: true, .. } => STDERR,
        Wants { stdout: false, stderr: false, stdin: _ } => STATUS,
    }
}

/// Our ends of the streams.
struct Ours {
    hears: Hears,
    says: Says,
}

/// Makes both ends of the streams that are wanted.
fn connect(wants: Wants, gone: CancellationToken) -> (Ours, Ends) {
    let pair = |wanted: bool| match wanted {
        true => {
            let (sender, receiver) = mpsc::channel(WAITING);
            (Some(sender), Some(receiver))
        }
        false => (None, None),
    };
    let (stdin, theirs) = pair(wants.stdin);
    let (out, stdout) = pair(wants.stdout);
    let (err, stderr) = pair(wants.stderr);
    let (size, sizes) = watch::channel(None);
    let (pongs, asked) = mpsc::channel(PONGS);
    let ours = Ours { hears: Hears { stdin, size, pongs }, says: Says { stdout, stderr, asked } };
    (ours, Ends { stdin: theirs, stdout: out, stderr: err, size: sizes, gone })
}

/// What comes from the client.
struct Hears {
    /// Gone once the client, or the command, has had enough.
    stdin: Option<mpsc::Sender<Bytes>>,
    size: watch::Sender<Option<Size>>,
    pongs: mpsc::Sender<Bytes>,
}

impl Hears {
    /// Listens until the client leaves. Waits while the command does not take what it is given.
    async fn until<Reader: AsyncRead + Unpin>(
        mut self,
        reader: &mut Reader,
        protocol: Protocol,
        activity: &Activity,
    ) -> End {
        let (mut decoder, mut channels) = (Decoder::default(), Channels::new(protocol));
        let mut input = BytesMut::new();
        loop {
            input.reserve(READ);
            match (&mut *reader).take(READ as u64).read_buf(&mut input).await {
                Ok(0) | Err(_) => return End::Gone,
                Ok(_) => activity.note(),
            }
            loop {
                let said = match decoder.next(&mut input) {
                    Ok(None) => break,
                    Ok(Some(Piece::Data { bytes, first, last })) => {
                        channels.take(bytes, first, last)
                    }
                    Ok(Some(Piece::Ping(bytes))) => {
                        // Those who ask faster than they listen are not owed every answer.
                        let _ = self.pongs.try_send(bytes);
                        Ok(None)
                    }
                    Ok(Some(Piece::Pong)) => Ok(None),
                    Ok(Some(Piece::Close)) => return End::Goodbye,
                    Err(violation) => Err(violation),
                };
                match said {
                    Ok(Some(said)) => self.pass_on(said).await,
                    Ok(None) => {}
                    Err(_) => return End::Broken,
                }
            }
        }
    }

    async fn pass_on(&mut self, said: Said) {
        match said {
            Said::Input(bytes) => {
                if let Some(stdin) = &self.stdin
                    && stdin.send(bytes).await.is_err()
                {
                    // The command does not read, now or later.
                    self.stdin = None;
                }
            }
            Said::NoMoreInput => self.stdin = None,
            Said::Resized(size) => {
                self.size.send_replace(Some(size));
            }
        }
    }
}

/// What goes to the client.
struct Says {
    stdout: Option<mpsc::Receiver<Bytes>>,
    stderr: Option<mpsc::Receiver<Bytes>>,
    asked: mpsc::Receiver<Bytes>,
}

impl Says {
    /// Passes on what the command says until it ends, and then what it has said. While the client
    /// does not take it, the command does not go on.
    async fn until<Writer: AsyncWrite + Unpin>(
        mut self,
        mut running: Later<'_, Result<Exit, Fault>>,
        mouth: &mut Mouth<'_, Writer>,
        clock: &Clock,
    ) -> io::Result<Result<Exit, Fault>> {
        let mut beat = clock.moment() + HEARTBEAT;
        let end = loop {
            // Each may be dropped: what is not received stays in its channel, the command goes on
            // where it is, and the moment does not move.
            tokio::select! {
                end = &mut running => break end,
                Some(bytes) = next(&mut self.stdout) => mouth.say(STDOUT, &bytes).await?,
                Some(bytes) = next(&mut self.stderr) => mouth.say(STDERR, &bytes).await?,
                Some(bytes) = self.asked.recv() => mouth.pong(&bytes).await?,
                () = clock.sleep_until(beat) => {
                    mouth.pong(b"").await?;
                    beat = clock.moment() + HEARTBEAT;
                }
            }
        };
        for (channel, stream) in [(STDOUT, self.stdout), (STDERR, self.stderr)] {
            let Some(mut stream) = stream else { continue };
            while let Ok(bytes) = stream.try_recv() {
                mouth.say(channel, &bytes).await?;
            }
        }
        Ok(end)
    }
}

/// The next piece of a stream; none when it has ended or is not there.
async fn next(stream: &mut Option<mpsc::Receiver<Bytes>>) -> Option<Bytes> {
    match stream {
        Some(stream) => stream.recv().await,
        None => None,
    }
}

/// Writes frames.
struct Mouth<'a, Writer> {
    writer: &'a mut Writer,
    activity: &'a Activity,
}

impl<Writer: AsyncWrite + Unpin> Mouth<'_, Writer> {
    async fn say(&mut self, channel: u8, bytes: &[u8]) -> io::Result<()> {
        self.send(&prefixed(BINARY, &[channel], bytes)).await?;
        self.activity.note();
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
