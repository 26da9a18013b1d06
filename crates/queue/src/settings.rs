//! Settings by which the queue decides, as read from the configuration.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

pub use crate::demand::Inference;

/// The settings of the queue: the keys below `mcad`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "these are the keys of a file, one by one")]
pub struct Settings {
    /// Whether priority grows with the time spent waiting (`dynamicPriority`).
    pub dynamic_priority: bool,
    /// Whether resources used by lower priorities count as free (`preemption`). Without effect
    /// together with `dynamic_priority`: use [`Settings::preempts`].
    pub preemption: bool,
    /// The backoff after an evaluation that found too little free capacity, or after a preemption
    /// (`backoffTime`).
    pub backoff: Duration,
    /// How long the head of the queue is retried before AppWrappers behind it may be admitted
    /// (`headOfLineHoldingTime`); zero for not at all.
    pub holding: Duration,
    /// Whether quota trees are evaluated (`quotaEnabled`).
    pub quota: bool,
    /// Whether leaves without a binding may not be used at all (`requireQuotaBindings`).
    pub require_quota_bindings: bool,
    /// How demand is determined (`demandInference`).
    pub inference: Inference,
    /// Whether `schedulingSpec.nodeSelector` limits capacity (`honorNodeSelector`).
    pub honor_node_selector: bool,
    /// How long pods may take to come up where the AppWrapper does not specify it
    /// (`requeueDefaultSeconds`).
    pub requeue_default: Duration,
    /// How often pods of dispatched AppWrappers are checked for that (`requeueCheckInterval`).
    pub requeue_interval: Duration,
    /// Whether released capacity ends the backoff of AppWrappers that wait for it
    /// (`wakeOnRelease`).
    pub wake_on_release: bool,
    /// Whether every pod must fit on a node, and not only their sum in the cluster
    /// (`packingCheck`).
    pub packing_check: bool,
    /// Whether namespaces of the same priority take turns (`fairness`).
    pub fairness: bool,
    /// Whether AppWrappers of lower priority are preempted for one of a higher priority
    /// (`activeEviction`). Without effect where [`Settings::preempts`] is false: use
    /// [`Settings::evicts`].
    pub active_eviction: bool,
    /// Whose permissions items are created with (`checkUserAccess`).
    pub user_access: UserAccess,
    /// Whether resource claims are considered: the device controllers run beside the queue.
    pub devices: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            dynamic_priority: false,
            preemption: false,
            backoff: Duration::from_secs(20),
            holding: Duration::ZERO,
            quota: false,
            require_quota_bindings: false,
            inference: Inference::Full,
            honor_node_selector: false,
            requeue_default: Duration::from_secs(300),
            requeue_interval: Duration::from_secs(60),
            wake_on_release: true,
            packing_check: false,
            fairness: false,
            active_eviction: false,
            user_access: UserAccess::Unchecked,
            devices: false,
        }
    }
}

impl Settings {
    /// Returns whether resources used by lower priorities count as free.
    #[must_use]
    pub fn preempts(&self) -> bool {
        self.preemption && !self.dynamic_priority
    }

    /// Returns whether AppWrappers of lower priority are preempted for one of a higher priority.
    #[must_use]
    pub fn evicts(&self) -> bool {
        self.active_eviction && self.preempts()
    }

    /// Returns whether every pod must fit on a node. Active eviction implies it: no AppWrapper is
    /// preempted for one whose pods would not find nodes.
    #[must_use]
    pub fn packs(&self) -> bool {
        self.packing_check || self.evicts()
    }
}

/// Whose permissions the items of AppWrappers are created with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UserAccess {
    /// Those of the queue, regardless of the author: a user who may create AppWrappers in a
    /// namespace may create there whatever the queue may.
    #[default]
    Unchecked,
    /// Those of the queue, after the API server confirmed that the author may create the items and
    /// has the further permissions such objects require ([`crate::privilege`]).
    Reviewed,
    /// Those of the author, who is impersonated: the API server applies all its checks. It is asked
    /// beforehand whether the author may create the items, so that no quota is given to items that
    /// would be refused.
    OnBehalf,
}

impl UserAccess {
    /// Returns whether the permissions of authors are checked.
    #[must_use]
    pub fn is_checked(self) -> bool {
        match self {
            Self::Unchecked => false,
            Self::Reviewed | Self::OnBehalf => true,
        }
    }
}

/// Settings that may change while the queue runs. Clones share one value.
#[derive(Clone, Debug, Default)]
pub struct LiveSettings(Arc<RwLock<Settings>>);

impl LiveSettings {
    /// Creates live settings with these initial values.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self(Arc::new(RwLock::new(settings)))
    }

    /// Returns the current settings.
    #[must_use]
    pub fn get(&self) -> Settings {
        // Nothing can panic under the lock.
        *self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the settings. The next admission cycle uses them.
    pub fn set(&self, settings: Settings) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = settings;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dynamic_priority_disables_preemption() {
        let table = [(false, false, false), (false, true, true), (true, true, false)];
        for (dynamic_priority, preemption, expected) in table {
            let settings = Settings { dynamic_priority, preemption, ..Settings::default() };
            assert_eq!(settings.preempts(), expected);
            let settings = Settings { active_eviction: true, ..settings };
            assert_eq!((settings.evicts(), settings.packs()), (expected, expected));
        }
    }

    #[test]
    fn clones_share_the_settings() {
        let live = LiveSettings::default();
        let other = live.clone();
        live.set(Settings { quota: true, ..Settings::default() });
        assert!(other.get().quota);
    }
}
