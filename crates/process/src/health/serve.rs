//! Serves a router at an address until shutdown.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{fmt, io};

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::tasks::{Backoff, OnLoss, TaskError, Tasks};

/// The timeout for the head of a request, and for an idle connection between two requests. Probes
/// come every few seconds, so a kept connection is worth little more than this.
const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum age of a connection: a client that reads one byte a minute must not keep it.
const MAX_CONNECTION_AGE: Duration = Duration::from_secs(300);
/// The timeout of the response in progress when a connection is to be closed.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// Connections at one time; the next ones wait in the listener's backlog. A kubelet and a few
/// scrapers need less than ten.
const MAX_CONNECTIONS: usize = 64;
/// The most a client can make us buffer: the head of a request, no probe has a body.
const MAX_REQUEST_HEAD_BYTES: usize = 16 * 1024;

/// Listens at `address` and serves `router` in a task called `name` until the token of `tasks` is
/// cancelled; then finishes the responses in progress.
///
/// Returns the address it listens on, which is the only way to learn a port that the system chose,
/// or `None` when the address is disabled.
///
/// # Errors
/// The address cannot be listened on.
pub async fn serve(
    tasks: &mut Tasks,
    name: &str,
    address: &BindAddress,
    router: Router,
) -> Result<Option<SocketAddr>, ServeError> {
    let candidates = address.candidates();
    if candidates.is_empty() {
        return Ok(None);
    }
    let failed = |source| ServeError { address: *address, source };
    let listener = TcpListener::bind(&*candidates).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    tracing::info!(server = name, address = %bound, "listening");
    let (listener, owner) = (Arc::new(listener), Mutex::new(tasks.child()));
    // A failure means out of file descriptors or memory: that is temporary, and the backlog holds
    // meanwhile.
    let backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(5));
    tasks.spawn_restarting(name, backoff, move |stop| {
        let connections = owner.lock().unwrap_or_else(PoisonError::into_inner).child();
        accept(Arc::clone(&listener), router.clone(), connections, stop)
    });
    Ok(Some(bound))
}

async fn accept(
    listener: Arc<TcpListener>,
    router: Router,
    mut connections: Tasks,
    stop: CancellationToken,
) -> Result<(), TaskError> {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let end = loop {
        let (stream, peer, permit) = tokio::select! {
            biased;
            // Each is cancel-safe: none has taken anything off a queue before it is ready.
            () = stop.cancelled() => break Ok(()),
            _ = connections.join(), if !connections.is_empty() => continue,
            next = accept_next(&listener, &permits) => match next {
                Ok(next) => next,
                Err(error) => break Err(error.into()),
            },
        };
        let router = router.clone().layer(Extension(PeerAddress(peer)));
        let clock = connections.clock().clone();
        connections.spawn("http connection", OnLoss::CarryOn, |stop| async move {
            serve_connection(stream, router, &clock, &stop).await;
            drop(permit);
            Ok(())
        });
    };
    // Already cancelled on shutdown, but not when accepting failed.
    connections.token().cancel();
    while connections.join().await.is_err() {}
    end
}

async fn accept_next(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
) -> io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let permit = Arc::clone(permits).acquire_owned().await.map_err(io::Error::other)?;
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => return Ok((stream, peer, permit)),
            // The client disconnected before its connection was accepted.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Serves one client until it disconnects or reaches the maximum age. Errors of the connection are
/// ignored.
async fn serve_connection(
    stream: TcpStream,
    router: Router,
    clock: &Clock,
    stop: &CancellationToken,
) {
    let connection = http1::Builder::new()
        .timer(clock.hyper_timer())
        .header_read_timeout(HEADER_READ_TIMEOUT)
        .max_buf_size(MAX_REQUEST_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    tokio::select! {
        biased;
        // Each is cancel-safe: the connection is only borrowed, the others only wait.
        _ = connection.as_mut() => return,
        () = stop.cancelled() => {}
        () = clock.sleep(MAX_CONNECTION_AGE) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = clock.timeout(DRAIN_TIMEOUT, connection).await;
}

/// The address of the client, an extension of every request, for pages that are not public.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddress(pub SocketAddr);

impl PeerAddress {
    /// Whether it is on this machine, or in this pod: so are clients of `kubectl port-forward`.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.0.ip().to_canonical().is_loopback()
    }
}

/// The address to listen on, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindAddress {
    /// `0` or empty: do not listen.
    Disabled,
    /// `:8081`: this port on every interface. Port zero lets the system choose.
    AllInterfaces(u16),
    /// `127.0.0.1:8081`, `[::1]:8081` or `localhost:8081`.
    At(SocketAddr),
}

