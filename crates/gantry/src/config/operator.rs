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
use super::values::{Layer, Origin, Remark, Report, Values};
use crate::subsystems::SUBSYSTEMS;

mod metrics;

/// The settings of the operator itself, as the keys of the file are named. Every value is valid, and zeros that
/// stand for a default have been replaced by it. Subsystems read their own sections ([`Values::section`]).
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Operator {
    /// How the API server is reached.
    pub client_connection: ClientConnection,
    /// What is logged.
    pub logging: Logging,
    /// Where metrics are served.
    pub metrics: MetricsServer,
    /// Where probes are answered.
    pub health: HealthServer,
    /// Who acts if there are several.
    pub leader_election: LeaderElection,
    /// Which controllers were chosen by name; see [`Operator::runs`].
    controllers: Option<Switches>,
    /// Read and not used.
    #[expect(dead_code, reason = "deserialised so that no key is unknown")]
    kuberay: Value,
    /// Read and not used.
    #[expect(dead_code, reason = "deserialised so that no key is unknown")]
    appwrapper: Value,
}

/// How the API server is reached.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClientConnection {
    /// Requests per second; negative is without limit. See [`ClientConnection::rate`].
    pub qps: f64,
    /// Requests that may exceed the rate for a moment.
    pub burst: u32,
    /// The kubeconfig file; empty for the usual places.
    pub kubeconfig: String,
    /// Read and not used.
    pub accept_content_types: String,
    /// Read and not used.
    pub content_type: String,
}

impl ClientConnection {
    /// Requests per second and burst; none if there is no limit.
    #[must_use]
    pub fn rate(&self) -> Option<(f64, u32)> {
        (self.qps > 0.0).then_some((self.qps, self.burst))
    }
}

/// What is logged.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Logging {
    /// How much; none if nobody said.
    pub verbosity: Option<u8>,
}

/// Where metrics are served.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MetricsServer {
    /// The address.
    #[serde(deserialize_with = "read::parsed")]
    pub bind_address: BindAddress,
    /// Whether that takes TLS and a token; always, unless the address is loopback.
    pub secure_serving: bool,
    /// The file of the certificate; empty for a self-signed one.
    pub cert_file: String,
    /// The file of its key; empty if that of the certificate is.
    pub key_file: String,
}

/// Where probes are answered.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HealthServer {
    /// The address.
    #[serde(deserialize_with = "read::parsed")]
    pub bind_address: BindAddress,
    /// The path of readiness.
    pub readiness_endpoint_name: String,
    /// The path of liveness.
    pub liveness_endpoint_name: String,
}

impl HealthServer {
    /// Both paths.
    #[must_use]
    pub fn endpoints(&self) -> Endpoints {
        Endpoints::new(&self.liveness_endpoint_name, &self.readiness_endpoint_name)
            .unwrap_or_default()
    }

    /// Whether a probe is answered under this name.
    #[must_use]
    pub fn answers(&self, name: &str) -> bool {
        let names = [&self.readiness_endpoint_name, &self.liveness_endpoint_name];
        names.iter().any(|it| it.strip_prefix('/').unwrap_or(it) == name)
    }
}

/// Who acts if there are several.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LeaderElection {
    /// Whether only the holder of the lease acts.
    pub leader_elect: bool,
    /// How long others wait for a holder that is silent.
    #[serde(deserialize_with = "read::length")]
    pub lease_duration: Duration,
    /// How long the holder tries to renew.
    #[serde(deserialize_with = "read::length")]
    pub renew_deadline: Duration,
    /// How long everyone waits between two attempts.
    #[serde(deserialize_with = "read::length")]
    pub retry_period: Duration,
    /// Always `leases`.
    pub resource_lock: String,
    /// The name of the lease.
    pub resource_name: String,
    /// Its namespace; none for the operator's own.
    pub resource_namespace: Option<String>,
}

#[derive(Clone, Debug, serde::Deserialize)]
#[serde(untagged)]
enum Switches {
    /// Those that are named run or not, the others as usual. Null is as usual.
    These(BTreeMap<String, Option<bool>>),
    /// Those that are named run, the others do not.
    Only(BTreeSet<String>),
}

impl Operator {
    /// The structure of values that were checked.
    pub(crate) fn of(values: &Values) -> Result<Self, serde_json::Error> {
        let mut tree = values.tree();
        if let Value::Object(sections) = &mut tree {
            let keys = SUBSYSTEMS.iter().flat_map(|it| it.settings.keys);
            for section in keys.filter_map(|key| key.path.split('.').next()) {
                sections.remove(section);
            }
        }
        serde_json::from_value(tree)
    }

