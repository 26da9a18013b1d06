//! The paths of a command that runs in a simulated pod.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use gantry_sim::programs::Mounts;

/// The files of a container: those of its volumes.
///
/// A command in a simulated pod is part of the server's process, which may read every file of its
/// machine. So each path of its command line is looked up in the volumes of its own pod first, and
/// links that lead out of them are refused.
#[derive(Clone, Debug)]
pub(crate) struct ContainerFiles {
    mounts: Mounts,
    mapped: Arc<Mutex<Vec<(String, String)>>>,
}

/// Why a path cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{} is in no volume of this container; mount one there", .0.display())]
pub(crate) struct PathError(PathBuf);

impl ContainerFiles {
    /// The files of these volumes.
    pub(crate) fn new(mounts: Mounts) -> Self {
        Self { mounts, mapped: Arc::default() }
    }

    /// Replaces the path of a file or a directory that exists by its path on this machine.
    pub(super) fn map_input(&self, path: &mut PathBuf) -> Result<(), PathError> {
        let found = path.to_str().and_then(|it| self.mounts.resolve_existing(it));
        self.replace(path, found)
    }

    /// Replaces the path of a file that is written by its path on this machine.
    pub(super) fn map_output(&self, path: &mut PathBuf) -> Result<(), PathError> {
        let text = path.to_str().map(str::to_owned);
        let existing = text.as_deref().and_then(|it| self.mounts.resolve_existing(it));
        let new = || {
            let folder = path.parent().and_then(Path::to_str)?;
            let folder = self.mounts.resolve_existing(folder)?;
            let file = folder.join(path.file_name()?);
            // A link that leads nowhere yet may lead out of the volume.
            (!file.is_symlink()).then_some(file)
        };
        let found = existing.or_else(new);
        self.replace(path, found)
    }

    fn replace(&self, path: &mut PathBuf, found: Option<PathBuf>) -> Result<(), PathError> {
        let found = found.ok_or_else(|| PathError(path.clone()))?;
        let names = (found.display().to_string(), path.display().to_string());
        self.mapped.lock().unwrap_or_else(PoisonError::into_inner).push(names);
        *path = found;
        Ok(())
    }

    /// A text with the paths of the container instead of those of this machine.
    pub(crate) fn in_container_paths(&self, text: &str) -> String {
        let mapped = self.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        let replaced = |text: String, (found, path): &(String, String)| text.replace(found, path);
        mapped.iter().fold(text.to_owned(), replaced)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_volumes_are_found() {
        let machine = tempfile::tempdir().unwrap();
        let pod = machine.path().join("pod");
        let volume = pod.join("volume");
        std::fs::create_dir_all(&volume).unwrap();
        std::fs::write(volume.join("key"), "k").unwrap();
        std::fs::write(machine.path().join("secret"), "s").unwrap();
        let out = machine.path().join("secret");
        std::os::unix::fs::symlink(&out, volume.join("link")).unwrap();
        std::os::unix::fs::symlink(machine.path().join("new"), volume.join("dangling")).unwrap();
        let mounts = Mounts::with_root(&pod).with_mount("/run/key", &volume, "").unwrap();
        let files = ContainerFiles::new(mounts);
        let input = |path: &str| {
            let mut path = PathBuf::from(path);
            files.map_input(&mut path).map(|()| path)
        };
        assert_eq!(std::fs::read(input("/run/key/key").unwrap()).unwrap(), b"k");
        input("/run/key").unwrap();
        for outside in ["/etc/passwd", "/run/key/none", "/run/key/link", "/run/key/../key", "key"] {
            let error = input(outside).unwrap_err().to_string();
            assert!(error.starts_with(outside), "{error}");
        }
        let output = |path: &str| {
            let mut path = PathBuf::from(path);
            files.map_output(&mut path).map(|()| path)
        };
        let new = output("/run/key/new").unwrap();
        assert!(new.ends_with("volume/new"), "{new:?}");
        output("/run/key/key").unwrap();
        for outside in ["/tmp/new", "/run/key/link", "/run/key/dangling", "/run/key/none/new"] {
            output(outside).unwrap_err();
        }
        let shown = files.in_container_paths(&format!("could not read {}", new.display()));
        assert_eq!(shown, "could not read /run/key/new");
    }
}
