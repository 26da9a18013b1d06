//! The state of the store: what readers see, and the copy the writer works on.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use crate::options::WindowOptions;
use crate::tree::{Keyed, Tree};
use crate::{Entry, Event, EventKind, Revision};

/// The entries of a space in the order of their keys.
pub(crate) type Entries<X> = Tree<Arc<Entry<X>>>;

/// One published revision of all spaces. Readers hold it without any lock; the writer builds the
/// next one beside it. Cloning it is cheap.
pub(crate) struct State<X, Y> {
    /// The last change that it contains.
    pub(crate) revision: Revision,
    pub(crate) spaces: Tree<Space<X>>,
    pub(crate) windows: Tree<Window<X, Y>>,
    /// Changes up to here are unknown in spaces that have no window.
    pub(crate) floor: Revision,
    /// Bytes of all entries.
    pub(crate) live_bytes: usize,
    /// Bytes of all windows.
    pub(crate) window_bytes: usize,
}

/// A named collection of keys.
pub(crate) struct Space<X> {
    pub(crate) name: Arc<str>,
    pub(crate) entries: Entries<X>,
}

/// The recent changes of one space.
pub(crate) struct Window<X, Y> {
    pub(crate) name: Arc<str>,
    /// Every change after this one is here.
    pub(crate) floor: Revision,
    pub(crate) events: Tree<Arc<Event<X, Y>>>,
    pub(crate) bytes: usize,
}

impl<X, Y> State<X, Y> {
    pub(crate) fn empty() -> Self {
        Self {
            revision: Revision::EMPTY,
            spaces: Tree::default(),
            windows: Tree::default(),
            floor: Revision::EMPTY,
            live_bytes: 0,
            window_bytes: 0,
        }
    }

    pub(crate) fn entries(&self, space: &str) -> Entries<X> {
        self.spaces.get(space).map(|space| space.entries.clone()).unwrap_or_default()
    }

    /// The revision after which every change of a space is known.
    pub(crate) fn floor(&self, space: &str) -> Revision {
        self.windows.get(space).map_or(self.floor, |window| window.floor)
    }

    /// The same entries without any history.
    pub(crate) fn without_history(&self) -> Self {
        let (spaces, windows) = (self.spaces.clone(), Tree::default());
        Self { spaces, windows, floor: self.revision, window_bytes: 0, ..*self }
    }

    /// The content of a space at a revision not before its floor: later changes are undone.
    pub(crate) fn entries_at(&self, space: &str, revision: Revision) -> Entries<X> {
        let mut entries = self.entries(space);
        let Some(window) = self.windows.get(space) else { return entries };
        let since: Vec<_> = window.events.range(Bound::Excluded(&revision)).collect();
        for event in since.into_iter().rev() {
            match &event.previous {
                Some(previous) => drop(entries.insert(Arc::clone(previous))),
                None => drop(entries.remove(&event.entry.key)),
            }
        }
        entries
    }
}

/// The state that the writer, or recovery, builds.
pub(crate) struct WorkingState<X, Y> {
    pub(crate) state: State<X, Y>,
    limits: WindowOptions,
    /// Every window by its oldest event, and separately those with more events than the minimum:
    /// the next event to drop is the first of the latter, or, if there is none, of the former.
    oldest: BTreeMap<Revision, Arc<str>>,
    oldest_droppable: BTreeMap<Revision, Arc<str>>,
    /// Whether events were dropped since this was last asked.
    trimmed: bool,
}

/// A change whose preconditions were checked and whose revision is assigned.
pub(crate) struct CheckedChange {
    pub(crate) space: Arc<str>,
    pub(crate) key: Bytes,
    pub(crate) kind: EventKind,
    pub(crate) revision: Revision,
    pub(crate) value: Bytes,
}

impl<X: Default, Y: Default> WorkingState<X, Y> {
    pub(crate) fn new(limits: WindowOptions) -> Self {
        let (oldest, spare) = (BTreeMap::new(), BTreeMap::new());
        Self { state: State::empty(), limits, oldest, oldest_droppable: spare, trimmed: false }
    }

    pub(crate) fn get(&self, space: &str, key: &[u8]) -> Option<&Arc<Entry<X>>> {
        self.state.spaces.get(space)?.entries.get(key)
    }

    /// The one shared copy of a space's name.
    pub(crate) fn name(&self, space: &str) -> Arc<str> {
        let known = self.state.windows.get(space).map(|window| Arc::clone(&window.name));
        known.unwrap_or_else(|| Arc::from(space))
    }

    /// Inserts an entry without an event: how a checkpoint is loaded.
    pub(crate) fn load(&mut self, space: &Arc<str>, entry: Entry<X>) {
        self.insert_entry(space, Arc::new(entry));
    }

    /// Makes a change and records it in the window of its space.
    pub(crate) fn apply(&mut self, change: CheckedChange) -> Arc<Event<X, Y>> {
        let CheckedChange { space, key, kind, revision, value } = change;
        let previous = self.get(&space, &key).cloned();
        let created = previous.as_ref().map_or(revision, |previous| previous.created);
        let entry = Arc::new(Entry { key, created, revision, value, extra: X::default() });
        match kind {
            EventKind::Put => self.insert_entry(&space, Arc::clone(&entry)),
            EventKind::Delete => self.remove_entry(&space, &entry.key),
        }
        let event = Arc::new(Event { revision, kind, entry, previous, extra: Y::default() });
        self.state.revision = self.state.revision.max(revision);
        self.record_event(&space, Arc::clone(&event));
        event
    }

