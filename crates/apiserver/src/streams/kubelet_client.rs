//! Access to containers on nodes: logs, commands, and the ports on which programs in pods listen.
//!
//! A real server calls the kubelet of the pod's node over the network. This one calls the part of
//! the process that simulates the nodes, through [`KubeletClient`]; it knows no more of them than
//! this file. Everything that follows from stored objects alone (does the pod exist, which
//! container is meant, is there a node) is checked before the client is called.

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

/// The future of a call. Dropping it cancels the call.
pub type BoxFuture<'a, Output> = Pin<Box<dyn Future<Output = Output> + Send + 'a>>;

/// Accesses containers on nodes.
pub trait KubeletClient: fmt::Debug + Send + Sync {
    /// Opens the log of a container.
    ///
    /// # Errors
    /// [`KubeletError`] when there is no log to read from; it becomes the response to the client.
    fn logs(
        &self,
        target: PodTarget,
        options: LogOptions,
    ) -> BoxFuture<'_, Result<Box<dyn LogStream>, KubeletError>>;

    /// Runs a command in a container, or attaches to its running process, until that ends.
    ///
    /// All output must be in the channels of `streams` when the future is ready; the rest is lost.
    /// The future is dropped when the client disconnects, and [`SessionStreams::disconnected`] is
    /// cancelled then.
    ///
    /// # Errors
    /// [`KubeletError`] when nothing could be run.
    fn run(
        &self,
        target: PodTarget,
        session: Session,
        streams: SessionStreams,
    ) -> BoxFuture<'_, Result<ExitCode, KubeletError>>;

    /// Connects to a port of a pod; [`PodTarget::container`] is empty.
    ///
    /// Every user with the permission to write statuses can write the address in the status of a
    /// pod, so it proves nothing: an implementation connects only to programs that it knows to
    /// belong to this very pod.
    ///
    /// # Errors
    /// [`KubeletError::Forbidden`] for a pod whose address is not its own,
    /// [`KubeletError::Unreachable`] where nothing listens, and any other error of the connection.
    fn dial(
        &self,
        target: PodTarget,
        port: u16,
    ) -> BoxFuture<'_, Result<Box<dyn Duplex>, KubeletError>>;
}

/// A bidirectional byte stream, such as a connection to a program. Shutting down the write side
/// leaves the read side open.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<Io: AsyncRead + AsyncWrite + Send + Unpin> Duplex for Io {}

/// A container on a node, or a pod as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodTarget {
    /// The namespace of the pod.
    pub namespace: String,
    /// The name of the pod.
    pub pod: String,
    /// Its UID: a pod of the same name may have replaced it meanwhile.
    pub uid: String,
    /// The node it is on.
    pub node: String,
    /// The container; the pod has one of this name. Empty when the pod as a whole is meant.
    pub container: String,
    /// The pod object. An implementation need not look it up again, and decides by the very object
    /// that the request was checked against.
    pub pod_object: Arc<Value>,
    /// Its node object, likewise.
    pub node_object: Arc<Value>,
}

/// The options of a log request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Follow the log until the container ends.
    pub follow: bool,
    /// Return the log of the previous run.
    pub previous: bool,
    /// Prefix each line with its timestamp.
    pub timestamps: bool,
    /// Skip lines from before this moment.
    pub since: Option<Timestamp>,
    /// Begin with the last so many lines.
    pub tail: Option<u64>,
    /// End after so many bytes, even in the middle of a line.
    pub limit: Option<u64>,
}

/// The bytes of a log, piece by piece.
///
/// The next piece is requested only when the client has read the previous one, so a slow reader
/// costs no memory.
pub trait LogStream: Send {
    /// Returns the next bytes; `None` when the log has ended. Dropping the future loses nothing.
    fn next(&mut self) -> BoxFuture<'_, Option<Bytes>>;
}

/// What a client wants to do in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// What to run.
    pub action: Action,
    /// Whether there is a terminal: standard error is then part of the output.
    pub tty: bool,
}

/// What to run in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A program and its arguments.
    Exec(Vec<String>),
    /// Attach to the running process.
    Attach,
}

/// The command's ends of the streams.
#[derive(Debug)]
pub struct SessionStreams {
    /// Standard input, if any; closed when the client sends no more.
    pub stdin: Option<mpsc::Receiver<Bytes>>,
    /// Standard output, if requested. It fills up when the client does not read.
    pub stdout: Option<mpsc::Sender<Bytes>>,
    /// Standard error, if requested.
    pub stderr: Option<mpsc::Sender<Bytes>>,
    /// The size of the client's terminal, once it is known. Only the last one counts.
    pub size: watch::Receiver<Option<TerminalSize>>,
    /// Cancelled when the client has disconnected.
    pub disconnected: CancellationToken,
}

/// The size of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalSize {
    /// Columns.
    pub width: u16,
    /// Rows.
    pub height: u16,
}

/// The exit code of a command; zero is success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitCode(pub u8);

/// Why a node refused a call, in the words of a kubelet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KubeletError {
    /// The node has no such pod or container: `pod "p" does not exist`.
    #[error("{0}")]
    NotFound(String),
    /// The container is not in a state for it: `container "c" in pod "p" is waiting to start:
    /// ContainerCreating`.
    #[error("{0}")]
    NotReady(String),
    /// The container runs, but the call failed: `exec: "x": executable file not found in $PATH`.
    #[error("{0}")]
    Failed(String),
    /// The node does not respond: `dial tcp 10.0.0.1:10250: connect: connection refused`.
    #[error("{0}")]
    Unreachable(String),
    /// The address of the pod must not be connected to: `address not allowed`.
    #[error("{0}")]
    Forbidden(String),
}
