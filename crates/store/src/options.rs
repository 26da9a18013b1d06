//! Options of opening a store.

use std::path::PathBuf;

/// Options of opening a store.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where changes are kept.
    pub durability: Durability,
    /// Bytes of one file of the log; also the limit of one record.
    pub segment_bytes: usize,
    /// A checkpoint is due when the log since the last one is larger than this and than the live
    /// data, so that disk use stays within about three times the live data.
    pub checkpoint_bytes: usize,
    /// How much history is kept.
    pub window: WindowOptions,
    /// Changes that may wait for the writer. Callers with more wait before they are queued.
    pub queue: usize,
    /// What to do about a log that is damaged in its durable part.
    pub damage: OnDamage,
}

/// Where changes are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Durability {
    /// In this directory, which holds nothing else: an acknowledged change survives a crash of
    /// process or machine.
    Durable(PathBuf),
    /// In memory only.
    Ephemeral,
}

/// What to do about a log that is damaged in its durable part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDamage {
    /// Refuse to open, and report the damage.
    Refuse,
    /// Keep everything before the damage and move the rest aside. Acknowledged changes are lost;
    /// their revisions are not used again.
    Repair,
}

/// How much history is kept for watches and for lists at older revisions.
///
/// History is the changes themselves: an event counts with its entry's and its previous entry's
/// bytes. When a bound is exceeded the oldest event is dropped, whichever space it belongs to.
#[derive(Debug, Clone)]
pub struct WindowOptions {
    /// Bytes of all spaces together.
    pub bytes: usize,
    /// Bytes of one space.
    pub space_bytes: usize,
    /// Events a space keeps although a byte bound is exceeded, so that a busy space cannot push
    /// out the history of a quiet one.
    pub floor_events: usize,
    /// Bytes of all spaces together beyond which even `floor_events` is not kept.
    pub ceiling_bytes: usize,
}

const MIB: usize = 1 << 20;

impl Options {
    /// The usual settings for a durability.
    #[must_use]
    pub fn new(durability: Durability) -> Self {
        Self {
            durability,
            segment_bytes: 64 * MIB,
            checkpoint_bytes: 64 * MIB,
            window: WindowOptions::default(),
            // A batch is at most this long; with more waiting, waiting is the right answer.
            queue: 1024,
            damage: OnDamage::Refuse,
        }
    }
}

impl Default for WindowOptions {
    fn default() -> Self {
        Self {
            bytes: 64 * MIB,
            space_bytes: 48 * MIB,
            floor_events: 1024,
            ceiling_bytes: 256 * MIB,
        }
    }
}
