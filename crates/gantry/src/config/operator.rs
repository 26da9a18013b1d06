//! The unified configuration of the operator: one typed, complete and valid structure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gantry_api::schema::nearest;
use gantry_controller::lease::{Timing, TimingError};
use gantry_process::health::{BindAddress, Endpoints};
use gantry_subsystem::ControllerSwitch;
use gantry_subsystem::settings::read;
use serde_json::Value;

use super::duration;
use super::keys::KEYS;
use super::values::{ConfigMessage, ConfigReport, Layer, Origin, Values};
use crate::subsystems::SUBSYSTEMS;

mod metrics;

/// The settings of the operator itself, named as the keys of the file. Every value is valid, and
/// zeros that stand for a default have been replaced by it. Subsystems read their own sections
/// ([`Values::section`]).
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OperatorSettings {
    /// The connection to the API server.
    pub client_connection: ClientConnection,
    /// The settings of the log.
    pub logging: Logging,
    /// The settings of the metrics server.
    pub metrics: MetricsServer,
    /// The settings of the probes.
    pub health: HealthServer,
    /// The settings of leader election.
    pub leader_election: LeaderElection,
    /// Which controllers are enabled by name; see [`OperatorSettings::is_controller_enabled`].
    controllers: Option<ControllerSwitches>,
    /// Read and not used.
    #[expect(dead_code, reason = "deserialised so that no key is unknown")]
    kuberay: Value,
    /// Read and not used.
    #[expect(dead_code, reason = "deserialised so that no key is unknown")]
    appwrapper: Value,
}

/// The connection to the API server.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClientConnection {
    /// Requests per second; negative means no limit. See [`ClientConnection::rate`].
    pub qps: f64,
    /// How many requests may exceed the rate for a moment.
    pub burst: u32,
    /// The kubeconfig file; empty for the default locations.
    pub kubeconfig: String,
    /// Read and not used.
    pub accept_content_types: String,
    /// Read and not used.
    pub content_type: String,
}

impl ClientConnection {
    /// Returns requests per second and burst; `None` if there is no limit.
    #[must_use]
    pub fn rate(&self) -> Option<(f64, u32)> {
        (self.qps > 0.0).then_some((self.qps, self.burst))
    }
}

/// The settings of the log.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Logging {
    /// The verbosity; `None` if it is not set.
    pub verbosity: Option<u8>,
}

/// The settings of the metrics server.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MetricsServer {
    /// The address.
    #[serde(deserialize_with = "read::parsed")]
    pub bind_address: BindAddress,
    /// Whether metrics need TLS and a token; always true, unless the address is loopback.
    pub secure_serving: bool,
    /// The certificate file; empty for a self-signed certificate.
    pub cert_file: String,
    /// The key file; empty if the certificate file is.
    pub key_file: String,
}

/// The settings of the probes.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HealthServer {
    /// The address.
    #[serde(deserialize_with = "read::parsed")]
    pub bind_address: BindAddress,
    /// The path of the readiness probe.
    pub readiness_endpoint_name: String,
    /// The path of the liveness probe.
    pub liveness_endpoint_name: String,
}

impl HealthServer {
    /// Returns both paths.
    #[must_use]
    pub fn endpoints(&self) -> Endpoints {
        Endpoints::new(&self.liveness_endpoint_name, &self.readiness_endpoint_name)
            .unwrap_or_default()
    }

    /// Returns whether a probe is served under this name.
    #[must_use]
    pub fn serves_probe(&self, name: &str) -> bool {
        let names = [&self.readiness_endpoint_name, &self.liveness_endpoint_name];
        names.iter().any(|it| it.strip_prefix('/').unwrap_or(it) == name)
    }
}

