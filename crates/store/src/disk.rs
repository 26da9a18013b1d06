//! The disk operations that the store needs, and the real disk.
//!
//! The narrow trait is there for the tests: they run the whole store on a simulated disk that
//! tears writes, loses power and runs full at every possible moment.

use std::fmt;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FallocateFlags, OFlags};

use crate::OpenError;

#[cfg(test)]
pub(crate) mod simulated;

/// A directory of plain files.
pub(crate) trait Disk: Send + Sync {
    /// Names of all files.
    fn list(&self) -> io::Result<Vec<String>>;
    /// A new file. It is an error if the name is taken.
    fn create(&self, name: &str) -> io::Result<Box<dyn File>>;
    fn open(&self, name: &str) -> io::Result<Box<dyn File>>;
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes creations, renames and removals so far durable.
    fn sync(&self) -> io::Result<()>;
    /// The whole path of a file, for messages to users.
    fn path(&self, name: &str) -> PathBuf;
    /// Sets the file that must stay in place, instead of the one that was set before.
    fn track(&self, name: &str);
    /// Whether the directory is still where it was when it was opened, with the tracked file.
    fn is_in_place(&self) -> bool;
    /// The free bytes of the disk.
    fn available_bytes(&self) -> io::Result<u64>;
    /// Records in the directory at which address its user can be reached.
    fn record_address(&self, address: &str) -> io::Result<()>;
}

/// An open file.
pub(crate) trait File: Send {
    fn len(&self) -> io::Result<u64>;
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
    fn write_all_at(&self, buffer: &[u8], offset: u64) -> io::Result<()>;
    /// Takes up space for the whole length at once, so that running out is noticed early.
    fn allocate(&self, len: u64) -> io::Result<()>;
    /// Makes what was written so far durable.
    fn sync(&self) -> io::Result<()>;
}

/// The real disk: a private directory that one process uses at a time.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    handle: fs::File,
    /// Held for its lock, which ends with it. Its content names the holder.
    lock: fs::File,
    /// The file that must stay, and its metadata when it was set; absent if it did not exist even
    /// then.
    tracked: Mutex<Option<(PathBuf, Option<fs::Metadata>)>>,
}

/// Held locked by the process that uses the directory.
const LOCK_FILE: &str = "lock";
/// Neither group nor others may do anything.
const GROUP_AND_OTHERS_MODE: u32 = 0o077;

impl Directory {
    /// Locks a directory for this process, and creates it if there is none.
    pub(crate) fn open_locked(path: &Path) -> Result<Self, OpenError> {
        let failed = |source| OpenError::Io { path: path.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
        let handle = fs::File::open(path).map_err(failed)?;
        check_private(path, &handle.metadata().map_err(failed)?)?;
        let lock = path.join(LOCK_FILE);
        let file = open_options().create(true).open(&lock);
        let file = file.map_err(|source| OpenError::Io { path: lock, source })?;
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => {
                let holder = LockHolder::read(&file);
                return Err(OpenError::InUse { path: path.to_owned(), holder });
            }
            Err(fs::TryLockError::Error(source)) => return Err(failed(source)),
        }
        for entry in fs::read_dir(path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            check_private(&entry.path(), &entry.metadata().map_err(failed)?)?;
        }
        let followed = Mutex::default();
        let directory = Self { path: path.to_owned(), handle, lock: file, tracked: followed };
        directory.record_address("").map_err(failed)?;
        Ok(directory)
    }
}

/// The process that uses a directory, as recorded in its lock file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockHolder {
    /// The process.
    pub pid: u32,
    /// The address at which it can be reached, if it has recorded one.
    pub address: Option<String>,
}

impl LockHolder {
    /// More than any lock file contains.
    const MAX_LOCK_FILE_BYTES: u64 = 4096;

    fn read(lock: &fs::File) -> Option<Self> {
        let mut text = String::new();
        io::Read::take(lock, Self::MAX_LOCK_FILE_BYTES).read_to_string(&mut text).ok()?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Option<Self> {
        let said = |name| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        let address = said("address").filter(|it| !it.is_empty()).map(str::to_owned);
        Some(Self { pid: said("pid")?.parse().ok()?, address })
    }
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            Some(address) => write!(f, "process {}, which serves {address}", self.pid),
            None => write!(f, "process {}", self.pid),
        }
    }
}

/// Whether two descriptions are of the same file.
fn is_same(one: &fs::Metadata, other: &fs::Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

fn check_private(path: &Path, metadata: &fs::Metadata) -> Result<(), OpenError> {
    let mode = metadata.mode() & 0o777;
    if mode & GROUP_AND_OTHERS_MODE != 0 {
        return Err(OpenError::InsecureMode { path: path.to_owned(), mode });
    }
    Ok(())
}

fn open_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC;
    options.read(true).write(true).mode(0o600).custom_flags(flags.bits().cast_signed());
    options
}

impl Disk for Directory {
    fn list(&self) -> io::Result<Vec<String>> {
        // A name that is not valid UTF-8 is not one of ours.
        let names =
            fs::read_dir(&self.path)?.map(|entry| Ok(entry?.file_name().into_string().ok()));
        names.filter_map(Result::transpose).collect()
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn File>> {
        Ok(Box::new(open_options().create_new(true).open(self.path(name))?))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn File>> {
        Ok(Box::new(open_options().open(self.path(name))?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path(from), self.path(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path(name))
    }

    fn sync(&self) -> io::Result<()> {
        self.handle.sync_all()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn track(&self, name: &str) {
        let path = self.path.join(name);
        let there = fs::symlink_metadata(&path).ok();
        // No foreign code runs under the lock, so the data of a poisoned lock is still intact.
        *self.tracked.lock().unwrap_or_else(PoisonError::into_inner) = Some((path, there));
    }

    fn is_in_place(&self) -> bool {
        let followed = self.tracked.lock().unwrap_or_else(PoisonError::into_inner);
        let is_kept = |(path, before): &(PathBuf, Option<fs::Metadata>)| {
            let now = fs::symlink_metadata(path);
            before.as_ref().zip(now.ok()).is_some_and(|(before, now)| is_same(before, &now))
        };
        if !followed.as_ref().is_none_or(is_kept) {
            return false;
        }
        drop(followed);
        // The directory itself may be a symbolic link; its content may not.
        let there = [fs::metadata(&self.path), fs::symlink_metadata(self.path.join(LOCK_FILE))];
        let ours = [self.handle.metadata(), self.lock.metadata()];
        there.into_iter().zip(ours).all(|pair| match pair {
            (Ok(there), Ok(ours)) => is_same(&there, &ours),
            (Ok(_) | Err(_), _) => false,
        })
    }

    fn available_bytes(&self) -> io::Result<u64> {
        let stat = rustix::fs::fstatvfs(&self.handle)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn record_address(&self, address: &str) -> io::Result<()> {
        let text = format!("pid: {}\naddress: {address}\n", std::process::id());
        FileExt::write_all_at(&self.lock, text.as_bytes(), 0)?;
        self.lock.set_len(u64::try_from(text.len()).unwrap_or(u64::MAX))
    }
}

impl File for fs::File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, buffer, offset)
    }

    fn write_all_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        FileExt::write_all_at(self, buffer, offset)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        match rustix::fs::fallocate(self, FallocateFlags::empty(), 0, len) {
            // Some file systems cannot; the zeros written next take the space as well.
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

/// Whether an error means that the disk is full, rather than broken.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
