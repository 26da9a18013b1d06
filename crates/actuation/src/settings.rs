//! The settings of actuation.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// The settings of actuation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How many sleeping direct providers may share an accelerator with an awake one.
    pub sleeper_limit: usize,
    /// How long an engine may finish requests before it is put to sleep; zero puts it to sleep at
    /// once.
    pub drain_limit: Duration,
    /// How long an unbinding waits for an engine to sleep before the engine is deleted.
    pub unbinding_limit: Duration,
    /// How long a new engine may take to answer.
    pub start_limit: Duration,
    /// How long a bound launcher may be unready before the requester is reported as unready.
    pub unready_limit: Duration,
    /// Whether the readiness of a bound requester follows that of its launcher and engine.
    pub relays_unready: bool,
    /// How often the state of an engine that serves is asked.
    pub renewal_interval: Duration,
    /// The command of the sidecar of launchers.
    pub notifier_command: Vec<String>,
    /// How long launchers beyond the policy are kept for the instances that sleep in them.
    pub retention: Duration,
    /// How long a launcher that has failed is kept before it is replaced.
    pub failed_grace: Duration,
    /// After how long an unscheduled launcher counts as stuck.
    pub stuck_scheduling: Duration,
    /// After how long a scheduled launcher that is not ready counts as stuck.
    pub stuck_starting: Duration,
    /// Whether an engine is woken only after the requester has reported that its accelerators have
    /// little memory in use.
    pub checks_memory: bool,
}

impl Default for Settings {
    fn default() -> Self {
        let command = crate::launcher_template::DEFAULT_NOTIFIER_COMMAND;
        Self {
            sleeper_limit: 1,
            drain_limit: Duration::from_secs(10),
            unbinding_limit: Duration::from_secs(60),
            start_limit: Duration::from_secs(30 * 60),
            unready_limit: Duration::from_secs(10),
            relays_unready: true,
            renewal_interval: Duration::from_secs(30),
            notifier_command: command.map(str::to_owned).to_vec(),
            retention: Duration::ZERO,
            failed_grace: Duration::from_secs(10),
            stuck_scheduling: Duration::from_secs(2 * 60),
            stuck_starting: Duration::from_secs(450),
            checks_memory: false,
        }
    }
}

/// Settings that may change while the controllers run. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct LiveSettings(Arc<RwLock<Arc<Settings>>>);

impl LiveSettings {
    /// The settings now.
    #[must_use]
    pub fn get(&self) -> Arc<Settings> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the settings.
    pub fn set(&self, settings: Settings) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }
}

impl From<Settings> for LiveSettings {
    fn from(settings: Settings) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(settings))))
    }
}
