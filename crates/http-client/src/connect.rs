//! Opens connections: resolves the host, checks its addresses, connects and negotiates TLS.

use std::fmt;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use gantry_process::clock::Clock;
use http::Uri;
use http::uri::Scheme;
use hyper_rustls::MaybeHttpsStream;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tower_service::Service;

use crate::BoxError;
use crate::address::{AddressPolicy, AddressRefusal};
use crate::client::PlainHttp;
use crate::error::{ClientError, Phase};
use crate::write_timeout::WriteTimeout;

/// A future with the addresses of a host.
pub type ResolveFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Vec<SocketAddr>, BoxError>> + Send + 'a>>;

/// Finds the addresses of hosts.
pub trait Resolve: Send + Sync + fmt::Debug {
    /// Returns the addresses of a host, best first. `host` has no brackets around an IPv6 address.
    ///
    /// It need not limit its time, and must not check which addresses may be called: the client
    /// does.
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> ResolveFuture<'a>;
}

/// Resolves names with the resolver of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> ResolveFuture<'a> {
        Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
    }
}

/// The resolver knows the name, but no address for it.
#[derive(Debug, thiserror::Error)]
#[error("the name has no address")]
struct NoAddress;

/// The largest number of addresses of one name that are tried. A name may have hundreds, and each
/// needs a fair share of the time.
const MAX_ADDRESSES_TRIED: usize = 8;

/// Opens connections for the connection pool of a client.
#[derive(Clone)]
pub(crate) struct Connector(pub(crate) Arc<Dialer>);

/// The settings with which connections are opened.
pub(crate) struct Dialer {
    pub(crate) clock: Clock,
    pub(crate) resolver: Arc<dyn Resolve>,
    pub(crate) addresses: AddressPolicy,
    pub(crate) plain_http: PlainHttp,
    pub(crate) tls: TlsConnector,
    /// The name that certificates must have, if it differs from the host.
    pub(crate) server_name: Option<ServerName<'static>>,
    pub(crate) connect_timeout: Duration,
    pub(crate) handshake_timeout: Duration,
    /// How long one write may wait.
    pub(crate) write_timeout: Duration,
}

/// A connection, with TLS or without.
pub(crate) type Stream = MaybeHttpsStream<WriteTimeout<TokioIo<TcpStream>>>;

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = ClientError;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, ClientError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ClientError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let dial = Arc::clone(&self.0);
        Box::pin(async move { dial.connect(&uri).await })
    }
}

impl Dialer {
    async fn connect(&self, uri: &Uri) -> Result<Stream, ClientError> {
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let encrypted = uri.scheme() == Some(&Scheme::HTTPS);
        let port = uri.port_u16().unwrap_or(if encrypted { 443 } else { 80 });
        // Checked before connecting, so that nothing is sent to a host no certificate can be for.
        let server_name = match (&self.server_name, encrypted) {
            (_, false) => None,
            (Some(name), true) => Some(name.clone()),
            (None, true) => {
                let name = ServerName::try_from(host.to_owned());
                let why = "no certificate can be for this host";
                Some(name.map_err(|_| ClientError::InvalidUrl { url: uri.to_string(), why })?)
            }
        };
        let stream = TokioIo::new(self.tcp(host, port, encrypted).await?);
        let stream = WriteTimeout::new(stream, self.clock.clone(), self.write_timeout);
        let Some(server_name) = server_name else { return Ok(stream.into()) };
        let name = server_name.to_str().into_owned();
        let handshake = self.tls.connect(server_name, TokioIo::new(stream));
        let limit = self.handshake_timeout;
        match self.clock.timeout(limit, handshake).await {
            Ok(Ok(stream)) => Ok(stream.into()),
            Ok(Err(error)) => {
                Err(ClientError::Handshake { server_name: name, source: Arc::new(error) })
            }
            Err(_) => Err(ClientError::Timeout { phase: Phase::Handshake, limit }),
        }
    }

    /// Connects to the first address of a host that may be called and answers.
    ///
    /// The address that is checked is the one that is connected to; the name is not resolved again.
    async fn tcp(&self, host: &str, port: u16, encrypted: bool) -> Result<TcpStream, ClientError> {
        let limit = self.connect_timeout;
        let late = ClientError::Timeout { phase: Phase::Connect, limit };
        let deadline = self.clock.moment() + limit;
        let failed = |source| ClientError::Resolve { host: host.to_owned(), source };
        let found = self.clock.timeout(limit, self.resolver.resolve(host, port)).await;
        let found = found.map_err(|_| late.clone())?.map_err(|error| failed(error.into()))?;
        let mut error = failed(Arc::new(NoAddress));
        let mut allowed = Vec::new();
        for address in found {
            match self.check(address.ip(), encrypted) {
                Ok(()) => allowed.push(address),
                Err(why) => error = ClientError::AddressRefused { address, why },
            }
        }
        allowed.truncate(MAX_ADDRESSES_TRIED);
        for (index, address) in allowed.iter().enumerate() {
            let left = u32::try_from(allowed.len() - index).unwrap_or(1);
            let share = (deadline - self.clock.moment()) / left;
            match self.clock.timeout(share, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    // Without this a small request waits for a delayed acknowledgement. A failure
                    // only costs time.
                    let _: std::io::Result<()> = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Ok(Err(source)) => {
                    let source = Arc::new(source);
                    error = ClientError::Connect { address: *address, source };
                }
                Err(_) => error = late.clone(),
            }
        }
        Err(error)
    }

    fn check(&self, address: IpAddr, encrypted: bool) -> Result<(), AddressRefusal> {
        self.addresses.check(address)?;
        let own = address.to_canonical().is_loopback();
        match self.plain_http {
            PlainHttp::Loopback if !encrypted && !own => Err(AddressRefusal::PlainHttp),
            PlainHttp::Never | PlainHttp::Loopback | PlainHttp::Anywhere => Ok(()),
        }
    }
}
