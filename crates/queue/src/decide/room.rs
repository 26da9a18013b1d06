//! Whether there is room for one AppWrapper, and who makes some.

use std::collections::BTreeSet;
use std::sync::Arc;

use gantry_api::devices::DevicePool;
use gantry_api::queue::AppWrapperState;
use gantry_devices::constraint::Constraints;
use gantry_pods::devices::Seen;
use gantry_pods::view::Pod;
use gantry_reconcile::{Key, View as _, World};
use jiff::Timestamp;

use super::{Turn, Verdict, Victim};
use crate::amounts::{Amounts, Lack};
use crate::app_wrapper::AppWrapper;
use crate::books::Books;
use crate::charge;
use crate::condition::{self, Pause, kind};
use crate::evict::{self, Candidate};
use crate::order::Class;
use crate::packing::{Added, Fit, Floor, Gone};
use crate::progress::pods_of;
use crate::settings::Settings;
use crate::state;

/// Whether there is room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// There is.
    Enough,
    /// There is in sum; whether every pod finds a place was not found out in time.
    InSum,
    /// There is not; this is missing.
    Lacking(String),
}

impl<'a> Turn<'a> {
    /// Finds out whether there is room for an AppWrapper when so much is spared for it and these others are
    /// gone.
    pub(super) fn room(
        &mut self,
        wrapper: &AppWrapper,
        class: &Class,
        spared: &Amounts,
        gone: BTreeSet<Key>,
    ) -> Room {
        let below = self.target(wrapper);
        if let Some(lacks) = self.lacks(class, spared, below) {
            return Room::Lacking(lacks);
        }
        let Some(gang) = &class.gang else { return Room::Enough };
        let gone = Gone { wrappers: gone, below };
        match self.floor().ask(gang, &class.node_labels, &gone) {
            Fit::Yes => Room::Enough,
            Fit::Unknown => Room::InSum,
            Fit::No(why) => Room::Lacking(why),
        }
    }

