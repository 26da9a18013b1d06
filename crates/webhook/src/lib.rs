//! Calls webhooks on behalf of a server: over TLS, for a limited time, with a limited answer.
//!
//! A [`Hook`] is what an object says about whom to call. [`Client`] calls it: connections are kept
//! per endpoint, certificates are verified against the hook's own authority or the machine's roots,
//! redirects are not followed, no proxy is asked, and addresses that only exist on one link, where
//! clouds keep their credentials, are never called. What a call means is not its business.
//!
//! Failures are told in the words of the Go client, because users know these and tools look for
//! them.

mod answer;
mod client;
mod dial;
mod fault;
mod hook;

pub use client::{Client, LARGEST_ANSWER, Wait};
pub use dial::{Resolve, ResolveError};
pub use fault::CallError;
pub use hook::{Hook, HookError, Place};