    /// Whether events were dropped since this was last asked.
    pub(crate) fn take_trimmed(&mut self) -> bool {
        std::mem::take(&mut self.trimmed)
    }

    /// Sets the revision from which on a space's changes are known, before any is recorded.
    pub(crate) fn set_floor(&mut self, space: &Arc<str>, floor: Revision) {
        self.window(space).floor = floor;
    }

    /// Drops all history: watches that start at or before this revision have to list again.
    pub(crate) fn discard_history(&mut self, revision: Revision) {
        self.state.revision = revision;
        self.state.floor = revision;
        self.state.windows = Tree::default();
        self.state.window_bytes = 0;
        self.oldest.clear();
        self.oldest_droppable.clear();
    }

    fn insert_entry(&mut self, space: &Arc<str>, entry: Arc<Entry<X>>) {
        if self.state.spaces.get(space).is_none() {
            let (name, entries) = (Arc::clone(space), Tree::default());
            self.state.spaces.insert(Space { name, entries });
        }
        let size = entry.size();
        let Some(space) = self.state.spaces.get_mut(space) else { return };
        let replaced = space.entries.insert(entry).map_or(0, |entry| entry.size());
        self.state.live_bytes = self.state.live_bytes + size - replaced;
    }

    fn remove_entry(&mut self, space: &str, key: &[u8]) {
        let removed = self.state.spaces.get_mut(space).and_then(|space| space.entries.remove(key));
        self.state.live_bytes -= removed.map_or(0, |entry| entry.size());
    }

    fn window(&mut self, space: &Arc<str>) -> &mut Window<X, Y> {
        if self.state.windows.get(space).is_none() {
            let (name, floor, events) = (Arc::clone(space), self.state.floor, Tree::default());
            self.state.windows.insert(Window { name, floor, events, bytes: 0 });
        }
        self.state.windows.get_mut(space).expect("the window was there or has just been put in")
    }

    fn record_event(&mut self, space: &Arc<str>, event: Arc<Event<X, Y>>) {
        let floor_events = self.limits.floor_events;
        let size = event.size();
        let window = self.window(space);
        window.bytes += size;
        window.events.insert(event);
        let first = window.events.first().map(|event| event.revision);
        let grown = window.events.len() > floor_events;
        self.state.window_bytes += size;
        if let Some(first) = first {
            self.oldest.entry(first).or_insert_with(|| Arc::clone(space));
            if grown {
                self.oldest_droppable.entry(first).or_insert_with(|| Arc::clone(space));
            }
        }
        self.trim(space);
    }

    /// Drops the oldest events until every bound holds.
    fn trim(&mut self, space: &Arc<str>) {
        while self.state.windows.get(space).is_some_and(|window| {
            window.bytes > self.limits.space_bytes && window.events.len() > self.limits.floor_events
        }) {
            self.drop_oldest(space);
        }
        while self.state.window_bytes > self.limits.bytes {
            let Some((_, space)) = self.oldest_droppable.first_key_value() else { break };
            let space = Arc::clone(space);
            self.drop_oldest(&space);
        }
        while self.state.window_bytes > self.limits.ceiling_bytes {
            let Some((_, space)) = self.oldest.first_key_value() else { break };
            let space = Arc::clone(space);
            self.drop_oldest(&space);
        }
    }

    fn drop_oldest(&mut self, space: &Arc<str>) {
        let floor_events = self.limits.floor_events;
        let window = self.window(space);
        let Some(first) = window.events.first().map(|event| event.revision) else { return };
        let size = window.events.remove(&first).map_or(0, |event| event.size());
        window.bytes -= size;
        window.floor = first;
        let next = window.events.first().map(|event| event.revision);
        let grown = window.events.len() > floor_events;
        self.state.window_bytes -= size;
        self.trimmed = true;
        self.oldest.remove(&first);
        self.oldest_droppable.remove(&first);
        if let Some(next) = next {
            self.oldest.insert(next, Arc::clone(space));
            if grown {
                self.oldest_droppable.insert(next, Arc::clone(space));
            }
        }
    }
}

impl<X> Keyed for Space<X> {
    type Key = str;
    type Separator = Arc<str>;
    fn key(&self) -> &str {
        &self.name
    }
    fn separator(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }
}

impl<X, Y> Keyed for Window<X, Y> {
    type Key = str;
    type Separator = Arc<str>;
    fn key(&self) -> &str {
        &self.name
    }
    fn separator(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }
}

// By hand, because derived copies would require user data that can be copied.
impl<X> Clone for Space<X> {
    fn clone(&self) -> Self {
        Self { name: Arc::clone(&self.name), entries: self.entries.clone() }
    }
}

impl<X, Y> Clone for Window<X, Y> {
    fn clone(&self) -> Self {
        let Self { name, floor, events, bytes } = self;
        Self { name: Arc::clone(name), floor: *floor, events: events.clone(), bytes: *bytes }
    }
}

impl<X, Y> Clone for State<X, Y> {
    fn clone(&self) -> Self {
        let (spaces, windows) = (self.spaces.clone(), self.windows.clone());
        Self { spaces, windows, ..*self }
    }
}
