//! What it takes to be a controller.

use std::time::Duration;

use jiff::Timestamp;

use crate::object::Key;
use crate::plan::Plan;
use crate::world::{Change, Kind, World};

/// Decides about the objects of one kind, one at a time.
pub trait Controller: Send + Sync {
    /// The name, as logs, metrics and `gantry status` have it.
    fn name(&self) -> &'static str;

    /// The kinds it looks at, the one it decides about first.
    fn kinds(&self) -> Vec<Kind>;

    /// Whose turn it is after a change: keys of the kind it decides about.
    ///
    /// It is told of every change of each of its [`kinds`](Controller::kinds), in the order seen, and
    /// of every object there is when it starts. Naming a key too many costs a plan; naming one too
    /// few leaves something undone until the next change.
    fn wakes(&self, world: &World, change: &Change) -> Vec<Key>;

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
