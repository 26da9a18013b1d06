//! A small engine: a transformer with weights made from a seed, served as large engines are.
//!
//! It takes memory of accelerators, which ledgers record, sleeps, wakes, and fails on request. As
//! with large engines a child process ([`core_process`]) holds the memory and the model: killing
//! the root alone leaks both.

mod completion;
mod core_child;
pub mod core_process;
pub mod fault;
pub(crate) mod link;
pub mod model;
pub mod options;
mod server;
mod state;

pub use options::Arguments;
pub use server::run;
