//! Who is told of what happens to objects.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use gantry_reconcile::world::AnyShelf;
use gantry_reconcile::{
    Change, Controller, FactChange, Key, Kind, Observer, Outcome, Place, World, Write,
};
use tokio::sync::watch;

use crate::meters::Meters;
use crate::outside::AnyInquiry;
use crate::wake_queue::Queue;

/// The observers, controllers and inquiries, each with its queue.
pub struct Audience {
    world: Arc<World>,
    listeners: Vec<Listener>,
    circles: RwLock<BTreeMap<Place, Arc<Circle>>>,
    meters: Meters,
    /// Whether changes are told. Before all shelves are filled nobody is: who looks at one kind to
    /// know whom another concerns would overlook somebody.
    open: AtomicBool,
    /// Says that a shelf was filled.
    fills: watch::Sender<()>,
}

/// What is shown changes.
#[derive(Clone)]
pub(crate) enum Listener {
    /// Is shown each change before the others are asked about it.
    Observer(Arc<dyn Observer>),
    /// A controller and where its keys wait.
    Controller(Arc<dyn Controller>, Arc<Queue>),
    /// An inquiry and where its keys wait.
    Inquiry(Arc<dyn AnyInquiry>, Arc<Queue>),
}

impl Listener {
    fn name(&self) -> &'static str {
        match self {
            Self::Observer(observer) => observer.name(),
            Self::Controller(controller, _) => controller.name(),
            Self::Inquiry(inquiry, _) => inquiry.name(),
        }
    }

    fn kinds(&self) -> Vec<Kind> {
        match self {
            Self::Observer(observer) => observer.kinds(),
            Self::Controller(controller, _) => controller.kinds(),
            Self::Inquiry(inquiry, _) => inquiry.kinds(),
        }
    }

    fn is_controller(&self, name: &str) -> bool {
        matches!(self, Self::Controller(controller, _) if controller.name() == name)
    }
}

/// What keeps the cache of a controller up to date.
pub(crate) struct CacheOf(pub(crate) Arc<dyn Controller>);

impl Observer for CacheOf {
    fn name(&self) -> &'static str {
        self.0.observer().map_or_else(|| self.0.name(), Observer::name)
    }

    fn kinds(&self) -> Vec<Kind> {
        self.0.observer().map(Observer::kinds).unwrap_or_default()
    }

    fn observe(&self, world: &World, change: &Change) {
        if let Some(observer) = self.0.observer() {
            observer.observe(world, change);
        }
    }
}

/// Who listens to what happens on one shelf.
struct Circle {
    shelf: Arc<dyn AnyShelf>,
    /// Held while a change is made and told, so that all hear of changes in the order they were made.
    order: Mutex<()>,
    listeners: Vec<usize>,
    /// Whether it was added while the others were in use. Nobody waits for it then.
    is_late: bool,
}

impl Circle {
    fn new(shelf: Arc<dyn AnyShelf>, listeners: Vec<usize>, is_late: bool) -> Self {
        Self { shelf, order: Mutex::default(), listeners, is_late }
    }
}

impl Audience {
    /// These look at `world`. Observers are shown a change first.
    pub(crate) fn new(world: Arc<World>, mut listeners: Vec<Listener>, meters: Meters) -> Self {
        listeners.sort_by_key(|it| !matches!(it, Listener::Observer(_)));
        let mut all: BTreeMap<Place, Vec<usize>> = BTreeMap::new();
        for (place, listener) in listeners.iter().enumerate() {
            for kind in listener.kinds() {
                let circle = all.entry(kind.place().clone()).or_default();
                if circle.last() != Some(&place) {
                    circle.push(place);
                }
            }
        }
        let circle = |(place, listeners)| {
            let shelf = world.at(&place)?;
            Some((place, Arc::new(Circle::new(shelf, listeners, false))))
        };
        let circles = RwLock::new(all.into_iter().filter_map(circle).collect());
        let fills = watch::channel(()).0;
        Self { world, listeners, circles, meters, open: AtomicBool::new(false), fills }
    }

    /// Adds a shelf that one controller listens to from now on. Returns whether there was none.
    pub(crate) fn add(&self, controller: &str, kind: &Kind) -> bool {
        let listeners = self.listeners.iter().enumerate();
        let listeners = listeners.filter(|(_, it)| it.is_controller(controller));
        let listeners = listeners.map(|(at, _)| at).collect();
        let (shelf, is_new) = self.world.add(kind);
        if is_new {
            let circle = Arc::new(Circle::new(shelf, listeners, true));
            let mut circles = self.circles.write().unwrap_or_else(PoisonError::into_inner);
            circles.insert(kind.place().clone(), circle);
        }
        is_new
    }

    /// What they look at.
    #[must_use]
    pub fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// Makes changes to a shelf and tells them, before anybody else changes it. Nothing happens when
    /// nobody looks at it.
    pub fn make<R>(
        &self,
        place: &Place,
        act: impl FnOnce(&dyn AnyShelf) -> (Vec<Change>, R),
    ) -> Option<R> {
        let circle = self.circle(place)?;
        // A poisoned lock is still good: it guards an order, not data.
        let _order = circle.order.lock().unwrap_or_else(PoisonError::into_inner);
        let (changes, result) = act(circle.shelf.as_ref());
        if self.open.load(Ordering::Acquire) {
            changes.iter().for_each(|change| self.tell_all(&circle, change));
        }
        Some(result)
    }

