//! Reads what placement needs from outside of caches: the objects that configure devices.
//!
//! [`ConfigInquiry`] decides which of them are read, and the scheduler decides what is done with
//! them. This module reads them.

use std::sync::Arc;

use gantry_controller::external::{AnyInquiry, InquiryWithResponder};
use gantry_process::clock::Clock;
use kube::Client;

use crate::config::ConfigInquiry;

mod configs;

pub use configs::ConfigReader;

/// Creates the inquiry that reads the objects that configure devices through this client.
#[must_use]
pub fn config_inquiry(client: Client, clock: Clock) -> Arc<dyn AnyInquiry> {
    Arc::new(InquiryWithResponder::new(ConfigInquiry, ConfigReader::new(client, clock)))
}
