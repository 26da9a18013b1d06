//! The side effects of the queue: it asks the API server what its decisions depend on, answers
//! admission reviews about AppWrappers, and records metrics.
//!
//! The decisions are pure and elsewhere. This module uses a client and a runtime.

pub mod access;
pub mod admission;
pub mod kind_discovery;
pub mod metrics;
