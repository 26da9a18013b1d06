//! What is done to pools, which no API server has.
//!
//! A plan says what it wants of a [`Pool`](crate::pool::Pool) by the same writes as of any object, and
//! reads the pools from a shelf. Here is the other side of both: [`Pools::serve`] carries out such a
//! write where an API server would, in the service that manages the cluster, and [`Pools::follow`] asks
//! that service now and then what there is. Nothing is decided here, and nothing is tried again: the
//! next plan is made from what is then known.

mod answer;
mod call;
mod ocm;
mod pools;
mod secret;

pub use call::{CallError, Endpoints, SERVICE, TOKENS, may_call};
pub use ocm::{Cluster, Found, Ocm};
pub use pools::{Listing, Pools};
pub use secret::Secret;

#[cfg(test)]
mod tests;
