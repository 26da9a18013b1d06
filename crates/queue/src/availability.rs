//! What is available to one AppWrapper, given what all others hold.

use std::collections::{BTreeMap, HashMap, HashSet};

use gantry_reconcile::Key;

use crate::amounts::Amounts;
use crate::capacity::{Barrier, Capacity};
use crate::demand::Reach;

/// What each AppWrapper holds, and the sums over those of one priority.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Holdings {
    jobs: HashMap<Key, Job>,
    /// Those that passed their evaluation: few, where many wait.
    holders: HashSet<Key>,
    by_priority: BTreeMap<i32, Sums>,
    /// What all of them together have reserved.
    reserved: Amounts,
}

/// What counts of an AppWrapper that is not the one that is evaluated.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Job {
    /// What it will take in all.
    pub demand: Amounts,
    /// Its priority.
    pub priority: i32,
    /// Whether it passed its evaluation.
    pub holds: bool,
    share: Share,
}

impl Job {
    /// An AppWrapper whose pods are not counted yet.
    #[must_use]
    pub fn new(demand: Amounts, priority: i32, holds: bool) -> Self {
        Self { demand, priority, holds, share: Share::default() }
    }
}

/// What an AppWrapper adds to the sums.
#[derive(Clone, Debug, Default, PartialEq)]
struct Share {
    /// What it will take and does not take yet.
    reserved: Amounts,
    /// What it takes of nodes that count as room.
    taken: BTreeMap<Barrier, Amounts>,
}

/// The shares of one priority.
#[derive(Clone, Debug, Default, PartialEq)]
struct Sums {
    reserved: Amounts,
    taken: BTreeMap<Barrier, Amounts>,
}

impl Holdings {
    /// Takes note of an AppWrapper, or that it is gone. Returns whether others may have more than
    /// before.
    pub fn set(&mut self, key: &Key, job: Option<Job>, capacity: &Capacity) -> bool {
        let before = self.jobs.remove(key);
        let held = before.as_ref().map(|it| it.share.reserved.clone()).unwrap_or_default();
        if let Some(before) = &before {
            self.count(before, Amounts::take);
        }
        match job.as_ref().is_some_and(|it| it.holds) {
            true => _ = self.holders.insert(key.clone()),
            false => _ = self.holders.remove(key),
        }
        let Some(mut job) = job else { return !held.is_nothing() };
        let none = Default::default();
        let usage = capacity.usage(key).unwrap_or(&none);
        if job.holds {
            job.share.reserved = job.demand.without(&usage.used);
        }
        job.share.taken.clone_from(&usage.on);
        self.count(&job, Amounts::add);
        let released = !held.fit(&job.share.reserved);
        self.jobs.insert(key.clone(), job);
        released
    }

    /// Takes note that the pods of an AppWrapper take something else now. That is no release: what is
    /// reserved for a pod is taken by it.
    pub fn refresh(&mut self, key: &Key, capacity: &Capacity) {
        if let Some(Job { demand, priority, holds, .. }) = self.jobs.get(key).cloned() {
            self.set(key, Some(Job::new(demand, priority, holds)), capacity);
        }
    }

    /// What the others have reserved of what is free, and what of theirs counts as free, for one
    /// with this priority and reach; without a priority nothing of theirs does.
    #[must_use]
    pub fn against(&self, priority: Option<i32>, reach: &Reach, capacity: &Capacity) -> Against {
        let Some(target) = priority else {
            return Against { reserved: self.reserved.clone(), reclaimed: Amounts::default() };
        };
        let mut against = Against::default();
        for (_, sums) in self.by_priority.range(target..) {
            against.reserved.add(&sums.reserved);
        }
        for (_, sums) in self.by_priority.range(..target) {
            for (barrier, amounts) in &sums.taken {
                if capacity.lets(barrier, reach) {
                    against.reclaimed.add(amounts);
                }
            }
        }
        against
    }

    /// Whether an AppWrapper passed its evaluation.
    #[must_use]
    pub fn holds(&self, key: &Key) -> bool {
        self.holders.contains(key)
    }

    /// Those that passed their evaluation.
    pub fn holders(&self) -> impl Iterator<Item = &Key> {
        self.holders.iter()
    }

    /// What those that passed their evaluation will take in all.
    pub fn held(&self) -> impl Iterator<Item = (&Key, &Amounts)> {
        self.holders.iter().filter_map(|key| Some((key, &self.jobs.get(key)?.demand)))
    }

    /// What an AppWrapper will take and does not take yet.
    #[must_use]
    pub fn reserved(&self, key: &Key) -> Option<&Amounts> {
        self.jobs.get(key).map(|job| &job.share.reserved)
    }

    fn count(&mut self, job: &Job, with: fn(&mut Amounts, &Amounts)) {
        with(&mut self.reserved, &job.share.reserved);
        let sums = self.by_priority.entry(job.priority).or_default();
        with(&mut sums.reserved, &job.share.reserved);
        for (barrier, amounts) in &job.share.taken {
            let sum = sums.taken.entry(barrier.clone()).or_default();
            with(sum, amounts);
            if sum.is_nothing() {
                sums.taken.remove(barrier);
            }
        }
        if *sums == Sums::default() {
            self.by_priority.remove(&job.priority);
        }
    }
}

/// What the holdings of others mean to one AppWrapper.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Against {
    /// What is free and not for it.
    pub reserved: Amounts,
    /// What is taken and counts as free for it.
    pub reclaimed: Amounts,
}

impl Against {
    /// What is available when so much is free.
    #[must_use]
    pub fn available(&self, free: &Amounts) -> Amounts {
        let mut all = free.clone();
        all.add(&self.reclaimed);
        all.without(&self.reserved)
    }
}

#[cfg(test)]
mod tests;
