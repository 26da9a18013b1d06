//! Private files: written atomically, and refused when other users can read them.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::OFlags;

mod replace;

pub use replace::{link_target, replace};

/// The largest file that is read: many times the longest chain of certificates.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// The lock of a directory that several processes may open.
const LOCK_FILE: &str = ".lock";

/// Writes a file that only its owner may read, replacing an existing one.
///
/// The write is atomic: the bytes go to a new file beside it, are flushed to disk, and the new file
/// is renamed. A link at `path` is replaced, not followed.
///
/// # Errors
/// The directory does not exist or is not writable, or the disk is full.
pub fn write_private(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let failed = |source| FileError::Write { path: path.to_owned(), source };
    let (mut file, fresh) = create_beside(path).map_err(failed)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    let written = written.and_then(|()| fs::rename(&fresh, path));
    if let Err(source) = written {
        // The first error is the one to report; a leftover temporary file is private and is never
        // read.
        let _ = fs::remove_file(&fresh);
        return Err(failed(source));
    }
    // The rename is durable once the directory is flushed to disk.
    File::open(directory(path)).and_then(|directory| directory.sync_all()).map_err(failed)
}

/// Creates a new file in the directory of `path`, under a unique name.
fn create_beside(path: &Path) -> io::Result<(File, PathBuf)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?.to_string_lossy();
    loop {
        let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let fresh = directory(path).join(format!(".{name}.{process}-{number}.new"));
        match private().write(true).create_new(true).open(&fresh) {
            Ok(file) => return Ok((file, fresh)),
            // Left behind by a killed process with the same process ID.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600).custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
    options
}

/// Reads a file that only its owner may read; `None` when there is none.
///
/// # Errors
/// Other users can read it or own it, it is not a regular file, or it cannot be read.
pub fn read_private(path: &Path) -> Result<Option<Vec<u8>>, FileError> {
    let failed = |source| FileError::Read { path: path.to_owned(), source };
    let file = match private().read(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            return Err(FileError::NotAFile { path: path.to_owned() });
        }
        Err(error) => return Err(failed(error)),
    };
    // Metadata of the open file, not of the path: the path could lead to another file by now.
    let about = file.metadata().map_err(failed)?;
    if !about.is_file() {
        return Err(FileError::NotAFile { path: path.to_owned() });
    }
    check_private(path, about.uid(), about.mode(), "600")?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(FileError::NotAFile { path: path.to_owned() });
    }
    Ok(Some(bytes))
}

/// A directory that only its owner may enter. No other process can lock it while this value lives.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    _lock: File,
}

impl Directory {
    /// Opens or creates the directory and waits until no other process has locked it.
    pub(crate) fn open_or_create(path: &Path) -> Result<Self, FileError> {
        let failed = |source| FileError::Write { path: path.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
        let about = fs::symlink_metadata(path).map_err(failed)?;
        if !about.is_dir() {
            return Err(FileError::NotADirectory { path: path.to_owned() });
        }
        check_private(path, about.uid(), about.mode(), "700")?;
        let lock = path.join(LOCK_FILE);
        let failed = |source| FileError::Write { path: lock.clone(), source };
        // Never removed and never replaced: a lock on an unlinked file protects nothing.
        let file =
            private().write(true).create(true).truncate(false).open(&lock).map_err(failed)?;
        file.lock().map_err(failed)?;
        Ok(Self { path: path.to_owned(), _lock: file })
    }

    /// Returns the path of a file in it.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

fn check_private(
    path: &Path,
    owner: u32,
    mode: u32,
    wanted: &'static str,
) -> Result<(), FileError> {
    let path = || path.to_owned();
    if owner != rustix::process::geteuid().as_raw() {
        return Err(FileError::WrongOwner { path: path(), owner });
    }
    if mode & 0o077 != 0 {
        return Err(FileError::InsecureMode { path: path(), mode: mode & 0o7777, wanted });
    }
    Ok(())
}

/// Why a private file or directory was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// Writing failed.
    #[error("could not write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the operating system reported.
        source: io::Error,
    },
    /// Reading failed.
    #[error("could not read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system reported.
        source: io::Error,
    },
    /// It is a link, a directory, or far too large.
    #[error("cannot use {}: it is not a plain file of reasonable size", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// It is a link or a file instead of a directory.
    #[error("cannot use {}: it is not a directory", path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// It belongs to another user, who could have written anything into it.
    #[error(
        "cannot use {}: it belongs to user {owner}; run as that user, or chown it",
        path.display()
    )]
    WrongOwner {
        /// The path.
        path: PathBuf,
        /// The user ID of its owner.
        owner: u32,
    },
    /// Other users can read the keys in it.
    #[error(
        "cannot use {}: its mode {mode:o} lets other users in; run `chmod {wanted} {}`, and if \
         others had access to this machine, delete the directory to make new keys",
        path.display(), path.display()
    )]
    InsecureMode {
        /// The path.
        path: PathBuf,
        /// Its mode.
        mode: u32,
        /// What it should be.
        wanted: &'static str,
    },
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    /// A private temporary directory, removed when dropped.
    pub(crate) fn private_folder() -> tempfile::TempDir {
        let mode = fs::Permissions::from_mode(0o700);
        tempfile::Builder::new().permissions(mode).tempdir().unwrap()
    }

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_private_file_is_whole_and_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        assert_eq!(read_private(&path).unwrap(), None);
        for text in ["one", "two"] {
            write_private(&path, text.as_bytes()).unwrap();
            assert_eq!(read_private(&path).unwrap().unwrap(), text.as_bytes());
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        }
        let names: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["key"], "nothing is left beside it");

        let elsewhere = folder.path().join("elsewhere");
        fs::write(&elsewhere, "theirs").unwrap();
        fs::remove_file(&path).unwrap();
        symlink(&elsewhere, &path).unwrap();
        write_private(&path, b"ours").unwrap();
        assert_eq!(fs::read(&elsewhere).unwrap(), b"theirs", "a link is not followed");
        assert_eq!(read_private(&path).unwrap().unwrap(), b"ours");

        let error = write_private(&folder.path().join("no/key"), b"").unwrap_err();
        assert!(matches!(error, FileError::Write { .. }), "{error}");
    }

    #[test]
    fn files_readable_by_others_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        write_private(&path, b"secret").unwrap();
        for mode in [0o640, 0o604, 0o644, 0o660, 0o610] {
            chmod(&path, mode);
            let error = read_private(&path).unwrap_err().to_string();
            let start = format!(
                "cannot use {0}: its mode {mode:o} lets other users in; run `chmod 600 {0}`",
                path.display()
            );
            assert!(error.starts_with(&start), "{error}");
        }
        chmod(&path, 0o400);
        assert_eq!(read_private(&path).unwrap().unwrap(), b"secret");

        let link = folder.path().join("link");
        symlink(&path, &link).unwrap();
        let error = read_private(&link).unwrap_err();
        assert!(matches!(error, FileError::NotAFile { .. }), "{error}");
        let error = read_private(folder.path()).unwrap_err();
        assert!(matches!(error, FileError::NotAFile { .. }), "{error}");
        fs::write(&link, vec![0; 1 << 21]).unwrap();
        assert!(read_private(&path).is_err(), "written through the link, and too large");
    }

    #[test]
    fn a_directory_others_can_enter_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        drop(Directory::open_or_create(&path).unwrap());
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o700);
        chmod(&path, 0o750);
        let error = Directory::open_or_create(&path).unwrap_err().to_string();
        assert!(error.contains("its mode 750 lets other users in; run `chmod 700"), "{error}");
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(Directory::open_or_create(&file).is_err());
    }
}
