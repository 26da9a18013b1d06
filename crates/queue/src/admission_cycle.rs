//! Decides which pending AppWrappers are admitted now.
//!
//! One admission cycle covers the whole queue, because AppWrappers compete. It evaluates them in
//! queue order, accounts for each admission before the next one, and only writes statuses:
//! [`Progress`](crate::Progress) creates the items of admitted AppWrappers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gantry_devices::constraint::Constraints;
use gantry_reconcile::{
    Change, Controller, Event, FactChange, FactKind, Held, Key, Kind, Observer, Plan, World,
};
use jiff::Timestamp;

use crate::access::{self, AccessReview, AuthorRecording};
use crate::amounts::Amounts;
use crate::app_wrapper::AppWrapper;
use crate::charge::QuotaCharges;
use crate::condition::{BackoffReason, PreemptionReason, QueueCondition};
use crate::fair_share::NamespaceShares;
use crate::gang::Gang;
use crate::head_of_line::{self, HoldState};
use crate::order::{self, SchedulingClass};
use crate::packing::NodePacking;
use crate::pod_counts::PodCounts;
use crate::queue_cache::QueueCache;
use crate::quota::ForestCache;
use crate::quota_leaf;
use crate::settings::{LiveSettings, Settings};
use crate::state::Transition;
use crate::status;

use cache_observer::CacheObserver;
use exemption::PreemptionExemption;

mod authorization;
mod cache_observer;
pub(crate) mod capacity_fit;
mod evaluate;
mod exemption;
mod quota_owners;
mod reporting;

/// How many AppWrappers one cycle admits at most; new ones wait for the next, at any priority.
const MAX_ADMISSIONS_PER_CYCLE: usize = 32;

/// Admits pending AppWrappers in queue order.
#[derive(Clone, Debug)]
pub struct Dispatch {
    cache: CacheObserver,
    settings: LiveSettings,
    /// Compiled device constraints, cached; compiling is deterministic.
    constraints: Arc<Constraints>,
}

impl Default for Dispatch {
    fn default() -> Self {
        // The controller and its observer share the settings.
        Self::new(LiveSettings::default())
    }
}

impl Dispatch {
    /// The name of the controller.
    pub const NAME: &str = "queue-dispatch";

    /// Creates the controller with these settings.
    #[must_use]
    pub fn new(settings: LiveSettings) -> Self {
        Self { cache: CacheObserver(settings.clone()), settings, constraints: Arc::default() }
    }

    /// Returns the only key of the work queue. It is enqueued when the settings change.
    #[must_use]
    pub fn queue_key() -> Key {
        Key::cluster("queue")
    }
}

/// Locks the queue cache of a world; after a panic under the lock, a bug here, it is rebuilt.
fn lock_cache(kept: &Mutex<QueueCache>) -> MutexGuard<'_, QueueCache> {
    kept.lock().unwrap_or_else(|poisoned: PoisonError<_>| {
        let mut cache = poisoned.into_inner();
        *cache = QueueCache::default();
        kept.clear_poison();
        cache
    })
}

/// Whether something has changed since the last cycle that may let an AppWrapper be admitted.
#[derive(Debug, Default)]
struct CycleDue(AtomicBool);

impl Controller for Dispatch {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Vec<Kind> {
        CacheObserver::kinds_by(&self.settings)
    }

    fn facts(&self) -> Vec<FactKind> {
        let checked = self.settings.get().user_access.is_checked();
        checked.then(access::facts).into_iter().flatten().collect()
    }

    fn observer(&self) -> Option<&dyn Observer> {
        Some(&self.cache)
    }

    fn enqueue(&self, world: &World, _: &Change) -> Vec<Key> {
        let is_due = world.derived::<CycleDue>().0.load(Ordering::Acquire);
        if is_due { vec![Self::queue_key()] } else { Vec::new() }
    }

    fn enqueue_for_fact(&self, _: &World, change: &FactChange) -> Vec<Key> {
        let review =
            change.of::<AccessReview>().is_some_and(|it| access::changes_authorization(&it));
        let recording = change.of::<AuthorRecording>().is_some_and(|it| it.is_significant());
        if review || recording { vec![Self::queue_key()] } else { Vec::new() }
    }

