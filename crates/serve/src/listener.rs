//! Accepts connections and runs each in a task of its own, until the listener is stopped.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_process::tasks::{OnLoss, TaskError, Tasks};
use http::{Request, Response};
use hyper::body::Incoming;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;

use crate::body::Body;
use crate::connection::{self, ConnectionContext, ConnectionEnd, Protocol};
use crate::counters::{self, Counters};
use crate::peer::{Peer, PeerIdentity};
use crate::tls::{self, ClientAuthority, ServerCertificate, TlsError};

/// Serves one request of one peer. Any function with this signature is a service.
///
/// The future is dropped when the client disconnects, so work that must not stop halfway must be
/// done elsewhere, for example by a store that applies a whole change at a time. Bodies without an
/// end must end when the token of the listener's tasks is cancelled.
pub trait Service:
    Fn(Request<Incoming>, Arc<Peer>) -> <Self as Service>::ResponseFuture
    + Clone
    + Send
    + Sync
    + 'static
{
    /// The future of the response.
    type ResponseFuture: Future<Output = Response<Body>> + Send + 'static;
}

impl<F, Answer> Service for F
where
    F: Fn(Request<Incoming>, Arc<Peer>) -> Answer + Clone + Send + Sync + 'static,
    Answer: Future<Output = Response<Body>> + Send + 'static,
{
    type ResponseFuture = Answer;
}

/// The address and the settings of a listener.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address. Port zero lets the system choose.
    pub address: SocketAddr,
    /// With TLS, or without on loopback.
    pub security: TransportSecurity,
    /// Connections at one time; the next ones wait in the listener's backlog.
    pub max_connections: usize,
    /// The largest request head, in bytes.
    pub max_head: usize,
    /// Concurrent requests on one HTTP/2 connection.
    pub max_streams: u32,
    /// The time limits.
    pub timeouts: Timeouts,
    /// What a panic in the service means. Either way the request has no response and its connection
    /// ends.
    pub on_panic: OnLoss,
}

impl Options {
    /// Returns the default limits, those of upstream where it has them.
    #[must_use]
    pub fn new(address: SocketAddr, door: TransportSecurity) -> Self {
        Self {
            address,
            security: door,
            // Every watcher, up to the limit, may have a connection of its own.
            max_connections: 12_000,
            max_head: 1 << 20,
            max_streams: 100,
            timeouts: Timeouts::default(),
            on_panic: OnLoss::EndOwner,
        }
    }
}

/// The transport of a listener.
#[derive(Clone, Debug)]
pub enum TransportSecurity {
    /// TLS 1.2 or 1.3; HTTP/2 and HTTP/1.1, as the client prefers.
    Tls {
        /// The server's certificate.
        certificate: ServerCertificate,
        /// The authority of client certificates; without it clients are not asked for one.
        clients: Option<ClientAuthority>,
    },
    /// HTTP/1.1 without TLS. Only ever on loopback: everything, including tokens, is readable.
    PlainOnLoopback,
    /// HTTP/1.1 without TLS, on any address: for protocols between pods that are fixed as plain
    /// HTTP and that a NetworkPolicy guards. Never for the API server.
    PlainProtocol,
}

/// The time limits of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// A TLS handshake.
    pub handshake: Duration,
    /// The head of a request, from its first byte.
    pub head: Duration,
    /// A connection without requests.
    pub idle: Duration,
    /// A client that does not read pending response data.
    pub stall: Duration,
    /// The interval between pings to an HTTP/2 client.
    pub ping: Duration,
    /// The response to such a ping.
    pub pong: Duration,
    /// Requests in progress when the server stops. Shorter than the grace period of the process.
    pub drain: Duration,
}

impl Default for Timeouts {
    /// Head and idle are upstream's; so is the interval of pings, which upstream leaves to the
    /// clients.
    fn default() -> Self {
        let second = Duration::from_secs;
        Self {
            handshake: second(10),
            head: second(32),
            idle: second(90),
            stall: second(60),
            ping: second(30),
            pong: second(15),
            drain: second(10),
        }
    }
}

