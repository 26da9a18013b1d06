//! Who of all that wait passes now.
//!
//! There is one decision about the whole queue, because AppWrappers compete. It takes them in their
//! order, counts what it gives to each before it goes on to the next, and does nothing but write
//! statuses: items are made elsewhere, by those who see that an AppWrapper may.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gantry_devices::constraint::Constraints;
use gantry_pods::gang::Gang;
use gantry_pods::view::{Node, Pod};
use gantry_reconcile::{
    Change, Controller, FactChange, FactKind, Held, Key, Kind, Note, Observer, Plan, World,
};
use jiff::Timestamp;

use crate::access::{self, AccessReview, AuthorRecording};
use crate::amounts::Amounts;
use crate::app_wrapper::AppWrapper;
use crate::books::Books;
use crate::charge::Charges;
use crate::claims;
use crate::condition::{Entry, Pause, Preempted};
use crate::count::Tally;
use crate::fair::Shares;
use crate::hold::{self, Line};
use crate::leaf;
use crate::order::{self, Class};
use crate::packing::Floor;
use crate::quota::{Roll, Subtree};
use crate::settings::{Live, Settings};
use crate::state::Transition;
use crate::status;

use dispute::Spared;

mod dispute;
mod judge;
mod kept_back;
mod owners;
pub(crate) mod room;
mod tell;

/// How many pass in one plan at most, and how much is written for them: whoever comes while that is under
/// way waits for the next plan, however important it is.
const PASSES: usize = 32;

/// Decides who passes.
#[derive(Clone, Debug)]
pub struct Dispatch {
    cache: CacheObserver,
    settings: Live,
    /// Constraints on devices that were compiled before; they are the same whenever they are compiled.
    constraints: Arc<Constraints>,
}

impl Default for Dispatch {
    fn default() -> Self {
        // Both parts follow the same settings.
        Self::new(Live::default())
    }
}

impl Dispatch {
    /// The name of the controller.
    pub const NAME: &str = "queue-dispatch";

    /// Decides by these settings.
    #[must_use]
    pub fn new(settings: Live) -> Self {
        Self { cache: CacheObserver(settings.clone()), settings, constraints: Arc::default() }
    }

    /// The one key there is. Who changes the settings wakes it.
    #[must_use]
    pub fn queue() -> Key {
        Key::cluster("queue")
    }
}

/// The books of a world. A panic while they are open can only come from a mistake in here, and then
/// they are made anew.
fn open(kept: &Mutex<Books>) -> MutexGuard<'_, Books> {
    kept.lock().unwrap_or_else(|poisoned: PoisonError<_>| {
        let mut books = poisoned.into_inner();
        *books = Books::default();
        kept.clear_poison();
        books
    })
}

/// Whether something has changed since the last cycle that may let an AppWrapper be admitted.
#[derive(Debug, Default)]
struct CycleDue(AtomicBool);

/// Keeps the cache of the queue up to date.
#[derive(Clone, Debug)]
struct CacheObserver(Live);

impl CacheObserver {
    fn kinds_by(settings: &Live) -> Vec<Kind> {
        let Settings { quota, devices, .. } = settings.get();
        let quota = quota.then(Kind::of::<Subtree>);
        let others = [Kind::of::<AppWrapper>(), Kind::of::<Pod>(), Kind::of::<Node>()];
        let devices = devices.then(claims::kinds).into_iter().flatten();
        others.into_iter().chain(quota).chain(devices).collect()
    }
}

