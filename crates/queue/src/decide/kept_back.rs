//! Those whose authors may not have what they wrap, or of whom that is not known yet.

use gantry_reconcile::Held;

use super::Turn;
use crate::access::{self, KeptBack};
use crate::app_wrapper::AppWrapper;

/// About how many it is said in one plan. They may be all that wait.
const SAID: usize = 512;

impl Turn<'_> {
    /// Why an AppWrapper is not even asked whether it fits, where that is so.
    pub(super) fn kept_back(&self, wrapper: &AppWrapper) -> Option<KeptBack> {
        let access = self.settings.user_access;
        if !access.is_checked() {
            return None;
        }
        access::may_pass(self.world, wrapper, access, self.now).err()
    }

    /// The same, and says so.
    pub(super) fn keeps_back(&mut self, wrapper: &AppWrapper) -> bool {
        let Some(why) = self.kept_back(wrapper) else { return false };
        if self.plan.held.len() < SAID {
            self.plan.held.push(Held {
                about: wrapper.about(),
                reason: why.reason().into(),
                message: why.to_string(),
                until: None,
            });
        }
        true
    }
}
