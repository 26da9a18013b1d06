//! What a file tells a driver to publish.

use std::collections::BTreeSet;

use gantry_api::decode::Decoded;
use gantry_api::object::Object;
use gantry_reconcile::View as _;
use serde_json::{Value, json};

use super::view::{DeviceDriver, DevicePool, Publication};

/// A driver and what it publishes.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// The driver.
    pub driver: String,
    /// Its registration and its pools.
    pub publications: Vec<Publication>,
    /// What should be known besides, a sentence each.
    pub notes: Vec<String>,
}

/// Why a file tells a driver nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ToldError {
    /// There are no pools in it.
    #[error("there is no DevicePool in it")]
    NoPools,
    /// There are pools of several drivers.
    #[error("it has pools of several drivers; say which one this is: {}", .0.join(", "))]
    SeveralDrivers(Vec<String>),
    /// There are none of the driver.
    #[error("it has no DevicePool of driver \"{0}\"")]
    NoPoolsOf(String),
    /// A document cannot be published.
    #[error("{0} is nothing that a driver publishes; leave it out")]
    Strange(String),
    /// An object cannot be written.
    #[error("cannot write an object: {0}")]
    Unwritable(String),
}

/// What the documents of a file tell a driver: the named one, or the only one there is.
///
/// A driver that the file does not register is registered for the types of its pools.
///
/// # Errors
/// There is no such driver, or something else than drivers and pools.
pub fn told(
    documents: impl IntoIterator<Item = (String, Decoded)>,
    driver: Option<&str>,
) -> Result<Told, ToldError> {
    let (mut drivers, mut pools) = (Vec::new(), Vec::new());
    for (subject, content) in documents {
        match content {
            Decoded::Object(Object::DeviceDriver(it)) => drivers.push(*it),
            Decoded::Object(Object::DevicePool(it)) => pools.push(*it),
            Decoded::Object(_)
            | Decoded::Nodes(_)
            | Decoded::CapacityClaim(_)
            | Decoded::Foreign(_)
            | Decoded::Refused => return Err(ToldError::Strange(subject)),
        }
    }
    let named: BTreeSet<String> = pools.iter().map(|pool| pool.spec.driver.clone()).collect();
    let driver = match (driver, named.len()) {
        (_, 0) => return Err(ToldError::NoPools),
        (Some(driver), _) if named.contains(driver) => driver.to_owned(),
        (Some(driver), _) => return Err(ToldError::NoPoolsOf(driver.to_owned())),
        (None, 1) => named.into_iter().next().unwrap_or_default(),
        (None, _) => return Err(ToldError::SeveralDrivers(named.into_iter().collect())),
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
            "nobody says of which types the devices of {driver} are, so it is not registered: only \
             claims that name the driver find them"
        )),
        false => {
            let object = json!({"metadata": {"name": driver}, "deviceTypes": types});
            publications.push(Publication::new(&DeviceDriver::RESOURCE, object));
        }
    }
    for pool in pools {
        let written = serde_json::to_value(&pool.spec);
        let spec: Value = written.map_err(|error| ToldError::Unwritable(error.to_string()))?;
        let object = json!({"metadata": {"name": pool.metadata.name}, "spec": spec});
        publications.push(Publication::new(&DevicePool::RESOURCE, object));
    }
    Ok(Told { driver, publications, notes })
}
