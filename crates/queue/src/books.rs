//! What follows from all objects together, kept up to date with every change: what is free, what is
//! held, and who waits in which order.
//!
//! It is kept with the world it follows from, and could be made from it at any time; tests hold one
//! against the other.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use gantry_api::queue::QueueState;
use gantry_pods::gang::Gang;
use gantry_pods::view::{Node, Pod};
use gantry_reconcile::{Change, Key, World};
use jiff::Timestamp;

use crate::amounts::Rest;
use crate::app_wrapper::AppWrapper;
use crate::availability::{Holdings, Job};
use crate::backoff;
use crate::capacity::{Capacity, Effect};
use crate::charge;
use crate::condition::{self, kind};
use crate::order::{self, Lines};
use crate::quota::Subtree;
use crate::settings::{Inference, Settings};

/// What follows from all objects together.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Books {
    /// By which settings they are kept; nothing was noted before there are any.
    settings: Option<Settings>,
    pub(crate) capacity: Capacity,
    pub(crate) holdings: Holdings,
    /// The pods of those that passed, where each of them must find a place.
    pub(crate) gangs: HashMap<Key, Arc<Gang>>,
    /// Who is looked at now.
    pub(crate) lines: Lines,
    marks: HashMap<Key, Marks>,
    /// Who is not, and until when.
    resting: BTreeSet<(Timestamp, Key)>,
    /// Who holds the line, or did.
    pub(crate) heads: BTreeSet<Key>,
    /// Who has not been told yet why it waits, the oldest first.
    pub(crate) fresh: BTreeSet<(Timestamp, Key)>,
    /// Who has, by when that was.
    pub(crate) told: BTreeSet<(Timestamp, Key)>,
    /// Who passed and is not made yet, and who makes room and is not gone yet, by when that was.
    under_way: BTreeSet<(Timestamp, Key)>,
}

/// Where one is noted who waits, or who is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Marks {
    rest: Option<Timestamp>,
    fresh: Option<Timestamp>,
    told: Option<Timestamp>,
    under_way: Option<Timestamp>,
}

impl Books {
    /// The books of a world.
    pub(crate) fn of(world: &World, settings: &Settings) -> Self {
        Self::of_those(world, settings, |_| true)
    }

    /// The same with some of its AppWrappers, to ask about the room that those leave.
    pub(crate) fn of_those(
        world: &World,
        settings: &Settings,
        count: impl Fn(&AppWrapper) -> bool,
    ) -> Self {
        let rest = match settings.inference {
            // Pods are placed by everything they ask for.
            Inference::Compat if settings.packs() || settings.devices => Rest::Counted,
            Inference::Compat => Rest::Ignored,
            Inference::Full => Rest::Counted,
        };
        let mut books = Self {
            settings: Some(*settings),
            capacity: Capacity::new(rest),
            lines: Lines::of(trees(world, settings)),
            ..Self::default()
        };
        for node in world.shelf::<Node>().all() {
            books.capacity.node(&node.metadata.name, Some(&node));
        }
        for pod in world.shelf::<Pod>().all() {
            books.capacity.pod(&pod.metadata.key(), Some(&pod));
        }
        for wrapper in world.shelf::<AppWrapper>().all().iter().filter(|it| count(it)) {
            books.wrapper(&wrapper.metadata.key(), Some(wrapper), settings);
        }
        books
    }

    /// Makes sure that they are kept by these settings. Returns whether they had to be made anew.
    pub(crate) fn keep_by(&mut self, world: &World, settings: &Settings) -> bool {
        let anew = self.settings != Some(*settings);
        if anew {
            *self = Self::of(world, settings);
        }
        anew
    }

    /// Takes note of a change. Returns whether somebody may pass now who did not before.
    pub(crate) fn note(&mut self, world: &World, change: &Change, settings: &Settings) -> bool {
        if change.is::<AppWrapper>() {
            let author = |it: Option<&AppWrapper>| it?.author().map(str::to_owned);
            let other = settings.user_access.is_checked()
                && author(change.before()) != author(change.after());
            return self.wrapper(&change.key, change.after(), settings) || other;
        }
        let effect = if change.is::<Pod>() {
            self.capacity.pod(&change.key, change.after())
        } else if change.is::<Node>() {
            self.capacity.node(change.key.name(), change.after())
        } else {
            // A quota, or something about devices; what it changes is seen when it is asked for. But who
            // is like whom depends on which trees there are.
            if change.is::<Subtree>() && trees(world, settings) != *self.lines.trees() {
                *self = Self::of(world, settings);
            }
            return !Subtree::only_says(change);
        };
        let Effect { released, wrappers } = effect;
        for key in &wrappers {
            self.holdings.refresh(key, &self.capacity);
        }
        released || wrappers.iter().any(|key| self.exceeds(world, key, settings))
    }

    /// Whether pods of an AppWrapper ask for more than was admitted: others may take from it what they could
    /// not take before.
    fn exceeds(&self, world: &World, key: &Key, settings: &Settings) -> bool {
        if !settings.preempts() {
            return false;
        }
        let wrapper = world.shelf::<AppWrapper>().get(key);
        wrapper.zip(self.capacity.usage(key)).is_some_and(|(wrapper, usage)| {
            charge::exceeded(&wrapper, settings, &usage.running).is_some()
        })
    }

