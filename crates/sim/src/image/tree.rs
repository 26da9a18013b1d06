//! The files of an image.

use std::fmt;
use std::io;
use std::sync::Arc;

use gantry_oci::tree::TreeEntry;
use gantry_oci::{BlobSource, Config, LayerError, Limits, Manifest, Tree, TreePath};
use serde_json::Value;

/// The largest file of an image that is read.
pub(super) const MAX_FILE_BYTES: u64 = 128 << 20;

/// The merged files of an image, read when they are needed, and its configuration.
pub struct ImageTree {
    tree: Tree,
    manifest: Manifest,
    oci_config: Config,
    config: ImageConfig,
    blobs: Arc<dyn BlobSource + Send + Sync>,
}

/// What the configuration of an image says about its containers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageConfig {
    /// The program that containers start.
    pub entrypoint: Vec<String>,
    /// Its arguments, or the program if there is no entrypoint.
    pub command: Vec<String>,
    /// Environment variables.
    pub variables: Vec<(String, String)>,
    /// The user that it runs as; empty for root.
    pub user: String,
    /// The working directory; empty for the root.
    pub working_directory: String,
}

impl fmt::Debug for ImageTree {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "ImageTree({})", self.manifest.digest())
    }
}

impl ImageTree {
    /// Reads the layers of an image. Only names and sizes are kept.
    ///
    /// # Errors
    /// A layer cannot be read, or is beyond the limits.
    pub fn read(
        blobs: Arc<dyn BlobSource + Send + Sync>,
        manifest: Manifest,
        oci_config: Config,
    ) -> Result<Self, LayerError> {
        let limits = Limits {
            entries: 200_000,
            name_bytes: 16 << 20,
            uncompressed_bytes: 16 << 30,
            file_bytes: MAX_FILE_BYTES,
            selected_bytes: MAX_FILE_BYTES,
            ..Limits::default()
        };
        let tree = Tree::read(&*blobs, &manifest, &oci_config, &limits)?;
        let config = ImageConfig::of(&oci_config);
        Ok(Self { tree, manifest, oci_config, config, blobs })
    }

    /// Returns what the configuration says about containers.
    #[must_use]
    pub fn config(&self) -> &ImageConfig {
        &self.config
    }

    /// Returns whether there is a directory at an absolute path.
    #[must_use]
    pub fn is_directory(&self, path: &str) -> bool {
        self.find(path).is_some_and(|(_, is_directory)| is_directory)
    }

    /// Returns whether there is anything at an absolute path.
    #[must_use]
    pub fn exists(&self, path: &str) -> bool {
        self.find(path).is_some()
    }

    /// Returns the names in a directory; `None` if there is no such directory.
    #[must_use]
    pub fn list(&self, directory: &str) -> Option<Vec<String>> {
        let (at, is_directory) = self.find(directory)?;
        let depth = at.names().len();
        let mut names = Vec::new();
        self.tree.walk(&mut |path, _| {
            if path.names().len() == depth + 1 && is_below(path, &at) {
                names.extend(path.file_name().map(text));
            }
            true
        });
        is_directory.then_some(names)
    }

    /// Returns the paths of the files below a directory for which `wanted` is true, sorted.
    /// Symbolic links count as files.
    #[must_use]
    pub fn files_below(&self, directory: &str, wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let Some((at, _)) = self.find(directory) else { return Vec::new() };
        let (depth, mut files) = (at.names().len(), Vec::new());
        self.tree.walk(&mut |path, entry| {
            let is_file = match entry {
                TreeEntry::File { .. } | TreeEntry::Symlink { .. } => true,
                TreeEntry::Directory | TreeEntry::Special => false,
            };
            if is_file && is_below(path, &at) {
                let rest: Vec<String> = path.names().skip(depth).map(text).collect();
                let file = format!("{}/{}", directory.trim_end_matches('/'), rest.join("/"));
                if wanted(&file) {
                    files.push(file);
                }
            }
            true
        });
        files
    }

    /// Reads a file of at most `most_bytes`. It reads the file's layer: call it where that blocks
    /// nothing.
    ///
    /// # Errors
    /// There is no such file, or it is too large, or its layer cannot be read.
    pub fn read_file(&self, path: &str, most_bytes: u64) -> io::Result<Vec<u8>> {
        let not_found = || io::Error::from(io::ErrorKind::NotFound);
        let wanted = TreePath::from_user(path).map_err(|_| not_found())?;
        let found = self.tree.resolve(&wanted).map_err(|_| not_found())?;
        let real = match found.ok_or_else(not_found)? {
            (_, TreeEntry::File { size }) if size > most_bytes.min(MAX_FILE_BYTES) => {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            (real, TreeEntry::File { .. }) => real,
            (_, TreeEntry::Directory) => return Err(io::ErrorKind::IsADirectory.into()),
            (_, TreeEntry::Symlink { .. } | TreeEntry::Special) => {
                return Err(io::ErrorKind::InvalidInput.into());
            }
        };
        let paths = std::slice::from_ref(&real);
        let files = self.tree.read_files(&*self.blobs, &self.manifest, &self.oci_config, paths);
        let file = files.map_err(io::Error::other)?.into_iter().next();
        file.map(|it| it.content).ok_or_else(not_found)
    }

    /// Returns the real path of a path, and whether it is a directory.
    fn find(&self, path: &str) -> Option<(TreePath, bool)> {
        let path = TreePath::from_user(path).ok()?;
        let (at, entry) = self.tree.resolve(&path).ok()??;
        Some((at, entry == TreeEntry::Directory))
    }
}

fn is_below(path: &TreePath, directory: &TreePath) -> bool {
    path.names().len() > directory.names().len()
        && path.names().zip(directory.names()).all(|(one, two)| one == two)
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

impl ImageConfig {
    /// Reads the configuration of an image. What is malformed counts as absent, as for runtimes.
    fn of(config: &Config) -> Self {
        let none = Value::Null;
        let config = config.object().get("config").unwrap_or(&none);
        let list = |name: &str| -> Vec<String> {
            let words = config[name].as_array().into_iter().flatten();
            words.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let word = |name: &str| config[name].as_str().unwrap_or_default().to_owned();
        let variables = list("Env");
        let variables = variables.iter().filter_map(|it| it.split_once('='));
        Self {
            entrypoint: list("Entrypoint"),
            command: list("Cmd"),
            variables: variables.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            user: word("User"),
            working_directory: word("WorkingDir"),
        }
    }
}
