//! What AppWrappers are charged to quota trees, and what is charged while a plan is made.

use std::collections::BTreeMap;
use std::sync::Arc;

use gantry_api::queue::QueueState;
use gantry_pods::Requests;
use gantry_pods::view::Pod;
use gantry_reconcile::{Key, World};

use crate::amounts::{Amounts, Rest};
use crate::app_wrapper::AppWrapper;
use crate::capacity::Capacity;
use crate::condition::{self, kind};
use crate::leaf;
use crate::order::named;
use crate::progress::pods_of;
use crate::quota::{
    Allocation, Bindings, Consumer, ConsumerId, Forbidden, Forest, Roll, Standing, Subtree,
};
use crate::settings::{Inference, Settings};
use crate::unreachable;

/// What quota an AppWrapper holds, if any, if its pods ask for no more than was admitted. One that was told
/// to make room holds none any more, though its pods may still be there.
#[must_use]
pub fn standing(wrapper: &AppWrapper, settings: &Settings) -> Option<Standing> {
    if !wrapper.status.can_run || yields(wrapper) {
        return None;
    }
    let passed = condition::newest_since(&wrapper.status, kind::HEAD_OF_LINE);
    let since = passed.unwrap_or_else(|| wrapper.first_seen());
    Some(Standing { since, consumer: consumer(wrapper, settings) })
}

/// What quota an AppWrapper of a world holds, if any: never less than its pods ask for.
#[must_use]
pub fn standing_in(world: &World, wrapper: &AppWrapper, settings: &Settings) -> Option<Standing> {
    let standing = standing(wrapper, settings)?;
    let subtrees = world.shelf::<Subtree>().all();
    // Most trees have none, and then none is made for each that holds something.
    let is_bound = subtrees.iter().any(|it| it.bindings().is_some());
    let bindings = match is_bound || settings.require_quota_bindings {
        true => Bindings::of(&subtrees),
        false => Bindings::default(),
    };
    let running = running_in(world, &wrapper.metadata.key());
    Some(corrected(standing, wrapper, (world, settings), &running, &bindings))
}

/// What an AppWrapper that holds this is charged for in fact. One whose pods ask for more than was admitted,
/// or that names a leaf it may not use, is the first to be preempted.
fn corrected(
    mut standing: Standing,
    wrapper: &AppWrapper,
    (world, settings): (&World, &Settings),
    running: &Amounts,
    bindings: &Bindings,
) -> Standing {
    if let Some(taken) = exceeded(wrapper, settings, running) {
        standing.consumer.request = named(&taken);
        standing.consumer.preempt_first = true;
    }
    if leaf::allow(world, wrapper, bindings, settings).is_err() {
        standing.consumer.preempt_first = true;
    }
    standing
}

/// What an AppWrapper takes whose running pods ask for more than was admitted, and nothing if they do not: its
/// Deployment was scaled up, somebody else made pods in its name, or its kind makes pods that nobody could
/// find in its template.
#[must_use]
pub fn exceeded(wrapper: &AppWrapper, settings: &Settings, running: &Amounts) -> Option<Amounts> {
    if !wrapper.status.can_run {
        return None;
    }
    let mut running = running.clone();
    match settings.inference {
        // Only these were ever admitted.
        Inference::Compat => running.others.clear(),
        Inference::Full => {}
    }
    let mut taken = taken(wrapper, settings);
    if running.fit(&taken) {
        return None;
    }
    taken.raise_to(&running);
    Some(taken)
}

/// What the pods of an AppWrapper ask for that are on nodes which answer, and not being deleted.
#[must_use]
pub fn running_in(world: &World, key: &Key) -> Amounts {
    let mut running = Amounts::default();
    for pod in world.shelf::<Pod>().tagged(&pods_of(key)) {
        if runs(&pod) && unreachable::of(world, &pod).is_none() {
            running.add(&Amounts::of(&Requests::of(&pod), Rest::Counted));
        }
    }
    running
}

/// Whether a pod takes something of a node, and goes on to.
pub(crate) fn runs(pod: &Pod) -> bool {
    !pod.spec.node_name.is_empty() && !pod.is_over() && !pod.metadata.is_going()
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
        capacity: &Capacity,
        holders: impl Iterator<Item = &'a Key>,
        settings: &Settings,
        roll: &mut Roll,
    ) -> Self {
        let shelf = world.shelf::<AppWrapper>();
        let wrappers: Vec<Arc<AppWrapper>> = holders.filter_map(|key| shelf.get(key)).collect();
        // Whoever panics with it leaves an empty one behind.
        let mut roll = std::mem::take(roll);
        let subtrees = world.shelf::<Subtree>().all();
        roll.read(subtrees);
        let bindings = roll.bindings().clone();
        let standing = wrappers.iter().filter_map(|it| {
            let (standing, none) = (standing(it, settings)?, Default::default());
            let usage = capacity.usage(&it.metadata.key()).unwrap_or(&none);
            Some(corrected(standing, it, (world, settings), &usage.running, &bindings))
        });
        roll.call(standing);
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

    /// Whether an AppWrapper may be charged to the leaves that it names.
    ///
    /// # Errors
    /// Where it may not, and why.
    pub(crate) fn allow(
        &self,
        world: &World,
        wrapper: &AppWrapper,
        settings: &Settings,
    ) -> Result<(), Box<Forbidden>> {
        leaf::allow(world, wrapper, self.roll.bindings(), settings)
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
        preempt_first: false,
        request: named(&taken(wrapper, settings)),
        labels: wrapper.metadata.labels.clone(),
    }
}