impl Observer for CacheObserver {
    fn name(&self) -> &'static str {
        "queue-cache"
    }

    fn kinds(&self) -> Vec<Kind> {
        Self::kinds_by(&self.0)
    }

    fn observe(&self, world: &World, change: &Change) {
        let kept = world.kept::<Mutex<Books>>();
        let mut books = open(&kept);
        let settings = self.0.get();
        if books.keep_by(world, &settings) || books.note(world, change, &settings) {
            world.kept::<CycleDue>().0.store(true, Ordering::Release);
        }
    }
}

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
        let is_due = world.kept::<CycleDue>().0.load(Ordering::Acquire);
        if is_due { vec![Self::queue()] } else { Vec::new() }
    }

    fn enqueue_for_fact(&self, _: &World, change: &FactChange) -> Vec<Key> {
        let review = change.of::<AccessReview>().is_some_and(|it| access::is_news(&it));
        let recording = change.of::<AuthorRecording>().is_some_and(|it| it.is_news());
        if review || recording { vec![Self::queue()] } else { Vec::new() }
    }

    fn plan(&self, world: &World, _: &Key, now: Timestamp) -> Plan {
        let settings = self.settings.get();
        let kept = world.kept::<Mutex<Books>>();
        let mut books = open(&kept);
        // While the cache is locked: what comes after that makes another cycle due.
        world.kept::<CycleDue>().0.store(false, Ordering::Release);
        books.keep_by(world, &settings);
        books.wake(world, &settings, now);
        let roll = world.kept::<Mutex<Roll>>();
        let mut roll = roll.lock().unwrap_or_else(PoisonError::into_inner);
        let holders = || books.holdings.holders();
        let mut turn = Turn::new(world, &books, settings, &self.constraints, now);
        turn.charges = settings
            .quota
            .then(|| Charges::of(world, &books.capacity, holders(), &settings, &mut roll));
        if settings.evicts() {
            turn.yielding = room::yielding(world, &books);
        }
        turn.decide();
        let Turn { mut plan, charges, .. } = turn;
        if let Some(charges) = charges {
            *roll = charges.close();
        }
        if let Some(until) = books.next_rested() {
            plan.look_at(until, now);
        }
        plan
    }
}

/// The making of one plan.
struct Turn<'a> {
    world: &'a World,
    books: &'a Books,
    settings: Settings,
    now: Timestamp,
    /// The quota trees, where they count.
    charges: Option<Charges>,
    constraints: &'a Arc<Constraints>,
    /// The nodes one by one, once somebody has asked for them.
    floor: Option<Floor<'a>>,
    /// Those that were told to make room and have not done so yet, where others wait for that.
    yielding: BTreeSet<Key>,
    claimed: Claimed,
    /// Classes that do not fit any more, and why.
    closed: HashMap<Arc<Class>, Misfit>,
    /// Those that do not fit though others like them may, and why.
    barred: BTreeMap<Key, Misfit>,
    /// Whom the one that is looked at takes nothing from.
    spared: Spared,
    /// Those that pass, or will when others are gone: nobody is looked at twice.
    passed: BTreeSet<Key>,
    /// Whether somebody is told in this plan to give its quota up.
    reclaims: bool,
    plan: Plan,
}

/// What those have been given that passed in this plan.
#[derive(Debug, Default)]
struct Claimed {
    all: Amounts,
    by_priority: BTreeMap<i32, Amounts>,
}

/// Why an AppWrapper does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Misfit {
    pause: Pause,
    message: String,
}

/// What was found out about an AppWrapper.
#[derive(Debug)]
enum Verdict {
    /// It passes, if these make room.
    Fits {
        /// Who makes room.
        victims: Vec<Victim>,
        /// Whether every pod is known to find a place, where that is asked.
        sure: bool,
    },
    /// It passes when those have made room that were told to.
    Coming,
    /// It does not fit, and nobody like it does.
    Misfit(Misfit),
    /// It does not fit, because it may not take from somebody what others may.
    Barred(Misfit),
    /// That cannot be said before something else has happened.
    Later,
    /// It is not asked: its author may not have it, or nobody knows yet. Others like it may.
    KeptBack,
}

impl Verdict {
    fn misfit(pause: Pause, message: String) -> Self {
        Self::Misfit(Misfit { pause, message })
    }
}

/// One that makes room, and why.
#[derive(Clone, Debug)]
enum Victim {
    /// It borrowed what the other one owns.
    Quota(Arc<AppWrapper>),
    /// The other one is more important.
    Priority(Arc<AppWrapper>),
}

