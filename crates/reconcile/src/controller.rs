//! What it takes to be a controller.

use std::time::Duration;

use jiff::Timestamp;

use crate::fact::{FactChange, FactKind};
use crate::object::Key;
use crate::observer::Observer;
use crate::plan::Plan;
use crate::world::{Change, Kind, World};

/// Decides about the objects of one kind, one at a time.
pub trait Controller: Send + Sync {
    /// The name, as logs, metrics and `gantry status` have it.
    fn name(&self) -> &'static str;

    /// The kinds it looks at, the one it decides about first.
    fn kinds(&self) -> Vec<Kind>;

    /// The sorts of facts it decides by, beside what becomes of its own calls.
    fn facts(&self) -> Vec<FactKind> {
        Vec::new()
    }

    /// What keeps a cache up to date that its plans read; shown each change before [`enqueue`] is asked.
    ///
    /// [`enqueue`]: Controller::enqueue
    fn observer(&self) -> Option<&dyn Observer> {
        None
    }

    /// The keys to plan after a change: keys of the kind it decides about. Pure.
    ///
    /// It is asked about every change of each of its [`kinds`](Controller::kinds), in the order seen, and
    /// about every object there is when it starts. Naming a key too many costs a plan; naming one too
    /// few leaves something undone until the next change.
    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key>;

    /// The keys to plan after a change of one of its [`facts`](Controller::facts). Pure.
    fn enqueue_for_fact(&self, world: &World, change: &FactChange) -> Vec<Key> {
        let _ = (world, change);
        Vec::new()
    }

    /// What to do about the object with this key, which may be gone.
    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan;

    /// How long a key rests at least after each of its plans; usually not at all.
    ///
    /// It is for what is written for people to read: whoever wakes a key that rests is heard when its
    /// rest is over, so what changes all the time is told now and then, and how it ended always.
    fn pace(&self) -> Duration {
        Duration::ZERO
    }
}
