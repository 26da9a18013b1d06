//! What placement reads outside of caches: the objects that configure devices.
//!
//! Which of them are read is decided by [`ConfigInquiry`], and what is done with them by the scheduler. Here
//! they are read.

use std::sync::Arc;

use gantry_controller::outside::{AnyInquiry, Asks};
use gantry_process::clock::Clock;
use kube::Client;

use crate::config::ConfigInquiry;

mod configs;

pub use configs::ConfigReader;

/// Has the objects that configure devices read through this client.
#[must_use]
pub fn config_inquiry(client: Client, clock: Clock) -> Arc<dyn AnyInquiry> {
    Arc::new(Asks::new(ConfigInquiry, ConfigReader::new(client, clock)))
}
