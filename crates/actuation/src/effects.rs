//! The I/O of actuation: requests to requesters, launchers and engines, and metrics.

mod api_writes;
mod caller;
mod claim_reader;
mod events;
mod log_tail;
pub mod metrics;
mod peer;
mod responders;
#[cfg(test)]
mod tests;
mod token;

pub(crate) use api_writes::logged;
pub use caller::PeerCaller;
pub use claim_reader::ClaimReader;
pub use events::EventResponder;
pub use peer::{PeerClient, PeerOptions};
pub use responders::PeerResponder;
pub use token::{TokenError, TokenFile};