    /// The nodes one by one, looked at when somebody asks.
    pub(super) fn floor(&mut self) -> &mut Floor<'a> {
        let (world, books, constraints) = (self.world, self.books, self.read_by());
        self.floor.get_or_insert_with(|| Floor::new(world, books, constraints))
    }

    /// What claims are read by, where they count.
    fn read_by(&self) -> Option<&'a Arc<Constraints>> {
        // Settings may change while the world cannot: what it does not show is not looked at.
        let pools = self.world.shelf_at::<Seen<DevicePool>>(&Seen::<DevicePool>::RESOURCE);
        (self.settings.devices && pools.is_some()).then_some(self.constraints)
    }

    /// Below which priority everything counts as free, where that is so.
    fn target(&self, wrapper: &AppWrapper) -> Option<i32> {
        let counts = self.settings.preempts() && !self.settings.evicts();
        counts.then_some(wrapper.spec.priority)
    }

    /// What is missing to an AppWrapper in sum when so much is spared for it, and everything below a
    /// priority counts as free.
    fn lacks(&self, class: &Class, spared: &Amounts, target: Option<i32>) -> Option<String> {
        let Books { capacity, holdings, .. } = self.books;
        let free = capacity.free(&class.reach, &class.node_labels);
        let mut against = holdings.against(target, &class.reach, capacity);
        against.reclaimed.add(spared);
        match target {
            None => against.reserved.add(&self.claimed.all),
            Some(target) => {
                let above = self.claimed.by_priority.range(target..);
                above.for_each(|(_, amounts)| against.reserved.add(amounts));
            }
        }
        let available = against.available(&free);
        let lacks: Vec<String> =
            class.demand.lacking(&available).iter().map(Lack::to_string).collect();
        (!lacks.is_empty()).then(|| lacks.join("; "))
    }

    /// Lets others make room for an AppWrapper that does not fit, where the settings say so: those that its
    /// quota takes back, those that are going anyway, and as few as will do of those with a lower priority.
    pub(super) fn make_room(
        &mut self,
        wrapper: &AppWrapper,
        class: &Class,
        reclaimed: &[Arc<AppWrapper>],
        lacks: String,
    ) -> Verdict {
        let shelf = self.world.shelf::<AppWrapper>();
        let mut base: BTreeSet<Key> = reclaimed.iter().map(|it| it.metadata.key()).collect();
        base.extend(self.yielding.iter().cloned());
        let mut given = Amounts::default();
        base.iter().for_each(|key| given.add(&self.given(key, class)));
        // Most do not fit even if nobody less important is there, and that is known without asking who.
        let below = Some(wrapper.spec.priority);
        let first = self.first_to_go(&base);
        let most: BTreeSet<Key> = base.iter().chain(&first).cloned().collect();
        let mut most_given = given.clone();
        first.iter().for_each(|key| most_given.add(&self.given(key, class)));
        let alone = Gone { wrappers: most, below };
        let gang = class.gang.as_deref();
        if self.lacks(class, &most_given, below).is_some()
            || gang.is_some_and(|it| self.floor().bars(it, &class.node_labels, &alone))
        {
            return Verdict::misfit(Pause::Resources, lacks);
        }
        let lower = self.books.holdings.holders().filter(|key| !base.contains(key));
        let lower = lower.filter(|key| !self.spared.is(key));
        let lower = lower.filter_map(|key| shelf.get(key));
        let is_first = |it: &AppWrapper| first.contains(&it.metadata.key());
        let is_lower = |it: &AppWrapper| it.spec.priority < wrapper.spec.priority || is_first(it);
        let mut lower: Vec<Arc<AppWrapper>> =
            lower.filter(|it| is_lower(it) && may_go(it)).collect();
        lower.sort_by_key(|it| it.metadata.key());
        let candidates: Vec<Candidate> = lower
            .iter()
            .map(|it| Candidate {
                priority: if is_first(it) { i32::MIN } else { it.spec.priority },
                since: condition::newest_since(&it.status, kind::HEAD_OF_LINE)
                    .unwrap_or_else(|| it.first_seen()),
            })
            .collect();
        let gives: Vec<Amounts> =
            lower.iter().map(|it| self.given(&it.metadata.key(), class)).collect();
        let chosen = evict::choose(&candidates, |gone| {
            let (mut keys, mut spared) = (base.clone(), given.clone());
            for at in gone {
                keys.insert(lower[*at].metadata.key());
                spared.add(&gives[*at]);
            }
            // Nobody is taken back for one who may not fit even so.
            self.room(wrapper, class, &spared, keys) == Room::Enough
        });
        let Some(chosen) = chosen else { return Verdict::misfit(Pause::Resources, lacks) };
        let reclaimed = reclaimed.iter().cloned().map(Victim::Quota);
        let evicted = chosen.into_iter().map(|at| Victim::Priority(Arc::clone(&lower[at])));
        let victims: Vec<Victim> = reclaimed.chain(evicted).collect();
        if victims.is_empty() { Verdict::Coming } else { Verdict::Fits { victims, sure: true } }
    }

    /// Those that go before all others, whatever their priority: their pods ask for more than was admitted.
    fn first_to_go(&self, but: &BTreeSet<Key>) -> BTreeSet<Key> {
        let shelf = self.world.shelf::<AppWrapper>();
        let exceeds = |key: &&Key| {
            let usage = self.books.capacity.usage(key);
            let wrapper = usage.and_then(|usage| Some((usage, shelf.get(key)?)));
            wrapper.is_some_and(|(usage, it)| {
                may_go(&it) && charge::exceeded(&it, &self.settings, &usage.running).is_some()
            })
        };
        let holders = self.books.holdings.holders().filter(|key| !but.contains(*key));
        holders.filter(exceeds).cloned().collect()
    }

    /// What another AppWrapper gives when it goes.
    fn given(&self, key: &Key, class: &Class) -> Amounts {
        let Books { capacity, .. } = self.books;
        let mut given = match class.node_labels.is_empty() {
            true => capacity.freed(key, &class.reach),
            false => {
                let pods = self.world.shelf::<Pod>().tagged(&pods_of(key));
                let pods = pods.iter().map(|it| it.metadata.key());
                capacity.freed_by(pods, &class.reach, &class.node_labels)
            }
        };
        if let Some(reserved) = self.books.holdings.reserved(key) {
            given.add(reserved);
        }
        given
    }
}

/// What is missing to an AppWrapper that is the first to be looked at, where there are some nodes more
/// than the world has and these others are gone; nothing if there is room. The books know of the nodes.
pub(crate) fn missing(
    world: &World,
    books: &Books,
    settings: &Settings,
    constraints: &Arc<Constraints>,
    added: &Added,
    gone: BTreeSet<Key>,
    (wrapper, class): (&AppWrapper, &Class),
) -> Option<String> {
    // Nothing about room depends on the time.
    let mut turn = Turn::new(world, books, *settings, constraints, Timestamp::UNIX_EPOCH);
    turn.floor = Some(Floor::with(world, books, turn.read_by(), added));
    let mut spared = Amounts::default();
    gone.iter().for_each(|key| spared.add(&turn.given(key, class)));
    match turn.room(wrapper, class, &spared, gone) {
        Room::Enough | Room::InSum => None,
        Room::Lacking(lacks) => Some(lacks),
    }
}

/// Those that were told to make room and have not done so yet.
pub(super) fn yielding(world: &World, books: &Books) -> BTreeSet<Key> {
    let shelf = world.shelf::<AppWrapper>();
    let holders = books.holdings.holders();
    let yields = |key: &&Key| shelf.get(key).is_some_and(|it| charge::yields(&it));
    holders.filter(yields).cloned().collect()
}

/// Whether an AppWrapper that passed may be taken back: it is not on its way out, and has not done all it
/// was to do.
fn may_go(wrapper: &AppWrapper) -> bool {
    let busy = matches!(wrapper.state(), Some(AppWrapperState::Pending | AppWrapperState::Running));
    busy && !wrapper.metadata.is_going() && state::leaving(wrapper).is_none()
}
