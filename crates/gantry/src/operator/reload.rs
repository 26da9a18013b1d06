//! Reloads the configuration periodically, and applies the changes that need no restart.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gantry_controller::rate::Rate;
use gantry_process::clock::Clock;
use gantry_process::metrics::{Metrics, RegisterError};
use gantry_process::tasks::OnLoss;
use gantry_process::telemetry;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use serde_json::json;
use tokio::sync::watch;

use super::ProcessContext;
use super::controllers::OperatorStatus;
use crate::config::changes::Change;
use crate::config::fetch::WritePolicy;
use crate::config::load::{ConfigSources, to_reloaded_config};
use crate::config::operator::{CheckedConfig, OperatorSettings};
use crate::config::reload::{ConfigProblem, ConfigTracker, ReloadResult};
use crate::config::render;
use crate::status_page::{ConfigurationStatus, SettingsScope};
use crate::subsystems::CONTROLLERS;

/// How often the configuration is read. Each time one file or one ConfigMap is read: the cost is
/// negligible, and no permission to watch is needed.
const CONFIG_POLL_INTERVAL: Duration = Duration::from_secs(5);

/// What is needed to watch the configuration.
#[derive(Debug)]
pub struct ConfigWatch {
    /// The sources of the configuration.
    pub sources: ConfigSources,
    /// The name of the text that is in effect.
    pub source: String,
    /// The log, whose verbosity may change.
    pub log: telemetry::LogHandle,
}

/// What `/status` shows of the configuration. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedConfigStatus(Arc<Mutex<ConfigurationStatus>>);

impl SharedConfigStatus {
    pub(super) fn get(&self) -> ConfigurationStatus {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, status: ConfigurationStatus) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }
}

/// The metrics of reloads.
#[derive(Clone, Debug)]
pub(super) struct ReloadMetrics {
    unknown: Counter,
    changes: Family<OutcomeLabels, Counter>,
    problems: Family<OutcomeLabels, Counter>,
    restart_required: Gauge,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

impl ReloadMetrics {
    pub(super) fn register(metrics: &Metrics) -> Result<Self, RegisterError> {
        let help = "Unknown keys of the configuration";
        let unknown = metrics.register("config_unknown_keys", help, Counter::default())?;
        let help = "Values of the configuration that changed while the operator ran";
        let changes = metrics.register("config_changes", help, Family::default())?;
        let help = "Configurations that could not be applied while the operator ran";
        let faults = metrics.register("config_faults", help, Family::default())?;
        let help = "Values of the configuration that need a restart to apply";
        let waiting = metrics.register("config_waiting_for_restart", help, Gauge::default())?;
        Ok(Self { unknown, changes, problems: faults, restart_required: waiting })
    }

    pub(super) fn count_unknown_keys(&self, keys: &[String]) {
        self.unknown.inc_by(keys.len() as u64);
    }
}

/// Applies the verbosity of the configuration at the start.
pub(super) fn apply_verbosity(follow: &ConfigWatch, settings: &OperatorSettings) {
    let verbosity = settings.logging.verbosity.unwrap_or_default();
    if let Err(error) = follow.log.set_verbosity(verbosity) {
        // The type of the key has the same bounds.
        tracing::error!(%error, "could not change the log verbosity");
    }
}

/// Watches the configuration from now on.
pub(super) fn start(
    follow: ConfigWatch,
    started: &CheckedConfig,
    counts: ReloadMetrics,
    published: watch::Sender<String>,
    shell: &mut ProcessContext,
    standing: &OperatorStatus,
) {
    let watched = ConfigTracker::new(started);
    let mut keeper = ConfigReloader {
        tracker: watched,
        config_watch: follow,
        metrics: counts,
        published,
        status: standing.clone(),
    };
    keeper.update_status();
    keeper.publish();
    let clock = shell.tasks.clock().clone();
    shell.tasks.spawn("configuration", OnLoss::EndOwner, move |stop| async move {
        tokio::select! {
            // Either future may be dropped: nothing is written.
            () = stop.cancelled() => {}
            () = keeper.run(&clock) => {}
        }
        Ok(())
    });
}

struct ConfigReloader {
    config_watch: ConfigWatch,
    tracker: ConfigTracker,
    metrics: ReloadMetrics,
    published: watch::Sender<String>,
    status: OperatorStatus,
}

impl ConfigReloader {
    async fn run(&mut self, clock: &Clock) {
        let sources = self.config_watch.sources.clone();
        let places = sources.namespaces(clock);
        loop {
            clock.sleep(CONFIG_POLL_INTERVAL).await;
            let looked = sources.load(&places, WritePolicy::ReadOnly, &CONTROLLERS).await;
            if let Ok(found) = &looked {
                self.config_watch.source.clone_from(&found.source);
            }
            let step = self.tracker.apply_reload(to_reloaded_config(looked));
            self.handle_result(&step);
        }
    }

