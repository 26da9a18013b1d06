//! The programs that serve models, and what stands in for an accelerator where there is none.
//!
//! [`requester`] is the stub that holds the allocation of accelerators: probes, the interface of
//! the controllers, a proxy. [`launcher`] starts engines as its children. [`notifier`] makes the
//! states of engines events of a pod. [`tiny`] is an engine: a small transformer that takes memory,
//! sleeps, wakes and fails as a large one does. The memory is recorded in [`ledger`]s, one for each
//! accelerator, which [`vendor_tool`] prints as the tool of the vendor does.
//!
//! Each program is a function of its arguments and a [`Host`]: it runs in a simulated pod, and as a
//! command of the binary. What a protocol means is decided by pure functions (`log_range`, `spi`,
//! `instance_table`, `allocation`, `fault`); listening, starting processes and waiting are apart.

mod detached;
mod exchange;
mod executable;

pub mod command_line;
pub mod confinement;
pub mod host;
pub mod kubernetes;

pub mod allocation;
pub mod ledger;
pub mod vendor_tool;

pub mod launcher;
pub mod notifier;
pub mod requester;
pub mod tiny;

pub mod programs;

pub use command_line::{CommandLineError, Invocation, Program};
pub use host::Host;