    fn plan(&self, world: &World, _: &Key, now: Timestamp) -> Plan {
        let settings = self.settings.get();
        let kept = world.derived::<Mutex<QueueCache>>();
        let mut cache = lock_cache(&kept);
        // Under the lock of the cache: any later change makes another cycle due.
        world.derived::<CycleDue>().0.store(false, Ordering::Release);
        cache.rebuild_if_changed(world, &settings);
        cache.end_backoffs(world, &settings, now);
        let roll = world.derived::<Mutex<ForestCache>>();
        let mut roll = roll.lock().unwrap_or_else(PoisonError::into_inner);
        let holders = || cache.holdings.admitted();
        let mut cycle = AdmissionCycle::new(world, &cache, settings, &self.constraints, now);
        cycle.charges = settings
            .quota
            .then(|| QuotaCharges::of(world, &cache.capacity, holders(), &settings, &mut roll));
        if settings.evicts() {
            cycle.pending_preemptions = capacity_fit::pending_preemptions(world, &cache);
        }
        cycle.run();
        let AdmissionCycle { mut plan, charges, .. } = cycle;
        if let Some(charges) = charges {
            *roll = charges.into_cache();
        }
        if let Some(until) = cache.next_backoff_end() {
            plan.requeue_at(until, now);
        }
        plan
    }
}

/// One admission cycle and its plan.
struct AdmissionCycle<'a> {
    world: &'a World,
    cache: &'a QueueCache,
    settings: Settings,
    now: Timestamp,
    /// The quota trees, where they are enabled.
    charges: Option<QuotaCharges>,
    constraints: &'a Arc<Constraints>,
    /// The nodes one by one, built when first needed.
    node_packing: Option<NodePacking<'a>>,
    /// The AppWrappers being preempted, where others wait for their capacity.
    pending_preemptions: BTreeSet<Key>,
    admitted_amounts: AdmittedAmounts,
    /// Classes that do not fit any more, and why.
    rejected_classes: HashMap<Arc<SchedulingClass>, FitFailure>,
    /// AppWrappers that do not fit though others of their class may, and why.
    ineligible: BTreeMap<Key, FitFailure>,
    /// The AppWrappers that the one under evaluation may not preempt.
    exemption: PreemptionExemption,
    /// AppWrappers admitted in this cycle, or once others are gone: none is evaluated twice.
    admitted: BTreeSet<Key>,
    /// Whether quota is reclaimed from an AppWrapper in this cycle.
    reclaims_quota: bool,
    plan: Plan,
}

/// What was given to the AppWrappers admitted in this cycle.
#[derive(Debug, Default)]
struct AdmittedAmounts {
    all: Amounts,
    by_priority: BTreeMap<i32, Amounts>,
}

/// Why an AppWrapper does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FitFailure {
    reason: BackoffReason,
    message: String,
}

/// The result of evaluating an AppWrapper.
#[derive(Debug)]
enum Verdict {
    /// It is admitted once these are preempted.
    Fits {
        /// The AppWrappers to preempt.
        victims: Vec<Victim>,
        /// Whether every pod is known to fit on a node, where that is required.
        packing_verified: bool,
    },
    /// It is admitted once pending preemptions are complete.
    AwaitingPreemption,
    /// It does not fit, and no other of its class does.
    DoesNotFit(FitFailure),
    /// It does not fit, because it may not preempt what others may.
    Ineligible(FitFailure),
    /// It cannot be evaluated before another write is stored.
    Deferred,
    /// It is not evaluated: its author may not create it, or that is not known yet.
    AwaitingAuthorization,
}

impl Verdict {
    fn does_not_fit(reason: BackoffReason, message: String) -> Self {
        Self::DoesNotFit(FitFailure { reason, message })
    }
}

/// An AppWrapper to preempt, and why.
#[derive(Clone, Debug)]
enum Victim {
    /// It borrowed quota that the preemptor owns.
    Quota(Arc<AppWrapper>),
    /// The preemptor has a higher priority.
    Priority(Arc<AppWrapper>),
}

impl<'a> AdmissionCycle<'a> {
    /// Creates a cycle without any decision and without quota.
    fn new(
        world: &'a World,
        cache: &'a QueueCache,
        settings: Settings,
        constraints: &'a Arc<Constraints>,
        now: Timestamp,
    ) -> Self {
        Self {
            world,
            cache,
            settings,
            now,
            charges: None,
            constraints,
            node_packing: None,
            pending_preemptions: BTreeSet::new(),
            admitted_amounts: AdmittedAmounts::default(),
            rejected_classes: HashMap::new(),
            ineligible: BTreeMap::new(),
            exemption: PreemptionExemption::Nothing,
            admitted: BTreeSet::new(),
            reclaims_quota: false,
            plan: Plan::default(),
        }
    }

