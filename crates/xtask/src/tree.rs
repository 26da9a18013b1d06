//! The files of the repository, read once so that checks are functions over data.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

/// Every file that is in the repository or about to be, with the text of those we look into.
///
/// Paths are relative to the root and written with `/`.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    root: PathBuf,
    files: BTreeMap<String, Option<String>>,
}

impl Tree {
    /// Reads the working tree below `root`: tracked files and new ones that git does not ignore.
    ///
    /// Git decides what belongs to the repository, so that build output and editor leftovers are
    /// never checked, while a file someone has not added yet is.
    pub(crate) fn read(root: &Path) -> anyhow::Result<Self> {
        let listing = git(root)
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .output()
            .context("could not run git")?;
        ensure!(
            listing.status.success(),
            "could not list the files of {}: {}",
            root.display(),
            String::from_utf8_lossy(&listing.stderr).trim()
        );
        let names = String::from_utf8(listing.stdout).context("a file name is not UTF-8")?;
        let mut files = BTreeMap::new();
        for name in names.split('\0').filter(|name| !name.is_empty()) {
            let path = root.join(name);
            // A tracked file that was just deleted is still listed.
            if !path.exists() {
                continue;
            }
            let text = match wanted(name) {
                true => Some(
                    std::fs::read_to_string(&path)
                        .with_context(|| format!("could not read {name}"))?,
                ),
                false => None,
            };
            files.insert(name.to_owned(), text);
        }
        Ok(Self { root: root.to_path_buf(), files })
    }

    /// The folder all paths are relative to.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Every path, in order, whether or not its text was read.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// The text of one file, if it exists and is of a kind we read.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path)?.as_deref()
    }

    /// Path and text of every file that was read, in order.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter_map(|(path, text)| Some((path.as_str(), text.as_deref()?)))
    }

    /// A tree that exists only in memory, for tests.
    #[cfg(test)]
    pub(crate) fn sample(files: &[(&str, &str)]) -> Self {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), Some((*text).to_owned())));
        Self { root: PathBuf::new(), files: files.collect() }
    }
}

/// Git in the repository at `root`, and in no other.
///
/// A hook runs with variables that name its own repository; a test in a temporary folder would
/// change that one instead.
pub(crate) fn git(root: &Path) -> Command {
    let mut command = Command::new("git");
    command.current_dir(root);
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
        command.env_remove(name);
    }
    command
}

/// Whether a check or generator looks into this file. Generated definitions, data and images it
/// does not.
fn wanted(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let ends = [".rs", ".md", ".toml", ".txt", ".yaml", ".sh"];
    let known = ends.iter().any(|end| name.ends_with(end)) && !path.starts_with("config/crd");
    known || name == "Makefile" || path.starts_with("scripts/") || path.starts_with(".ci/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(folder: &Path, words: &[&str]) {
        let done = git(folder).args(words).output().unwrap();
        assert!(done.status.success(), "git {words:?}: {}", String::from_utf8_lossy(&done.stderr));
    }

    #[test]
    fn new_files_are_seen_and_ignored_or_deleted_ones_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        run(root, &["init", "--quiet"]);
        for (name, text) in [
            (".gitignore", "/out\n"),
            ("added.md", "added"),
            ("gone.md", "gone"),
            ("new.rs", "new"),
            ("out", "ignored"),
            ("picture.png", "\u{1}"),
        ] {
            std::fs::write(root.join(name), text).unwrap();
        }
        run(root, &["add", "added.md", "gone.md"]);
        std::fs::remove_file(root.join("gone.md")).unwrap();

        let tree = Tree::read(root).unwrap();
        let paths: Vec<&str> = tree.paths().collect();
        assert_eq!(paths, [".gitignore", "added.md", "new.rs", "picture.png"]);
        assert_eq!(tree.text("new.rs"), Some("new"));
        assert_eq!(tree.text("picture.png"), None);
        assert_eq!(tree.texts().count(), 2);
    }

    #[test]
    fn a_folder_that_is_no_repository_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let error = Tree::read(folder.path()).unwrap_err().to_string();
        assert!(error.starts_with("could not list the files"), "{error}");
    }

    #[test]
    fn text_is_read_where_a_check_needs_it() {
        let table = [
            ("crates/api/src/lib.rs", true),
            ("docs/specs/queue.md", true),
            ("Cargo.toml", true),
            ("docs/specs/index.txt", true),
            ("Makefile", true),
            ("scripts/check-tools", true),
            (".ci/run", true),
            ("examples/a.yaml", true),
            ("config/published/x.test/v1/things.yaml", true),
            ("config/crd/x.test_things.yaml", false),
            ("config/crds.yaml", false),
            ("crates/a/data/b.json", false),
            ("docs/Makefile.png", false),
        ];
        for (path, expected) in table {
            assert_eq!(wanted(path), expected, "{path}");
        }
    }
}
