//! What the store needs of a disk, and the real one.
//!
//! The narrow trait is there for the tests: they run the whole store on a simulated disk that
//! tears writes, loses power and runs full at every possible moment.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

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
    /// How users know a file: its whole path.
    fn path(&self, name: &str) -> PathBuf;
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

/// The real thing: a private directory that one process uses at a time.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    handle: fs::File,
    /// Held for its lock, which ends with it.
    _lock: fs::File,
}

/// Held locked by the process that uses the directory.
const LOCK: &str = "lock";
/// Neither group nor others may do anything.
const EXPOSED: u32 = 0o077;

impl Directory {
    /// Takes a directory for this process, and makes it if there is none.
    pub(crate) fn take(path: &Path) -> Result<Self, OpenError> {
        let failed = |source| OpenError::Io { path: path.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
        let handle = fs::File::open(path).map_err(failed)?;
        check_private(path, &handle.metadata().map_err(failed)?)?;
        let lock = path.join(LOCK);
        let file = open_options().create(true).open(&lock);
        let file = file.map_err(|source| OpenError::Io { path: lock, source })?;
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => {
                return Err(OpenError::InUse { path: path.to_owned() });
            }
            Err(fs::TryLockError::Error(source)) => return Err(failed(source)),
        }
        for entry in fs::read_dir(path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            check_private(&entry.path(), &entry.metadata().map_err(failed)?)?;
        }
        Ok(Self { path: path.to_owned(), handle, _lock: file })
    }
}

fn check_private(path: &Path, metadata: &fs::Metadata) -> Result<(), OpenError> {
    let mode = metadata.mode() & 0o777;
    if mode & EXPOSED != 0 {
        return Err(OpenError::Exposed { path: path.to_owned(), mode });
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
        // A name that is not text is none of ours.
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

/// Whether an error says that there is no space, rather than that something broke.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