/// The wait after the system failed to accept a connection. It is out of file descriptors or
/// memory; that ends when connections end, and the backlog holds new ones meanwhile.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Listens and serves requests with `service` in a task called `name`, until the token of `tasks`
/// is cancelled; then finishes the requests in progress, within the drain time.
///
/// Returns the address it listens on, which is the only way to learn a port that the system chose.
///
/// # Errors
/// The address cannot be listened on, or not without TLS, or the certificates cannot be used.
pub async fn serve<S: Service>(
    tasks: &mut Tasks,
    name: &str,
    options: Options,
    counters: Counters,
    service: S,
) -> Result<SocketAddr, ServeError> {
    let address = options.address;
    let (acceptor, clients) = match &options.security {
        TransportSecurity::Tls { certificate, clients } => {
            let config: ServerConfig = tls::config(certificate, clients.as_ref())?;
            (Some(TlsAcceptor::from(Arc::new(config))), clients.clone())
        }
        TransportSecurity::PlainProtocol => (None, None),
        TransportSecurity::PlainOnLoopback if address.ip().is_loopback() => (None, None),
        TransportSecurity::PlainOnLoopback => {
            return Err(ServeError::PlainBeyondLoopback { address });
        }
    };
    let failed = |source| ServeError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    tracing::info!(server = name, address = %bound, tls = acceptor.is_some(), "listening");
    let connections = tasks.child();
    let (clock, on_panic) = (tasks.clock().clone(), options.on_panic);
    let permits = Arc::new(Semaphore::new(options.max_connections));
    let options = Arc::new(options);
    tasks.spawn(name, OnLoss::EndOwner, move |_| {
        // Cancelled with the token of this task, or when a connection task fails.
        let stop = connections.token().clone();
        let setting = ConnectionContext { service, options, clock, stop };
        let hall = ListenerTask {
            listener,
            permits,
            acceptor,
            clients,
            counters,
            on_panic,
            context: setting,
        };
        hall.accept_connections(connections)
    });
    Ok(bound)
}

/// The listening socket and what its connections need.
struct ListenerTask<S> {
    listener: TcpListener,
    permits: Arc<Semaphore>,
    acceptor: Option<TlsAcceptor>,
    clients: Option<ClientAuthority>,
    counters: Counters,
    on_panic: OnLoss,
    context: ConnectionContext<S>,
}

impl<S: Service> ListenerTask<S> {
    async fn accept_connections(self, mut connections: Tasks) -> Result<(), TaskError> {
        let mut lost = loop {
            let arrival = tokio::select! {
                biased;
                // Cancel-safe: no branch has taken anything off a queue before it is ready.
                () = self.context.stop.cancelled() => break None,
                joined = connections.join(), if !connections.is_empty() => match joined {
                    Ok(()) => continue,
                    Err(lost) => break Some(lost),
                },
                arrival = self.accept_next() => arrival,
            };
            let visit = ConnectionTask {
                accepted: arrival,
                acceptor: self.acceptor.clone(),
                clients: self.clients.clone(),
                context: self.context.clone(),
                counters: self.counters.clone(),
            };
            connections.spawn("server connection", self.on_panic, |_| visit.run());
        };
        // Closed here, so that clients are refused at once instead of waiting in the backlog.
        drop(self.listener);
        self.context.stop.cancel();
        // A failed task also cancels the token, so it may be found here first.
        while let Err(another) = connections.join().await {
            lost.get_or_insert(another);
        }
        lost.map_or(Ok(()), |lost| Err(lost.into()))
    }

    async fn accept_next(&self) -> AcceptedConnection {
        loop {
            // Never closed; a closed semaphore would accept no connection any more.
            let Ok(permit) = Arc::clone(&self.permits).acquire_owned().await else {
                std::future::pending().await
            };
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    return AcceptedConnection { stream, address, _permit: permit };
                }
                // The client disconnected before it was accepted.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    log_accept_error(&error);
                    self.context.clock.sleep(ACCEPT_RETRY_DELAY).await;
                }
            }
        }
    }
}

