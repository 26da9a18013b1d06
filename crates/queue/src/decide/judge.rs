//! Whether one AppWrapper fits beside all that was given so far.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use gantry_reconcile::Key;

use super::dispute::Spared;
use super::room::Room;
use super::{Misfit, Turn, Verdict, Victim};
use crate::amounts::Amounts;
use crate::app_wrapper::AppWrapper;
use crate::charge::{self, Charges};
use crate::condition::Pause;
use crate::order::Class;

impl Turn<'_> {
    /// Finds out whether an AppWrapper fits beside all that was given so far: into its quota first, then
    /// into what is available. Whose author may not have it is charged nothing, and nobody makes room.
    pub(super) fn judge(&mut self, wrapper: &AppWrapper, class: &Class) -> Verdict {
        if self.keeps_back(wrapper) {
            return Verdict::KeptBack;
        }
        self.spared = match self.charges {
            Some(_) => Spared::by(self.world, wrapper, &self.settings, self.now),
            None => Spared::Nobody,
        };
        let verdict = self.judge_alone(wrapper, class);
        match (verdict, self.spared.why()) {
            (Verdict::Misfit(Misfit { pause, message }), Some(why)) => {
                if let Spared::Everybody { until } = self.spared {
                    self.plan.look_at(until, self.now);
                }
                Verdict::Barred(Misfit { pause, message: format!("{message}; {why}") })
            }
            (verdict, _) => verdict,
        }
    }

    fn judge_alone(&mut self, wrapper: &AppWrapper, class: &Class) -> Verdict {
        let Some(charges) = &mut self.charges else {
            return self.judge_room(wrapper, class, &Amounts::default(), &[]);
        };
        let spares = |key: &Key| self.spared.is(key);
        if !charges.knows(wrapper) {
            return Verdict::Later;
        }
        if let Err(why) = charges.allow(self.world, wrapper, &self.settings) {
            let message = why.to_string();
            return Verdict::Barred(Misfit { pause: Pause::Leaf, message });
        }
        let allocation = match charges.charge(wrapper, spares, &self.settings) {
            Ok(allocation) => allocation,
            Err(why) => return Verdict::misfit(Pause::Quota, why),
        };
        let shelf = self.world.shelf::<AppWrapper>();
        let victims = allocation.victims.iter().filter_map(|it| shelf.get(it.key()));
        let victims: Vec<Arc<AppWrapper>> = victims.collect();
        let given = |it: &Arc<AppWrapper>| (it.spec.priority, charge::taken(it, &self.settings));
        let given: Vec<(i32, Amounts)> = victims.iter().map(given).collect();
        let spared = charges.spared(wrapper.spec.priority, given.iter());
        let verdict = match self.judge_room(wrapper, class, &spared, &victims) {
            // Who has only just passed cannot make room yet.
            Verdict::Fits { .. }
                if victims.iter().any(|it| self.passed.contains(&it.metadata.key())) =>
            {
                self.plan.look_within(Duration::ZERO);
                Verdict::Later
            }
            // What is given up beyond what it is for is nobody's before that is stored.
            Verdict::Fits { victims, .. } if self.reclaims && victims.is_empty() => {
                self.plan.look_within(Duration::ZERO);
                Verdict::Later
            }
            other @ (Verdict::Fits { .. }
            | Verdict::Coming
            | Verdict::Misfit(_)
            | Verdict::Barred(_)
            | Verdict::Later
            | Verdict::KeptBack) => other,
        };
        if let Some(charges) = &mut self.charges {
            match verdict {
                Verdict::Fits { .. } | Verdict::Coming => charges.keep(allocation),
                Verdict::Misfit(_) | Verdict::Barred(_) | Verdict::Later | Verdict::KeptBack => {
                    charges.undo(allocation);
                }
            }
        }
        verdict
    }

    /// Finds out whether there is room for an AppWrapper whose quota takes these back, or who makes some.
    fn judge_room(
        &mut self,
        wrapper: &AppWrapper,
        class: &Class,
        spared: &Amounts,
        victims: &[Arc<AppWrapper>],
    ) -> Verdict {
        let evicts = self.settings.evicts();
        // Where others wait until there is room, who makes some is still there.
        let (spared, gone) = match evicts {
            true => (Amounts::default(), BTreeSet::new()),
            false => {
                let yielding = self.charges.iter().flat_map(Charges::yielding);
                let gone = victims.iter().map(|it| it.metadata.key()).chain(yielding.cloned());
                (spared.clone(), gone.collect())
            }
        };
        let reclaimed = || victims.iter().cloned().map(Victim::Quota).collect();
        match self.room(wrapper, class, &spared, gone) {
            Room::Enough => Verdict::Fits { victims: reclaimed(), sure: true },
            Room::InSum => Verdict::Fits { victims: reclaimed(), sure: false },
            Room::Lacking(lacks) if evicts => self.make_room(wrapper, class, victims, lacks),
            Room::Lacking(lacks) => Verdict::misfit(Pause::Resources, lacks),
        }
    }
}
