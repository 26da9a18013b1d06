//! How the queue decides, as the configuration says.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

pub use gantry_pods::demand::Inference;

/// The settings of the queue: the keys below `mcad`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "these are the keys of a file, one by one")]
pub struct Settings {
    /// Whether priority grows with the time spent waiting (`dynamicPriority`).
    pub dynamic_priority: bool,
    /// Whether what lower priorities use counts as free (`preemption`). Without effect together with
    /// `dynamic_priority`: ask [`Settings::preempts`].
    pub preemption: bool,
    /// The pause after an evaluation that found no room, or after a preemption (`backoffTime`).
    pub backoff: Duration,
    /// How long the first of the queue is tried again before others may pass it
    /// (`headOfLineHoldingTime`); zero for not at all.
    pub holding: Duration,
    /// Whether quota trees are evaluated (`quotaEnabled`).
    pub quota: bool,
    /// Whether leaves that are bound to nobody may be used by nobody (`requireQuotaBindings`).
    pub require_quota_bindings: bool,
    /// How demand is found (`demandInference`).
    pub inference: Inference,
    /// Whether `schedulingSpec.nodeSelector` limits capacity (`honorNodeSelector`).
    pub honor_node_selector: bool,
    /// How long pods may take to come up where nothing is said (`requeueDefaultSeconds`).
    pub requeue_default: Duration,
    /// How often that is looked at (`requeueCheckInterval`).
    pub requeue_interval: Duration,
    /// Whether released room ends the pause of those that wait for it (`wakeOnRelease`).
    pub wake_on_release: bool,
    /// Whether pods must find nodes one by one, and not only in sum (`packingCheck`).
    pub packing_check: bool,
    /// Whether namespaces of the same priority take turns (`fairness`).
    pub fairness: bool,
    /// Whether lower priorities are taken back for a higher one (`activeEviction`). Without effect where
    /// nothing is [preempted](Settings::preempts): ask [`Settings::evicts`].
    pub active_eviction: bool,
    /// Whether authors must be allowed to create what they wrap (`checkUserAccess`).
    pub check_user_access: bool,
    /// Whether claims to devices are looked at: the controllers of devices run beside the queue.
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
            check_user_access: false,
            devices: false,
        }
    }
}

impl Settings {
    /// Whether what lower priorities use counts as free.
    #[must_use]
    pub fn preempts(&self) -> bool {
        self.preemption && !self.dynamic_priority
    }

    /// Whether lower priorities are taken back for a higher one.
    #[must_use]
    pub fn evicts(&self) -> bool {
        self.active_eviction && self.preempts()
    }

    /// Whether pods must find nodes one by one. Nobody is taken back for one who would not find any.
    #[must_use]
    pub fn packs(&self) -> bool {
        self.packing_check || self.evicts()
    }
}

/// Settings that may change while the queue runs. Clones see the same.
#[derive(Clone, Debug, Default)]
pub struct Live(Arc<RwLock<Settings>>);

impl Live {
    /// Settings to begin with.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self(Arc::new(RwLock::new(settings)))
    }

    /// The settings now.
    #[must_use]
    pub fn get(&self) -> Settings {
        // Nothing can panic under the lock.
        *self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Other settings from now on. What they change is noticed with the next decision.
    pub fn set(&self, settings: Settings) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = settings;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_turns_preemption_off() {
        let table = [(false, false, false), (false, true, true), (true, true, false)];
        for (dynamic_priority, preemption, expected) in table {
            let settings = Settings { dynamic_priority, preemption, ..Settings::default() };
            assert_eq!(settings.preempts(), expected);
            let settings = Settings { active_eviction: true, ..settings };
            assert_eq!((settings.evicts(), settings.packs()), (expected, expected));
        }
    }

    #[test]
    fn a_change_is_seen_by_all() {
        let live = Live::default();
        let other = live.clone();
        live.set(Settings { quota: true, ..Settings::default() });
        assert!(other.get().quota);
    }
}
