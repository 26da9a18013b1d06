//! Caches what follows from all objects together, updated with every change: free capacity,
//! reservations, and the pending AppWrappers in order.
//!
//! The cache is kept with the world it is derived from, and could be rebuilt from it at any time;
//! tests compare the two.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::gang::Gang;
use gantry_api::queue::QueueState;
use gantry_pods::view::{Node, Pod};
use gantry_reconcile::{Change, Key, World};
use jiff::Timestamp;

use crate::amounts::OtherResources;
use crate::app_wrapper::AppWrapper;
use crate::availability::{Reservations, TrackedAppWrapper};
use crate::backoff;
use crate::capacity::{Capacity, CapacityChange};
use crate::charge;
use crate::condition::{self, kind};
use crate::order::{self, PendingQueue};
use crate::quota::Subtree;
use crate::settings::{Inference, Settings};

/// The state derived from all objects together.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct QueueCache {
    /// The settings the cache was built with; absent while it is empty.
    settings: Option<Settings>,
    pub(crate) capacity: Capacity,
    pub(crate) holdings: Reservations,
    /// The pods of admitted AppWrappers, where each must fit on a node.
    pub(crate) gangs: HashMap<Key, Arc<Gang>>,
    /// The AppWrappers that are evaluated now.
    pub(crate) pending: PendingQueue,
    times: HashMap<Key, CacheTimes>,
    /// The AppWrappers that back off, and until when.
    backing_off: BTreeSet<(Timestamp, Key)>,
    /// The AppWrappers that hold the head of the line, or did.
    pub(crate) heads: BTreeSet<Key>,
    /// The pending AppWrappers without a reported reason, the oldest first.
    pub(crate) unreported: BTreeSet<(Timestamp, Key)>,
    /// The pending AppWrappers with a reported reason, by the time of the report.
    pub(crate) reported: BTreeSet<(Timestamp, Key)>,
    /// The AppWrappers that are admitted and not created yet, or preempted and not gone yet, by
    /// when that began.
    in_flight: BTreeSet<(Timestamp, Key)>,
}

/// The times under which an AppWrapper is recorded that is pending or in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct CacheTimes {
    backoff_until: Option<Timestamp>,
    unreported: Option<Timestamp>,
    reported: Option<Timestamp>,
    in_flight: Option<Timestamp>,
}

impl QueueCache {
    /// Builds the cache of a world.
    pub(crate) fn of(world: &World, settings: &Settings) -> Self {
        Self::of_selected(world, settings, |_| true)
    }

    /// Builds the same cache with some of the AppWrappers only, to ask about the capacity that
    /// those leave.
    pub(crate) fn of_selected(
        world: &World,
        settings: &Settings,
        count: impl Fn(&AppWrapper) -> bool,
    ) -> Self {
        let rest = match settings.inference {
            // Pods are placed by everything they request.
            Inference::Compat if settings.packs() || settings.devices => OtherResources::Counted,
            Inference::Compat => OtherResources::Ignored,
            Inference::Full => OtherResources::Counted,
        };
        let mut cache = Self {
            settings: Some(*settings),
            capacity: Capacity::new(rest),
            pending: PendingQueue::of(quota_trees(world, settings)),
            ..Self::default()
        };
        for node in world.store::<Node>().list() {
            cache.capacity.update_node(&node.metadata.name, Some(&node));
        }
        for pod in world.store::<Pod>().list() {
            cache.capacity.update_pod(&pod.metadata.key(), Some(&pod));
        }
        for wrapper in world.store::<AppWrapper>().list().iter().filter(|it| count(it)) {
            cache.update_wrapper(&wrapper.metadata.key(), Some(wrapper), settings);
        }
        cache
    }

    /// Rebuilds the cache if it was built with other settings. Returns whether it was rebuilt.
    pub(crate) fn rebuild_if_changed(&mut self, world: &World, settings: &Settings) -> bool {
        let rebuilt = self.settings != Some(*settings);
        if rebuilt {
            *self = Self::of(world, settings);
        }
        rebuilt
    }

