//! The files of a build: a directory on this machine.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use gantry_dockerfile::{BuildContext, ContextFile};

/// The most files of a context.
const MAX_FILES: usize = 20_000;
/// The deepest directory of a context.
const MAX_DEPTH: usize = 64;
/// The largest file that commands find below a volume; Secrets are not larger.
const MAX_VOLUME_FILE_BYTES: u64 = 1 << 20;
/// A file that other builders read.
const IGNORE_FILE: &str = ".dockerignore";

/// A directory as the context of a build.
#[derive(Debug)]
pub(super) struct DirectoryContext {
    files: BTreeMap<String, PathBuf>,
}

impl DirectoryContext {
    /// Lists the files of a directory. Links out of it are left out.
    pub(super) fn new(directory: &Path) -> io::Result<Self> {
        Ok(Self { files: list(directory)? })
    }

    /// Whether there is a list of files that other builders leave out.
    pub(super) fn has_ignore_file(&self) -> bool {
        self.files.contains_key(IGNORE_FILE)
    }
}

impl BuildContext for DirectoryContext {
    fn paths(&self) -> io::Result<Vec<String>> {
        Ok(self.files.keys().cloned().collect())
    }

    fn read(&self, path: &str, limit: u64) -> io::Result<ContextFile> {
        let path = self.files.get(path).ok_or(io::ErrorKind::NotFound)?;
        let mode = std::fs::metadata(path)?.permissions().mode() & 0o7777;
        Ok(ContextFile { content: read_bounded(path, limit)?, mode })
    }
}

/// The content of all files below a directory, by their paths below another one.
pub(super) fn files_below(directory: &Path, path: &str) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut found = Vec::new();
    for (name, file) in list(directory)? {
        let path = format!("{}/{name}", path.trim_end_matches('/'));
        found.push((path, read_bounded(&file, MAX_VOLUME_FILE_BYTES)?));
    }
    Ok(found)
}

/// Reads a file that is not too large.
pub(super) fn read_bounded(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    std::fs::File::open(path)?.take(limit.saturating_add(1)).read_to_end(&mut content)?;
    match content.len() as u64 > limit {
        true => Err(io::ErrorKind::FileTooLarge.into()),
        false => Ok(content),
    }
}

/// The regular files below a directory, by their relative paths, with their real paths.
///
/// Volumes of ConfigMaps and Secrets consist of links to directories whose names start with two
/// dots: the links are followed, and those directories are no files of the volume.
fn list(directory: &Path) -> io::Result<BTreeMap<String, PathBuf>> {
    let root = std::fs::canonicalize(directory)?;
    let mut files = BTreeMap::new();
    let mut open = vec![(String::new(), root.clone(), 0)];
    while let Some((prefix, directory, depth)) = open.pop() {
        for entry in std::fs::read_dir(&directory)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|it| !it.starts_with("..")) else { continue };
            let Ok(real) = std::fs::canonicalize(entry.path()) else { continue };
            if !real.starts_with(&root) {
                continue;
            }
            let path = format!("{prefix}{name}");
            let kind = std::fs::metadata(&real)?;
            if kind.is_dir() && depth < MAX_DEPTH {
                open.push((format!("{path}/"), real, depth + 1));
            } else if kind.is_file() {
                files.insert(path, real);
            }
            if files.len() + open.len() > MAX_FILES {
                let message = format!("more than {MAX_FILES} files; use a smaller directory");
                return Err(io::Error::other(message));
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_links_of_volumes_are_files_and_other_links_are_not_followed_out() {
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().join("volume");
        std::fs::create_dir_all(root.join("..2026/sub")).unwrap();
        std::fs::write(root.join("..2026/Dockerfile"), "FROM scratch").unwrap();
        std::fs::write(root.join("..2026/sub/a.c"), "int a;").unwrap();
        std::fs::write(outer.path().join("secret"), "s").unwrap();
        let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, root.join(name)).unwrap();
        link("..2026", "..data");
        link("..data/Dockerfile", "Dockerfile");
        link("..data/sub", "sub");
        link("../secret", "secret");
        link("missing", "dangling");
        let context = DirectoryContext::new(&root).unwrap();
        assert_eq!(context.paths().unwrap(), ["Dockerfile", "sub/a.c"]);
        assert_eq!(context.read("sub/a.c", 100).unwrap().content, b"int a;");
        let error = context.read("sub/a.c", 3).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        let below = files_below(&root, "/run/secrets/s").unwrap();
        let paths: Vec<&str> = below.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(paths, ["/run/secrets/s/Dockerfile", "/run/secrets/s/sub/a.c"]);
    }

    /// A link to its own directory would be walked without end.
    #[test]
    fn circles_of_links_end() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("a"), "a").unwrap();
        std::os::unix::fs::symlink(".", root.path().join("self")).unwrap();
        let files = list(root.path()).unwrap();
        assert!(files.len() <= MAX_DEPTH + 1, "{}", files.len());
    }
}
