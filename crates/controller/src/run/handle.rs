//! What others see of a running shell.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use gantry_reconcile::world::AnyShelf;
use gantry_reconcile::{Change, Key, Resource, World};

use super::Desk;
use crate::audience::Audience;
use crate::cache::Trouble;
use crate::lease::Permit;
use crate::ledger::Ledger;
use crate::rate::{Limiter, Rate};
use crate::wake_queue::Queue;

/// A way to look at a shell, and to tell it things. Clones are cheap.
#[derive(Clone)]
pub struct Handle(Arc<Parts>);

struct Parts {
    audience: Arc<Audience>,
    ledger: Ledger,
    permit: Permit,
    limiter: Arc<Limiter>,
    queues: BTreeMap<&'static str, Arc<Queue>>,
    troubles: BTreeMap<Resource, Trouble>,
}

/// A kind whose cache was never filled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The kind.
    pub resource: Resource,
    /// What went wrong last; nothing while the first attempt is under way.
    pub why: Option<String>,
}

impl Handle {
    pub(super) fn new(
        audience: Arc<Audience>,
        ledger: Ledger,
        permit: Permit,
        limiter: Arc<Limiter>,
        desks: &[Arc<Desk>],
        troubles: BTreeMap<Resource, Trouble>,
    ) -> Self {
        let queue = |desk: &Arc<Desk>| (desk.seat.controller.name(), Arc::clone(&desk.queue));
        let queues = desks.iter().map(queue).collect();
        Self(Arc::new(Parts { audience, ledger, permit, limiter, queues, troubles }))
    }

    /// The objects as they were last seen.
    #[must_use]
    pub fn world(&self) -> &Arc<World> {
        self.0.audience.world()
    }

    /// What is held, and why.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.0.ledger
    }

    /// Whether the shell may write.
    #[must_use]
    pub fn permit(&self) -> &Permit {
        &self.0.permit
    }

    /// Lets the shell ask at another rate from now on; absent for no limit.
    pub fn set_rate(&self, rate: Option<Rate>) {
        self.0.limiter.set(rate);
    }

    /// Returns when every cache has once held everything there was.
    pub async fn filled(&self) {
        self.0.audience.filled().await;
    }

    /// The kinds whose caches were never filled: why the shell is not ready.
    #[must_use]
    pub fn missing(&self) -> Vec<Missing> {
        let empty = self.world().shelves().filter(|shelf| !shelf.is_filled());
        let missing = |shelf: &Arc<dyn AnyShelf>| {
            let resource = shelf.resource();
            let why = self.0.troubles.get(&resource).and_then(Trouble::get);
            Missing { resource, why }
        };
        empty.map(missing).collect()
    }

    /// What goes wrong with caches now, whether they were filled or not.
    #[must_use]
    pub fn troubles(&self) -> BTreeMap<Resource, String> {
        let troubles = self.0.troubles.iter();
        troubles.filter_map(|(kind, trouble)| Some((kind.clone(), trouble.get()?))).collect()
    }

    /// Makes changes to the shelf of a kind that comes from no server, and tells the controllers.
    /// Nothing happens when nobody looks at the kind.
    pub fn make<R>(
        &self,
        resource: &Resource,
        act: impl FnOnce(&dyn AnyShelf) -> (Vec<Change>, R),
    ) -> Option<R> {
        self.0.audience.make(resource, act)
    }

    /// Makes it a key's turn, for reasons that are in no object. Nothing happens when there is no
    /// controller of that name.
    pub fn wake(&self, controller: &str, key: Key) {
        if let Some(queue) = self.0.queues.get(controller) {
            queue.wake(key);
        }
    }

    /// How many keys of each controller could be planned now.
    #[must_use]
    pub fn waiting(&self) -> BTreeMap<&'static str, usize> {
        self.0.queues.iter().map(|(name, queue)| (*name, queue.ready())).collect()
    }

    pub(super) fn audience(&self) -> &Arc<Audience> {
        &self.0.audience
    }

    pub(super) fn trouble(&self, resource: &Resource) -> Trouble {
        self.0.troubles.get(resource).cloned().unwrap_or_default()
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_tuple("Handle").field(&self.0.audience).finish()
    }
}