    /// Logs what is new, and applies it.
    fn handle_result(&mut self, step: &ReloadResult) {
        let ReloadResult {
            applied,
            restart_required: waiting,
            reverted,
            warnings,
            unknown,
            problem: fault,
            recovered,
        } = step;
        if *recovered {
            tracing::info!("configuration: valid again");
        }
        for warning in warnings {
            tracing::warn!(key = warning.key, "configuration: {warning}");
        }
        self.metrics.count_unknown_keys(unknown);
        for Change { key, old, new } in applied {
            tracing::info!(key, %old, %new, "configuration: changed, and in effect");
        }
        for Change { key, old, new } in waiting {
            tracing::warn!(key, %old, %new, "configuration: changed; restart to apply");
        }
        for Change { key, old, new } in reverted {
            tracing::info!(
                key, in_effect = %old, reverted = %new,
                "configuration: reverted; no restart is needed"
            );
        }
        if let Some(fault) = fault {
            self.log_problem(fault);
        }
        self.count("applied", applied.len());
        self.count("restart", waiting.len());
        self.metrics
            .restart_required
            .set(i64::try_from(self.tracker.restart_required().len()).unwrap_or(i64::MAX));
        if !applied.is_empty() {
            self.apply();
            self.publish();
        }
        self.update_status();
    }

    fn count(&self, outcome: &'static str, values: usize) {
        if values > 0 {
            self.metrics.changes.get_or_create(&OutcomeLabels { outcome }).inc_by(values as u64);
        }
    }

    fn log_problem(&self, fault: &ConfigProblem) {
        let outcome = match fault {
            ConfigProblem::Invalid(errors) => {
                for error in errors {
                    tracing::error!(key = error.key, "configuration: {error}");
                }
                tracing::error!(
                    "configuration: rejected as a whole; the previous one stays in effect"
                );
                "refused"
            }
            ConfigProblem::Deleted { source } => {
                tracing::warn!(
                    source,
                    "configuration: deleted; its values stay in effect until a restart"
                );
                "gone"
            }
            ConfigProblem::Unreadable { why } => {
                tracing::warn!(
                    why,
                    "configuration: could not be read; the previous one stays in effect"
                );
                "unreadable"
            }
        };
        self.metrics.problems.get_or_create(&OutcomeLabels { outcome }).inc();
    }

    /// Applies the values in effect to the components that use them.
    fn apply(&self) {
        match OperatorSettings::from_values(self.tracker.in_force()) {
            Ok(settings) => {
                apply_verbosity(&self.config_watch, &settings);
                let rate = settings.client_connection.rate();
                let rate = rate.map(|(per_second, burst)| Rate { per_second, burst });
                self.status.set_rate(rate);
                self.status.reconfigure(self.tracker.in_force());
            }
            // Both configurations that it is merged from were valid, and no rule spans them: a test
            // verifies it.
            Err(error) => tracing::error!(%error, "could not use the configuration in effect"),
        }
    }

    /// Publishes the values in effect in the cluster.
    fn publish(&self) {
        match render::effective(self.tracker.in_force()) {
            Ok(text) => drop(self.published.send_replace(text)),
            Err(error) => tracing::error!(%error, "could not render the effective settings"),
        }
    }

    fn update_status(&self) {
        let waiting = self.tracker.restart_required().iter();
        let waiting =
            waiting.map(|it| json!({ "key": it.key, "inForce": it.old, "wanted": it.new }));
        let faults: Vec<String> = match self.tracker.problem() {
            None => Vec::new(),
            Some(ConfigProblem::Invalid(errors)) => {
                errors.iter().map(ToString::to_string).collect()
            }
            Some(ConfigProblem::Deleted { source }) => vec![format!("{source}: was deleted")],
            Some(ConfigProblem::Unreadable { why }) => vec![why.clone()],
        };
        self.status.configuration.set(ConfigurationStatus {
            source: self.config_watch.source.clone(),
            faults,
            restart_to_apply: waiting.collect(),
            values: Some(self.tracker.in_force().clone()),
            scope: SettingsScope::Everything,
        });
    }
}
