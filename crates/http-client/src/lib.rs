//! Sends HTTP requests to servers outside of the Kubernetes API: webhooks, clouds, registries,
//! engines.
//!
//! A [`Client`] is made from [`Settings`] and serves one purpose. [`Client::send`] returns the
//! header of a response and a body that is read as it comes; [`Client::fetch`] reads the whole
//! body. Every request has [`Bounds`]: a time for the whole exchange and a size for its response.
//! Connecting, the TLS handshake and a peer that stops moving bytes have time-outs of their own,
//! all by a [`Clock`](gantry_process::clock::Clock).
//!
//! Which addresses may be called is an [`AddressPolicy`]. It is applied to what a name resolved to,
//! right before the connection is made to that very address, so a name server cannot answer
//! differently in between. Proxies are not used, whatever the environment says, because they would
//! resolve names elsewhere.
//!
//! Errors are a [`ClientError`] whose variants say how far the request got.

mod address;
mod body;
mod client;
mod connect;
mod error;
mod redirect;
mod tls;
mod write_timeout;

pub use address::{AddressPolicy, AddressRefusal};
pub use body::{Body, ResponseBody};
pub use client::{Bounds, Client, Limits, PlainHttp, Protocols, Settings, Timeouts};
pub use connect::{Resolve, ResolveFuture, SystemResolver};
pub use error::{ClientError, Phase, ResponsePart};
pub use tls::{Identity, Roots, TlsError};

/// An error of any type, as bodies and resolvers return it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
