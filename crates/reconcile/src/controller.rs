//! What it takes to be a controller.

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
}