    /// Applies a change. Returns whether an AppWrapper may be admitted now that was not before.
    pub(crate) fn observe(&mut self, world: &World, change: &Change, settings: &Settings) -> bool {
        if change.is::<AppWrapper>() {
            let author = |it: Option<&AppWrapper>| it?.author().map(str::to_owned);
            let other = settings.user_access.is_checked()
                && author(change.before()) != author(change.after());
            return self.update_wrapper(&change.key, change.after(), settings) || other;
        }
        let effect = if change.is::<Pod>() {
            self.capacity.update_pod(&change.key, change.after())
        } else if change.is::<Node>() {
            self.capacity.update_node(change.key.name(), change.after())
        } else {
            // It is a quota or device object; its effect is read when it is needed. But the classes
            // depend on which trees exist.
            if change.is::<Subtree>() && quota_trees(world, settings) != *self.pending.trees() {
                *self = Self::of(world, settings);
            }
            return !Subtree::is_status_change(change);
        };
        let CapacityChange { released, wrappers } = effect;
        for key in &wrappers {
            self.holdings.refresh(key, &self.capacity);
        }
        released || wrappers.iter().any(|key| self.exceeds_admitted(world, key, settings))
    }

    /// Returns whether pods of an AppWrapper request more than was admitted: it can then be
    /// preempted by AppWrappers that could not preempt it before.
    fn exceeds_admitted(&self, world: &World, key: &Key, settings: &Settings) -> bool {
        if !settings.preempts() {
            return false;
        }
        let wrapper = world.store::<AppWrapper>().get(key);
        wrapper.zip(self.capacity.usage(key)).is_some_and(|(wrapper, usage)| {
            charge::usage_over_admitted(&wrapper, settings, &usage.running).is_some()
        })
    }

    /// Makes AppWrappers pending whose backoff is over.
    pub(crate) fn end_backoffs(&mut self, world: &World, settings: &Settings, now: Timestamp) {
        while let Some((until, key)) = self.backing_off.first().cloned() {
            if until > now {
                break;
            }
            self.backing_off.pop_first();
            if let Some(marks) = self.times.get_mut(&key) {
                marks.backoff_until = None;
            }
            if let Some(wrapper) = world.store::<AppWrapper>().get(&key).filter(|it| it.is_queued())
            {
                self.pending.insert(&wrapper, settings);
            }
        }
    }

    /// Returns when the next backoff ends.
    pub(crate) fn next_backoff_end(&self) -> Option<Timestamp> {
        self.backing_off.first().map(|(until, _)| *until)
    }

    /// Returns until when at most nothing is admitted because of the AppWrappers in flight: so many
    /// of them are late that what is decided now would be delayed as well.
    pub(crate) fn throttled_until(&self, now: Timestamp) -> Option<Timestamp> {
        let ago = |time: Duration| now.checked_sub(time).unwrap_or(Timestamp::MIN);
        let since = self.in_flight.range((ago(IN_FLIGHT_TIMEOUT), Key::cluster(""))..);
        let mut late = since.take_while(|(since, _)| *since <= ago(IN_FLIGHT_LATE_AFTER));
        let (first, _) = late.next()?;
        late.nth(MAX_LATE_IN_FLIGHT - 2)?;
        // One moment later it does not count any more.
        first.checked_add(IN_FLIGHT_TIMEOUT + Duration::from_millis(1)).ok()
    }

    fn update_wrapper(
        &mut self,
        key: &Key,
        wrapper: Option<&AppWrapper>,
        settings: &Settings,
    ) -> bool {
        let job = wrapper.map(|it| {
            let demand = it.demand().for_inference(settings.inference).clone();
            TrackedAppWrapper::new(demand, it.spec.priority, it.status.can_run)
        });
        // Quota is returned with the reservation, even if no amount of it is left.
        let charged = wrapper.and_then(|it| charge::held_quota(it, settings));
        let ends = settings.quota && charged.is_none() && self.holdings.is_admitted(key);
        let released = self.holdings.set(key, job, &self.capacity) || ends;
        let holder = wrapper.filter(|it| it.status.can_run);
        match holder.and_then(|it| order::gang(it, settings)) {
            Some(gang) => self.gangs.insert(key.clone(), gang),
            None => self.gangs.remove(key),
        };
        let crowded = self.in_flight.len() >= MAX_LATE_IN_FLIGHT;
        let was_under_way = self.times.get(key).is_some_and(|it| it.in_flight.is_some());
        let under_way = wrapper.and_then(in_flight_since);
        let comes = match wrapper.filter(|it| it.is_queued()) {
            Some(wrapper) => self.update_pending(key, wrapper, settings),
            None => {
                self.update_times(
                    key,
                    CacheTimes { in_flight: under_way, ..CacheTimes::default() },
                );
                self.heads.remove(key);
                self.pending.remove(key);
                false
            }
        };
        let arrives = crowded && was_under_way && under_way.is_none();
        released || comes || arrives
    }

