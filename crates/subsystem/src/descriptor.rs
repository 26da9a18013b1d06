//! The description of a subsystem.

use std::fmt;

use crate::access::{Account, Grant};
use crate::admission::SharedHook;
use crate::explain::ExplainPage;
use crate::settings::{Alias, ConfigReport, Key, Values};
use crate::start::{HostExtensions, Setup, StartFuture};

/// A subsystem of Gantry, described once.
#[derive(Clone, Copy)]
pub struct Subsystem {
    /// Its name in logs and on the status page.
    pub name: &'static str,
    /// What it does, in one sentence.
    pub about: &'static str,
    /// Its settings.
    pub settings: SettingsSection,
    /// The features that settings enable, and what they need.
    pub features: &'static [Feature],
    /// The permissions of the operator for it.
    pub grants: fn() -> Vec<Grant>,
    /// Its accounts on the embedded server, with their permissions.
    pub accounts: fn(&Values) -> Vec<Account>,
    /// Starts what settings enable.
    pub start: for<'a> fn(Setup<'a>) -> StartFuture<'a>,
    /// Returns the webhooks that settings enable. What they need beside the settings is offered by
    /// the host.
    pub hooks: fn(&Values, &HostExtensions) -> Result<Vec<SharedHook>, serde_json::Error>,
    /// Its sections of `gantry explain`.
    pub explain: &'static [ExplainPage],
    /// The kinds beside its definitions whose objects `gantry gather` collects, as API version and
    /// plural. Never a kind with secrets.
    pub gather: &'static [(&'static str, &'static str)],
}

impl fmt::Debug for Subsystem {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Subsystem({})", self.name)
    }
}

impl Subsystem {
    /// Returns the features that these settings enable.
    pub fn enabled(&self, values: &Values) -> impl Iterator<Item = &'static Feature> {
        self.features.iter().filter(move |it| (it.enabled)(values))
    }

    /// Returns the kinds that it requires, by the names of their definitions.
    pub fn definitions(&self) -> impl Iterator<Item = &'static str> {
        self.features.iter().flat_map(|it| it.definitions).copied()
    }
}

/// The settings of a subsystem.
#[derive(Clone, Copy, Debug)]
pub struct SettingsSection {
    /// The keys, in the order they are printed.
    pub keys: &'static [Key],
    /// Other paths of some keys in versions of the original.
    pub aliases: &'static [Alias],
    /// Checks rules that span keys. Every value already has the type of its key. It may reset a key
    /// to its default, with a warning.
    pub check: fn(&mut Values, &mut ConfigReport),
    /// Reads its settings from checked values. A configuration that cannot be read is rejected
    /// before anything starts, and a test compares the result to verify that every key has an
    /// effect.
    pub read: fn(&Values) -> Result<Box<dyn fmt::Debug>, serde_json::Error>,
}

impl SettingsSection {
    /// Returns the settings of a subsystem that has none.
    pub const NONE: Self =
        Self { keys: &[], aliases: &[], check: |_, _| {}, read: |_| Ok(Box::new(())) };
}

/// A feature of a subsystem that settings enable.
#[derive(Clone, Copy)]
pub struct Feature {
    /// Its name in logs.
    pub name: &'static str,
    /// Returns whether settings enable it.
    pub enabled: fn(&Values) -> bool,
    /// The kinds that it requires, by the names of their definitions.
    pub definitions: &'static [&'static str],
    /// Its controllers, which can also be enabled one by one.
    pub controllers: &'static [ControllerSwitch],
}

impl fmt::Debug for Feature {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Feature({})", self.name)
    }
}

/// A controller that can be enabled and disabled by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControllerSwitch {
    /// Its name in the configuration.
    pub name: &'static str,
    /// Whether it runs by default.
    pub on_by_default: bool,
}

impl ControllerSwitch {
    /// Creates a controller that runs unless it is disabled.
    #[must_use]
    pub const fn on(name: &'static str) -> Self {
        Self { name, on_by_default: true }
    }
}
