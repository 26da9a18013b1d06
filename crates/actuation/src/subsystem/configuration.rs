//! The section `actuation` of the configuration.

use std::path::PathBuf;
use std::time::Duration;

use gantry_subsystem::settings::read::length;
use gantry_subsystem::settings::{
    ConfigReport, DefaultValue, Effect, Key, ValueType, Values, ZeroMeaning,
};
use serde::Deserialize;

use crate::settings::Settings;

const LITERAL: ValueType = ValueType::Duration { zero: ZeroMeaning::Literal };
const DURATION: ValueType = ValueType::Duration { zero: ZeroMeaning::Default };

/// A key that takes effect while the controllers run.
const fn live(
    path: &'static str,
    value_type: ValueType,
    default: DefaultValue,
    about: &'static str,
) -> Key {
    Key { path, value_type, default, effect: Effect::Live, about }
}

/// A key that takes effect after a restart.
const fn fixed(
    path: &'static str,
    value_type: ValueType,
    default: DefaultValue,
    about: &'static str,
) -> Key {
    Key { path, value_type, default, effect: Effect::Restart, about }
}

/// The keys of actuation.
pub const KEYS: &[Key] = &[
    fixed(
        "actuation.enabled",
        ValueType::Bool,
        DefaultValue::Flag(false),
        "Whether pods that request models are paired with pods that serve them.",
    ),
    fixed(
        "actuation.namespace",
        ValueType::Namespace,
        DefaultValue::Unset,
        "The only namespace whose pods are paired. All namespaces, if it is not set.",
    ),
    fixed(
        "actuation.population.enabled",
        ValueType::Bool,
        DefaultValue::Flag(true),
        "Whether the stock of launchers is kept that LauncherPopulationPolicies ask for.",
    ),
    live(
        "actuation.sleeperLimit",
        ValueType::Integer { min: 0, max: i32::MAX, zero: ZeroMeaning::Literal },
        DefaultValue::Count(1),
        "How many sleeping direct providers may share an accelerator with an awake one.",
    ),
    live(
        "actuation.drainLimit",
        LITERAL,
        DefaultValue::Text("10s"),
        "How long an engine may finish requests before it is put to sleep; 0s does so at once.",
    ),
    live(
        "actuation.unbindingLimit",
        DURATION,
        DefaultValue::Text("1m0s"),
        "How long an engine may take to go to sleep before it is deleted.",
    ),
    live(
        "actuation.startLimit",
        DURATION,
        DefaultValue::Text("30m0s"),
        "How long a new engine may take to answer before its requester is deleted.",
    ),
    live(
        "actuation.relayUnready",
        ValueType::Bool,
        DefaultValue::Flag(true),
        "Whether a requester becomes unready when its launcher or engine does not answer.",
    ),
    live(
        "actuation.unreadyLimit",
        DURATION,
        DefaultValue::Text("10s"),
        "How long a bound launcher may be unready before its requester becomes unready.",
    ),
    live(
        "actuation.renewalInterval",
        DURATION,
        DefaultValue::Text("30s"),
        "How often an engine that serves is asked whether it sleeps.",
    ),
    live(
        "actuation.retention",
        LITERAL,
        DefaultValue::Text("0s"),
        "How long launchers beyond the policies are kept for the instances that sleep in them.",
    ),
    live(
        "actuation.failedGracePeriod",
        LITERAL,
        DefaultValue::Text("10s"),
        "How long a launcher that has failed is kept before it is replaced.",
    ),
    live(
        "actuation.stuckSchedulingThreshold",
        DURATION,
        DefaultValue::Text("2m0s"),
        "After how long a launcher that is not scheduled is reported as stuck.",
    ),
    live(
        "actuation.stuckStartingThreshold",
        DURATION,
        DefaultValue::Text("7m30s"),
        "After how long a scheduled launcher that is not ready is reported as stuck.",
    ),
    live(
        "actuation.notifierCommand",
        ValueType::Texts,
        DefaultValue::Empty,
        "The command of the sidecar of launchers. If it is empty, python3 \
         /app/launcher_pod_notifier.py.",
    ),
    live(
        "actuation.debugAcceleratorMemory",
        ValueType::Bool,
        DefaultValue::Flag(false),
        "Whether an engine is woken only while each of its accelerators has at most 4 GiB in use \
         for each sleeper that sleeperLimit allows, as its requester reports.",
    ),
    fixed(
        "actuation.tokenFile",
        ValueType::Text,
        DefaultValue::Text(""),
        "A file with the bearer token that requesters and launchers ask for, such as a mounted \
         Secret; it is read again every minute. Without one, no token is sent.",
    ),
    fixed(
        "actuation.allowLoopback",
        ValueType::Bool,
        DefaultValue::Flag(false),
        "Whether pods may have loopback addresses, as those of simulated nodes on this machine do. \
         Otherwise such an address is never called.",
    ),
];

