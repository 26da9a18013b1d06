//! Listens: TLS, connections, limits, certificates, kubeconfigs; what a request means is not its
//! business.
//!
//! [`listener::serve`] accepts connections and hands each request, together with the [`Peer`] who
//! sent it, to a service. [`limits::Limits`] stands between the two and refuses what would hurt
//! everybody else. [`pki::Pki`] keeps the authority and the certificates in a private directory.
//!
//! What is absent on purpose: nothing here authorises anybody, reads a path for its meaning or
//! knows a kind. A client certificate is checked here because that needs the connection; what its
//! subject may do is decided elsewhere.

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

mod connection;
mod vitals;

pub use body::Body;
pub use listener::{Door, Options, ServeError, serve};
pub use peer::{Peer, VerifiedSubject};
