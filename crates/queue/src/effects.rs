//! What the queue does beside deciding: it asks the server what its decisions need to know, answers the server
//! about AppWrappers, and counts.
//!
//! The decisions are pure and elsewhere. Here is what knows a client and a runtime.

pub mod access;
pub mod admission;
pub mod kind_discovery;
pub mod metrics;
