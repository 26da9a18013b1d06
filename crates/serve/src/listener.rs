//! Accepts connections and gives each a task of its own, until told to stop.

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
use crate::connection::{self, End, Protocol, Setting};
use crate::counters::{self, Counters};
use crate::peer::{Acquaintance, Peer};
use crate::tls::{self, ClientAuthority, ServerCertificate, TlsError};

/// Answers one request of one peer. Any function of that shape is one.
///
/// The future is dropped when the client leaves, so whatever must not be done by halves must be
/// done by somebody else, such as a store that takes a whole change at a time. Bodies without an
/// end must end when the token of the listener's tasks is cancelled.
pub trait Service:
    Fn(Request<Incoming>, Arc<Peer>) -> <Self as Service>::Answer + Clone + Send + Sync + 'static
{
    /// What it is working on.
    type Answer: Future<Output = Response<Body>> + Send + 'static;
}

impl<F, Answer> Service for F
where
    F: Fn(Request<Incoming>, Arc<Peer>) -> Answer + Clone + Send + Sync + 'static,
    Answer: Future<Output = Response<Body>> + Send + 'static,
{
    type Answer = Answer;
}

/// Where and how to listen.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address. Port zero lets the system choose.
    pub address: SocketAddr,
    /// With TLS, or without on loopback.
    pub door: Door,
    /// Connections at one time; the next ones wait in the listener's backlog.
    pub connections: usize,
    /// The largest head of a request, in bytes.
    pub max_head: usize,
    /// Requests at one time on one HTTP/2 connection.
    pub max_streams: u32,
    /// How long things may take.
    pub timeouts: Timeouts,
    /// What a panic in the service means. Either way the request has no answer and its connection
    /// ends.
    pub on_panic: OnLoss,
}

impl Options {
    /// The usual limits, those of upstream where it has them.
    #[must_use]
    pub fn new(address: SocketAddr, door: Door) -> Self {
        Self {
            address,
            door,
            // Every watcher of the largest number we allow may bring a connection of its own.
            connections: 12_000,
            max_head: 1 << 20,
            max_streams: 100,
            timeouts: Timeouts::default(),
            on_panic: OnLoss::EndOwner,
        }
    }
}

/// What is spoken at the door.
#[derive(Clone, Debug)]
pub enum Door {
    /// TLS 1.2 or 1.3; HTTP/2 and HTTP/1.1, as the client prefers.
    Tls {
        /// What we show.
        certificate: ServerCertificate,
        /// Whose client certificates we believe; none are asked for without.
        clients: Option<ClientAuthority>,
    },
    /// HTTP/1.1 without TLS. Only ever on loopback: everything, tokens too, is there to be read.
    PlainOnLoopback,
}

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// A TLS handshake.
    pub handshake: Duration,
    /// The head of a request, from its first byte.
    pub head: Duration,
    /// A connection without requests.
    pub idle: Duration,
    /// A client that takes nothing of what is there for it.
    pub stall: Duration,
    /// Between two questions whether an HTTP/2 client is still there.
    pub ping: Duration,
    /// The answer to such a question.
    pub pong: Duration,
    /// Requests in progress when the server stops. Shorter than the grace period of the process.
    pub drain: Duration,
}

impl Default for Timeouts {
    /// Head and idle are upstream's; so is the interval of pings, which there the clients send.
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

/// The wait after the system refused to give us a connection. It is out of file descriptors or
/// memory; that passes when connections end, and the backlog holds meanwhile.
const REFUSED: Duration = Duration::from_millis(100);

/// Listens and answers with `service` in a task called `name`, until the token of `tasks` is
/// cancelled; then finishes the requests in progress, for as long as the time to drain.
///
/// Gives back where it listens, which is the only way to learn a port that the system chose.
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
    let (acceptor, clients) = match &options.door {
        Door::Tls { certificate, clients } => {
            let config: ServerConfig = tls::config(certificate, clients.as_ref())?;
            (Some(TlsAcceptor::from(Arc::new(config))), clients.clone())
        }
        Door::PlainOnLoopback if address.ip().is_loopback() => (None, None),
        Door::PlainOnLoopback => return Err(ServeError::PlainBeyondLoopback { address }),
    };
    let failed = |source| ServeError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    tracing::info!(server = name, address = %bound, tls = acceptor.is_some(), "listening");
    let connections = tasks.child();
    let (clock, on_panic) = (tasks.clock().clone(), options.on_panic);
    let permits = Arc::new(Semaphore::new(options.connections));
    let options = Arc::new(options);
    tasks.spawn(name, OnLoss::EndOwner, move |_| {
        // Cancelled with the token this task was given, or when a connection is lost.
        let stop = connections.token().clone();
        let setting = Setting { service, options, clock, stop };
        let hall = Hall { listener, permits, acceptor, clients, counters, on_panic, setting };
        hall.receive(connections)
    });
    Ok(bound)
}

/// Where connections arrive.
struct Hall<S> {
    listener: TcpListener,
    permits: Arc<Semaphore>,
    acceptor: Option<TlsAcceptor>,
    clients: Option<ClientAuthority>,
    counters: Counters,
    on_panic: OnLoss,
    setting: Setting<S>,
}

