//! The far end of provisioning: acts on the host that it runs on.
//!
//! [`run`] reads requests from one pipe and writes replies to another. What is done in which order,
//! and what is journaled, is decided in `gantry_provision::serve`; this crate is the machine that
//! it is done on. With a root folder other than `/`, paths and programs are those below it.

mod files;
mod machine;
mod pipes;
mod programs;

pub use machine::HostMachine;
pub use pipes::{HandsError, run};
