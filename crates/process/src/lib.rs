//! Process-wide services: clock, tasks, child processes, shutdown, health, metrics and logs.
//!
//! This crate is the only caller of `now` and `spawn`; every other crate takes time and tasks as
//! arguments. Code that is given a [`clock::Clock`] runs on a virtual one in a test, and code that
//! is given a [`tasks::Tasks`] cannot leave a task behind that is never joined.
//!
//! Nothing here reads the environment, prints to standard output, ends the process or knows a kind
//! of the API. The binary does those, from the values returned here.

pub mod clock;
mod error_chain;
pub mod tasks;

pub use error_chain::error_chain;

pub mod children;
pub mod descendants;

pub mod shutdown;

pub mod health;
pub mod metrics;
pub mod telemetry;