impl<S: Service> Hall<S> {
    async fn receive(self, mut connections: Tasks) -> Result<(), TaskError> {
        let mut lost = loop {
            let arrival = tokio::select! {
                biased;
                // Each may be dropped: none has taken anything off a queue before it is ready.
                () = self.setting.stop.cancelled() => break None,
                joined = connections.join(), if !connections.is_empty() => match joined {
                    Ok(()) => continue,
                    Err(lost) => break Some(lost),
                },
                arrival = self.next() => arrival,
            };
            let visit = Visit {
                arrival,
                acceptor: self.acceptor.clone(),
                clients: self.clients.clone(),
                setting: self.setting.clone(),
                counters: self.counters.clone(),
            };
            connections.spawn("server connection", self.on_panic, |_| visit.receive());
        };
        // Closed here, so that clients are refused at once instead of waiting in the backlog.
        drop(self.listener);
        self.setting.stop.cancel();
        // A loss also cancels the token, so it may be found here first.
        while let Err(another) = connections.join().await {
            lost.get_or_insert(another);
        }
        lost.map_or(Ok(()), |lost| Err(lost.into()))
    }

    async fn next(&self) -> Arrival {
        loop {
            // Never closed; if it were, nobody could be let in any more.
            let Ok(permit) = Arc::clone(&self.permits).acquire_owned().await else {
                std::future::pending().await
            };
            match self.listener.accept().await {
                Ok((stream, address)) => return Arrival { stream, address, _permit: permit },
                // The client went away before we came to it.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    log_refused(&error);
                    self.setting.clock.sleep(REFUSED).await;
                }
            }
        }
    }
}

fn log_refused(error: &(dyn std::error::Error + 'static)) {
    tracing::warn!(error, wait = ?REFUSED, "could not accept a connection");
}

/// A client at the door, with leave to come in.
struct Arrival {
    stream: TcpStream,
    address: SocketAddr,
    _permit: OwnedSemaphorePermit,
}

/// Everything the task of one connection owns.
struct Visit<S> {
    arrival: Arrival,
    acceptor: Option<TlsAcceptor>,
    clients: Option<ClientAuthority>,
    setting: Setting<S>,
    counters: Counters,
}

impl<S: Service> Visit<S> {
    async fn receive(self) -> Result<(), TaskError> {
        let Self { arrival, acceptor, clients, setting, counters } = self;
        let Arrival { stream, address, _permit } = arrival;
        let _open = Open::new(counters.clone());
        // Small writes are events that somebody waits for. A socket that refuses is closing.
        let _ = stream.set_nodelay(true);
        let end = match acceptor {
            None => {
                let peer = Acquaintance::stranger(address);
                connection::converse(stream, Protocol::Http1, peer, setting).await?
            }
            Some(acceptor) => {
                let handshake = acceptor.accept(stream);
                let Some(stream) = handshake_in_time(handshake, &setting).await else {
                    count(&counters, "handshake_failed");
                    return Ok(());
                };
                let (_, session) = stream.get_ref();
                let protocol = match session.alpn_protocol() {
                    Some(b"h2") => Protocol::Http2,
                    Some(_) | None => Protocol::Http1,
                };
                let chain = session.peer_certificates().unwrap_or_default();
                let peer = acquaint(address, chain, clients.as_ref(), &setting.clock);
                connection::converse(stream, protocol, peer, setting).await?
            }
        };
        count(&counters, name(end));
        Ok(())
    }
}

/// The TLS stream, unless the client is too slow, leaves, speaks something else, or we stop.
async fn handshake_in_time<S, Tls>(
    handshake: impl Future<Output = io::Result<Tls>>,
    setting: &Setting<S>,
) -> Option<Tls> {
    let limit = setting.options.timeouts.handshake;
    tokio::select! {
        biased;
        // Either may be dropped: nothing was promised to the client yet.
        () = setting.stop.cancelled() => None,
        done = setting.clock.timeout(limit, handshake) => done.ok()?.ok(),
    }
}

/// Who it is, given what they showed.
fn acquaint(
    address: SocketAddr,
    chain: &[rustls::pki_types::CertificateDer<'_>],
    clients: Option<&ClientAuthority>,
    clock: &Clock,
) -> Acquaintance {
    let Some(clients) = clients.filter(|_| !chain.is_empty()) else {
        return Acquaintance::stranger(address);
    };
    if !clients.believes(chain, clock.now()) {
        return Acquaintance::unverified(address);
    }
    // A chain that was verified and cannot be read is odd enough not to be believed.
    Acquaintance::verified(address, chain).unwrap_or_else(|_| Acquaintance::unverified(address))
}

fn count(counters: &Counters, how: &'static str) {
    counters.ends.get_or_create(&counters::End { how }).inc();
}

fn name(end: End) -> &'static str {
    match end {
        End::Closed => "closed",
        End::Broken => "broken",
        End::Idle => "idle",
        End::HeadTooSlow => "head_too_slow",
        End::Stalled => "stalled",
        End::Cut => "cut",
    }
}

/// One connection in the gauge; leaves it when dropped, however the task ends.
struct Open(Counters);

impl Open {
    fn new(counters: Counters) -> Self {
        counters.open.inc();
        Self(counters)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.dec();
    }
}

/// Why nothing listens.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Others could read everything.
    #[error(
        "cannot serve without TLS on {address}: only a loopback address may do without; listen on \
         127.0.0.1 or use TLS"
    )]
    PlainBeyondLoopback {
        /// What was asked for.
        address: SocketAddr,
    },
    /// The address could not be taken.
    #[error("could not listen on {address}; choose another address or stop what has it")]
    Listen {
        /// Where we tried to listen.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

#[cfg(test)]
mod tests;