/// The settings of leader election.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LeaderElection {
    /// Whether only the holder of the lease acts.
    pub leader_elect: bool,
    /// How long candidates wait for a leader that does not renew the lease.
    #[serde(deserialize_with = "read::length")]
    pub lease_duration: Duration,
    /// How long the leader tries to renew the lease.
    #[serde(deserialize_with = "read::length")]
    pub renew_deadline: Duration,
    /// How long candidates and leader wait between two attempts.
    #[serde(deserialize_with = "read::length")]
    pub retry_period: Duration,
    /// Always `leases`.
    pub resource_lock: String,
    /// The name of the lease.
    pub resource_name: String,
    /// The namespace of the lease; `None` for the operator's own.
    pub resource_namespace: Option<String>,
}

#[derive(Clone, Debug, serde::Deserialize)]
#[serde(untagged)]
enum ControllerSwitches {
    /// Named controllers are switched on or off, the others keep their default. Null is the
    /// default.
    These(BTreeMap<String, Option<bool>>),
    /// Only named controllers run.
    Only(BTreeSet<String>),
}

impl OperatorSettings {
    /// Converts checked values into the settings.
    pub(crate) fn from_values(values: &Values) -> Result<Self, serde_json::Error> {
        let mut tree = values.tree();
        if let Value::Object(sections) = &mut tree {
            let keys = SUBSYSTEMS.iter().flat_map(|it| it.settings.keys);
            for section in keys.filter_map(|key| key.path.split('.').next()) {
                sections.remove(section);
            }
        }
        serde_json::from_value(tree)
    }

    /// Returns whether a controller is enabled by name. Switches of whole subsystems, such as
    /// `mcadEnabled`, are not considered.
    #[must_use]
    pub fn is_controller_enabled(&self, controller: ControllerSwitch) -> bool {
        match &self.controllers {
            None => controller.on_by_default,
            Some(ControllerSwitches::Only(names)) => names.contains(controller.name),
            Some(ControllerSwitches::These(names)) => {
                names.get(controller.name).copied().flatten().unwrap_or(controller.on_by_default)
            }
        }
    }
}

/// A valid configuration.
#[derive(Clone, Debug)]
pub struct CheckedConfig {
    /// The settings of the operator.
    pub settings: OperatorSettings,
    /// Every value with its source.
    pub values: Values,
    /// Warnings about values that may be mistakes.
    pub warnings: Vec<ConfigMessage>,
    /// The unknown keys.
    pub unknown: Vec<String>,
}

/// Merges layers over the defaults, later ones over earlier ones, and checks the result as a whole.
///
/// `report` has the findings of reading the layers; `controllers` are the existing controllers.
///
/// # Errors
/// Everything that is wrong, not only the first problem.
pub fn merge_and_check<'a>(
    layers: impl IntoIterator<Item = &'a Layer>,
    mut report: ConfigReport,
    controllers: &[ControllerSwitch],
) -> Result<CheckedConfig, ConfigReport> {
    let mut values = Values::from_layers(KEYS.as_slice(), layers);
    check_names(&values, controllers, &mut report);
    check_times(&values, &mut report);
    check_endpoints(&values, &mut report);
    metrics::check(&values, &mut report);
    for subsystem in SUBSYSTEMS {
        (subsystem.settings.check)(&mut values, &mut report);
    }
    if !report.errors.is_empty() {
        return Err(report);
    }
    let read = || -> Result<OperatorSettings, serde_json::Error> {
        for subsystem in SUBSYSTEMS {
            (subsystem.settings.read)(&values)?;
        }
        OperatorSettings::from_values(&values)
    };
    match read() {
        Ok(settings) => {
            let ConfigReport { errors: _, warnings, unknown_keys: unknown } = report;
            Ok(CheckedConfig { settings, values, warnings, unknown })
        }
        // The types of the keys and the structure disagree. A test covers every key, so this does
        // not happen; if it does, it is an error and not a panic.
        Err(error) => {
            let text = format!("cannot be used: {error}");
            report.errors.push(ConfigMessage { origin: Origin::Default, key: String::new(), text });
            Err(report)
        }
    }
}

fn refuse(values: &Values, report: &mut ConfigReport, key: &str, text: String) {
    report.refuse(values, key, text);
}

