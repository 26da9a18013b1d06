//! Errors of requests, by how far the request got.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::address::AddressRefusal;

/// Why a request failed.
///
/// Up to and including [`ClientError::Handshake`] nothing of the request was sent; after that the
/// server may have acted on it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ClientError {
    /// The address of the request cannot be called.
    #[error("cannot call {url:?}: {why}")]
    InvalidUrl {
        /// The address, without its query.
        url: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The name of the host has no address.
    #[error("could not resolve {host}")]
    Resolve {
        /// The name.
        host: String,
        /// What the resolver reported.
        source: Arc<dyn Error + Send + Sync>,
    },
    /// The name has no address that may be called.
    #[error("cannot call {address}: {why}")]
    AddressRefused {
        /// The last address that was refused.
        address: SocketAddr,
        /// Why.
        why: AddressRefusal,
    },
    /// No connection could be made.
    #[error("could not connect to {address}")]
    Connect {
        /// The last address that was tried.
        address: SocketAddr,
        /// What the operating system reported.
        source: Arc<io::Error>,
    },
    /// The TLS handshake failed, mostly because a certificate is not trusted.
    #[error("could not establish TLS with {server_name}")]
    Handshake {
        /// The name that the certificate must have.
        server_name: String,
        /// What was wrong; [`ClientError::tls`] has the details.
        source: Arc<io::Error>,
    },
    /// A time-out.
    #[error("{phase} took longer than {limit:?}")]
    Timeout {
        /// What took too long.
        phase: Phase,
        /// The time it had.
        limit: Duration,
    },
    /// The response is larger than allowed; the rest of it was not read.
    #[error("the {part} of the response is larger than {limit} bytes")]
    TooLarge {
        /// Which part of the response.
        part: ResponsePart,
        /// How large it may be.
        limit: usize,
    },
    /// The connection ended, or broke the protocol, before the response was complete.
    #[error("the connection failed before the response was complete")]
    ConnectionLost(#[source] Arc<dyn Error + Send + Sync>),
    /// The server redirected more often than allowed.
    #[error("the server redirected more than {0} times")]
    TooManyRedirects(usize),
}

/// What took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Phase {
    /// Resolving the name and connecting.
    #[error("connecting")]
    Connect,
    /// The TLS handshake.
    #[error("the TLS handshake")]
    Handshake,
    /// Waiting for the next piece of the request or of the response.
    #[error("waiting for the peer")]
    Idle,
    /// The whole exchange.
    #[error("the whole exchange")]
    Total,
}

/// A part of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResponsePart {
    /// Status and header.
    #[error("header")]
    Header,
    /// The body.
    #[error("body")]
    Body,
}

impl ClientError {
    /// The error of the TLS library, if the handshake failed.
    #[must_use]
    pub fn tls(&self) -> Option<&rustls::Error> {
        match self {
            Self::Handshake { source, .. } => source.get_ref()?.downcast_ref(),
            Self::InvalidUrl { .. }
            | Self::Resolve { .. }
            | Self::AddressRefused { .. }
            | Self::Connect { .. }
            | Self::Timeout { .. }
            | Self::TooLarge { .. }
            | Self::ConnectionLost(_)
            | Self::TooManyRedirects(_) => None,
        }
    }

    /// Returns the error of an exchange: the connector's own error, otherwise that the connection
    /// broke.
    ///
    /// `header_limit` is the largest header, which hyper does not repeat.
    pub(crate) fn from_exchange(
        error: impl Error + Send + Sync + 'static,
        header_limit: usize,
    ) -> Self {
        let mut cause: Option<&(dyn Error + 'static)> = Some(&error);
        while let Some(next) = cause {
            if let Some(ours) = next.downcast_ref::<Self>() {
                return ours.clone();
            }
            if next.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_parse_too_large) {
                return Self::TooLarge { part: ResponsePart::Header, limit: header_limit };
            }
            cause = next.source();
        }
        Self::ConnectionLost(Arc::new(error))
    }
}