    fn run(&mut self) {
        if let Some(until) = self.cache.throttled_until(self.now) {
            self.plan.requeue_at(until, self.now);
            return;
        }
        if self.is_head_of_line_held() {
            self.report_queued();
            return;
        }
        self.admit_quota_owners();
        let cache: &'a QueueCache = self.cache;
        let mut walk = cache.pending.fair_cursor(self.now, self.namespace_shares());
        while let Some(stop) = walk.next_item() {
            if self.admitted.len().max(self.plan.steps.len()) >= MAX_ADMISSIONS_PER_CYCLE {
                // The next cycle decides about the others.
                self.plan.requeue_after(Duration::ZERO);
                return;
            }
            let wrapper = self.world.store::<AppWrapper>().get(stop.key());
            let Some(wrapper) = wrapper.filter(|_| !self.admitted.contains(stop.key())) else {
                walk.continue_class(stop);
                continue;
            };
            let known = self.rejected_classes.get(stop.class()).cloned();
            match known.map_or_else(|| self.evaluate(&wrapper, stop.class()), Verdict::DoesNotFit) {
                Verdict::Fits { victims, packing_verified: sure } => {
                    walk.add_usage(&wrapper.metadata.namespace, &stop.class().demand);
                    self.admit(&wrapper, stop.class(), &victims, sure);
                    walk.continue_class(stop);
                }
                Verdict::AwaitingPreemption => {
                    walk.add_usage(&wrapper.metadata.namespace, &stop.class().demand);
                    self.await_preemption(&wrapper, stop.class());
                    walk.continue_class(stop);
                }
                Verdict::DoesNotFit(misfit) => {
                    let class = Arc::clone(stop.class());
                    if self.rejected_classes.insert(class, misfit.clone()).is_none() {
                        self.record_held(&wrapper, &misfit, None);
                    }
                    if self.hold_head_of_line(&wrapper, &misfit) {
                        return;
                    }
                    if !self.settings.holding.is_zero() {
                        // Others of its class may be in another state, and hold the line.
                        walk.continue_class(stop);
                    }
                }
                Verdict::Ineligible(misfit) => {
                    self.record_held(&wrapper, &misfit, None);
                    // No AppWrapper waits behind one that may never be charged to its leaf.
                    let waits = misfit.reason != BackoffReason::Leaf;
                    if waits && self.hold_head_of_line(&wrapper, &misfit) {
                        return;
                    }
                    self.ineligible.insert(wrapper.metadata.key(), misfit);
                    walk.continue_class(stop);
                }
                Verdict::Deferred => {}
                Verdict::AwaitingAuthorization => walk.continue_class(stop),
            }
        }
        self.report_reasons();
        self.update_reports();
    }

    /// Tries those at the head of the line first. Returns whether the line is still held.
    fn is_head_of_line_held(&mut self) -> bool {
        if self.settings.holding.is_zero() {
            return false;
        }
        let heads = self.cache.heads.iter().filter_map(|key| {
            let wrapper = self.world.store::<AppWrapper>().get(key)?;
            let until = head_of_line::held_until(&wrapper.status, &self.settings)?;
            (self.now < until).then_some((wrapper, until))
        });
        let heads: Vec<(Arc<AppWrapper>, Timestamp)> = heads.collect();
        for (wrapper, until) in heads {
            let Some(class) = self.cache.pending.class(&wrapper.metadata.key()) else { continue };
            match self.evaluate(&wrapper, class) {
                // It has waited for this: newer AppWrappers do not preempt it now.
                Verdict::Fits { victims, packing_verified: sure } => {
                    self.admit(&wrapper, class, &victims, sure);
                }
                Verdict::AwaitingPreemption => self.await_preemption(&wrapper, class),
                Verdict::Ineligible(misfit) if misfit.reason == BackoffReason::Leaf => {}
                Verdict::DoesNotFit(misfit) | Verdict::Ineligible(misfit) => {
                    self.record_held(&wrapper, &misfit, Some(until));
                    self.plan.requeue_after(head_of_line::HEAD_OF_LINE_RETRY_INTERVAL);
                    return true;
                }
                Verdict::Deferred | Verdict::AwaitingAuthorization => {}
            }
        }
        false
    }