    /// Records a pending AppWrapper. Returns whether its position changed.
    fn update_pending(&mut self, key: &Key, wrapper: &AppWrapper, settings: &Settings) -> bool {
        let rest = backoff::skipped_until(wrapper, settings);
        let step = wrapper.queue_state();
        let told = (step == Some(&QueueState::Backoff)).then(|| {
            condition::newest_since(&wrapper.status, kind::BACKOFF).unwrap_or(Timestamp::MIN)
        });
        let fresh = told.is_none().then(|| wrapper.first_seen());
        match step {
            Some(QueueState::HeadOfLine) => self.heads.insert(key.clone()),
            _ => self.heads.remove(key),
        };
        self.update_times(
            key,
            CacheTimes { backoff_until: rest, unreported: fresh, reported: told, in_flight: None },
        );
        match rest {
            Some(_) => {
                self.pending.remove(key);
                true
            }
            None => self.pending.insert(wrapper, settings),
        }
    }

    fn update_times(&mut self, key: &Key, marks: CacheTimes) {
        let before = match marks == CacheTimes::default() {
            true => self.times.remove(key),
            false => self.times.insert(key.clone(), marks),
        };
        let before = before.unwrap_or_default();
        let lists = [
            (&mut self.backing_off, before.backoff_until, marks.backoff_until),
            (&mut self.unreported, before.unreported, marks.unreported),
            (&mut self.reported, before.reported, marks.reported),
            (&mut self.in_flight, before.in_flight, marks.in_flight),
        ];
        for (list, before, after) in lists {
            if before != after {
                if let Some(before) = before {
                    list.remove(&(before, key.clone()));
                }
                if let Some(after) = after {
                    list.insert((after, key.clone()));
                }
            }
        }
    }
}

/// Returns the existing quota trees, where they are enabled.
pub(crate) fn quota_trees(world: &World, settings: &Settings) -> BTreeSet<String> {
    if !settings.quota {
        return BTreeSet::new();
    }
    let subtrees = world.store::<Subtree>().list();
    subtrees.iter().filter_map(|it| it.tree()).map(str::to_owned).collect()
}

/// Returns since when an AppWrapper is admitted and not created yet, or preempted and not gone yet.
fn in_flight_since(wrapper: &AppWrapper) -> Option<Timestamp> {
    if !wrapper.status.can_run {
        return None;
    }
    match wrapper.queue_state()? {
        QueueState::HeadOfLine => condition::newest_since(&wrapper.status, kind::HEAD_OF_LINE),
        QueueState::Preempted => condition::newest_since(&wrapper.status, kind::PREEMPTED),
        QueueState::Init
        | QueueState::Queueing
        | QueueState::Backoff
        | QueueState::Dispatched
        | QueueState::Running
        | QueueState::PreemptCandidate
        | QueueState::RunningHoldCompletion
        | QueueState::Completed
        | QueueState::Failed
        | QueueState::Deleted
        | QueueState::Other(_) => None,
    }
}

/// How many late AppWrappers in flight stop further admissions.
///
/// To decide is quick; what follows from it takes four requests or more, and requests may be
/// rate-limited. A decision that runs ahead of that gives away quota and capacity that is not used
/// yet, and preempts it again when an AppWrapper of higher priority arrives: half of all jobs,
/// under the load of Kueue's measurement.
const MAX_LATE_IN_FLIGHT: usize = 16;
/// For how long an AppWrapper may be in flight before it is late. It takes milliseconds without
/// obstacles.
const IN_FLIGHT_LATE_AFTER: Duration = Duration::from_secs(1);
/// For how long a late AppWrapper stops admissions: one that cannot be created must not stop them
/// for ever.
const IN_FLIGHT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long after a report the same AppWrapper gets no other one.
pub(crate) const REPORT_REPEAT_INTERVAL: Duration = Duration::from_secs(1);
