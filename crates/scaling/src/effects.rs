//! What is done to pools, which no API server has.
//!
//! [`Pools`] lists them for [`PoolInquiry`](crate::pool::PoolInquiry), and carries out the calls that plans
//! want about them, in the service that manages the cluster. Nothing is decided here, and nothing is tried
//! again: the shell does that for as long as it is wanted.

mod call;
mod connect;
mod metrics;
mod ocm;
mod pools;
mod secret;

pub use call::{CallError, Endpoints, SERVICE, TOKENS, may_call};
pub use connect::ConnectError;
pub use metrics::StockMetrics;
pub use ocm::{Cluster, Ocm};
pub use pools::Pools;
pub use secret::Secret;

#[cfg(test)]
mod tests;
