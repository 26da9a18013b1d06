//! Waking those who wait, on a thread of its own.
//!
//! Waking ten thousand watchers takes milliseconds. The writer therefore only notes which bells are
//! due, and another thread rings them.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::{self, JoinHandle};

use tokio::sync::Notify;

/// Everything that can be waited for.
pub(crate) struct Bells {
    /// Rung at every new revision.
    pub(crate) any: Arc<Notify>,
    spaces: RwLock<HashMap<Arc<str>, Arc<Notify>>>,
    due: Mutex<Due>,
    wake: Condvar,
}

#[derive(Default)]
struct Due {
    /// Spaces that changed.
    spaces: BTreeSet<Arc<str>>,
    any: bool,
    stop: bool,
}

impl Bells {
    pub(crate) fn new() -> Self {
        let (any, spaces) = (Arc::default(), RwLock::default());
        Self { any, spaces, due: Mutex::default(), wake: Condvar::new() }
    }

    /// The bell of a space.
    pub(crate) fn of(&self, space: &str) -> Arc<Notify> {
        let known = self.spaces.read().unwrap_or_else(PoisonError::into_inner).get(space).cloned();
        known.unwrap_or_else(|| {
            let mut spaces = self.spaces.write().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(spaces.entry(Arc::from(space)).or_default())
        })
    }

    /// Notes that spaces have changed. Returns at once.
    pub(crate) fn changed(&self, spaces: BTreeSet<Arc<str>>) {
        let mut due = self.due();
        due.any = true;
        due.spaces.extend(spaces);
        drop(due);
        self.wake.notify_one();
    }

    /// Starts the thread that rings.
    pub(crate) fn start(self: &Arc<Self>) -> io::Result<JoinHandle<()>> {
        let bells = Arc::clone(self);
        thread::Builder::new().name("store-bells".to_owned()).spawn(move || bells.run())
    }

    /// Rings everything once more and ends the thread.
    pub(crate) fn stop(&self) {
        self.due().stop = true;
        self.wake.notify_one();
    }

    fn run(&self) {
        loop {
            let due = self
                .wake
                .wait_while(self.due(), |due| !due.any && !due.stop)
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            for space in &due.spaces {
                let spaces = self.spaces.read().unwrap_or_else(PoisonError::into_inner);
                let bell = spaces.get(space).cloned();
                // Not while the map is held: someone may want to add to it.
                drop(spaces);
                if let Some(bell) = bell {
                    bell.notify_waiters();
                }
            }
            self.any.notify_waiters();
            if due.stop {
                let spaces = self.spaces.read().unwrap_or_else(PoisonError::into_inner);
                spaces.values().for_each(|bell| bell.notify_waiters());
                return;
            }
        }
    }

    fn due(&self) -> MutexGuard<'_, Due> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Due {
    fn take(&mut self) -> Self {
        mem::take(self)
    }
}
