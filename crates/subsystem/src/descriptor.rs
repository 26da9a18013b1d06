//! The description of a subsystem.

use std::fmt;

use crate::access::{Account, Grant};
use crate::admission::SharedHook;
use crate::explain::ExplainPage;
use crate::settings::{Alias, Key, Report, Values};
use crate::start::{Offers, Setup, Starting};

/// A subsystem of Gantry, described once.
#[derive(Clone, Copy)]
pub struct Subsystem {
    /// Its name in logs and on the status page.
    pub name: &'static str,
    /// What it does, in one sentence.
    pub about: &'static str,
    /// Its settings.
    pub settings: SettingsSection,
    /// What of it is switched on by settings, with what that needs.
    pub features: &'static [Feature],
    /// What the operator may do for it.
    pub grants: fn() -> Vec<Grant>,
    /// The accounts that it acts as on the embedded server, and what they may do there.
    pub accounts: fn(&Values) -> Vec<Account>,
    /// Starts what settings switch on.
    pub start: for<'a> fn(Setup<'a>) -> Starting<'a>,
    /// The webhooks that settings switch on. What they decide by beside their settings is offered by the host.
    pub hooks: fn(&Values, &Offers) -> Result<Vec<SharedHook>, serde_json::Error>,
    /// Its pages of `gantry explain`.
    pub explain: &'static [ExplainPage],
    /// The kinds beside its definitions whose objects `gantry gather` collects, as API version and plural. Never
    /// one with secrets.
    pub gather: &'static [(&'static str, &'static str)],
}

impl fmt::Debug for Subsystem {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Subsystem({})", self.name)
    }
}

impl Subsystem {
    /// The features that these settings switch on.
    pub fn enabled(&self, values: &Values) -> impl Iterator<Item = &'static Feature> {
        self.features.iter().filter(move |it| (it.enabled)(values))
    }

    /// The kinds that it cannot do without, by the names of their definitions.
    pub fn definitions(&self) -> impl Iterator<Item = &'static str> {
        self.features.iter().flat_map(|it| it.definitions).copied()
    }
}

/// The settings of a subsystem.
#[derive(Clone, Copy, Debug)]
pub struct SettingsSection {
    /// The keys, in the order they are printed.
    pub keys: &'static [Key],
    /// Other paths by which versions of the original had some of them.
    pub aliases: &'static [Alias],
    /// Checks rules that span keys. Every value has the form of its key already. It may put a key back to its
    /// default, with a warning.
    pub check: fn(&mut Values, &mut Report),
    /// What its decisions are made by, read from values that were checked. A configuration that cannot be read
    /// is refused before anything starts, and a test compares what is read to see that no key is without effect.
    pub read: fn(&Values) -> Result<Box<dyn fmt::Debug>, serde_json::Error>,
}

impl SettingsSection {
    /// A subsystem without settings.
    pub const NONE: Self =
        Self { keys: &[], aliases: &[], check: |_, _| {}, read: |_| Ok(Box::new(())) };
}

/// A part of a subsystem that settings switch on.
#[derive(Clone, Copy)]
pub struct Feature {
    /// Its name in logs.
    pub name: &'static str,
    /// Whether settings switch it on.
    pub enabled: fn(&Values) -> bool,
    /// The kinds that it cannot do without, by the names of their definitions.
    pub definitions: &'static [&'static str],
    /// Its controllers, which can also be switched one by one.
    pub controllers: &'static [ControllerSwitch],
}

impl fmt::Debug for Feature {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Feature({})", self.name)
    }
}

/// A controller that can be switched on and off by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControllerSwitch {
    /// Its name in the configuration.
    pub name: &'static str,
    /// Whether it runs when nothing is said.
    pub on_by_default: bool,
}

impl ControllerSwitch {
    /// A controller that runs unless it is switched off.
    #[must_use]
    pub const fn on(name: &'static str) -> Self {
        Self { name, on_by_default: true }
    }
}
