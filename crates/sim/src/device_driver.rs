//! A driver that has no hardware: it publishes the pools that it is told of, and says of every device
//! that somebody gets that it is ready.
//!
//! What it is told of are facts ([`Publication`]), so a file that changes is news like any other. It
//! owns what it publishes under the name of the driver, and of claims only the statuses of its own
//! devices.

mod publish;
mod report;
#[cfg(test)]
mod tests;
mod told;
mod view;

pub use publish::Publisher;
pub use report::Reporter;
pub use told::{Told, ToldError, told};
pub use view::{DeviceClaim, DeviceDriver, DevicePool, Publication};

/// The label of what a driver publishes, by which it knows what to take back.
pub const LABEL: &str = "gantry.dev/published-by";
