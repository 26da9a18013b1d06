//! Evaluates whether one AppWrapper fits beside all that was given so far.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use gantry_reconcile::Key;

use super::capacity_fit::CapacityFit;
use super::exemption::PreemptionExemption;
use super::{AdmissionCycle, FitFailure, Verdict, Victim};
use crate::amounts::Amounts;
use crate::app_wrapper::AppWrapper;
use crate::charge::{self, QuotaCharges};
use crate::condition::BackoffReason;
use crate::order::SchedulingClass;

impl AdmissionCycle<'_> {
    /// Evaluates whether an AppWrapper fits beside all that was given so far: into its quota first,
    /// then into the available capacity. An AppWrapper whose author is not authorized is charged
    /// nothing, and preempts nothing.
    pub(super) fn evaluate(&mut self, wrapper: &AppWrapper, class: &SchedulingClass) -> Verdict {
        if self.awaits_authorization(wrapper) {
            return Verdict::AwaitingAuthorization;
        }
        self.exemption = match self.charges {
            Some(_) => PreemptionExemption::of(self.world, wrapper, &self.settings, self.now),
            None => PreemptionExemption::Nothing,
        };
        let verdict = self.evaluate_quota(wrapper, class);
        match (verdict, self.exemption.message()) {
            (Verdict::DoesNotFit(FitFailure { reason: pause, message }), Some(why)) => {
                if let PreemptionExemption::All { until } = self.exemption {
                    self.plan.requeue_at(until, self.now);
                }
                Verdict::Ineligible(FitFailure {
                    reason: pause,
                    message: format!("{message}; {why}"),
                })
            }
            (verdict, _) => verdict,
        }
    }

    fn evaluate_quota(&mut self, wrapper: &AppWrapper, class: &SchedulingClass) -> Verdict {
        let Some(charges) = &mut self.charges else {
            return self.evaluate_capacity(wrapper, class, &Amounts::default(), &[]);
        };
        let spares = |key: &Key| self.exemption.exempts(key);
        if !charges.has_labels(wrapper) {
            return Verdict::Deferred;
        }
        if let Err(why) = charges.check_leaves(self.world, wrapper, &self.settings) {
            let message = why.to_string();
            return Verdict::Ineligible(FitFailure { reason: BackoffReason::Leaf, message });
        }
        let allocation = match charges.charge(wrapper, spares, &self.settings) {
            Ok(allocation) => allocation,
            Err(why) => return Verdict::does_not_fit(BackoffReason::Quota, why),
        };
        let store = self.world.store::<AppWrapper>();
        let victims = allocation.victims.iter().filter_map(|it| store.get(it.key()));
        let victims: Vec<Arc<AppWrapper>> = victims.collect();
        let given =
            |it: &Arc<AppWrapper>| (it.spec.priority, charge::charged_amounts(it, &self.settings));
        let given: Vec<(i32, Amounts)> = victims.iter().map(given).collect();
        let spared = charges.freed_by_preemption(wrapper.spec.priority, given.iter());
        let verdict = match self.evaluate_capacity(wrapper, class, &spared, &victims) {
            // An AppWrapper admitted in this cycle cannot be preempted yet.
            Verdict::Fits { .. }
                if victims.iter().any(|it| self.admitted.contains(&it.metadata.key())) =>
            {
                self.plan.requeue_after(Duration::ZERO);
                Verdict::Deferred
            }
            // Quota reclaimed beyond what its owner needs is not given to others before that is
            // stored.
            Verdict::Fits { victims, .. } if self.reclaims_quota && victims.is_empty() => {
                self.plan.requeue_after(Duration::ZERO);
                Verdict::Deferred
            }
            other @ (Verdict::Fits { .. }
            | Verdict::AwaitingPreemption
            | Verdict::DoesNotFit(_)
            | Verdict::Ineligible(_)
            | Verdict::Deferred
            | Verdict::AwaitingAuthorization) => other,
        };
        if let Some(charges) = &mut self.charges {
            match verdict {
                Verdict::Fits { .. } | Verdict::AwaitingPreemption => charges.commit(allocation),
                Verdict::DoesNotFit(_)
                | Verdict::Ineligible(_)
                | Verdict::Deferred
                | Verdict::AwaitingAuthorization => {
                    charges.undo(allocation);
                }
            }
        }
        verdict
    }

    /// Evaluates whether there is free capacity, without the AppWrappers that lose their quota, or
    /// after preempting others.
    fn evaluate_capacity(
        &mut self,
        wrapper: &AppWrapper,
        class: &SchedulingClass,
        spared: &Amounts,
        victims: &[Arc<AppWrapper>],
    ) -> Verdict {
        let evicts = self.settings.evicts();
        // Where preemption waits until others are gone, they still count as present.
        let (spared, gone) = match evicts {
            true => (Amounts::default(), BTreeSet::new()),
            false => {
                let yielding = self.charges.iter().flat_map(QuotaCharges::pending_preemptions);
                let gone = victims.iter().map(|it| it.metadata.key()).chain(yielding.cloned());
                (spared.clone(), gone.collect())
            }
        };
        let reclaimed = || victims.iter().cloned().map(Victim::Quota).collect();
        match self.capacity_fit(wrapper, class, &spared, gone) {
            CapacityFit::Fits => Verdict::Fits { victims: reclaimed(), packing_verified: true },
            CapacityFit::FitsInTotal => {
                Verdict::Fits { victims: reclaimed(), packing_verified: false }
            }
            CapacityFit::Insufficient(lacks) if evicts => {
                self.preempt_for(wrapper, class, victims, lacks)
            }
            CapacityFit::Insufficient(lacks) => {
                Verdict::does_not_fit(BackoffReason::Resources, lacks)
            }
        }
    }
}
