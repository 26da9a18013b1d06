//! Looks at the configuration again and again, and has what may change take effect.

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

use super::Shell;
use super::controllers::Standing;
use crate::config::changes::Change;
use crate::config::fetch::Writes;
use crate::config::gather::{Sources, seen};
use crate::config::operator::{Checked, Operator};
use crate::config::reload::{Fault, Step, Watched};
use crate::config::render;
use crate::status_page::{ConfigurationStatus, SettingsScope};
use crate::subsystems::CONTROLLERS;

/// How long a change may go unnoticed. A file is read, or one ConfigMap asked for, each time: too
/// little to matter, and no right to watch is needed.
const EVERY: Duration = Duration::from_secs(5);

/// What is needed to follow the configuration.
#[derive(Debug)]
pub struct Follow {
    /// Where it is.
    pub sources: Sources,
    /// What the text that is in force is called.
    pub source: String,
    /// What is turned when the verbosity changes.
    pub log: telemetry::Handle,
}

/// What `/status` shows of the configuration. Clones see the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Board(Arc<Mutex<ConfigurationStatus>>);

impl Board {
    pub(super) fn show(&self) -> ConfigurationStatus {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn write(&self, status: ConfigurationStatus) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }
}

/// What is counted.
#[derive(Clone, Debug)]
pub(super) struct Counts {
    unknown: Counter,
    changes: Family<Outcome, Counter>,
    faults: Family<Outcome, Counter>,
    waiting: Gauge,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

impl Counts {
    pub(super) fn register(metrics: &Metrics) -> Result<Self, RegisterError> {
        let help = "Keys of the configuration that nobody knows";
        let unknown = metrics.register("config_unknown_keys", help, Counter::default())?;
        let help = "Values of the configuration that changed while the operator ran";
        let changes = metrics.register("config_changes", help, Family::default())?;
        let help = "Configurations that could not be taken over while the operator ran";
        let faults = metrics.register("config_faults", help, Family::default())?;
        let help = "Values of the configuration that take a restart to apply";
        let waiting = metrics.register("config_waiting_for_restart", help, Gauge::default())?;
        Ok(Self { unknown, changes, faults, waiting })
    }

    pub(super) fn unknown(&self, keys: &[String]) {
        self.unknown.inc_by(keys.len() as u64);
    }
}

/// Sets what the configuration says at the start.
pub(super) fn apply(follow: &Follow, settings: &Operator) {
    let verbosity = settings.logging.verbosity.unwrap_or_default();
    if let Err(error) = follow.log.set_verbosity(verbosity) {
        // The form of the key has the same bounds.
        tracing::error!(%error, "could not change how much is logged");
    }
}

/// Follows the configuration from now on.
pub(super) fn start(
    follow: Follow,
    started: &Checked,
    counts: Counts,
    published: watch::Sender<String>,
    shell: &mut Shell,
    standing: &Standing,
) {
    let watched = Watched::new(started);
    let mut keeper = Keeper { watched, follow, counts, published, standing: standing.clone() };
    keeper.show();
    keeper.publish();
    let clock = shell.tasks.clock().clone();
    shell.tasks.spawn("configuration", OnLoss::EndOwner, move |stop| async move {
        tokio::select! {
            // Either may be dropped: nothing is written.
            () = stop.cancelled() => {}
            () = keeper.run(&clock) => {}
        }
        Ok(())
    });
}

struct Keeper {
    follow: Follow,
    watched: Watched,
    counts: Counts,
    published: watch::Sender<String>,
    standing: Standing,
}

impl Keeper {
    async fn run(&mut self, clock: &Clock) {
        let sources = self.follow.sources.clone();
        let places = sources.places(clock);
        loop {
            clock.sleep(EVERY).await;
            let looked = sources.gather(&places, Writes::Nothing, &CONTROLLERS).await;
            if let Ok(found) = &looked {
                self.follow.source.clone_from(&found.source);
            }
            let step = self.watched.look(seen(looked));
            self.take(&step);
        }
    }

    /// Says what is new, and has it take effect.
    fn take(&mut self, step: &Step) {
        let Step { applied, waiting, taken_back, warnings, unknown, fault, recovered } = step;
        if *recovered {
            tracing::info!("configuration: can be used again");
        }
        for warning in warnings {
            tracing::warn!(key = warning.key, "configuration: {warning}");
        }
        self.counts.unknown(unknown);
        for Change { key, old, new } in applied {
            tracing::info!(key, %old, %new, "configuration: changed, and in force");
        }
        for Change { key, old, new } in waiting {
            tracing::warn!(key, %old, %new, "configuration: changed; restart to apply");
        }
        for Change { key, old, new } in taken_back {
            tracing::info!(key, in_force = %old, taken_back = %new, "configuration: changed back; no restart is needed");
        }
        if let Some(fault) = fault {
            self.complain(fault);
        }
        self.count("applied", applied.len());
        self.count("restart", waiting.len());
        self.counts.waiting.set(i64::try_from(self.watched.waiting().len()).unwrap_or(i64::MAX));
        if !applied.is_empty() {
            self.apply();
            self.publish();
        }
        self.show();
    }

    fn count(&self, outcome: &'static str, values: usize) {
        if values > 0 {
            self.counts.changes.get_or_create(&Outcome { outcome }).inc_by(values as u64);
        }
    }

    fn complain(&self, fault: &Fault) {
        let outcome = match fault {
            Fault::Refused(errors) => {
                for error in errors {
                    tracing::error!(key = error.key, "configuration: {error}");
                }
                tracing::error!("configuration: refused as a whole; the one before stays in force");
                "refused"
            }
            Fault::Gone { source } => {
                tracing::warn!(
                    source,
                    "configuration: is gone; what it said stays in force until a restart"
                );
                "gone"
            }
            Fault::Unreadable { why } => {
                tracing::warn!(
                    why,
                    "configuration: could not be read; the one before stays in force"
                );
                "unreadable"
            }
        };
        self.counts.faults.get_or_create(&Outcome { outcome }).inc();
    }

    /// Hands what is in force to those who use it.
    fn apply(&self) {
        match Operator::of(self.watched.in_force()) {
            Ok(settings) => {
                apply(&self.follow, &settings);
                let rate = settings.client_connection.rate();
                let rate = rate.map(|(per_second, burst)| Rate { per_second, burst });
                self.standing.set_rate(rate);
                self.standing.reconfigure(self.watched.in_force());
            }
            // Both it is made of were valid, and no rule spans them: a test says so.
            Err(error) => tracing::error!(%error, "could not use the configuration in force"),
        }
    }

    /// Tells what is in force to whoever asks the cluster.
    fn publish(&self) {
        match render::effective(self.watched.in_force()) {
            Ok(text) => drop(self.published.send_replace(text)),
            Err(error) => tracing::error!(%error, "could not write down the settings in effect"),
        }
    }

    fn show(&self) {
        let waiting = self.watched.waiting().iter();
        let waiting =
            waiting.map(|it| json!({ "key": it.key, "inForce": it.old, "wanted": it.new }));
        let faults: Vec<String> = match self.watched.fault() {
            None => Vec::new(),
            Some(Fault::Refused(errors)) => errors.iter().map(ToString::to_string).collect(),
            Some(Fault::Gone { source }) => vec![format!("{source}: is gone")],
            Some(Fault::Unreadable { why }) => vec![why.clone()],
        };
        self.standing.configuration.write(ConfigurationStatus {
            source: self.follow.source.clone(),
            faults,
            restart_to_apply: waiting.collect(),
            values: Some(self.watched.in_force().clone()),
            scope: SettingsScope::Everything,
        });
    }
}
