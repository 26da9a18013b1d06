//! The folder of the sockets of shared connections.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// The longest path of a socket that every system accepts.
pub const MAX_CONTROL_PATH_BYTES: usize = 103;

/// What ssh appends to a path while it makes the socket: a dot and 16 characters.
const SUFFIX_BYTES: usize = 17;

/// Digits of the number that names a socket.
const NUMBER_DIGITS: usize = 5;

/// The beginning of the folders' names; the id of the process follows.
const PREFIX: &str = "gantry-ssh-";

/// How many entries are looked at when leftovers are removed.
const MAX_ENTRIES: usize = 10_000;

/// A folder that only its owner can enter, on a path that is short enough for sockets. It is
/// removed with this value, once the connections in it are closed.
#[derive(Debug)]
pub struct ControlFolder {
    path: PathBuf,
    next: AtomicU32,
}

/// No folder for sockets can be made.
#[derive(Debug, thiserror::Error)]
#[error(
    "could not make a folder for the sockets of ssh in any of: {}; set XDG_RUNTIME_DIR to a \
     folder of your own with a short path",
    parents(tried)
)]
pub struct ControlFolderError {
    tried: Vec<(PathBuf, String)>,
}

fn parents(tried: &[(PathBuf, String)]) -> String {
    let tried: Vec<String> =
        tried.iter().map(|(path, why)| format!("{} ({why})", path.display())).collect();
    tried.join(", ")
}

impl ControlFolder {
    /// Creates it in the first of these folders in which it can be, and removes what processes that
    /// were killed left there.
    ///
    /// # Errors
    /// It can be in none of them.
    pub fn create(
        parents: &[PathBuf],
        random: &mut fastrand::Rng,
    ) -> Result<Self, ControlFolderError> {
        let mut tried = Vec::new();
        for parent in parents {
            let suffix: String = (0..6).map(|_| random.alphanumeric()).collect();
            let path = parent.join(format!("{PREFIX}{}-{suffix}", std::process::id()));
            if !fits(&path) {
                tried.push((parent.clone(), "its path is too long".to_owned()));
                continue;
            }
            remove_leftovers(parent);
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self { path, next: AtomicU32::new(0) }),
                Err(error) => tried.push((parent.clone(), error.to_string())),
            }
        }
        Err(ControlFolderError { tried })
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of the socket of one more connection.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.path.join(number.to_string())
    }
}

impl Drop for ControlFolder {
    fn drop(&mut self) {
        // A connection that was not closed ends by itself, and the next folder is made where this
        // one is left.
        let _ = fs::remove_dir(&self.path);
    }
}

/// Whether sockets in this folder have paths that are short enough.
fn fits(folder: &Path) -> bool {
    folder.as_os_str().len() + 1 + NUMBER_DIGITS + SUFFIX_BYTES <= MAX_CONTROL_PATH_BYTES
}

/// Removes the folders of processes that are gone, with the sockets in which nobody listens.
fn remove_leftovers(parent: &Path) {
    let us = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(parent).into_iter().flatten().flatten().take(MAX_ENTRIES) {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
        let Some(process) = process.filter(|it| it.bytes().all(|it| it.is_ascii_digit())) else {
            continue;
        };
        let is_ours = entry.metadata().is_ok_and(|it| it.is_dir() && it.uid() == us);
        if !is_ours || Path::new("/proc").join(process).exists() {
            continue;
        }
        for socket in fs::read_dir(entry.path()).into_iter().flatten().flatten() {
            let refused = UnixStream::connect(socket.path());
            if refused.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
                let _ = fs::remove_file(socket.path());
            }
        }
        // One in which a connection is still open is left for later.
        let _ = fs::remove_dir(entry.path());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixListener;

    fn create(parents: &[PathBuf]) -> Result<ControlFolder, ControlFolderError> {
        ControlFolder::create(parents, &mut fastrand::Rng::with_seed(7))
    }

    #[test]
    fn the_folder_is_private_short_and_removed() {
        let root = tempfile::tempdir_in("/tmp").unwrap();
        let long = root.path().join("x".repeat(60));
        fs::create_dir(&long).unwrap();
        let parents = [long, root.path().join("missing"), root.path().to_path_buf()];
        let folder = create(&parents).unwrap();
        assert_eq!(folder.path().parent(), Some(root.path()));
        let mode = fs::metadata(folder.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o700);
        let socket = folder.socket();
        assert_ne!(socket, folder.socket(), "one for each connection");
        // As ssh does it, with its suffix.
        let listener = UnixListener::bind(format!("{}.0123456789abcdef", socket.display()));
        drop(listener.unwrap());
        fs::remove_file(format!("{}.0123456789abcdef", socket.display())).unwrap();
        let path = folder.path().to_path_buf();
        drop(folder);
        assert!(!path.exists());
        let error = create(&parents[..2]).unwrap_err().to_string();
        assert!(error.contains("too long") && error.contains("No such file"), "{error}");
        assert!(error.contains("XDG_RUNTIME_DIR"), "{error}");
    }

    #[test]
    fn what_a_killed_process_left_is_removed() {
        let root = tempfile::tempdir_in("/tmp").unwrap();
        let make = |name: &str| {
            let path = root.path().join(name);
            fs::create_dir(&path).unwrap();
            path
        };
        // No process has this id: it is beyond the largest.
        let dead = make("gantry-ssh-99999999-a");
        drop(UnixListener::bind(dead.join("0")).unwrap());
        let open = make("gantry-ssh-99999999-b");
        let listener = UnixListener::bind(open.join("0")).unwrap();
        let running = make(&format!("gantry-ssh-{}-c", std::process::id()));
        let other = make("gantry-99999999");
        let folder = create(&[root.path().to_path_buf()]).unwrap();
        assert!(!dead.exists());
        assert!(open.exists() && running.exists() && other.exists());
        drop((listener, folder));
    }
}
