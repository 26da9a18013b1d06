//! Reads the configuration file of a driver.

use std::collections::BTreeSet;

use gantry_api::decode::Decoded;
use gantry_api::object::Object;
use gantry_reconcile::View as _;
use serde_json::{Value, json};

use super::view::{DeviceDriver, DevicePool, Publication};

/// A driver and the objects it publishes.
#[derive(Clone, Debug, PartialEq)]
pub struct DriverConfig {
    /// The name of the driver.
    pub driver: String,
    /// Its registration and its pools.
    pub publications: Vec<Publication>,
    /// Remarks for the user, a sentence each.
    pub notes: Vec<String>,
}

/// Why a file cannot configure a driver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DriverConfigError {
    /// The file has no pools.
    #[error("it has no DevicePool")]
    NoPools,
    /// The file has pools of several drivers.
    #[error("it has pools of several drivers; name one of them: {}", .0.join(", "))]
    SeveralDrivers(Vec<String>),
    /// The file has no pools of the driver.
    #[error("it has no DevicePool of driver \"{0}\"")]
    NoPoolsOf(String),
    /// An object of a kind that cannot be published.
    #[error("{0} is not an object that a driver publishes; remove it")]
    UnsupportedObject(String),
    /// An object that cannot be serialized.
    #[error("cannot serialize an object: {0}")]
    NotSerializable(String),
}

/// Reads the configuration of a driver from the documents of a file: the named driver, or the only
/// one in it.
///
/// A driver that the file does not register is registered for the types of its pools.
///
/// # Errors
/// There is no such driver, or the file has objects other than drivers and pools.
pub fn driver_config(
    documents: impl IntoIterator<Item = (String, Decoded)>,
    driver: Option<&str>,
) -> Result<DriverConfig, DriverConfigError> {
    let (mut drivers, mut pools) = (Vec::new(), Vec::new());
    for (subject, content) in documents {
        match content {
            Decoded::Object(Object::DeviceDriver(it)) => drivers.push(*it),
            Decoded::Object(Object::DevicePool(it)) => pools.push(*it),
            Decoded::Object(_)
            | Decoded::Nodes(_)
            | Decoded::CapacityClaim(_)
            | Decoded::Foreign(_)
            | Decoded::Refused => return Err(DriverConfigError::UnsupportedObject(subject)),
        }
    }
    let named: BTreeSet<String> = pools.iter().map(|pool| pool.spec.driver.clone()).collect();
    let driver = match (driver, named.len()) {
        (_, 0) => return Err(DriverConfigError::NoPools),
        (Some(driver), _) if named.contains(driver) => driver.to_owned(),
        (Some(driver), _) => return Err(DriverConfigError::NoPoolsOf(driver.to_owned())),
        (None, 1) => named.into_iter().next().unwrap_or_default(),
        (None, _) => return Err(DriverConfigError::SeveralDrivers(named.into_iter().collect())),
    };
    pools.retain(|pool| pool.spec.driver == driver);
    let mut notes = Vec::new();
    let registered = drivers.into_iter().find(|it| it.metadata.name.as_ref() == Some(&driver));
    let types: Vec<String> = match registered {
        Some(registered) => registered.device_types,
        None => {
            let types = pools.iter().filter_map(|pool| pool.spec.device_type.clone());
            types.collect::<BTreeSet<_>>().into_iter().collect()
        }
    };
    let mut publications = Vec::new();
    match types.is_empty() {
        true => notes.push(format!(
            "the device types of {driver} are unknown, so it is not registered: only \
             claims that name the driver find them"
        )),
        false => {
            let object = json!({"metadata": {"name": driver}, "deviceTypes": types});
            publications.push(Publication::new(&DeviceDriver::RESOURCE, object));
        }
    }
    for pool in pools {
        let written = serde_json::to_value(&pool.spec);
        let spec: Value =
            written.map_err(|error| DriverConfigError::NotSerializable(error.to_string()))?;
        let object = json!({"metadata": {"name": pool.metadata.name}, "spec": spec});
        publications.push(Publication::new(&DevicePool::RESOURCE, object));
    }
    Ok(DriverConfig { driver, publications, notes })
}
