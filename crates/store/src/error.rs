//! Errors, grouped by what the caller does next.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::LockHolder;
use crate::{Entry, Revision};

/// Why a change was not made.
#[derive(Debug, thiserror::Error)]
pub enum CommitError<X> {
    /// The key is not as expected: read its current entry and decide again.
    #[error("the key changed")]
    Conflict {
        /// The current entry of the key.
        current: Option<Arc<Entry<X>>>,
    },
    /// The disk is full. Nothing was changed; it may work again once there is space.
    #[error("could not allocate space for the log")]
    Full {
        /// The error of the system.
        source: Arc<io::Error>,
    },
    /// The directory was deleted or replaced. Nothing was changed; it works again once the
    /// directory is back in its place.
    #[error(
        "{} was deleted or replaced by another while it was in use; put it back, or start again on \
         a directory that is there",
        path.display()
    )]
    DirectoryReplaced {
        /// Where the directory was.
        path: PathBuf,
    },
    /// The change can never be stored.
    #[error("a change of {bytes} bytes cannot be stored: the limit is {limit}")]
    TooLarge {
        /// Bytes of the change.
        bytes: usize,
        /// Bytes a change may have.
        limit: usize,
    },
    /// The store failed. Whether this change was kept is known when it is opened again.
    #[error("the store failed")]
    Failed(#[source] Failure),
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

/// Why a store accepts no changes now.
#[derive(Debug, Clone, thiserror::Error)]
pub enum NotReady {
    /// It failed for good.
    #[error("the store failed")]
    Failed(#[source] Failure),
    /// Its directory was deleted or replaced.
    #[error("the data directory was deleted or replaced")]
    DirectoryReplaced,
    /// The disk is full; only deletions are accepted.
    #[error("the disk is full: only deletions are accepted until there is space")]
    Full,
}

/// The disk refused or lost something. The store accepts no more changes: end the process and open
/// it again, which determines what the disk really contains.
#[derive(Debug, Clone, thiserror::Error)]
#[error("could not {what} {}", path.display())]
pub struct Failure {
    /// What was attempted.
    pub what: &'static str,
    /// On which file.
    pub path: PathBuf,
    /// The error of the system.
    #[source]
    pub source: Arc<io::Error>,
}

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error(
        "{} is in use by {}; stop it, or use another directory",
        path.display(),
        holder.as_ref().map_or_else(|| "another process".to_owned(), ToString::to_string)
    )]
    InUse {
        /// The directory.
        path: PathBuf,
        /// The process that uses it, if that is known.
        holder: Option<LockHolder>,
    },
    /// Others may read or change the files.
    #[error(
        "{} has mode {mode:03o}: others must have no access; run `chmod go-rwx` on it",
        path.display()
    )]
    InsecureMode {
        /// The file or directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// A newer version of this program wrote it.
    #[error("{} has format {found}, and this version reads up to {supported}", path.display())]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format this version knows.
        supported: u32,
    },
    /// The log is damaged, or missing, in a part that was durable.
    #[error(transparent)]
    Damaged(#[from] Damage),
    /// A checkpoint is damaged. Nothing else holds what was in it.
    #[error(
        "{} is damaged at byte {offset}; restore the directory from a backup", path.display()
    )]
    DamagedCheckpoint {
        /// The file.
        path: PathBuf,
        /// Where it stops making sense.
        offset: u64,
    },
    /// The disk refused or lost something while the log was made ready.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The options contradict themselves.
    #[error("cannot open a store with {0}")]
    Options(&'static str),
    /// The system refused something.
    #[error("could not use {}", path.display())]
    Io {
        /// On which file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// Where a log is damaged although it continues.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{}: the log is sound up to revision {last_good}, and {later} changes after it were found, up \
     to revision {newest}; restore the directory from a backup, or open it with repair, which \
     keeps everything up to revision {last_good}, moves the rest aside, and loses those changes",
    flaw.of(path)
)]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub flaw: DamageKind,
    /// The last revision that can be kept.
    pub last_good: Revision,
    /// Whole changes found after the damage.
    pub later: u64,
    /// The newest revision that is known to have been there.
    pub newest: Revision,
}

/// What is wrong with a file of the log, or missing beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DamageKind {
    /// It cannot be read from this byte on.
    DamagedAt(u64),
    /// It is missing, and a later one exists.
    Missing,
    /// It exists, and neither the checkpoint nor the file does that it continues.
    PredecessorMissing,
    /// It exists, and the log that continues it does not.
    SuccessorMissing,
    /// It was part of a log once, and neither log nor checkpoint exist.
    Orphaned,
}

impl DamageKind {
    fn of(self, path: &Path) -> String {
        let path = path.display();
        match self {
            Self::DamagedAt(offset) => format!("{path} is damaged at byte {offset}"),
            Self::Missing => format!("{path} is missing"),
            Self::PredecessorMissing => {
                format!("the checkpoint or the log before {path} is missing")
            }
            Self::SuccessorMissing => format!("the log after {path} is missing"),
            Self::Orphaned => format!("the log and the checkpoint beside {path} are missing"),
        }
    }
}