fn check_names(values: &Values, controllers: &[ControllerSwitch], report: &mut ConfigReport) {
    let named: Vec<&str> = match values.get("controllers") {
        Value::Object(switches) => switches.keys().map(String::as_str).collect(),
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    };
    let known = || controllers.iter().map(|controller| controller.name);
    for name in named.into_iter().filter(|name| known().all(|known| known != *name)) {
        let remedy = match nearest(name, known()) {
            Some(near) => format!("did you mean {near}?"),
            None => match known().collect::<Vec<_>>().join(", ") {
                all if all.is_empty() => "this build has no controllers to choose from".to_owned(),
                all => format!("choose from {all}"),
            },
        };
        let text = format!("there is no controller {name:?}; {remedy}");
        refuse(values, report, "controllers", text);
    }
}

const LEASE_DURATION_KEY: &str = "leaderElection.leaseDuration";
const RENEW_DEADLINE_KEY: &str = "leaderElection.renewDeadline";
const RETRY_PERIOD_KEY: &str = "leaderElection.retryPeriod";

/// Checks the relations without which an election may have two leaders or none.
fn check_times(values: &Values, report: &mut ConfigReport) {
    let time = |key| values.get(key).as_str().and_then(duration::parse).unwrap_or_default();
    let (lease, renew, retry) =
        (time(LEASE_DURATION_KEY), time(RENEW_DEADLINE_KEY), time(RETRY_PERIOD_KEY));
    if lease <= renew && !report.has_error_for(&[LEASE_DURATION_KEY, RENEW_DEADLINE_KEY]) {
        require_less(values, report, (RENEW_DEADLINE_KEY, renew), (LEASE_DURATION_KEY, lease), "");
    }
    // The wait between two attempts is drawn from the period and a fifth more.
    if renew <= retry.mul_f64(1.2) && !report.has_error_for(&[RENEW_DEADLINE_KEY, RETRY_PERIOD_KEY])
    {
        require_less(
            values,
            report,
            (RETRY_PERIOD_KEY, retry),
            (RENEW_DEADLINE_KEY, renew),
            ", by a fifth at least",
        );
    }
    // With leader election more is needed: time to retry, and time for the last write to arrive.
    let elect = values.get("leaderElection.leaderElect") == true;
    if !elect || report.has_error_for(&[LEASE_DURATION_KEY, RENEW_DEADLINE_KEY, RETRY_PERIOD_KEY]) {
        return;
    }
    match (Timing { lease, renew_deadline: renew, retry }).checked() {
        Ok(_) => {}
        Err(error @ TimingError::Retry(_)) => {
            refuse(values, report, RETRY_PERIOD_KEY, error.to_string());
        }
        Err(error @ TimingError::Deadline(_)) => {
            refuse(values, report, RENEW_DEADLINE_KEY, error.to_string());
        }
    }
}

/// Requires one duration to be less than another; the error is about the one that is set in a
/// source.
fn require_less(
    values: &Values,
    report: &mut ConfigReport,
    (less, short): (&str, Duration),
    (more, long): (&str, Duration),
    much: &str,
) {
    let (short, long) = (duration::write(short), duration::write(long));
    let written = |key| values.origin(key) != Origin::Default;
    if written(more) && !written(less) {
        let text = format!("found {long}, expected more than {less}, which is {short}{much}");
        refuse(values, report, more, text);
    } else {
        let text = format!("found {short}, expected less than {more}, which is {long}{much}");
        refuse(values, report, less, text);
    }
}

fn check_endpoints(values: &Values, report: &mut ConfigReport) {
    const LIVE: &str = "health.livenessEndpointName";
    const READY: &str = "health.readinessEndpointName";
    if report.has_error_for(&[LIVE, READY]) {
        return;
    }
    let text = |key| values.get(key).as_str().unwrap_or_default();
    if let Err(error) = Endpoints::new(text(LIVE), text(READY)) {
        // A name that is invalid is also reported next to the default of the other key.
        let key = if Endpoints::new(text(LIVE), "").is_err() { LIVE } else { READY };
        refuse(values, report, key, error.to_string());
    }
}

#[cfg(test)]
mod tests;
