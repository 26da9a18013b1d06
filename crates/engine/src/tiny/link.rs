//! The connection between the two processes of an engine, and of a launcher and its zygote.
//!
//! The parent listens on an address in the abstract namespace, of which no file is left, and
//! accepts only the process that it started.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener as StdListener, UnixStream as StdStream};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};

/// The longest message.
const MAX_MESSAGE_BYTES: u64 = 4 << 20;

/// Listens under a new name, which it returns.
pub(crate) fn listen() -> io::Result<(UnixListener, String)> {
    let name = format!("gantry-{}-{:016x}", std::process::id(), fastrand::u64(..));
    let listener = StdListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
    listener.set_nonblocking(true)?;
    Ok((UnixListener::from_std(listener)?, name))
}

/// Accepts the connection of a process, and no other.
pub(crate) async fn accept(listener: &UnixListener, process: i32) -> io::Result<Link> {
    loop {
        let (stream, _) = listener.accept().await?;
        if stream.peer_cred()?.pid() == Some(process) {
            return Ok(Link::new(stream));
        }
    }
}

/// Connects to the parent.
pub(crate) fn connect(name: &str) -> io::Result<Link> {
    let stream = StdStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
    stream.set_nonblocking(true)?;
    Ok(Link::new(UnixStream::from_std(stream)?))
}

/// Messages in both directions, a line of JSON each.
pub(crate) struct Link {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
}

impl Link {
    pub(crate) fn new(stream: UnixStream) -> Self {
        let (reader, writer) = stream.into_split();
        Self { reader: BufReader::new(reader), writer }
    }

    pub(crate) async fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.writer.write_all(&line).await
    }

    /// Receives a message; `None` when the other side is gone.
    pub(crate) async fn receive<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let mut line = Vec::new();
        let mut limited = (&mut self.reader).take(MAX_MESSAGE_BYTES);
        match limited.read_until(b'\n', &mut line).await? {
            0 => Ok(None),
            _ if line.last() == Some(&b'\n') => Ok(Some(serde_json::from_slice(&line)?)),
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "a message has no end")),
        }
    }

    /// Sends a message and receives the reply.
    pub(crate) async fn ask<T: DeserializeOwned>(
        &mut self,
        message: &impl Serialize,
    ) -> io::Result<T> {
        self.send(message).await?;
        let gone = || io::Error::new(io::ErrorKind::BrokenPipe, "the other process is gone");
        self.receive().await?.ok_or_else(gone)
    }
}
