//! The root file system of a container: its image, and the modules of its node's kernel.

use std::io;
use std::sync::Arc;

use gantry_kmod::SyntheticModule;

use super::ImageTree;
use super::tree::MAX_FILE_BYTES;
use crate::kernel::{InTreeModule, canonical_name, in_tree_modules};

/// The directories of a node that have the modules of its kernel.
const HOST_MODULES: [&str; 2] = ["/lib/modules", "/usr/lib/modules"];

/// What a container sees besides its volumes; nothing if its image is only a name.
#[derive(Clone, Debug, Default)]
pub struct RootFiles {
    image: Option<Arc<ImageTree>>,
    /// Where the node's modules are mounted.
    host_modules: Vec<String>,
}

impl RootFiles {
    /// Creates the root of a container with an image. `host_paths` are the directories of the node
    /// that it mounts, each with the path of the mount.
    #[must_use]
    pub fn new<'a>(
        image: Arc<ImageTree>,
        host_paths: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        let mut host_modules = Vec::new();
        for (host_path, mount_path) in host_paths {
            let host_path = host_path.trim_end_matches('/');
            for directory in HOST_MODULES {
                // The directory itself, or one that it is in: `/lib`, or the whole host.
                if let Some(rest) = directory.strip_prefix(host_path)
                    && (rest.is_empty() || rest.starts_with('/'))
                {
                    host_modules.push(format!("{}{rest}", mount_path.trim_end_matches('/')));
                }
            }
        }
        Self { image: Some(image), host_modules }
    }

    /// Returns the image.
    #[must_use]
    pub fn image(&self) -> Option<&Arc<ImageTree>> {
        self.image.as_ref()
    }

    /// Returns the working directory of the image's containers.
    #[must_use]
    pub fn working_directory(&self) -> &str {
        let set = self.image.as_ref().map(|it| it.config().working_directory.as_str());
        set.filter(|it| it.starts_with('/')).unwrap_or("/")
    }

    /// Returns whether the image has a directory at a path.
    #[must_use]
    pub fn is_directory(&self, path: &str) -> bool {
        self.image.as_ref().is_some_and(|it| it.is_directory(path))
    }

    /// Returns the names in a directory of the image or of the node's modules.
    #[must_use]
    pub fn list(&self, path: &str, release: &str) -> Option<Vec<String>> {
        if !self.is_hidden(path) {
            return self.image.as_ref()?.list(path);
        }
        let below = |mount: &String| path.strip_prefix(mount.as_str()).map(str::to_owned);
        let rest = self.host_modules.iter().find_map(below)?;
        let paths = in_tree_modules().iter().map(|it| format!("/{release}/{}", it.file));
        let next = |file: String| {
            let name = file.strip_prefix(&rest)?.strip_prefix('/')?;
            name.split('/').next().map(str::to_owned)
        };
        let names: std::collections::BTreeSet<String> = paths.filter_map(next).collect();
        (!names.is_empty()).then(|| names.into_iter().collect())
    }

    /// Returns whether the image has a file at a path.
    #[must_use]
    pub fn is_file(&self, path: &str) -> bool {
        let has = |it: &Arc<ImageTree>| it.exists(path) && !it.is_directory(path);
        !self.is_hidden(path) && self.image.as_ref().is_some_and(has)
    }

    /// Returns whether the container sees the modules of its node's kernel.
    #[must_use]
    pub fn has_host_modules(&self) -> bool {
        !self.host_modules.is_empty()
    }

    /// Returns the module of the kernel at a path, if the node's modules are mounted there.
    #[must_use]
    pub fn in_tree_module(&self, path: &str, release: &str) -> Option<&'static InTreeModule> {
        let below = |mount: &String| {
            path.strip_prefix(mount.as_str())?.strip_prefix('/')?.strip_prefix(release)
        };
        let file = self.host_modules.iter().find_map(below)?.strip_prefix('/')?;
        in_tree_modules().iter().find(|it| it.file == file)
    }

    /// Returns the paths of the module files below `DIRECTORY/lib/modules/RELEASE`.
    #[must_use]
    pub fn module_files(&self, directory: &str, release: &str, running: &str) -> Vec<String> {
        let parent = format!("{directory}/lib/modules");
        let base = format!("{parent}/{release}");
        if self.host_modules.contains(&parent) {
            let own = if release == running { in_tree_modules() } else { &[] };
            return own.iter().map(|it| format!("{base}/{}", it.file)).collect();
        }
        let Some(image) = &self.image else { return Vec::new() };
        image.files_below(&base, |file| module_name(file).is_some())
    }

    /// Reads a file of at most `most_bytes`. Call it where that blocks nothing.
    ///
    /// # Errors
    /// There is no such file, or it cannot be read.
    pub fn read_file(&self, path: &str, release: &str, most_bytes: u64) -> io::Result<Vec<u8>> {
        if self.is_hidden(path) {
            let module = self.in_tree_module(path, release);
            let module = module.ok_or(io::ErrorKind::NotFound)?;
            return in_tree_file(module, release).map_err(io::Error::other);
        }
        match &self.image {
            Some(image) => image.read_file(path, most_bytes.min(MAX_FILE_BYTES)),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Returns whether a mount of the node's modules hides what the image has at a path.
    fn is_hidden(&self, path: &str) -> bool {
        self.host_modules.iter().any(|mount| {
            path.strip_prefix(mount.as_str()).is_some_and(|it| it.is_empty() || it.starts_with('/'))
        })
    }
}

/// Returns the name of the module in a file, with underscores; `None` if it is no module file.
#[must_use]
pub(crate) fn module_name(file: &str) -> Option<String> {
    let name = file.rsplit('/').next().unwrap_or(file);
    let name = [".gz", ".xz", ".zst"].iter().find_map(|it| name.strip_suffix(it)).unwrap_or(name);
    let name = name.strip_suffix(".ko").filter(|it| !it.is_empty())?;
    Some(canonical_name(name))
}

/// Writes the file of a module that is part of a kernel.
pub(crate) fn in_tree_file(module: &InTreeModule, release: &str) -> Result<Vec<u8>, String> {
    let release = release.parse().map_err(|error| format!("{error}"))?;
    let file = SyntheticModule::new(&canonical_name(module.name), &release);
    let file = file.field("description", module.description).field("intree", "Y");
    let file = module.depends.iter().fold(file, |file, it| file.depends_on(it));
    file.to_bytes().map_err(|error| error.to_string())
}
