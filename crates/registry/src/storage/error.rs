//! Errors of the storage.

use std::io;

use gantry_oci::Digest;

use super::FORMAT;

/// Why the storage did not do something.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The disk is full, or the quota of the user.
    #[error(
        "could not write {path}: the disk of the registry is full; remove images and collect \
             garbage, or make it larger"
    )]
    Full {
        /// The file, relative to the directory of the registry.
        path: String,
        /// What the operating system reported.
        source: io::Error,
    },
    /// The file system failed.
    #[error("could not use {path}")]
    Disk {
        /// The file, relative to the directory of the registry.
        path: String,
        /// What the operating system reported.
        source: io::Error,
    },
    /// Another process uses the directory.
    #[error("cannot use the directory of the registry: another process has locked it")]
    Locked,
    /// The directory was written by another version of this program.
    #[error("cannot use the directory of the registry: its format is {found:?}, not {FORMAT:?}")]
    Format {
        /// What the file `format` has.
        found: String,
    },
    /// A manifest refers to content that the repository does not have.
    #[error("the repository has no {digest}; push it first")]
    MissingReference {
        /// The content.
        digest: Digest,
    },
    /// A limit was reached.
    #[error(
        "the registry has reached its limit of {limit} {what}; remove some, or raise the limit"
    )]
    Limit {
        /// What is limited.
        what: &'static str,
        /// How many there may be.
        limit: usize,
    },
}

impl StorageError {
    pub(super) fn at(path: &str) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| {
            let path = path.to_owned();
            match source.kind() {
                io::ErrorKind::StorageFull
                | io::ErrorKind::QuotaExceeded
                | io::ErrorKind::FileTooLarge => Self::Full { path, source },
                _ => Self::Disk { path, source },
            }
        }
    }
}
