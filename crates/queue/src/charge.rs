//! What AppWrappers are charged to quota trees, and what is charged while a plan is made.

use std::collections::BTreeMap;
use std::sync::Arc;

use gantry_api::queue::QueueState;
use gantry_reconcile::{Key, World};

use crate::amounts::Amounts;
use crate::app_wrapper::AppWrapper;
use crate::condition::{self, kind};
use crate::order::named;
use crate::quota::{Allocation, Consumer, ConsumerId, Forest, Roll, Standing, Subtree};
use crate::settings::Settings;

/// What quota an AppWrapper holds, if any. One that was told to make room holds none any more, though
/// its pods may still be there.
#[must_use]
pub fn standing(wrapper: &AppWrapper, settings: &Settings) -> Option<Standing> {
    if !wrapper.status.can_run || yields(wrapper) {
        return None;
    }
    let passed = condition::newest_since(&wrapper.status, kind::HEAD_OF_LINE);
    let since = passed.unwrap_or_else(|| wrapper.first_seen());
    Some(Standing { since, consumer: consumer(wrapper, settings) })
}

/// Whether an AppWrapper was told to make room and has not done so yet.
pub(crate) fn yields(wrapper: &AppWrapper) -> bool {
    wrapper.status.can_run && wrapper.step() == Some(&QueueState::Preempted)
}

/// The labels an AppWrapper must get before it is evaluated.
pub(crate) fn missing_labels(world: &World, wrapper: &AppWrapper) -> BTreeMap<String, String> {
    let (subtrees, labels) = (world.shelf::<Subtree>().all(), &wrapper.metadata.labels);
    if subtrees.iter().filter_map(|it| it.tree()).all(|tree| labels.contains_key(tree)) {
        return BTreeMap::new();
    }
    // Which of the others exist is known when they are made.
    let (forest, _) = Forest::new(subtrees);
    forest.missing_labels(labels)
}

/// The quota trees, with everybody charged that holds something.
#[derive(Debug)]
pub(crate) struct Charges {
    roll: Roll,
    /// What was charged in this plan, in this order.
    given: Vec<Allocation>,
    /// Those that were told to make room and have not done so yet: their priority, and what they take.
    yielding: Vec<(i32, Amounts)>,
    /// Which those are.
    keys: Vec<Key>,
}

impl Charges {
    /// The charges of a world in which these hold something, as if made anew for every plan: who passed
    /// first is charged first, so who borrows is the same each time. What is on the roll of the last plan
    /// and still holds is taken from there.
    pub(crate) fn of<'a>(
        world: &World,
        holders: impl Iterator<Item = &'a Key>,
        settings: &Settings,
        roll: &mut Roll,
    ) -> Self {
        let shelf = world.shelf::<AppWrapper>();
        let wrappers: Vec<Arc<AppWrapper>> = holders.filter_map(|key| shelf.get(key)).collect();
        let standing = wrappers.iter().filter_map(|it| standing(it, settings));
        // Whoever panics with it leaves an empty one behind.
        let mut roll = std::mem::take(roll);
        roll.call(world.shelf::<Subtree>().all(), standing);
        let yielding: Vec<&Arc<AppWrapper>> = wrappers.iter().filter(|it| yields(it)).collect();
        let keys = yielding.iter().map(|it| it.metadata.key()).collect();
        let yielding = yielding.iter().map(|it| (it.spec.priority, taken(it, settings)));
        Self { roll, given: Vec::new(), yielding: yielding.collect(), keys }
    }

    /// Those that were told to make room and have not done so yet.
    pub(crate) fn yielding(&self) -> impl Iterator<Item = &Key> {
        self.keys.iter()
    }

    /// Whether the labels of an AppWrapper say what it is charged to in every tree.
    pub(crate) fn knows(&self, wrapper: &AppWrapper) -> bool {
        self.roll.forest().missing_labels(&wrapper.metadata.labels).is_empty()
    }

    /// Charges an AppWrapper, at the expense of those only whom it does not spare.
    ///
    /// # Errors
    /// What is missing, and where.
    pub(crate) fn charge(
        &mut self,
        wrapper: &AppWrapper,
        spares: impl Fn(&Key) -> bool,
        settings: &Settings,
    ) -> Result<Allocation, String> {
        let forest = self.roll.forest_mut();
        let consumer = consumer(wrapper, settings);
        let charged = forest.try_allocate_beside(&consumer, &|it| spares(it.key()));
        charged.map_err(|it| it.to_string())
    }

    /// Takes the last charge back.
    pub(crate) fn undo(&mut self, allocation: Allocation) {
        let undone = self.roll.forest_mut().undo(allocation);
        debug_assert!(undone.is_ok(), "nothing was charged since");
    }

    /// Lets a charge stand until the plan is made.
    pub(crate) fn keep(&mut self, allocation: Allocation) {
        self.given.push(allocation);
    }

    /// What was on the roll before anything was charged.
    pub(crate) fn close(mut self) -> Roll {
        while let Some(allocation) = self.given.pop() {
            self.undo(allocation);
        }
        self.roll
    }

    /// What will be free that still looks taken to one of this priority: those who make room are
    /// counted as gone, unless they count as free for it anyway.
    pub(crate) fn spared<'a>(
        &'a self,
        priority: i32,
        victims: impl Iterator<Item = &'a (i32, Amounts)>,
    ) -> Amounts {
        let mut spared = Amounts::default();
        for (of, amounts) in self.yielding.iter().chain(victims) {
            if *of >= priority {
                spared.add(amounts);
            }
        }
        spared
    }
}

/// What an AppWrapper takes, or will.
pub(crate) fn taken(wrapper: &AppWrapper, settings: &Settings) -> Amounts {
    wrapper.demand().by(settings.inference).clone()
}

/// An AppWrapper as quota knows it.
pub(crate) fn consumer(wrapper: &AppWrapper, settings: &Settings) -> Consumer {
    Consumer {
        id: ConsumerId::from(wrapper.metadata.key()),
        priority: wrapper.spec.priority,
        preemptable: settings.preempts(),
        request: named(&taken(wrapper, settings)),
        labels: wrapper.metadata.labels.clone(),
    }
}
