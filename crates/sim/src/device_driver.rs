//! A device driver without hardware: it publishes configured device pools, and reports every
//! allocated device as ready.
//!
//! The configuration is recorded as facts ([`Publication`]), so a changed file is a change like any
//! other. The driver owns what it publishes under its name, and of claims only the statuses of its
//! own devices.

mod config;
mod plugin_pools;
mod publish;
mod report;
#[cfg(test)]
mod tests;
mod view;

pub use config::{DriverConfig, DriverConfigError, driver_config};
pub use plugin_pools::DevicePluginPools;
pub use publish::Publisher;
pub use report::DeviceStatusReporter;
pub use view::{DeviceClaim, DeviceDriver, DevicePool, Publication};

/// The label of the objects a driver publishes, by which it finds those to delete.
pub const PUBLISHED_BY_LABEL: &str = "gantry.dev/published-by";
