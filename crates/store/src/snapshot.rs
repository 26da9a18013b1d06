//! Snapshots: reading one revision.

use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError};

use crate::state::{Entries, Space, State};
use crate::tree::Tree;
use crate::{Entry, Revision};

/// All spaces at one revision. Holding it costs others nothing but the memory of replaced entries.
pub struct Snapshot<X> {
    revision: Revision,
    spaces: Tree<Space<X>>,
}

impl<X> Snapshot<X> {
    pub(crate) fn of<Y>(state: &State<X, Y>) -> Self {
        Self { revision: state.revision, spaces: state.spaces.clone() }
    }

    /// The last change that it contains.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// One space; empty if nothing was ever written to it.
    #[must_use]
    pub fn space(&self, name: &str) -> SpaceSnapshot<X> {
        let entries = self.spaces.get(name).map(|space| space.entries.clone()).unwrap_or_default();
        SpaceSnapshot { revision: self.revision, entries }
    }

    /// The spaces that hold something, in the order of their names.
    pub fn spaces(&self) -> impl Iterator<Item = (&str, SpaceSnapshot<X>)> {
        let filled = self.spaces.iter().filter(|space| !space.entries.is_empty());
        filled.map(|space| {
            let entries = space.entries.clone();
            (&*space.name, SpaceSnapshot { revision: self.revision, entries })
        })
    }
}

/// One space at one revision.
pub struct SpaceSnapshot<X> {
    revision: Revision,
    entries: Entries<X>,
}

impl<X> SpaceSnapshot<X> {
    pub(crate) fn new(revision: Revision, entries: Entries<X>) -> Self {
        Self { revision, entries }
    }

    /// The last change of the whole store that it contains, whichever space was changed.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The entry of a key.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<&Arc<Entry<X>>> {
        self.entries.get(key)
    }

    /// All entries in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Entry<X>>> {
        self.entries.iter()
    }

    /// The entries from a key on, in the order of their keys.
    pub fn range(&self, from: Bound<&[u8]>) -> impl Iterator<Item = &Arc<Entry<X>>> {
        self.entries.range(from)
    }

    /// How many entries [`Self::range`] gives. Does not walk them.
    #[must_use]
    pub fn count(&self, from: Bound<&[u8]>) -> usize {
        self.entries.count(from)
    }

    /// Whether nothing was written to the space between the two. Does not walk the entries; may be
    /// false where entries were written and are as before.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.entries.is_same(&other.entries)
    }

    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl<X> Clone for Snapshot<X> {
    fn clone(&self) -> Self {
        Self { revision: self.revision, spaces: self.spaces.clone() }
    }
}

impl<X> Clone for SpaceSnapshot<X> {
    fn clone(&self) -> Self {
        Self { revision: self.revision, entries: self.entries.clone() }
    }
}

impl<X> fmt::Debug for Snapshot<X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("revision", &self.revision).finish_non_exhaustive()
    }
}

impl<X> fmt::Debug for SpaceSnapshot<X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("SpaceSnapshot");
        out.field("revision", &self.revision).field("len", &self.len()).finish_non_exhaustive()
    }
}

/// A revision is older than what is kept: read the current one instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the revision is older than {oldest}, the oldest one kept for this space")]
pub struct TooOld {
    /// The oldest revision that can still be asked for.
    pub oldest: Revision,
}

/// A cache of older states of spaces that were read recently.
///
/// The pages of one long list all read the same one. What is cached keeps nothing alive beyond the
/// windows: states older than their window are dropped when the window moves.
pub(crate) struct SnapshotCache<X> {
    cached: Mutex<Vec<CachedEntries<X>>>,
}

/// The content of a space at a revision.
type CachedEntries<X> = (Arc<str>, Revision, Entries<X>);

/// Lists that are being paged through at the same time without rebuilding their state per page.
const SNAPSHOT_CACHE_SIZE: usize = 16;

impl<X> SnapshotCache<X> {
    pub(crate) fn new() -> Self {
        Self { cached: Mutex::new(Vec::new()) }
    }

    pub(crate) fn get(&self, space: &str, revision: Revision) -> Option<Entries<X>> {
        let mut kept = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        let found = kept.iter().position(|(name, at, _)| &**name == space && *at == revision)?;
        let used = kept.remove(found);
        let entries = used.2.clone();
        kept.push(used);
        Some(entries)
    }

    pub(crate) fn put(&self, space: &str, revision: Revision, entries: Entries<X>) {
        let mut kept = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        let unused = (kept.len() >= SNAPSHOT_CACHE_SIZE).then(|| kept.remove(0));
        kept.push((Arc::from(space), revision, entries));
        drop(kept);
        // A whole tree may be dropped here, which must not happen under the lock.
        drop(unused);
    }

    /// Drops states that can no longer be read.
    pub(crate) fn trim<Y>(&self, state: &State<X, Y>) {
        let mut kept = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        let outdated: Vec<_> =
            kept.extract_if(.., |(name, at, _)| *at < state.floor(name)).collect();
        drop(kept);
        drop(outdated);
    }
}
