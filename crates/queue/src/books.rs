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
}

/// Where one who waits is noted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Marks {
    rest: Option<Timestamp>,
    fresh: Option<Timestamp>,
    told: Option<Timestamp>,
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
        let mut books =
            Self { settings: Some(*settings), capacity: Capacity::new(rest), ..Self::default() };
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
    pub(crate) fn note(&mut self, change: &Change, settings: &Settings) -> bool {
        if change.is::<AppWrapper>() {
            return self.wrapper(&change.key, change.after(), settings);
        }
        let effect = if change.is::<Pod>() {
            self.capacity.pod(&change.key, change.after())
        } else if change.is::<Node>() {
            self.capacity.node(change.key.name(), change.after())
        } else {
            // A quota, or something about devices; what it changes is seen when it is asked for.
            return true;
        };
        let Effect { released, wrappers } = effect;
        for key in &wrappers {
            self.holdings.refresh(key, &self.capacity);
        }
        released
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
            if let Some(wrapper) = world.shelf::<AppWrapper>().get(&key).filter(|it| it.waits()) {
                self.lines.put(&wrapper, settings);
            }
        }
    }

    /// When the next one's rest is over.
    pub(crate) fn next_rested(&self) -> Option<Timestamp> {
        self.resting.first().map(|(until, _)| *until)
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
        let comes = match wrapper.filter(|it| it.waits()) {
            Some(wrapper) => self.wait(key, wrapper, settings),
            None => {
                self.mark(key, Marks::default());
                self.heads.remove(key);
                self.lines.take(key);
                false
            }
        };
        released || comes
    }

    /// Takes note of one who waits. Returns whether it has another place than before.
    fn wait(&mut self, key: &Key, wrapper: &AppWrapper, settings: &Settings) -> bool {
        let rest = backoff::rests(&wrapper.status, settings);
        let step = wrapper.step();
        let told = (step == Some(&QueueState::Backoff)).then(|| {
            condition::newest_since(&wrapper.status, kind::BACKOFF).unwrap_or(Timestamp::MIN)
        });
        let fresh = told.is_none().then(|| wrapper.first_seen());
        match step {
            Some(QueueState::HeadOfLine) => self.heads.insert(key.clone()),
            _ => self.heads.remove(key),
        };
        self.mark(key, Marks { rest, fresh, told });
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

/// How long after somebody was told something nobody is told the same again.
pub(crate) const QUIET: Duration = Duration::from_secs(1);
