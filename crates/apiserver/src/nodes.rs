//! What runs on nodes, as far as the server has to reach it: logs of containers, commands in them,
//! and the ports on which their programs listen.
//!
//! A real server asks the kubelet of the pod's node over the network. This one asks whoever plays
//! the nodes in the same process, through [`Nodes`]; it knows no more of them than this file. What
//! can be told from stored objects alone (does the pod exist, which container is meant, is there a
//! node) is settled before anybody is asked.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

/// An answer that is waited for. Dropping it ends the work behind it.
pub type Later<'a, Output> = Pin<Box<dyn Future<Output = Output> + Send + 'a>>;

/// Reaches what runs on nodes.
pub trait Nodes: fmt::Debug + Send + Sync {
    /// Opens the log of a container.
    ///
    /// # Errors
    /// [`Fault`], when there is no log to read from; it is the client's answer.
    fn logs(
        &self,
        target: Target,
        options: LogOptions,
    ) -> Later<'_, Result<Box<dyn Chunks>, Fault>>;

    /// Runs a command in a container, or attaches to what runs in it, until that ends.
    ///
    /// Everything it has to say must be in the channels of `ends` when it is ready; what comes
    /// later is lost. It is dropped when the client leaves, and [`Ends::gone`] is cancelled then.
    ///
    /// # Errors
    /// [`Fault`], when nothing could be run.
    fn run(&self, target: Target, session: Session, ends: Ends) -> Later<'_, Result<Exit, Fault>>;

    /// Connects to a port of a pod; [`Target::container`] is empty.
    ///
    /// Every user with the right to write statuses can write the address in the status of a pod, so it proves
    /// nothing: an implementation connects only to what it knows to be a program of this very pod.
    ///
    /// # Errors
    /// [`Fault::Forbidden`] for a pod whose address is not its own, [`Fault::Unreachable`] where
    /// nothing listens, and whatever else keeps the node from connecting.
    fn dial(&self, target: Target, port: u16) -> Later<'_, Result<Box<dyn Duplex>, Fault>>;
}

/// Bytes in both directions, such as a connection to a program. Shutting down the side for writing
/// leaves the other side open.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<Io: AsyncRead + AsyncWrite + Send + Unpin> Duplex for Io {}

/// A container on a node, or a pod as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The namespace of the pod.
    pub namespace: String,
    /// The name of the pod.
    pub pod: String,
    /// Its identity: a pod of the same name may have taken its place meanwhile.
    pub uid: String,
    /// The node it is on.
    pub node: String,
    /// The container; the pod has one of this name. Empty when the pod as a whole is meant.
    pub container: String,
    /// The pod as the server knows it. Who plays its node need not look it up again, and decides by
    /// the very object that the request was checked against.
    pub object: Arc<Value>,
    /// Its node, likewise.
    pub host: Arc<Value>,
}

/// What of a log is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Go on with lines as they are written, until the container ends.
    pub follow: bool,
    /// The log of the run before this one.
    pub previous: bool,
    /// Put the time before each line.
    pub timestamps: bool,
    /// Leave out lines from before this moment.
    pub since: Option<Timestamp>,
    /// Begin with the last so many lines.
    pub tail: Option<u64>,
    /// End after so many bytes, be it in the middle of a line.
    pub limit: Option<u64>,
}

/// The bytes of a log, piece by piece.
///
/// Nothing is asked for before the client has taken what came before, so whoever reads slowly
/// costs no memory.
pub trait Chunks: Send {
    /// The next bytes; `None` when the log has ended. Dropping the future loses nothing.
    fn next(&mut self) -> Later<'_, Option<Bytes>>;
}

/// What a client wants to do in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// What to run.
    pub action: Action,
    /// Whether there is a terminal: errors then come with the output.
    pub tty: bool,
}

/// What to run in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A program and its arguments.
    Exec(Vec<String>),
    /// What runs already.
    Attach,
}

/// The command's ends of a conversation.
#[derive(Debug)]
pub struct Ends {
    /// What the client types, if anything; closed when it has no more to say.
    pub stdin: Option<mpsc::Receiver<Bytes>>,
    /// Where output goes, if it is wanted. It fills up when the client does not read.
    pub stdout: Option<mpsc::Sender<Bytes>>,
    /// Where errors go, if they are wanted.
    pub stderr: Option<mpsc::Sender<Bytes>>,
    /// The size of the client's terminal, once it is known. Only the last one counts.
    pub size: watch::Receiver<Option<Size>>,
    /// Cancelled when the client is gone.
    pub gone: CancellationToken,
}

/// The size of a terminal, in letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Letters in a row.
    pub width: u16,
    /// Rows.
    pub height: u16,
}

/// The code a command ended with; zero is success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit(pub u8);

/// Why a node did not do what was asked, in the words of a kubelet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The node knows no such pod or container: `pod "p" does not exist`.
    #[error("{0}")]
    Unknown(String),
    /// The container is in no state for it:
    /// `container "c" in pod "p" is waiting to start: ContainerCreating`.
    #[error("{0}")]
    NotNow(String),
    /// The container is there, but it could not be done:
    /// `exec: "x": executable file not found in $PATH`.
    #[error("{0}")]
    Failed(String),
    /// The node does not answer: `dial tcp 10.0.0.1:10250: connect: connection refused`.
    #[error("{0}")]
    Unreachable(String),
    /// Nobody may be connected to what the pod says: `address not allowed`.
    #[error("{0}")]
    Forbidden(String),
}
