//! Computes what is available to one AppWrapper, given what all others hold.

use std::collections::{BTreeMap, HashMap, HashSet};

use gantry_reconcile::Key;

use crate::amounts::Amounts;
use crate::capacity::{Capacity, TaintGroupKey};
use crate::demand::PodTolerations;

/// What each AppWrapper holds, and the sums by priority.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reservations {
    app_wrappers: HashMap<Key, TrackedAppWrapper>,
    /// The admitted AppWrappers: few, where many are pending.
    admitted: HashSet<Key>,
    by_priority: BTreeMap<i32, PriorityTotals>,
    /// The sum of all reservations.
    reserved: Amounts,
}

/// What counts of an AppWrapper other than the one that is evaluated.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrackedAppWrapper {
    /// Its total demand.
    pub demand: Amounts,
    /// Its priority.
    pub priority: i32,
    /// Whether it is admitted.
    pub is_admitted: bool,
    contribution: Contribution,
}

impl TrackedAppWrapper {
    /// Creates an AppWrapper whose pods are not counted yet.
    #[must_use]
    pub fn new(demand: Amounts, priority: i32, holds: bool) -> Self {
        Self { demand, priority, is_admitted: holds, contribution: Contribution::default() }
    }
}

/// What an AppWrapper adds to the sums.
#[derive(Clone, Debug, Default, PartialEq)]
struct Contribution {
    /// The part of its demand that it does not use yet.
    reserved: Amounts,
    /// What it uses of schedulable nodes.
    used: BTreeMap<TaintGroupKey, Amounts>,
}

/// The sums of one priority.
#[derive(Clone, Debug, Default, PartialEq)]
struct PriorityTotals {
    reserved: Amounts,
    used: BTreeMap<TaintGroupKey, Amounts>,
}

impl Reservations {
    /// Records an AppWrapper, or that it is gone. Returns whether more may be available to others
    /// than before.
    pub fn set(&mut self, key: &Key, job: Option<TrackedAppWrapper>, capacity: &Capacity) -> bool {
        let before = self.app_wrappers.remove(key);
        let held = before.as_ref().map(|it| it.contribution.reserved.clone()).unwrap_or_default();
        if let Some(before) = &before {
            self.count(before, Amounts::subtract);
        }
        match job.as_ref().is_some_and(|it| it.is_admitted) {
            true => _ = self.admitted.insert(key.clone()),
            false => _ = self.admitted.remove(key),
        }
        let Some(mut job) = job else { return !held.is_zero() };
        let none = Default::default();
        let usage = capacity.usage(key).unwrap_or(&none);
        if job.is_admitted {
            job.contribution.reserved = job.demand.saturating_sub(&usage.used);
        }
        job.contribution.used.clone_from(&usage.by_group);
        self.count(&job, Amounts::add);
        let released = !held.fits_in(&job.contribution.reserved);
        self.app_wrappers.insert(key.clone(), job);
        released
    }

    /// Records that the pods of an AppWrapper use something else now. That is no release: a pod
    /// uses what was reserved for it.
    pub fn refresh(&mut self, key: &Key, capacity: &Capacity) {
        if let Some(TrackedAppWrapper { demand, priority, is_admitted: holds, .. }) =
            self.app_wrappers.get(key).cloned()
        {
            self.set(key, Some(TrackedAppWrapper::new(demand, priority, holds)), capacity);
        }
    }

    /// Returns what the others have reserved of the free capacity, and which of their resources
    /// count as free, for an AppWrapper with this priority and these tolerations; without a
    /// priority none do.
    #[must_use]
    pub fn adjustment_for(
        &self,
        priority: Option<i32>,
        reach: &PodTolerations,
        capacity: &Capacity,
    ) -> CapacityAdjustment {
        let Some(target) = priority else {
            return CapacityAdjustment {
                reserved: self.reserved.clone(),
                reclaimable: Amounts::default(),
            };
        };
        let mut against = CapacityAdjustment::default();
        for (_, sums) in self.by_priority.range(target..) {
            against.reserved.add(&sums.reserved);
        }
        for (_, sums) in self.by_priority.range(..target) {
            for (barrier, amounts) in &sums.used {
                if capacity.is_tolerated(barrier, reach) {
                    against.reclaimable.add(amounts);
                }
            }
        }
        against
    }

    /// Returns whether an AppWrapper is admitted.
    #[must_use]
    pub fn is_admitted(&self, key: &Key) -> bool {
        self.admitted.contains(key)
    }

    /// Returns the admitted AppWrappers.
    pub fn admitted(&self) -> impl Iterator<Item = &Key> {
        self.admitted.iter()
    }

    /// Returns the total demands of the admitted AppWrappers.
    pub fn admitted_demands(&self) -> impl Iterator<Item = (&Key, &Amounts)> {
        self.admitted.iter().filter_map(|key| Some((key, &self.app_wrappers.get(key)?.demand)))
    }

    /// Returns the part of the demand of an AppWrapper that it does not use yet.
    #[must_use]
    pub fn reserved(&self, key: &Key) -> Option<&Amounts> {
        self.app_wrappers.get(key).map(|job| &job.contribution.reserved)
    }

    fn count(&mut self, job: &TrackedAppWrapper, with: fn(&mut Amounts, &Amounts)) {
        with(&mut self.reserved, &job.contribution.reserved);
        let sums = self.by_priority.entry(job.priority).or_default();
        with(&mut sums.reserved, &job.contribution.reserved);
        for (barrier, amounts) in &job.contribution.used {
            let sum = sums.used.entry(barrier.clone()).or_default();
            with(sum, amounts);
            if sum.is_zero() {
                sums.used.remove(barrier);
            }
        }
        if *sums == PriorityTotals::default() {
            self.by_priority.remove(&job.priority);
        }
    }
}

/// What the reservations of others mean to one AppWrapper.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CapacityAdjustment {
    /// What is free but reserved for others.
    pub reserved: Amounts,
    /// What is used and counts as free for it.
    pub reclaimable: Amounts,
}

impl CapacityAdjustment {
    /// Returns what is available when this much is free.
    #[must_use]
    pub fn available(&self, free: &Amounts) -> Amounts {
        let mut all = free.clone();
        all.add(&self.reclaimable);
        all.saturating_sub(&self.reserved)
    }
}

#[cfg(test)]
mod tests;
