//! Calls webhooks on behalf of a server: over TLS, with a time limit and a limit on the response.
//!
//! A [`WebhookClientConfig`] says where a webhook is. [`Client`] calls it: connections are kept per
//! endpoint, certificates are verified against the webhook's own authority or the machine's roots,
//! redirects are not followed, proxies are not used, and link-local addresses, where clouds serve
//! credentials, are never called. The meaning of a call is left to the caller.
//!
//! Failures are reported in the words of the Go client, because users know these and tools search
//! for them.

mod client;
mod client_config;
mod error;
mod resolve;
mod response;

pub use client::{CallTimeout, Client, MAX_RESPONSE_BYTES};
pub use client_config::{ClientConfigError, WebhookClientConfig, WebhookTarget};
pub use error::CallError;
pub use resolve::{ResolveError, ResolveService};