impl<'a> Turn<'a> {
    /// One in which nothing was decided yet, and no quota counts.
    fn new(
        world: &'a World,
        books: &'a Books,
        settings: Settings,
        constraints: &'a Arc<Constraints>,
        now: Timestamp,
    ) -> Self {
        Self {
            world,
            books,
            settings,
            now,
            charges: None,
            constraints,
            floor: None,
            yielding: BTreeSet::new(),
            claimed: Claimed::default(),
            closed: HashMap::new(),
            barred: BTreeMap::new(),
            spared: Spared::Nobody,
            passed: BTreeSet::new(),
            reclaims: false,
            plan: Plan::default(),
        }
    }

    fn decide(&mut self) {
        if let Some(until) = self.books.behind(self.now) {
            self.plan.look_at(until, self.now);
            return;
        }
        if self.is_line_held() {
            self.greet();
            return;
        }
        self.serve_owners();
        let books: &'a Books = self.books;
        let mut walk = books.lines.walk_fairly(self.now, self.shares());
        while let Some(stop) = walk.stop() {
            if self.passed.len().max(self.plan.steps.len()) >= PASSES {
                // Who of the others passes, and why one does not, is found out next.
                self.plan.look_within(Duration::ZERO);
                return;
            }
            let wrapper = self.world.shelf::<AppWrapper>().get(stop.key());
            let Some(wrapper) = wrapper.filter(|_| !self.passed.contains(stop.key())) else {
                walk.go_on(stop);
                continue;
            };
            let known = self.closed.get(stop.class()).cloned();
            match known.map_or_else(|| self.judge(&wrapper, stop.class()), Verdict::Misfit) {
                Verdict::Fits { victims, sure } => {
                    walk.give(&wrapper.metadata.namespace, &stop.class().demand);
                    self.pass(&wrapper, stop.class(), &victims, sure);
                    walk.go_on(stop);
                }
                Verdict::Coming => {
                    walk.give(&wrapper.metadata.namespace, &stop.class().demand);
                    self.await_room(&wrapper, stop.class());
                    walk.go_on(stop);
                }
                Verdict::Misfit(misfit) => {
                    let class = Arc::clone(stop.class());
                    if self.closed.insert(class, misfit.clone()).is_none() {
                        self.hold(&wrapper, &misfit, None);
                    }
                    if self.holds_line(&wrapper, &misfit) {
                        return;
                    }
                    if !self.settings.holding.is_zero() {
                        // Its like may be in another state, and hold the line.
                        walk.go_on(stop);
                    }
                }
                Verdict::Barred(misfit) => {
                    self.hold(&wrapper, &misfit, None);
                    // Nobody waits for one who may never have what it asks for.
                    let waits = misfit.pause != Pause::Leaf;
                    if waits && self.holds_line(&wrapper, &misfit) {
                        return;
                    }
                    self.barred.insert(wrapper.metadata.key(), misfit);
                    walk.go_on(stop);
                }
                Verdict::Later => {}
                Verdict::KeptBack => walk.go_on(stop),
            }
        }
        self.tell();
        self.tell_again();
    }

    /// Tries those first that hold the line. Returns whether it is still held.
    fn is_line_held(&mut self) -> bool {
        if self.settings.holding.is_zero() {
            return false;
        }
        let heads = self.books.heads.iter().filter_map(|key| {
            let wrapper = self.world.shelf::<AppWrapper>().get(key)?;
            let until = hold::held_until(&wrapper.status, &self.settings)?;
            (self.now < until).then_some((wrapper, until))
        });
        let heads: Vec<(Arc<AppWrapper>, Timestamp)> = heads.collect();
        for (wrapper, until) in heads {
            let Some(class) = self.books.lines.class(&wrapper.metadata.key()) else { continue };
            match self.judge(&wrapper, class) {
                // It has waited for this: nobody takes it away, whoever came since.
                Verdict::Fits { victims, sure } => self.pass(&wrapper, class, &victims, sure),
                Verdict::Coming => self.await_room(&wrapper, class),
                Verdict::Barred(misfit) if misfit.pause == Pause::Leaf => {}
                Verdict::Misfit(misfit) | Verdict::Barred(misfit) => {
                    self.hold(&wrapper, &misfit, Some(until));
                    self.plan.look_within(hold::AGAIN);
                    return true;
                }
                Verdict::Later | Verdict::KeptBack => {}
            }
        }
        false
    }

