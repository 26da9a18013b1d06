//! Files below the root folder, written so that they are whole after a crash.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{
    MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, chown, symlink,
};
use std::path::{Path, PathBuf};

use gantry_provision::{Digest, Failure, PARENT_MODE, State};

/// Bytes of a text that is observed.
const MAX_TEXT_BYTES: u64 = 1 << 20;

/// The folder that absolute paths are below.
#[derive(Clone, Debug)]
pub(crate) struct Root(pub(crate) PathBuf);

/// A failure with the path that it is about.
pub(crate) fn failure(what: &str, path: &Path, error: &io::Error) -> Failure {
    let is_full = error.kind() == io::ErrorKind::StorageFull;
    let remedy = if is_full { "; remove files, or mount a larger disk" } else { "" };
    Failure::lasting(format!("could not {what} {}: {error}{remedy}", path.display()))
}

impl Root {
    /// Where an absolute path of the host is.
    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }

    pub(crate) fn state(&self, path: &str) -> Result<State, Failure> {
        let at = self.at(path);
        let found = match fs::symlink_metadata(&at) {
            Ok(found) => found,
            Err(error) if is_absent(&error) => return Ok(State::Absent),
            Err(error) => return Err(failure("look at", &at, &error)),
        };
        let mode = found.permissions().mode() & 0o7777;
        let owner = (found.uid(), found.gid());
        let kind = found.file_type();
        if kind.is_dir() {
            return Ok(State::Directory { mode, owner });
        }
        if kind.is_symlink() {
            let target = fs::read_link(&at).map_err(|error| failure("read", &at, &error))?;
            return Ok(State::Link { target: target.to_string_lossy().into_owned() });
        }
        if !kind.is_file() {
            return Ok(State::Special);
        }
        let bytes = fs::read(&at).map_err(|error| failure("read", &at, &error))?;
        Ok(State::File { digest: Digest::of(&bytes), mode, owner })
    }

    /// The text of a file; a file that is large or no text is as if it were not there.
    pub(crate) fn text(&self, path: &str) -> Result<State, Failure> {
        let at = self.at(path);
        let file = match File::open(&at) {
            Ok(file) => file,
            Err(error) if is_absent(&error) => return Ok(State::Absent),
            Err(error) => return Err(failure("read", &at, &error)),
        };
        let is_file = file.metadata().map_err(|error| failure("look at", &at, &error))?.is_file();
        if !is_file {
            return Ok(State::Absent);
        }
        let mut bytes = Vec::new();
        let mut file = file.take(MAX_TEXT_BYTES + 1);
        file.read_to_end(&mut bytes).map_err(|error| failure("read", &at, &error))?;
        if bytes.len() as u64 > MAX_TEXT_BYTES {
            return Ok(State::Absent);
        }
        Ok(String::from_utf8(bytes).map_or(State::Absent, |text| State::Text { text }))
    }

    /// Folders above a path that do not exist, the lowest first.
    pub(crate) fn missing_parents(&self, path: &str) -> Vec<String> {
        let mut missing = Vec::new();
        let mut rest = path;
        while let Some((parent, _)) = rest.rsplit_once('/') {
            if parent.is_empty() || fs::symlink_metadata(self.at(parent)).is_ok() {
                break;
            }
            missing.push(parent.to_owned());
            rest = parent;
        }
        missing
    }

    fn make_parents(&self, path: &str) -> Result<(), Failure> {
        for parent in self.missing_parents(path).iter().rev() {
            self.make_directory(parent, PARENT_MODE)?;
        }
        Ok(())
    }

    /// Makes a folder with its permissions, or gives one its permissions.
    pub(crate) fn make_directory(&self, path: &str, mode: u32) -> Result<(), Failure> {
        self.make_parents(path)?;
        let at = self.at(path);
        match fs::create_dir(&at) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && at.is_dir() => {}
            Err(error) => return Err(failure("make", &at, &error)),
        }
        set_mode(&at, mode)?;
        sync_parent(&at)
    }

    /// Writes a file beside its place, and puts it there when it is whole and on disk. Its
    /// permissions are there before its content is.
    pub(crate) fn write(
        &self,
        path: &str,
        bytes: &[u8],
        mode: u32,
        owner: Option<(u32, u32)>,
    ) -> Result<(), Failure> {
        self.make_parents(path)?;
        let at = self.at(path);
        let beside = beside(&at);
        let written = || -> io::Result<()> {
            let mut file = create(&beside)?;
            file.write_all(bytes)?;
            if let Some((user, group)) = owner {
                let now = file.metadata()?;
                if (now.uid(), now.gid()) != (user, group) {
                    chown(&beside, Some(user), Some(group))?;
                }
            }
            file.set_permissions(fs::Permissions::from_mode(mode))?;
            file.sync_all()?;
            fs::rename(&beside, &at)
        };
        written().map_err(|error| {
            // What is left of it would fill the disk.
            let _ = fs::remove_file(&beside);
            failure("write", &at, &error)
        })?;
        sync_parent(&at)
    }

    /// Makes a link beside its place, and puts it there.
    pub(crate) fn link(&self, path: &str, target: &str) -> Result<(), Failure> {
        self.make_parents(path)?;
        let at = self.at(path);
        let beside = beside(&at);
        let made = || -> io::Result<()> {
            match fs::remove_file(&beside) {
                Err(error) if !is_absent(&error) => return Err(error),
                Ok(()) | Err(_) => {}
            }
            symlink(target, &beside)?;
            fs::rename(&beside, &at)
        };
        made().map_err(|error| failure("link", &at, &error))?;
        sync_parent(&at)
    }

    /// Removes a file, a link, or an empty folder. Returns why it is left, if it is.
    pub(crate) fn remove(&self, path: &str) -> Result<Option<String>, Failure> {
        let at = self.at(path);
        let is_directory = fs::symlink_metadata(&at).is_ok_and(|found| found.is_dir());
        let removed = if is_directory { fs::remove_dir(&at) } else { fs::remove_file(&at) };
        match removed {
            Ok(()) => {}
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                return Ok(Some(format!("{path} is not empty")));
            }
            Err(error) => return Err(failure("remove", &at, &error)),
        }
        sync_parent(&at)?;
        Ok(None)
    }

    /// Cuts a file to a length, and writes bytes after it.
    pub(crate) fn append(&self, path: &str, length: usize, bytes: &[u8]) -> Result<(), Failure> {
        let at = self.at(path);
        let is_new = !at.exists();
        let written = || -> io::Result<()> {
            let mut file = OpenOptions::new();
            let mut file = file.append(true).create(true).mode(0o600).open(&at)?;
            file.set_len(length as u64)?;
            file.write_all(bytes)?;
            file.sync_all()
        };
        written().map_err(|error| failure("write", &at, &error))?;
        if is_new { sync_parent(&at) } else { Ok(()) }
    }

    /// The content of a file of our own; empty without one.
    pub(crate) fn read_own(&self, path: &str) -> Result<Vec<u8>, Failure> {
        let at = self.at(path);
        match fs::read(&at) {
            Ok(bytes) => Ok(bytes),
            Err(error) if is_absent(&error) => Ok(Vec::new()),
            Err(error) => Err(failure("read", &at, &error)),
        }
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn beside(at: &Path) -> PathBuf {
    let name = at.file_name().unwrap_or_default().to_string_lossy();
    at.with_file_name(format!(".{name}.gantry"))
}

fn create(at: &Path) -> io::Result<File> {
    match fs::remove_file(at) {
        Err(error) if !is_absent(&error) => return Err(error),
        Ok(()) | Err(_) => {}
    }
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(at)
}

fn set_mode(at: &Path, mode: u32) -> Result<(), Failure> {
    fs::set_permissions(at, fs::Permissions::from_mode(mode))
        .map_err(|error| failure("set the permissions of", at, &error))
}

/// Makes sure that a name is on disk.
fn sync_parent(at: &Path) -> Result<(), Failure> {
    let Some(parent) = at.parent() else { return Ok(()) };
    let synced = File::open(parent).and_then(|folder| folder.sync_all());
    synced.map_err(|error| failure("write", parent, &error))
}