    /// Lets a controller that wrote something know at once what became of it: puts it on the shelves of
    /// that kind that it looks at itself. Others may look at a part of the kind that the object is not
    /// of, and are told by their watches.
    pub(crate) fn learn(&self, controller: &str, write: &Write, outcome: &Outcome) {
        for shelf in self.world.views(write.resource()) {
            let place = shelf.place();
            let looks = |at: &usize| self.listeners[*at].is_controller(controller);
            if self.circle(&place).is_some_and(|it| it.listeners.iter().any(looks)) {
                self.make(&place, |shelf| (shelf.learn(write, outcome).into_iter().collect(), ()));
            }
        }
    }

    /// Tells everybody of everything there is, and from then on of every change.
    pub(crate) fn open(&self) {
        // Before the first is told, so that a change in between is told twice and not never.
        self.open.store(true, Ordering::Release);
        for circle in &self.all() {
            for key in circle.shelf.keys() {
                let _order = circle.order.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(change) = circle.shelf.as_change(&key) {
                    self.tell_all(circle, &change);
                }
            }
        }
    }

    // No code of others runs under the lock, so a poisoned one is still good.
    fn all(&self) -> Vec<Arc<Circle>> {
        self.circles.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    fn circle(&self, place: &Place) -> Option<Arc<Circle>> {
        self.circles.read().unwrap_or_else(PoisonError::into_inner).get(place).cloned()
    }

    /// A shelf was filled.
    pub(crate) fn filled_one(&self) {
        self.fills.send_replace(());
    }

    /// The shelves there were from the beginning that have never held everything there was.
    pub(crate) fn unfilled(&self) -> Vec<Arc<dyn AnyShelf>> {
        let all = self.all().into_iter().filter(|it| !it.is_late && !it.shelf.is_filled());
        all.map(|it| Arc::clone(&it.shelf)).collect()
    }

    /// Returns when every shelf there was from the beginning has once held everything there was.
    pub(crate) async fn filled(&self) {
        self.until(|| self.unfilled().is_empty()).await;
    }

    /// Returns when one shelf has once held everything there was.
    pub(crate) async fn filled_at(&self, place: &Place) {
        self.until(|| self.circle(place).is_none_or(|it| it.shelf.is_filled())).await;
    }

    async fn until(&self, is_so: impl Fn() -> bool) {
        let mut fills = self.fills.subscribe();
        while !is_so() {
            // The sender lives as long as this.
            let _ = fills.changed().await;
        }
    }

    fn tell_all(&self, circle: &Circle, change: &Change) {
        for listener in &circle.listeners {
            self.tell(&self.listeners[*listener], change);
        }
    }

    /// One bad object must not silence the rest: a panic is counted, and the next change is told.
    fn tell(&self, listener: &Listener, change: &Change) {
        match listener {
            Listener::Observer(observer) => {
                self.guard(listener.name(), change, || observer.observe(&self.world, change));
            }
            Listener::Controller(controller, queue) => {
                let keys = || controller.enqueue(&self.world, change);
                enqueue(queue, self.guard(listener.name(), change, keys));
            }
            Listener::Inquiry(inquiry, queue) => {
                let keys = || inquiry.enqueue(&self.world, change);
                enqueue(queue, self.guard(listener.name(), change, keys));
            }
        }
    }

    /// Shows a change of a fact to the observers that follow such facts, and then to the controllers that
    /// decide by them.
    pub(crate) fn show_fact(&self, change: &FactChange) {
        for listener in &self.listeners {
            match listener {
                Listener::Observer(observer) if observer.facts().contains(&change.kind()) => {
                    let observe = || observer.observe_fact(&self.world, change);
                    self.guard(listener.name(), change, observe);
                }
                Listener::Controller(controller, queue)
                    if controller.facts().contains(&change.kind()) =>
                {
                    let keys = || controller.enqueue_for_fact(&self.world, change);
                    enqueue(queue, self.guard(listener.name(), change, keys));
                }
                Listener::Observer(_) | Listener::Controller(..) | Listener::Inquiry(..) => {}
            }
        }
    }

    fn guard<R>(
        &self,
        name: &'static str,
        change: &dyn fmt::Debug,
        act: impl FnOnce() -> R,
    ) -> Option<R> {
        let result = catch_unwind(AssertUnwindSafe(act)).ok();
        if result.is_none() {
            self.meters.panicked(name);
            tracing::error!(listener = name, change = ?change, "panicked on a change");
        }
        result
    }
}

fn enqueue(queue: &Queue, keys: Option<Vec<Key>>) {
    keys.into_iter().flatten().for_each(|key| queue.wake(key));
}

impl fmt::Debug for Audience {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.listeners.iter().map(Listener::name);
        to.debug_list().entries(names).finish()
    }
}
