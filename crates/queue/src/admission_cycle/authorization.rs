//! Skips AppWrappers whose authors may not create what they wrap, or whose review is pending.

use gantry_reconcile::Held;

use super::AdmissionCycle;
use crate::access::{self, AuthorizationProblem};
use crate::app_wrapper::AppWrapper;

/// How many held reasons one cycle reports at most. All pending AppWrappers may be affected.
const MAX_HELD_REPORTS: usize = 512;

impl AdmissionCycle<'_> {
    /// Returns why an AppWrapper is not evaluated, if so.
    pub(super) fn authorization_problem(
        &self,
        wrapper: &AppWrapper,
    ) -> Option<AuthorizationProblem> {
        let access = self.settings.user_access;
        if !access.is_checked() {
            return None;
        }
        access::may_admit(self.world, wrapper, access, self.now).err()
    }

    /// Returns whether an AppWrapper is not evaluated, and reports the reason.
    pub(super) fn awaits_authorization(&mut self, wrapper: &AppWrapper) -> bool {
        let Some(why) = self.authorization_problem(wrapper) else { return false };
        if self.plan.held.len() < MAX_HELD_REPORTS {
            self.plan.held.push(Held {
                about: wrapper.reference(),
                reason: why.reason().into(),
                message: why.to_string(),
                until: None,
            });
        }
        true
    }
}
