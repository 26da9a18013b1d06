//! What others see of a running shell.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use gantry_reconcile::world::AnyShelf;
use gantry_reconcile::{Change, Fact, Key, Kind, Place, Resource, World};
use jiff::Timestamp;
use tokio::sync::mpsc;

use super::Desk;
use crate::audience::Audience;
use crate::cache::{Filter, Trouble};
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
    troubles: RwLock<BTreeMap<Place, Trouble>>,
    newcomers: mpsc::Sender<Newcomer>,
}

/// A kind that is followed from now on.
#[derive(Debug)]
pub(super) struct Newcomer {
    pub(super) place: Place,
    pub(super) filter: Filter,
}

/// The shell does not run any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the controllers have ended")]
pub struct Ended;

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
        newcomers: mpsc::Sender<Newcomer>,
    ) -> Self {
        let queue = |desk: &Arc<Desk>| (desk.seat.controller.name(), Arc::clone(&desk.queue));
        let queues = desks.iter().map(queue).collect();
        let troubles = RwLock::default();
        Self(Arc::new(Parts { audience, ledger, permit, limiter, queues, troubles, newcomers }))
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

    /// Lets a controller see one more kind from now on, and returns when everything of it was seen.
    /// Nothing else waits for that. May be dropped at any time: what has begun goes on.
    ///
    /// # Errors
    /// [`Ended`]: the shell has.
    pub async fn follow(&self, controller: &str, kind: &Kind, filter: Filter) -> Result<(), Ended> {
        let place = kind.place().clone();
        let slot = self.0.newcomers.reserve().await.map_err(|_| Ended)?;
        if self.0.audience.add(controller, kind) {
            slot.send(Newcomer { place: place.clone(), filter });
        }
        tokio::select! {
            // Either may be dropped: both only wait.
            () = self.0.audience.filled_at(&place) => Ok(()),
            () = self.0.newcomers.closed() => Err(Ended),
        }
    }

    /// Returns when every cache there was from the beginning has once held everything there was.
    pub async fn filled(&self) {
        self.0.audience.filled().await;
    }

    /// The kinds whose caches were never filled: why the shell is not ready.
    #[must_use]
    pub fn missing(&self) -> Vec<Missing> {
        let missing = |shelf: &Arc<dyn AnyShelf>| Missing {
            resource: shelf.resource(),
            why: self.trouble(&shelf.place()).get(),
        };
        self.0.audience.unfilled().iter().map(missing).collect()
    }

    /// What goes wrong with caches now, whether they were filled or not.
    #[must_use]
    pub fn troubles(&self) -> BTreeMap<Resource, String> {
        // No code of others runs under the lock, so a poisoned one is still good.
        let troubles = self.0.troubles.read().unwrap_or_else(PoisonError::into_inner);
        let troubles = troubles.iter();
        let troubles = troubles.filter_map(|(it, why)| Some((it.resource().clone(), why.get()?)));
        troubles.collect()
    }

    /// Makes changes to what is cached of a kind as if a watch had shown them, and shows them to the controllers.
    /// For tests without a server. Nothing happens when nobody looks at the kind.
    pub fn make<R>(
        &self,
        resource: &Resource,
        act: impl FnOnce(&dyn AnyShelf) -> (Vec<Change>, R),
    ) -> Option<R> {
        let place = self.world().find(resource)?.place();
        self.0.audience.make(&place, act)
    }

    /// Records a fact that was observed by other means than an inquiry, and shows it to the controllers.
    pub fn record<F: Fact>(&self, subject: F::Subject, value: F, at: Timestamp) {
        let change = self.world().facts::<F>().record(subject, value, at);
        self.0.audience.show_fact(&change);
    }

    /// Forgets such a fact, and shows that to the controllers.
    pub fn forget<F: Fact>(&self, subject: &F::Subject) {
        if let Some(change) = self.world().facts::<F>().forget(subject) {
            self.0.audience.show_fact(&change);
        }
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

    /// Where the cache of a shelf says what goes wrong.
    pub(super) fn trouble(&self, place: &Place) -> Trouble {
        let mut troubles = self.0.troubles.write().unwrap_or_else(PoisonError::into_inner);
        troubles.entry(place.clone()).or_default().clone()
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_tuple("Handle").field(&self.0.audience).finish()
    }
}
