//! The I/O of actuation: requests to requesters, launchers and engines, and metrics.

mod caller;
mod log_tail;
pub mod metrics;
mod peer;
mod responders;
#[cfg(test)]
mod tests;
mod token;

pub use caller::PeerCaller;
pub use peer::{PeerClient, PeerOptions};
pub use responders::PeerResponder;
pub use token::{TokenError, TokenFile};