/// The configuration of actuation.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "these are settings, one by one")]
pub struct Configuration {
    /// Whether pods are paired.
    pub enabled: bool,
    /// The only namespace; all without one.
    pub namespace: Option<String>,
    /// The stock of launchers.
    pub population: PopulationSection,
    /// The file of the token; empty for none.
    pub token_file: PathBuf,
    /// Whether pods may have loopback addresses.
    pub allow_loopback: bool,
    sleeper_limit: u32,
    #[serde(deserialize_with = "length")]
    drain_limit: Duration,
    #[serde(deserialize_with = "length")]
    unbinding_limit: Duration,
    #[serde(deserialize_with = "length")]
    start_limit: Duration,
    relay_unready: bool,
    #[serde(deserialize_with = "length")]
    unready_limit: Duration,
    #[serde(deserialize_with = "length")]
    renewal_interval: Duration,
    #[serde(deserialize_with = "length")]
    retention: Duration,
    #[serde(deserialize_with = "length")]
    failed_grace_period: Duration,
    #[serde(deserialize_with = "length")]
    stuck_scheduling_threshold: Duration,
    #[serde(deserialize_with = "length")]
    stuck_starting_threshold: Duration,
    notifier_command: Vec<String>,
    debug_accelerator_memory: bool,
}

/// The section `actuation.population`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PopulationSection {
    /// Whether the stock of launchers is kept.
    pub enabled: bool,
}

impl Configuration {
    /// Reads checked values.
    ///
    /// # Errors
    /// The values were not checked.
    pub fn read(values: &Values) -> Result<Self, serde_json::Error> {
        values.section("actuation")
    }

    /// The settings that plans use.
    #[must_use]
    pub fn settings(&self) -> Settings {
        let defaults = Settings::default();
        Settings {
            sleeper_limit: usize::try_from(self.sleeper_limit).unwrap_or(usize::MAX),
            drain_limit: self.drain_limit,
            unbinding_limit: self.unbinding_limit,
            start_limit: self.start_limit,
            unready_limit: self.unready_limit,
            relays_unready: self.relay_unready,
            renewal_interval: self.renewal_interval,
            notifier_command: match self.notifier_command.is_empty() {
                true => defaults.notifier_command,
                false => self.notifier_command.clone(),
            },
            retention: self.retention,
            failed_grace: self.failed_grace_period,
            stuck_scheduling: self.stuck_scheduling_threshold,
            stuck_starting: self.stuck_starting_threshold,
            checks_memory: self.debug_accelerator_memory,
        }
    }
}

/// Checks the rules that span several keys.
pub fn check(values: &mut Values, report: &mut ConfigReport) {
    const LEAST_RENEWAL: Duration = Duration::from_secs(1);
    let key = "actuation.renewalInterval";
    if report.has_error_for(&[key]) {
        return;
    }
    if Configuration::read(values).is_ok_and(|it| it.renewal_interval < LEAST_RENEWAL) {
        let text = format!("found {}, expected at least 1s", values.text(key));
        report.refuse(values, key, text);
    }
}