    /// Lets those have a turn whose rest is over.
    pub(crate) fn wake(&mut self, world: &World, settings: &Settings, now: Timestamp) {
        while let Some((until, key)) = self.resting.first().cloned() {
            if until > now {
                break;
            }
            self.resting.pop_first();
            if let Some(marks) = self.marks.get_mut(&key) {
                marks.rest = None;
            }
            if let Some(wrapper) = world.shelf::<AppWrapper>().get(&key).filter(|it| it.is_queued())
            {
                self.lines.put(&wrapper, settings);
            }
        }
    }

    /// When the next one's rest is over.
    pub(crate) fn next_rested(&self) -> Option<Timestamp> {
        self.resting.first().map(|(until, _)| *until)
    }

    /// Until when at most nobody passes because those come first that are under way: so many of them
    /// have been for too long that what is decided now would wait as well.
    pub(crate) fn behind(&self, now: Timestamp) -> Option<Timestamp> {
        let ago = |time: Duration| now.checked_sub(time).unwrap_or(Timestamp::MIN);
        let since = self.under_way.range((ago(GIVEN_UP), Key::cluster(""))..);
        let mut late = since.take_while(|(since, _)| *since <= ago(LATE));
        let (first, _) = late.next()?;
        late.nth(BEHIND - 2)?;
        // A moment later it counts no more.
        first.checked_add(GIVEN_UP + Duration::from_millis(1)).ok()
    }

    fn wrapper(&mut self, key: &Key, wrapper: Option<&AppWrapper>, settings: &Settings) -> bool {
        let job = wrapper.map(|it| {
            let demand = it.demand().by(settings.inference).clone();
            Job::new(demand, it.spec.priority, it.status.can_run)
        });
        // Quota is given back with the reservation, though nothing of that may be left.
        let charged = wrapper.and_then(|it| charge::standing(it, settings));
        let ends = settings.quota && charged.is_none() && self.holdings.holds(key);
        let released = self.holdings.set(key, job, &self.capacity) || ends;
        let holder = wrapper.filter(|it| it.status.can_run);
        match holder.and_then(|it| order::gang(it, settings)) {
            Some(gang) => self.gangs.insert(key.clone(), gang),
            None => self.gangs.remove(key),
        };
        let crowded = self.under_way.len() >= BEHIND;
        let was_under_way = self.marks.get(key).is_some_and(|it| it.under_way.is_some());
        let under_way = wrapper.and_then(under_way);
        let comes = match wrapper.filter(|it| it.is_queued()) {
            Some(wrapper) => self.wait(key, wrapper, settings),
            None => {
                self.mark(key, Marks { under_way, ..Marks::default() });
                self.heads.remove(key);
                self.lines.take(key);
                false
            }
        };
        let arrives = crowded && was_under_way && under_way.is_none();
        released || comes || arrives
    }

    /// Takes note of one who waits. Returns whether it has another place than before.
    fn wait(&mut self, key: &Key, wrapper: &AppWrapper, settings: &Settings) -> bool {
        let rest = backoff::rests(wrapper, settings);
        let step = wrapper.step();
        let told = (step == Some(&QueueState::Backoff)).then(|| {
            condition::newest_since(&wrapper.status, kind::BACKOFF).unwrap_or(Timestamp::MIN)
        });
        let fresh = told.is_none().then(|| wrapper.first_seen());
        match step {
            Some(QueueState::HeadOfLine) => self.heads.insert(key.clone()),
            _ => self.heads.remove(key),
        };
        self.mark(key, Marks { rest, fresh, told, under_way: None });
        match rest {
            Some(_) => {
                self.lines.take(key);
                true
            }
            None => self.lines.put(wrapper, settings),
        }
    }

    fn mark(&mut self, key: &Key, marks: Marks) {
        let before = match marks == Marks::default() {
            true => self.marks.remove(key),
            false => self.marks.insert(key.clone(), marks),
        };
        let before = before.unwrap_or_default();
        let lists = [
            (&mut self.resting, before.rest, marks.rest),
            (&mut self.fresh, before.fresh, marks.fresh),
            (&mut self.told, before.told, marks.told),
            (&mut self.under_way, before.under_way, marks.under_way),
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

/// The quota trees there are, where they count.
pub(crate) fn trees(world: &World, settings: &Settings) -> BTreeSet<String> {
    if !settings.quota {
        return BTreeSet::new();
    }
    let subtrees = world.shelf::<Subtree>().all();
    subtrees.iter().filter_map(|it| it.tree()).map(str::to_owned).collect()
}

/// Since when an AppWrapper passed and is not made yet, or makes room and is not gone yet.
fn under_way(wrapper: &AppWrapper) -> Option<Timestamp> {
    if !wrapper.status.can_run {
        return None;
    }
    match wrapper.step()? {
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

/// How many that are under way for longer than they should be keep others from passing.
///
/// To decide is quick; what follows from it takes four requests or more, and requests may be limited. A
/// decision that runs ahead of that gives away quota and room that nobody uses yet, and takes it back when
/// somebody more important comes: half of all jobs, under the load of Kueue's measurement.
const BEHIND: usize = 16;
/// For how long somebody may be under way. It takes milliseconds where nothing is in the way.
const LATE: Duration = Duration::from_secs(1);
/// For how long it is waited for: what cannot be made must not keep others from passing for ever.
const GIVEN_UP: Duration = Duration::from_secs(10);

/// How long after somebody was told something nobody is told the same again.
pub(crate) const QUIET: Duration = Duration::from_secs(1);
