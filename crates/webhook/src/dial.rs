//! Reaching an endpoint: from a name to a connection, and which addresses are out of bounds.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower_service::Service;

use crate::hook::Place;

/// Finds the services of a cluster.
pub trait Resolve: Send + Sync + fmt::Debug {
    /// Where to connect for a port of a service.
    ///
    /// # Errors
    /// There is no such service or port, or nobody serves it.
    fn resolve(&self, namespace: &str, name: &str, port: u16) -> Result<SocketAddr, ResolveError>;
}

/// Why a service is nowhere.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// No such service.
    #[error("service \"{0}\" not found")]
    NotFound(String),
    /// It has no such port.
    #[error("no service port {port} found for service \"{name}\"")]
    NoPort {
        /// The service.
        name: String,
        /// The port that was asked for.
        port: u16,
    },
    /// Nobody serves it.
    #[error("no endpoints available for service \"{0}\"")]
    NoEndpoints(String),
    /// It is a service that nobody can connect to from here.
    #[error("unsupported service type \"{0}\"")]
    Unsupported(String),
}

/// Connects to one place, whatever the URI says: the name in it may exist in the cluster only.
#[derive(Clone, Debug)]
pub(crate) struct Dial {
    pub(crate) place: Place,
    pub(crate) services: Arc<dyn Resolve>,
}

/// No connection came about.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    #[error(transparent)]
    Service(#[from] ResolveError),
    #[error("dial tcp: lookup {host}: no such host")]
    NoHost { host: String },
    #[error("dial tcp {address}: connect: {}", reason(source))]
    Refused { address: SocketAddr, source: io::Error },
    #[error("dial tcp {address}: link-local addresses are not called")]
    OutOfBounds { address: SocketAddr },
}

/// The reason as Go names it.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::NetworkUnreachable => "network is unreachable".to_owned(),
        io::ErrorKind::HostUnreachable => "no route to host".to_owned(),
        io::ErrorKind::TimedOut => "connection timed out".to_owned(),
        _ => error.to_string(),
    }
}

impl Dial {
    async fn connect(self) -> Result<TokioIo<TcpStream>, DialError> {
        let mut last = None;
        for address in self.addresses().await? {
            if is_out_of_bounds(address.ip()) {
                last = Some(DialError::OutOfBounds { address });
                continue;
            }
            match TcpStream::connect(address).await {
                Ok(stream) => {
                    // Without it a small request waits for an acknowledgement that is delayed.
                    let _: io::Result<()> = stream.set_nodelay(true);
                    return Ok(TokioIo::new(stream));
                }
                Err(source) => last = Some(DialError::Refused { address, source }),
            }
        }
        Err(last.unwrap_or_else(|| DialError::NoHost { host: self.host() }))
    }

    async fn addresses(&self) -> Result<Vec<SocketAddr>, DialError> {
        match &self.place {
            Place::Service { namespace, name, port } => {
                Ok(vec![self.services.resolve(namespace, name, *port)?])
            }
            Place::Host { host, .. } => {
                let host = host.trim_matches(['[', ']']);
                let found = tokio::net::lookup_host((host, self.place.port())).await;
                let found = found.map_err(|_| DialError::NoHost { host: host.to_owned() })?;
                Ok(found.collect())
            }
        }
    }

    fn host(&self) -> String {
        match &self.place {
            Place::Host { host, .. } => host.clone(),
            Place::Service { name, namespace, .. } => format!("{name}.{namespace}.svc"),
        }
    }
}

impl Service<Uri> for Dial {
    type Response = TokioIo<TcpStream>;
    type Error = DialError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, DialError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        Box::pin(self.clone().connect())
    }
}

/// Where Amazon keeps credentials on IPv6 networks; elsewhere they are at link-local addresses.
const METADATA_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

/// Whether an address is none a webhook may have. It is asked about what a name resolved to, so
/// that no name leads there either.
fn is_out_of_bounds(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local() || address == METADATA_V6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_link_are_out_of_bounds_however_they_are_written() {
        let table = [
            ("169.254.169.254", true),
            ("169.254.0.1", true),
            ("::ffff:169.254.169.254", true),
            ("fe80::1", true),
            ("febf::1", true),
            ("fd00:ec2::254", true),
            ("127.0.0.1", false),
            ("10.0.0.1", false),
            ("169.253.255.255", false),
            ("::1", false),
            ("fd00:ec2::255", false),
        ];
        for (text, expected) in table {
            assert_eq!(is_out_of_bounds(text.parse().unwrap()), expected, "{text}");
        }
    }
}
