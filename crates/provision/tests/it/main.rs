//! Tests of provisioning: facts of distributions, user steps, and the laws of the catalogue on a
//! simulated host.

#![expect(clippy::unwrap_used, reason = "all of this is tests")]

mod facts;
mod laws;
mod planning;
mod simulated_host;
mod user_steps;