impl BindAddress {
    /// Addresses to try, the first that works is enough; none if it is disabled.
    #[must_use]
    pub fn candidates(&self) -> Vec<SocketAddr> {
        match *self {
            Self::Disabled => Vec::new(),
            Self::At(address) => vec![address],
            // The first also takes IPv4, except where IPv6 is switched off.
            Self::AllInterfaces(port) => {
                vec![(Ipv6Addr::UNSPECIFIED, port).into(), (Ipv4Addr::UNSPECIFIED, port).into()]
            }
        }
    }

    /// Whether only this machine, or this pod, can reach it.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        self.candidates().iter().all(|it| it.ip().is_loopback())
    }
}

impl FromStr for BindAddress {
    type Err = BindAddressError;

    /// Host names other than `localhost` are refused: what they mean depends on the resolver, and
    /// may change between two restarts.
    fn from_str(text: &str) -> Result<Self, BindAddressError> {
        let wrong = |_| BindAddressError { value: text.to_owned() };
        if text.is_empty() || text == "0" {
            Ok(Self::Disabled)
        } else if let Some(port) = text.strip_prefix(':') {
            port.parse().map(Self::AllInterfaces).map_err(wrong)
        } else if let Some(port) = text.strip_prefix("localhost:") {
            port.parse().map(|port| Self::At((Ipv4Addr::LOCALHOST, port).into())).map_err(wrong)
        } else {
            text.parse().map(Self::At).map_err(|_| BindAddressError { value: text.to_owned() })
        }
    }
}

impl fmt::Display for BindAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disabled => formatter.write_str("0"),
            Self::AllInterfaces(port) => write!(formatter, ":{port}"),
            Self::At(address) => address.fmt(formatter),
        }
    }
}

/// The configured address is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot listen on {value:?}: write a port as \":8081\", an address and a port as \
     \"127.0.0.1:8081\", or \"0\" to switch it off"
)]
pub struct BindAddressError {
    /// What was configured.
    pub value: String,
}

/// The address could not be bound.
#[derive(Debug, thiserror::Error)]
#[error("could not listen on {address}; choose another address or stop what has it")]
pub struct ServeError {
    /// The address.
    pub address: BindAddress,
    /// The error of the system.
    pub source: io::Error,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bind_addresses() {
        let local = |port| Some(BindAddress::At((Ipv4Addr::LOCALHOST, port).into()));
        let table = [
            ("", Some(BindAddress::Disabled)),
            ("0", Some(BindAddress::Disabled)),
            (":8081", Some(BindAddress::AllInterfaces(8081))),
            (":0", Some(BindAddress::AllInterfaces(0))),
            ("127.0.0.1:0", local(0)),
            ("localhost:8081", local(8081)),
            ("[::1]:8081", Some(BindAddress::At((Ipv6Addr::LOCALHOST, 8081).into()))),
            ("8081", None),
            (":", None),
            (":65536", None),
            ("127.0.0.1", None),
            ("example.org:80", None),
            (" :8081", None),
        ];
        for (text, expected) in table {
            let parsed = text.parse::<BindAddress>();
            assert_eq!(parsed.as_ref().ok(), expected.as_ref(), "{text:?}");
            match parsed {
                Ok(address) => assert_eq!(address.to_string().parse(), Ok(address), "{text:?}"),
                Err(error) => assert_eq!(
                    error.to_string(),
                    format!(
                        "cannot listen on {text:?}: write a port as \":8081\", an address and a \
                         port as \"127.0.0.1:8081\", or \"0\" to switch it off"
                    )
                ),
            }
        }
    }
}
