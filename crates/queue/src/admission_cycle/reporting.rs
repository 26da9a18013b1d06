//! Writes to pending AppWrappers why they wait, and updates that when it changes.

use std::time::Duration;

use gantry_reconcile::Key;

use super::{AdmissionCycle, FitFailure};
use crate::app_wrapper::AppWrapper;
use crate::backoff;
use crate::condition::{self, BackoffReason, QueueCondition, kind};
use crate::progress;
use crate::queue_cache::REPORT_REPEAT_INTERVAL;
use crate::state::Transition;

/// How many statuses of waiting AppWrappers one cycle writes, without and with admissions:
/// AppWrappers that can run come first.
pub(super) const MAX_REPORTS: (usize, usize) = (16, 2);
/// How many AppWrappers are considered for a first report, and for an updated one.
const MAX_REPORT_CANDIDATES: usize = 512;

impl AdmissionCycle<'_> {
    /// Reports AppWrappers as queued that arrived while the line is held: they are not evaluated.
    pub(super) fn report_queued(&mut self) {
        let store = self.world.store::<AppWrapper>();
        let looked_at = self.cache.unreported.iter().take(MAX_REPORT_CANDIDATES);
        let new = looked_at.filter_map(|(_, key)| store.get(key)).filter(|it| it.is_new());
        for wrapper in new.take(MAX_REPORTS.0) {
            self.write(&wrapper, &Transition::Queue, Some("Waits in the queue".to_owned()));
            self.plan.requeue_after(Duration::ZERO);
        }
    }

    /// Reports to AppWrappers without a report why they wait.
    pub(super) fn report_reasons(&mut self) {
        let any = !self.rejected_classes.is_empty() || !self.ineligible.is_empty();
        if !any && !self.settings.user_access.is_checked() {
            return;
        }
        let most = if self.admitted.is_empty() { MAX_REPORTS.0 } else { MAX_REPORTS.1 };
        let mut reported = 0;
        for (_, key) in self.cache.unreported.iter().take(MAX_REPORT_CANDIDATES) {
            let Some(misfit) = self.failure_of(key) else { continue };
            let Some(wrapper) = self.world.store::<AppWrapper>().get(key) else { continue };
            // After the deadline, `Progress` first writes that it is queued; the reason follows.
            if progress::first_status_deadline(&wrapper).is_some_and(|it| it <= self.now) {
                continue;
            }
            if reported == most {
                self.plan.requeue_after(Duration::ZERO);
                break;
            }
            reported += 1;
            self.back_off(&wrapper, misfit);
        }
    }

    /// Reports again to AppWrappers whose reason has changed, when their backoff is over.
    pub(super) fn update_reports(&mut self) {
        let Some((last, _)) = self.cache.reported.last() else { return };
        let quiet_until = last.checked_add(REPORT_REPEAT_INTERVAL).unwrap_or(*last);
        let mut left = if self.admitted.is_empty() { MAX_REPORTS.0 } else { MAX_REPORTS.1 };
        for (_, key) in self.cache.reported.iter().take(MAX_REPORT_CANDIDATES) {
            let Some(misfit) = self.failure_of(key) else { continue };
            let Some(wrapper) = self.world.store::<AppWrapper>().get(key) else { continue };
            let known = condition::newest(&wrapper.status, kind::BACKOFF);
            let reason = QueueCondition::Backoff(misfit.reason.clone()).reason();
            let is_known = wrapper.status.message.as_deref() == Some(misfit.message.as_str())
                && known.is_some_and(|it| it.reason.as_deref() == reason);
            if is_known {
                continue;
            }
            let pause = backoff::ends_at(&wrapper, &self.settings).unwrap_or(self.now);
            let when = pause.max(quiet_until);
            if when > self.now {
                self.plan.requeue_at(when, self.now);
                return;
            }
            if left == 0 {
                self.plan.requeue_after(REPORT_REPEAT_INTERVAL);
                return;
            }
            left -= 1;
            self.back_off(&wrapper, misfit);
        }
    }

    /// Returns why a pending AppWrapper is not admitted, if this cycle found out. Others of its
    /// class may have been admitted before the capacity was used up.
    fn failure_of(&self, key: &Key) -> Option<FitFailure> {
        if self.admitted.contains(key) {
            return None;
        }
        let wrapper = || self.world.store::<AppWrapper>().get(key);
        let kept = self.settings.user_access.is_checked().then(wrapper).flatten();
        if let Some(kept) = kept.and_then(|it| self.authorization_problem(&it)) {
            // Pending reviews are known in a moment, and `Progress` reports denials.
            let lasting = kept.has_no_author();
            return lasting
                .then(|| FitFailure { reason: BackoffReason::Author, message: kept.to_string() });
        }
        let class = self.cache.pending.class(key)?;
        self.ineligible.get(key).or_else(|| self.rejected_classes.get(class)).cloned()
    }

    fn back_off(&mut self, wrapper: &AppWrapper, misfit: FitFailure) {
        let FitFailure { reason: pause, message } = misfit;
        let said = message.clone();
        self.write(wrapper, &Transition::BackOff(pause, message), Some(said));
    }
}
