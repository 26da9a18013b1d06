//! What every long-running part needs once; the only caller of `now` and `spawn`.
//!
//! Time, tasks, stopping, probes, metrics and logs are process-wide concerns. They live here so
//! that every other crate takes them as arguments: a part that is handed a [`clock::Clock`] runs
//! on a virtual one in a test, and a part that is handed a [`tasks::Tasks`] cannot leave a task
//! behind that nobody joins.
//!
//! What is absent on purpose: nothing here reads the environment, prints to standard output, ends
//! the process or knows a kind of the API. The binary does those, from the values returned here.

pub mod clock;
mod error_chain;
pub mod tasks;

pub use error_chain::error_chain;

pub mod children;

pub mod shutdown;

pub mod health;
pub mod metrics;
pub mod telemetry;