fn log_accept_error(error: &(dyn std::error::Error + 'static)) {
    tracing::warn!(error, wait = ?ACCEPT_RETRY_DELAY, "could not accept a connection");
}

/// An accepted connection with its permit.
struct AcceptedConnection {
    stream: TcpStream,
    address: SocketAddr,
    _permit: OwnedSemaphorePermit,
}

/// Everything the task of one connection owns.
struct ConnectionTask<S> {
    accepted: AcceptedConnection,
    acceptor: Option<TlsAcceptor>,
    clients: Option<ClientAuthority>,
    context: ConnectionContext<S>,
    counters: Counters,
}

impl<S: Service> ConnectionTask<S> {
    async fn run(self) -> Result<(), TaskError> {
        let Self { accepted: arrival, acceptor, clients, context: setting, counters } = self;
        let AcceptedConnection { stream, address, _permit } = arrival;
        let _open = OpenConnection::new(counters.clone());
        // Small writes are events that a client waits for. A socket that refuses the option is
        // closing.
        let _ = stream.set_nodelay(true);
        let end = match acceptor {
            None => {
                let peer = PeerIdentity::without_certificate(address);
                connection::serve_connection(stream, Protocol::Http1, peer, setting).await?
            }
            Some(acceptor) => {
                let handshake = acceptor.accept(stream);
                let Some(stream) = handshake_with_timeout(handshake, &setting).await else {
                    count_end(&counters, "handshake_failed");
                    return Ok(());
                };
                let (_, session) = stream.get_ref();
                let protocol = match session.alpn_protocol() {
                    Some(b"h2") => Protocol::Http2,
                    Some(_) | None => Protocol::Http1,
                };
                let chain = session.peer_certificates().unwrap_or_default();
                let peer = identify_peer(address, chain, clients.as_ref(), &setting.clock);
                connection::serve_connection(stream, protocol, peer, setting).await?
            }
        };
        count_end(&counters, end_label(end));
        Ok(())
    }
}

/// Performs the TLS handshake; `None` if the client is too slow, disconnects or does not speak TLS,
/// or the server stops.
async fn handshake_with_timeout<S, Tls>(
    handshake: impl Future<Output = io::Result<Tls>>,
    setting: &ConnectionContext<S>,
) -> Option<Tls> {
    let limit = setting.options.timeouts.handshake;
    tokio::select! {
        biased;
        // Cancel-safe: nothing was sent to the client yet that must be finished.
        () = setting.stop.cancelled() => None,
        done = setting.clock.timeout(limit, handshake) => done.ok()?.ok(),
    }
}

/// Returns the peer, given the certificate it presented.
fn identify_peer(
    address: SocketAddr,
    chain: &[rustls::pki_types::CertificateDer<'_>],
    clients: Option<&ClientAuthority>,
    clock: &Clock,
) -> PeerIdentity {
    let Some(clients) = clients.filter(|_| !chain.is_empty()) else {
        return PeerIdentity::without_certificate(address);
    };
    if !clients.verifies(chain, clock.now()) {
        return PeerIdentity::unverified(address);
    }
    // A chain that was verified and cannot be parsed is not trusted.
    PeerIdentity::verified(address, chain).unwrap_or_else(|_| PeerIdentity::unverified(address))
}

fn count_end(counters: &Counters, how: &'static str) {
    counters.ends.get_or_create(&counters::EndLabels { how }).inc();
}

fn end_label(end: ConnectionEnd) -> &'static str {
    match end {
        ConnectionEnd::Closed => "closed",
        ConnectionEnd::Broken => "broken",
        ConnectionEnd::Idle => "idle",
        ConnectionEnd::HeadTooSlow => "head_too_slow",
        ConnectionEnd::Stalled => "stalled",
        ConnectionEnd::DrainTimeout => "cut",
    }
}

/// One connection in the gauge; removed when dropped, however the task ends.
struct OpenConnection(Counters);

impl OpenConnection {
    fn new(counters: Counters) -> Self {
        counters.open.inc();
        Self(counters)
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.open.dec();
    }
}

/// Why the listener cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Plain HTTP was requested on an address that is not loopback.
    #[error(
        "cannot serve without TLS on {address}: only a loopback address may do without; listen on \
         127.0.0.1 or use TLS"
    )]
    PlainBeyondLoopback {
        /// The requested address.
        address: SocketAddr,
    },
    /// The address cannot be bound.
    #[error("could not listen on {address}; choose another address or stop what has it")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the operating system reported.
        source: io::Error,
    },
    /// The certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

#[cfg(test)]
mod tests;
