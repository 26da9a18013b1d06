//! Who is told why it waits, and when it is told something else.

use std::time::Duration;

use gantry_reconcile::Key;

use super::{Misfit, Turn};
use crate::app_wrapper::AppWrapper;
use crate::backoff;
use crate::books::QUIET;
use crate::condition::{self, Entry, Pause, kind};
use crate::progress;
use crate::state::Transition;

/// How many are told in one plan why they wait, when nobody passes, and when somebody does: who can
/// run comes first.
pub(super) const TOLD: (usize, usize) = (16, 2);
/// How many are looked at for that, and how many of those that were told, to see whether it is still so.
const LOOKED_AT: usize = 512;

impl Turn<'_> {
    /// Tells those that they wait who came while the line is held: nobody looks at them.
    pub(super) fn greet(&mut self) {
        let shelf = self.world.shelf::<AppWrapper>();
        let looked_at = self.books.fresh.iter().take(LOOKED_AT);
        let new = looked_at.filter_map(|(_, key)| shelf.get(key)).filter(|it| it.is_new());
        for wrapper in new.take(TOLD.0) {
            self.write(&wrapper, &Transition::Queue, Some("Waits in the queue".to_owned()));
            self.plan.look_within(Duration::ZERO);
        }
    }

    /// Tells those why they wait who do not know yet.
    pub(super) fn tell(&mut self) {
        let any = !self.closed.is_empty() || !self.barred.is_empty();
        if !any && !self.settings.user_access.is_checked() {
            return;
        }
        let most = if self.passed.is_empty() { TOLD.0 } else { TOLD.1 };
        let mut told = 0;
        for (_, key) in self.books.fresh.iter().take(LOOKED_AT) {
            let Some(misfit) = self.why(key) else { continue };
            let Some(wrapper) = self.world.shelf::<AppWrapper>().get(key) else { continue };
            // Who was never told anything for so long is told by another that it waits, and then why.
            if progress::fresh_until(&wrapper).is_some_and(|it| it <= self.now) {
                continue;
            }
            if told == most {
                self.plan.look_within(Duration::ZERO);
                break;
            }
            told += 1;
            self.park(&wrapper, misfit);
        }
    }

    /// Tells those again for whom something else is true now, when their pause is over.
    pub(super) fn tell_again(&mut self) {
        let Some((last, _)) = self.books.told.last() else { return };
        let quiet_until = last.checked_add(QUIET).unwrap_or(*last);
        let mut left = if self.passed.is_empty() { TOLD.0 } else { TOLD.1 };
        for (_, key) in self.books.told.iter().take(LOOKED_AT) {
            let Some(misfit) = self.why(key) else { continue };
            let Some(wrapper) = self.world.shelf::<AppWrapper>().get(key) else { continue };
            let known = condition::newest(&wrapper.status, kind::BACKOFF);
            let reason = Entry::Backoff(misfit.pause.clone()).reason();
            let is_known = wrapper.status.message.as_deref() == Some(misfit.message.as_str())
                && known.is_some_and(|it| it.reason.as_deref() == reason);
            if is_known {
                continue;
            }
            let pause = backoff::ends(&wrapper, &self.settings).unwrap_or(self.now);
            let when = pause.max(quiet_until);
            if when > self.now {
                self.plan.look_at(when, self.now);
                return;
            }
            if left == 0 {
                self.plan.look_within(QUIET);
                return;
            }
            left -= 1;
            self.park(&wrapper, misfit);
        }
    }

    /// Why one who waits does not pass, if it was found out in this plan. Of those that are alike some may
    /// have passed before there was no more room.
    fn why(&self, key: &Key) -> Option<Misfit> {
        if self.passed.contains(key) {
            return None;
        }
        let wrapper = || self.world.shelf::<AppWrapper>().get(key);
        let kept = self.settings.user_access.is_checked().then(wrapper).flatten();
        if let Some(kept) = kept.and_then(|it| self.kept_back(&it)) {
            // Of the others it is known in a moment, and who may not have it is told by another.
            let lasting = kept.is_for_want_of_an_author();
            return lasting.then(|| Misfit { pause: Pause::Author, message: kept.to_string() });
        }
        let class = self.books.lines.class(key)?;
        self.barred.get(key).or_else(|| self.closed.get(class)).cloned()
    }

    fn park(&mut self, wrapper: &AppWrapper, misfit: Misfit) {
        let Misfit { pause, message } = misfit;
        let said = message.clone();
        self.write(wrapper, &Transition::Park(pause, message), Some(said));
    }
}