    /// Lets an AppWrapper that does not fit hold the line, if it may. Returns whether it does.
    fn hold_head_of_line(&mut self, wrapper: &AppWrapper, misfit: &FitFailure) -> bool {
        match head_of_line::hold_state(wrapper, &self.settings, self.now) {
            HoldState::NotHeld => false,
            HoldState::Held(until) => {
                self.record_held(wrapper, misfit, Some(until));
                self.plan.requeue_after(head_of_line::HEAD_OF_LINE_RETRY_INTERVAL);
                true
            }
            HoldState::Begins => {
                self.write(wrapper, &Transition::HoldHeadOfLine, None);
                self.plan.requeue_after(head_of_line::HEAD_OF_LINE_RETRY_INTERVAL);
                true
            }
        }
    }

    /// Returns the shares of the namespaces, where they take turns.
    fn namespace_shares(&self) -> Option<NamespaceShares> {
        if !self.settings.fairness {
            return None;
        }
        let mut shares =
            NamespaceShares::new(order::amounts_by_name(&self.cache.capacity.allocatable()));
        for (key, demand) in self.cache.holdings.admitted_demands() {
            shares.add_usage(key.namespace(), &order::amounts_by_name(demand));
        }
        Some(shares)
    }

    /// Admits an AppWrapper, or first preempts others for it. Once the preemptions are stored, a
    /// later cycle admits it: of two writes either may be lost.
    fn admit(
        &mut self,
        wrapper: &AppWrapper,
        class: &SchedulingClass,
        victims: &[Victim],
        sure: bool,
    ) {
        self.reserve(wrapper, class);
        if victims.is_empty() {
            let said = match sure {
                true => "Admitted: its items are being created",
                false => {
                    "Admitted by total capacity: its items are being created, though it was not \
                     determined in time whether every pod fits on a node"
                }
            };
            self.write(wrapper, &Transition::Reserve, Some(said.to_owned()));
            let understated = quota_leaf::understated_demand_warning(wrapper, &self.settings);
            if let (Some(said), Some(step)) = (understated, self.plan.steps.last_mut()) {
                step.success_events.push(Event::warning(
                    wrapper.reference(),
                    "DemandUnderstated",
                    said,
                ));
            }
            return;
        }
        let by = wrapper.metadata.key().to_string();
        for victim in victims {
            let said = format!("Preempted for {by}");
            let (victim, why) = match victim {
                Victim::Quota(victim) => {
                    self.reclaims_quota = true;
                    (victim, PreemptionReason::Quota { by: by.clone() })
                }
                Victim::Priority(victim) => (victim, PreemptionReason::Priority { by: by.clone() }),
            };
            if self.settings.evicts() {
                self.pending_preemptions.insert(victim.metadata.key());
            }
            self.write(victim, &Transition::Preempt(why), Some(said));
        }
        self.plan.requeue_after(Duration::ZERO);
    }

    /// Accounts for what an AppWrapper will use.
    fn reserve(&mut self, wrapper: &AppWrapper, class: &SchedulingClass) {
        let key = wrapper.metadata.key();
        self.admitted_amounts.all.add(&class.demand);
        self.admitted_amounts
            .by_priority
            .entry(wrapper.spec.priority)
            .or_default()
            .add(&class.demand);
        if let Some(gang) = &class.gang {
            self.node_packing().reserve(&key, Gang::clone(gang));
        }
        self.admitted.insert(key);
    }

    fn write(&mut self, wrapper: &AppWrapper, change: &Transition, said: Option<String>) {
        let priority = order::priority(wrapper, &self.settings, self.now);
        let next = change.apply(wrapper, &PodCounts::default(), priority, self.now);
        let note = said.map(|said| Event::normal(wrapper.reference(), change.event_reason(), said));
        self.plan.steps.extend(status::write_status(wrapper, change, &next, note));
    }

    fn record_held(&mut self, wrapper: &AppWrapper, misfit: &FitFailure, until: Option<Timestamp>) {
        let reason =
            QueueCondition::Backoff(misfit.reason.clone()).reason().unwrap_or_default().into();
        let message = misfit.message.clone();
        self.plan.hold(Held { about: wrapper.reference(), reason, message, until }, self.now);
    }
}

#[cfg(test)]
mod tests;
