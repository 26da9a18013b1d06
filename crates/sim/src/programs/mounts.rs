//! Maps the paths of a container to its volumes on this machine.

use std::io;
use std::path::{Path, PathBuf};

use super::network::BoxFuture;
use crate::pod_config::checked_path;

/// The most names of a directory that are listed.
const MAX_NAMES: usize = 10_000;

/// Finds files of volumes by their paths in the container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mounts {
    /// The directory that all files of the pod are below.
    root: PathBuf,
    /// Mounts with the longest path first.
    mounts: Vec<Mount>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    /// The path in the container, in components.
    path: Vec<String>,
    /// The path on this machine.
    target: PathBuf,
}

/// Returns the components of an absolute path; `None` if it leaves the root.
fn path_components(path: &str) -> Option<Vec<String>> {
    let path = path.strip_prefix('/')?;
    let parts: Vec<&str> = path.split('/').filter(|it| !matches!(*it, "" | ".")).collect();
    let good = !parts.contains(&"..") && !path.contains('\0');
    good.then(|| parts.into_iter().map(str::to_owned).collect())
}

impl Mounts {
    /// Creates an empty set of mounts, of a pod whose files are below `root`.
    #[must_use]
    pub fn with_root(root: &Path) -> Self {
        Self { root: root.to_owned(), mounts: Vec::new() }
    }

    /// Returns the same mounts with one more directory or file.
    ///
    /// # Errors
    /// The path in the container is not absolute, or the path in the volume leaves it.
    pub fn with_mount(mut self, path: &str, volume: &Path, sub_path: &str) -> Result<Self, String> {
        let Some(path) = path_components(path) else {
            return Err(format!("the path {path:?} of a mount is not absolute or leaves its root"));
        };
        let target = match sub_path {
            "" => volume.to_owned(),
            sub_path => volume.join(checked_path(sub_path)?),
        };
        self.mounts.push(Mount { path, target });
        self.mounts.sort_by_key(|it| std::cmp::Reverse(it.path.len()));
        Ok(self)
    }

    /// Returns the path on this machine of a file that has an absolute path in the container;
    /// `None` if it is in no volume.
    #[must_use]
    pub fn resolve(&self, path: &str) -> Option<PathBuf> {
        let wanted = path_components(path)?;
        let mount = self.mounts.iter().find(|it| wanted.starts_with(&it.path))?;
        Some(wanted[mount.path.len()..].iter().fold(mount.target.clone(), |at, it| at.join(it)))
    }

    /// Reads a file of a volume.
    ///
    /// A link that leads out of the pod's own directory is not followed: containers may write links
    /// into their own volumes.
    #[must_use]
    pub fn read(&self, path: &str, most_bytes: usize) -> BoxFuture<'static, io::Result<Vec<u8>>> {
        let (found, root) = (self.resolve(path), self.root.clone());
        let message = format!("{path} is in no volume of this container");
        Box::pin(async move {
            let Some(found) = found else {
                return Err(io::Error::new(io::ErrorKind::NotFound, message));
            };
            let read = move || {
                let real = std::fs::canonicalize(&found)?;
                if !real.starts_with(std::fs::canonicalize(&root)?) {
                    return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
                }
                read_bounded(&real, most_bytes)
            };
            tokio::task::spawn_blocking(read).await.map_err(io::Error::other)?
        })
    }
}

impl Mounts {
    /// Returns the names in a directory of a volume, except hidden ones; `None` if it is no such
    /// directory.
    pub async fn list(&self, path: &str) -> Option<Vec<String>> {
        let found = self.resolve_existing(path)?;
        let read = move || -> Option<Vec<String>> {
            let names = std::fs::read_dir(found).ok()?.take(MAX_NAMES).filter_map(Result::ok);
            let names = names.map(|it| it.file_name().to_string_lossy().into_owned());
            let mut names: Vec<String> = names.filter(|it| !it.starts_with('.')).collect();
            names.sort();
            Some(names)
        };
        tokio::task::spawn_blocking(read).await.ok()?
    }

    /// Returns whether there is a file or a directory of a volume at a path.
    pub async fn exists(&self, path: &str) -> bool {
        let Some(found) = self.resolve_existing(path) else { return false };
        tokio::task::spawn_blocking(move || found.exists()).await.unwrap_or(false)
    }

    /// Returns the real path on this machine of a file or directory that exists; `None` if a link
    /// leads out of the pod's own directory. It reads the disk.
    #[must_use]
    pub fn resolve_existing(&self, path: &str) -> Option<PathBuf> {
        let real = std::fs::canonicalize(self.resolve(path)?).ok()?;
        real.starts_with(std::fs::canonicalize(&self.root).ok()?).then_some(real)
    }
}

/// Reads a file that is not too large.
pub(super) fn read_bounded(path: &Path, most_bytes: usize) -> io::Result<Vec<u8>> {
    use std::io::Read as _;
    // Reading a pipe would block.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let limit = u64::try_from(most_bytes).unwrap_or(u64::MAX).saturating_add(1);
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    match bytes.len() > most_bytes {
        true => Err(io::Error::new(io::ErrorKind::FileTooLarge, "the file is too large")),
        false => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_matching_mount_wins() {
        let root = Path::new("/r");
        let mounts = Mounts::with_root(root)
            .with_mount("/etc", Path::new("/r/a"), "")
            .unwrap()
            .with_mount("/etc/deep/", Path::new("/r/b"), "sub")
            .unwrap();
        let table = [
            ("/etc/x", Some("/r/a/x")),
            ("/etc//./x/y", Some("/r/a/x/y")),
            ("/etc/deep/x", Some("/r/b/sub/x")),
            ("/etc/deeper", Some("/r/a/deeper")),
            ("/etc", Some("/r/a")),
            ("/other", None),
            ("etc/x", None),
            ("/etc/../r", None),
            ("/etc/\0", None),
        ];
        for (path, expected) in table {
            assert_eq!(mounts.resolve(path).as_deref(), expected.map(Path::new), "{path}");
        }
        for (path, sub_path) in [("relative", ""), ("/a/../b", ""), ("/a", "../x"), ("/a", "/x")] {
            Mounts::with_root(root).with_mount(path, Path::new("/r/a"), sub_path).unwrap_err();
        }
    }
}