    /// Lets an AppWrapper that does not fit hold the line, if it may. Returns whether it does.
    fn holds_line(&mut self, wrapper: &AppWrapper, misfit: &Misfit) -> bool {
        match hold::line(wrapper, &self.settings, self.now) {
            Line::Open => false,
            Line::Held(until) => {
                self.hold(wrapper, misfit, Some(until));
                self.plan.look_within(hold::AGAIN);
                true
            }
            Line::Begins => {
                self.write(wrapper, &Transition::Lead, None);
                self.plan.look_within(hold::AGAIN);
                true
            }
        }
    }

    /// What each namespace has, where they take turns.
    fn shares(&self) -> Option<Shares> {
        if !self.settings.fairness {
            return None;
        }
        let mut shares = Shares::new(order::named(&self.books.capacity.room()));
        for (key, demand) in self.books.holdings.held() {
            shares.give(key.namespace(), &order::named(demand));
        }
        Some(shares)
    }

    /// An AppWrapper passes; or, where others must make room for it, they are told so first. When that
    /// is stored it passes in the next plan: of two writes either may be lost.
    fn pass(&mut self, wrapper: &AppWrapper, class: &Class, victims: &[Victim], sure: bool) {
        self.claim(wrapper, class);
        if victims.is_empty() {
            let said = match sure {
                true => "There is room: its items are being created",
                false => {
                    "There is room in total: its items are being created, though it was not found out \
                     in time whether every pod finds a node"
                }
            };
            self.write(wrapper, &Transition::Reserve, Some(said.to_owned()));
            let understated = leaf::warning(wrapper, &self.settings);
            if let (Some(said), Some(step)) = (understated, self.plan.steps.last_mut()) {
                step.done.push(Note::warning(wrapper.about(), "DemandUnderstated", said));
            }
            return;
        }
        let by = wrapper.metadata.key().to_string();
        for victim in victims {
            let said = format!("Makes room for {by}");
            let (victim, why) = match victim {
                Victim::Quota(victim) => {
                    self.reclaims = true;
                    (victim, Preempted::Quota { by: by.clone() })
                }
                Victim::Priority(victim) => (victim, Preempted::Priority { by: by.clone() }),
            };
            if self.settings.evicts() {
                self.yielding.insert(victim.metadata.key());
            }
            self.write(victim, &Transition::Yield(why), Some(said));
        }
        self.plan.look_within(Duration::ZERO);
    }

    /// Counts in what an AppWrapper will take.
    fn claim(&mut self, wrapper: &AppWrapper, class: &Class) {
        let key = wrapper.metadata.key();
        self.claimed.all.add(&class.demand);
        self.claimed.by_priority.entry(wrapper.spec.priority).or_default().add(&class.demand);
        if let Some(gang) = &class.gang {
            self.floor().promise(&key, Gang::clone(gang));
        }
        self.passed.insert(key);
    }

    fn write(&mut self, wrapper: &AppWrapper, change: &Transition, said: Option<String>) {
        let priority = order::priority(wrapper, &self.settings, self.now);
        let next = change.apply(wrapper, &Tally::default(), priority, self.now);
        let note = said.map(|said| Note::normal(wrapper.about(), change.word(), said));
        self.plan.steps.extend(status::write(wrapper, change, &next, note));
    }

    fn hold(&mut self, wrapper: &AppWrapper, misfit: &Misfit, until: Option<Timestamp>) {
        let reason = Entry::Backoff(misfit.pause.clone()).reason().unwrap_or_default().into();
        let message = misfit.message.clone();
        self.plan.hold(Held { about: wrapper.about(), reason, message, until }, self.now);
    }
}

#[cfg(test)]
mod tests;
