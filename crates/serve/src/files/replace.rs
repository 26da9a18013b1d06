//! Replaces the contents of a file that belongs to another program, following symbolic links.

use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use super::{FileError, create_beside, directory};

/// The largest number of symbolic links that are followed, as in Linux.
const MAX_SYMLINKS: usize = 40;

/// Returns the file that a path leads to: itself, or where its symbolic links end. It need not
/// exist.
///
/// # Errors
/// The links form a cycle or cannot be read, or the path leads to something that is not a file.
pub fn link_target(path: &Path) -> Result<PathBuf, FileError> {
    let failed = |source| FileError::Read { path: path.to_owned(), source };
    let mut target = path.to_owned();
    for _ in 0..MAX_SYMLINKS {
        match fs::symlink_metadata(&target) {
            Ok(about) if about.is_symlink() => {
                let next = fs::read_link(&target).map_err(failed)?;
                target = directory(&target).join(next);
            }
            Ok(about) if about.is_file() => return Ok(target),
            Ok(_) => return Err(FileError::NotAFile { path: target }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(target),
            Err(error) => return Err(failed(error)),
        }
    }
    Err(failed(io::Error::from(rustix::io::Errno::LOOP)))
}

/// Replaces the contents of a file, of which `path` may be a symbolic link; returns its mode.
///
/// The link stays: the file it leads to is replaced. That happens atomically: a new file beside it
/// is flushed to disk and then renamed. Mode and owner stay as they were; a file that did not exist
/// is readable by its owner only.
///
/// # Errors
/// As [`link_target`], or no file can be written beside it. The file is unchanged then.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<u32, FileError> {
    let target = link_target(path)?;
    let failed = |source| FileError::Write { path: target.clone(), source };
    let before = match fs::metadata(&target) {
        Ok(about) => Some(about),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed(error)),
    };
    let mode = before.as_ref().map_or(0o600, |about| about.mode() & 0o7777);
    let (file, fresh) = create_beside(&target).map_err(failed)?;
    let fill = || {
        let own = file.metadata()?;
        if let Some(before) = before.filter(|it| (it.uid(), it.gid()) != (own.uid(), own.gid())) {
            fchown(&file, Some(before.uid()), Some(before.gid()))?;
        }
        file.set_permissions(Permissions::from_mode(mode))?;
        (&file).write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&fresh, &target)
    };
    if let Err(source) = fill() {
        // The first error is the one to report; a leftover temporary file is never read.
        let _ = fs::remove_file(&fresh);
        return Err(failed(source));
    }
    // The rename is durable once the directory is flushed to disk.
    File::open(directory(&target)).and_then(|it| it.sync_all()).map_err(failed)?;
    Ok(mode)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_link_stays_and_its_target_is_replaced_with_the_same_mode() {
        let folder = tempfile::tempdir().unwrap();
        let elsewhere = folder.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        let target = elsewhere.join("config");
        fs::write(&target, "old").unwrap();
        let (link, second) = (folder.path().join("link"), folder.path().join("second"));
        symlink("elsewhere/config", &link).unwrap();
        symlink("link", &second).unwrap();
        for wanted in [0o600, 0o640, 0o644] {
            fs::set_permissions(&target, Permissions::from_mode(wanted)).unwrap();
            let text = format!("{wanted:o}");
            assert_eq!(replace(&second, text.as_bytes()).unwrap(), wanted);
            assert_eq!(fs::read_to_string(&target).unwrap(), text);
            assert_eq!(mode(&target), wanted);
        }
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink(), "the links are still links");
        assert!(fs::symlink_metadata(&second).unwrap().is_symlink());
        assert_eq!(names(&elsewhere), ["config"], "nothing is left beside it");
    }

    #[test]
    fn a_file_that_is_not_there_is_made_for_its_owner_where_the_link_points() {
        let folder = tempfile::tempdir().unwrap();
        let (target, link) = (folder.path().join("target"), folder.path().join("link"));
        symlink(&target, &link).unwrap();
        assert_eq!(replace(&link, b"new").unwrap(), 0o600);
        assert_eq!(fs::read(&target).unwrap(), b"new");
        assert_eq!(mode(&target), 0o600);
    }

    #[test]
    fn a_failed_replacement_leaves_the_file_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        symlink("two", &one).unwrap();
        symlink("one", &two).unwrap();
        assert!(matches!(replace(&one, b"").unwrap_err(), FileError::Read { .. }), "a circle");
        let error = replace(folder.path(), b"").unwrap_err();
        assert!(matches!(error, FileError::NotAFile { .. }), "{error}");
        // The temporary file cannot be created: its name would be longer than names may be.
        let long = folder.path().join("n".repeat(254));
        fs::write(&long, "theirs").unwrap();
        assert!(matches!(replace(&long, b"ours").unwrap_err(), FileError::Write { .. }));
        assert_eq!(fs::read_to_string(&long).unwrap(), "theirs");
    }
}
