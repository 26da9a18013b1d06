//! The file system as the storage uses it, so that tests can replace it with one that crashes.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// A file system below one directory. Paths are relative and use `/`.
///
/// Nothing is durable before the matching `sync` has returned: the bytes of a file before
/// [`DiskFile::sync`], and names that were created, renamed or removed before
/// [`Disk::sync_directory`].
pub(crate) trait Disk: Send + Sync + fmt::Debug {
    /// Creates a directory whose parent exists; an existing one is left alone.
    fn create_directory(&self, path: &str) -> io::Result<()>;
    /// Creates a file that does not exist.
    fn create_file(&self, path: &str) -> io::Result<Box<dyn DiskFile>>;
    /// Opens a file for reading; `None` if there is none.
    fn open_file(&self, path: &str) -> io::Result<Option<Box<dyn DiskFile>>>;
    /// Renames a file and replaces the target, if there is one.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file; whether there was one.
    fn remove_file(&self, path: &str) -> io::Result<bool>;
    /// Removes an empty directory.
    fn remove_directory(&self, path: &str) -> io::Result<()>;
    /// The names in a directory, sorted; `None` if there is no directory.
    fn names(&self, path: &str) -> io::Result<Option<Vec<String>>>;
    /// Makes the names in a directory durable.
    fn sync_directory(&self, path: &str) -> io::Result<()>;
}

/// An open file.
pub(crate) trait DiskFile: Send + Sync + fmt::Debug {
    /// Appends bytes.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Shortens the file, after an append that failed halfway.
    fn truncate(&mut self, length: u64) -> io::Result<()>;
    /// Makes its bytes durable.
    fn sync(&mut self) -> io::Result<()>;
    /// The number of its bytes.
    fn length(&self) -> io::Result<u64>;
    /// Reads at most `limit` bytes from an offset; fewer only at the end.
    fn read_at(&self, offset: u64, limit: usize) -> io::Result<Vec<u8>>;
}

/// A directory of this machine. No other process can open it while this value lives.
#[derive(Debug)]
pub(crate) struct Directory {
    root: PathBuf,
    _lock: File,
}

/// The file whose lock excludes other processes. Never removed: a lock on an unlinked file protects
/// nothing.
const LOCK_FILE: &str = "lock";

impl Directory {
    /// Opens or creates a directory and locks it.
    ///
    /// # Errors
    /// It cannot be created, or another process has locked it ([`io::ErrorKind::WouldBlock`]).
    pub(crate) fn open_or_create(root: &Path) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(root)?;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let lock = options.open(root.join(LOCK_FILE))?;
        lock.try_lock().map_err(io::Error::from)?;
        Ok(Self { root: root.to_owned(), _lock: lock })
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }
}

impl Disk for Directory {
    fn create_directory(&self, path: &str) -> io::Result<()> {
        match fs::DirBuilder::new().mode(0o700).create(self.path(path)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            done => done,
        }
    }

    fn create_file(&self, path: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).append(true).create_new(true).mode(0o600);
        Ok(Box::new(LocalFile(options.open(self.path(path))?)))
    }

    fn open_file(&self, path: &str) -> io::Result<Option<Box<dyn DiskFile>>> {
        match File::open(self.path(path)) {
            Ok(file) => Ok(Some(Box::new(LocalFile(file)))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path(from), self.path(to))
    }

    fn remove_file(&self, path: &str) -> io::Result<bool> {
        match fs::remove_file(self.path(path)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn remove_directory(&self, path: &str) -> io::Result<()> {
        fs::remove_dir(self.path(path))
    }

    fn names(&self, path: &str) -> io::Result<Option<Vec<String>>> {
        let entries = match fs::read_dir(self.path(path)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut names = Vec::new();
        for entry in entries {
            // A name that is not UTF-8 was not written by this crate.
            names.extend(entry?.file_name().into_string());
        }
        names.sort_unstable();
        Ok(Some(names))
    }

    fn sync_directory(&self, path: &str) -> io::Result<()> {
        File::open(self.path(path))?.sync_all()
    }
}

#[derive(Debug)]
struct LocalFile(File);

impl DiskFile for LocalFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync_all()
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, offset: u64, limit: usize) -> io::Result<Vec<u8>> {
        // Bounded by the file, so that a large limit does not allocate more than there is.
        let left = self.length()?.saturating_sub(offset);
        let wanted = limit.min(usize::try_from(left).unwrap_or(usize::MAX));
        let mut bytes = vec![0; wanted];
        let mut filled = 0;
        while filled < wanted {
            let position = offset + u64::try_from(filled).unwrap_or(u64::MAX);
            match self.0.read_at(&mut bytes[filled..], position) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }
}

/// Reads a whole small file; `None` if there is none.
///
/// # Errors
/// It cannot be read, or is larger than `limit`.
pub(crate) fn read_small(disk: &dyn Disk, path: &str, limit: usize) -> io::Result<Option<Vec<u8>>> {
    let Some(file) = disk.open_file(path)? else { return Ok(None) };
    let bytes = file.read_at(0, limit.saturating_add(1))?;
    if bytes.len() > limit {
        let why = format!("{path} is larger than {limit} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    Ok(Some(bytes))
}