    /// Whether a controller was chosen to run. Switches of whole subsystems, such as `mcadEnabled`,
    /// are not looked at.
    #[must_use]
    pub fn runs(&self, controller: ControllerSwitch) -> bool {
        match &self.controllers {
            None => controller.on_by_default,
            Some(Switches::Only(names)) => names.contains(controller.name),
            Some(Switches::These(names)) => {
                names.get(controller.name).copied().flatten().unwrap_or(controller.on_by_default)
            }
        }
    }
}

/// A configuration that can be used.
#[derive(Clone, Debug)]
pub struct Checked {
    /// What to do.
    pub settings: Operator,
    /// Every value, and where it came from.
    pub values: Values,
    /// What was accepted and may not be meant.
    pub warnings: Vec<Remark>,
    /// The keys that nobody knows.
    pub unknown: Vec<String>,
}

/// Puts layers upon the defaults, later ones over earlier ones, and checks the whole.
///
/// `report` is what reading the layers brought up; `controllers` are those that exist.
///
/// # Errors
/// Everything that is wrong, not only the first.
pub fn settle<'a>(
    layers: impl IntoIterator<Item = &'a Layer>,
    mut report: Report,
    controllers: &[ControllerSwitch],
) -> Result<Checked, Report> {
    let mut values = Values::stack(KEYS.as_slice(), layers);
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
    let read = || -> Result<Operator, serde_json::Error> {
        for subsystem in SUBSYSTEMS {
            (subsystem.settings.read)(&values)?;
        }
        Operator::of(&values)
    };
    match read() {
        Ok(settings) => {
            let Report { errors: _, warnings, unknown } = report;
            Ok(Checked { settings, values, warnings, unknown })
        }
        // The forms of the keys and the structure disagree. A test walks through every key, so
        // that this is not met; if it is, it is still an answer and no panic.
        Err(error) => {
            let text = format!("cannot be used: {error}");
            report.errors.push(Remark { origin: Origin::Default, key: String::new(), text });
            Err(report)
        }
    }
}

fn refuse(values: &Values, report: &mut Report, key: &str, text: String) {
    report.refuse(values, key, text);
}

fn check_names(values: &Values, controllers: &[ControllerSwitch], report: &mut Report) {
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
                all => format!("there are {all}"),
            },
        };
        let text = format!("there is no controller {name:?}; {remedy}");
        refuse(values, report, "controllers", text);
    }
}

const LEASE: &str = "leaderElection.leaseDuration";
const RENEW: &str = "leaderElection.renewDeadline";
const RETRY: &str = "leaderElection.retryPeriod";

/// The relations without which an election has two winners or none.
fn check_times(values: &Values, report: &mut Report) {
    let time = |key| values.get(key).as_str().and_then(duration::parse).unwrap_or_default();
    let (lease, renew, retry) = (time(LEASE), time(RENEW), time(RETRY));
    if lease <= renew && !report.blames(&[LEASE, RENEW]) {
        order(values, report, (RENEW, renew), (LEASE, lease), "");
    }
    // The wait between two attempts is drawn from the period and a fifth more.
    if renew <= retry.mul_f64(1.2) && !report.blames(&[RENEW, RETRY]) {
        order(values, report, (RETRY, retry), (RENEW, renew), ", by a fifth at least");
    }
    // An election that is held needs more: time to try again, and time for the last write to arrive.
    let elect = values.get("leaderElection.leaderElect") == true;
    if !elect || report.blames(&[LEASE, RENEW, RETRY]) {
        return;
    }
    match (Timing { lease, renew_deadline: renew, retry }).checked() {
        Ok(_) => {}
        Err(error @ TimingError::Retry(_)) => refuse(values, report, RETRY, error.to_string()),
        Err(error @ TimingError::Deadline(_)) => refuse(values, report, RENEW, error.to_string()),
    }
}

/// Says that one time must be less than another, about the one of them that somebody wrote.
fn order(
    values: &Values,
    report: &mut Report,
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

fn check_endpoints(values: &Values, report: &mut Report) {
    const LIVE: &str = "health.livenessEndpointName";
    const READY: &str = "health.readinessEndpointName";
    if report.blames(&[LIVE, READY]) {
        return;
    }
    let text = |key| values.get(key).as_str().unwrap_or_default();
    if let Err(error) = Endpoints::new(text(LIVE), text(READY)) {
        // A name that is wrong by itself is wrong beside the usual other one, too.
        let key = if Endpoints::new(text(LIVE), "").is_err() { LIVE } else { READY };
        refuse(values, report, key, error.to_string());
    }
}

#[cfg(test)]
mod tests;
