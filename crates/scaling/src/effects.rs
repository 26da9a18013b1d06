//! The side effects of scaling: pools, which are no API objects.
//!
//! [`Pools`] lists them for [`PoolInquiry`](crate::pool::PoolInquiry), and carries out the calls
//! that plans request about them, at the service that manages the cluster. Nothing is decided or
//! retried here: the manager retries a call for as long as a plan requests it.

mod call;
mod connect;
mod metrics;
mod ocm;
mod pools;
mod secret;

pub use call::{CallError, Endpoints, OCM_API_URL, OCM_TOKEN_URL, is_allowed_url};
pub use connect::ConnectError;
pub use metrics::GrantedNodeMetrics;
pub use ocm::{Cluster, OcmClient};
pub use pools::Pools;
pub use secret::Secret;

#[cfg(test)]
mod tests;
