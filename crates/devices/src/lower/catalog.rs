//! Drivers and classes, by name.

use std::collections::{BTreeMap, BTreeSet};

use gantry_api::devices::{ClassSpec, DeviceClass, DeviceDriver, PoolSpec};
use gantry_api::finding::Source;

/// The drivers with the device types they handle, and the device classes.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    source: Source,
    drivers: BTreeMap<String, BTreeSet<String>>,
    classes: BTreeMap<String, ClassSpec>,
}

impl Catalog {
    /// Creates the catalog of the drivers and classes of a cluster or of files.
    #[must_use]
    pub fn new<'a>(
        source: Source,
        drivers: impl IntoIterator<Item = &'a DeviceDriver>,
        classes: impl IntoIterator<Item = &'a DeviceClass>,
    ) -> Self {
        let name = |name: &Option<String>| name.clone().unwrap_or_default();
        let types = |driver: &DeviceDriver| driver.device_types.iter().cloned().collect();
        let drivers = drivers.into_iter().map(|d| (name(&d.metadata.name), types(d))).collect();
        let classes = classes.into_iter().map(|c| (name(&c.metadata.name), c.spec.clone()));
        Self { source, drivers, classes: classes.collect() }
    }

    /// Returns where the objects come from.
    #[must_use]
    pub fn source(&self) -> Source {
        self.source
    }

    /// Returns a class.
    #[must_use]
    pub fn class(&self, name: &str) -> Option<&ClassSpec> {
        self.classes.get(name)
    }

    /// Returns the registered drivers that serve a class, by name. Without any the class is not
    /// ready.
    #[must_use]
    pub fn drivers_of(&self, class: &ClassSpec) -> Vec<&str> {
        let serves = |(name, types): &(&String, &BTreeSet<String>)| {
            types.contains(&class.device_type)
                && class.driver.as_ref().is_none_or(|only| only == *name)
        };
        self.drivers.iter().filter(serves).map(|(name, _)| name.as_str()).collect()
    }

    /// Whether neither driver nor pool determines the type of a pool's devices, so that they count
    /// as each.
    #[must_use]
    pub fn is_ambiguous(&self, pool: &PoolSpec) -> bool {
        self.types_of(pool).len() > 1
    }

    /// Whether there is any class at all. The oldest files name classes that never existed.
    pub(super) fn has_classes(&self) -> bool {
        !self.classes.is_empty()
    }

    /// Returns the classes of a type without administrator access, by name.
    pub fn of_type<'a>(
        &'a self,
        device_type: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a ClassSpec)> {
        self.classes_of(device_type).filter(|(_, class)| !class.admin_access)
    }

    /// Returns the classes of a type, by name.
    pub(super) fn classes_of<'a>(
        &'a self,
        device_type: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a ClassSpec)> {
        let of_type =
            self.classes.iter().filter(move |(_, class)| class.device_type == device_type);
        of_type.map(|(name, class)| (name.as_str(), class))
    }

    /// Returns the types of a pool's devices: one, unless driver and pool leave it open.
    ///
    /// A driver serves the types it is registered for and no others. Files need not contain the
    /// driver: then the pool's own type is used.
    pub(super) fn types_of(&self, pool: &PoolSpec) -> Vec<String> {
        match (&pool.device_type, self.drivers.get(&pool.driver), self.source) {
            (Some(device_type), Some(registered), _) => {
                registered.get(device_type).into_iter().cloned().collect()
            }
            (Some(device_type), None, Source::File) => vec![device_type.clone()],
            (None, Some(registered), _) => registered.iter().cloned().collect(),
            (Some(_) | None, None, Source::Server) | (None, None, Source::File) => Vec::new(),
        }
    }
}
