//! Serves HTTPS: TLS, connections, request limits, certificates and kubeconfigs. The meaning of
//! requests is left to the service behind it.
//!
//! [`listener::serve`] accepts connections and hands each request, together with the [`Peer`] that
//! sent it, to a service. [`limits::Limits`] wraps the service and refuses requests that would
//! overload it. [`pki::Pki`] keeps the certificate authority and the certificates in a private
//! directory.
//!
//! Out of scope: this crate authorizes no request, interprets no path and knows no kind. A client
//! certificate is verified here because that needs the connection; what its subject may do is
//! decided elsewhere.

pub mod listener;

pub mod limits;
pub mod peer;
pub mod upgrade;

pub mod body;
pub mod gzip;
pub mod status;

pub mod tls;

pub mod files;
pub mod kubeconfig;
pub mod pki;

pub mod counters;

mod activity;
mod connection;

pub use body::Body;
pub use listener::{Options, ServeError, TransportSecurity, serve};
pub use peer::{Peer, VerifiedSubject};
