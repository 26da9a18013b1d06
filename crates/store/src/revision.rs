//! The one number that orders everything the store has seen.

use std::fmt;

/// A point in the store's history. Every committed change, deletions included, takes the next one.
///
/// Revisions are never reused and never go back, whatever happens to the process or the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(u64);

impl Revision {
    /// The revision of a store that has never been written to; the first change gets the next one.
    pub const EMPTY: Self = Self(1);

    /// A revision named by someone else, such as a client that saw it earlier.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The plain number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The one after. At a billion changes a second the numbers last for five centuries.
    pub(crate) const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
