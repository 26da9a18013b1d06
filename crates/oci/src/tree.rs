//! The merged tree of an image's layers.
//!
//! Layers are streamed from the lowest to the topmost and only metadata is kept: what each path
//! is, and in which entry of which layer its content is. [`Tree::read_files`] streams the layers
//! with selected files a second time. An image of any size is read in bounded memory so, at the
//! price of reading some layers twice.
//!
//! The rules are those of the runtimes that unpack images. Parents that are symbolic links are
//! followed within the root, so with `lib -> usr/lib` an entry `lib/a` is `usr/lib/a`. Whiteouts
//! hide lower layers only, wherever in their layer they stand.

mod apply;
mod files;
mod path;
mod resolve;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use files::SelectedFile;
pub use path::TreePath;
pub use resolve::ResolveError;

use crate::blob::BlobSource;
use crate::layer::{Budget, LayerError, Limits};
use crate::manifest::{Config, Manifest};

/// How many symbolic links are followed in one path, as Linux has it.
pub const MAX_SYMLINKS: usize = 40;

/// How deep directories may be within one another. It bounds recursion.
const MAX_DEPTH: usize = 256;

/// The merged tree of an image's layers.
#[derive(Debug)]
pub struct Tree {
    root: Directory,
    limits: Limits,
    /// Steps taken to resolve paths of entries and to apply whiteouts.
    steps: u64,
}

type Directory = BTreeMap<Box<[u8]>, Node>;

#[derive(Clone, Debug)]
struct Node {
    /// The layer that set this path last.
    layer: u16,
    kind: NodeKind,
}

#[derive(Clone, Debug)]
enum NodeKind {
    Directory(Directory),
    File(FileNode),
    Symlink(Box<[u8]>),
    Special,
}

/// Where the content of a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FileNode {
    layer: u16,
    entry: u32,
    size: u64,
    /// Whether other paths may have the same content as a hard link.
    linked: bool,
}

/// What a path of the tree is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeEntry<'a> {
    /// A directory.
    Directory,
    /// A file of this size.
    File {
        /// Its size in bytes.
        size: u64,
    },
    /// A symbolic link to this target.
    Symlink {
        /// The target, as the layer has it.
        target: &'a [u8],
    },
    /// A device or a named pipe.
    Special,
}

impl Node {
    fn entry(&self) -> TreeEntry<'_> {
        match &self.kind {
            NodeKind::Directory(_) => TreeEntry::Directory,
            NodeKind::File(file) => TreeEntry::File { size: file.size },
            NodeKind::Symlink(target) => TreeEntry::Symlink { target },
            NodeKind::Special => TreeEntry::Special,
        }
    }
}

impl Tree {
    /// Reads the layers of an image.
    ///
    /// # Errors
    ///
    /// [`LayerError`] with the digest of the layer and the name of the entry.
    pub fn read(
        source: &dyn BlobSource,
        manifest: &Manifest,
        config: &Config,
        limits: &Limits,
    ) -> Result<Self, LayerError> {
        let mut tree = Self { root: Directory::new(), limits: limits.clone(), steps: 0 };
        let mut budget = Budget::new(limits);
        // The caller compares the numbers of layers and of digests; a missing one is not checked.
        for (number, layer) in (0_u16..).zip(manifest.layers()) {
            let diff_id = config.diff_ids().get(usize::from(number));
            tree.apply(source, layer, diff_id, number, &mut budget)?;
        }
        Ok(tree)
    }

    /// What a path is; a symbolic link at its end is not followed.
    ///
    /// # Errors
    ///
    /// [`ResolveError`] if the path leads through a file or through too many links.
    pub fn get(&self, path: &str) -> Result<Option<TreeEntry<'_>>, ResolveError> {
        self.entry(&TreePath::from_user(path)?)
    }

    /// What a path is; a symbolic link at its end is not followed. The root is none.
    ///
    /// # Errors
    ///
    /// [`ResolveError`] if the path leads through a file or through too many links.
    pub fn entry(&self, path: &TreePath) -> Result<Option<TreeEntry<'_>>, ResolveError> {
        Ok(self.locate(path, false)?.node.map(Node::entry))
    }

    /// What a path leads to, and the path of that without symbolic links.
    ///
    /// # Errors
    ///
    /// [`ResolveError`] if the path leads through a file or through too many links.
    pub fn resolve(
        &self,
        path: &TreePath,
    ) -> Result<Option<(TreePath, TreeEntry<'_>)>, ResolveError> {
        let located = self.locate(path, true)?;
        if located.path.is_empty() {
            return Ok(Some((TreePath::root(), TreeEntry::Directory)));
        }
        Ok(located.node.map(|node| (TreePath::from_components(&located.path), node.entry())))
    }

    /// Calls `visit` for every path, sorted within each directory, until it returns false.
    pub fn walk(&self, visit: &mut dyn FnMut(&TreePath, TreeEntry<'_>) -> bool) {
        walk(&self.root, &mut TreePath::root(), visit);
    }

    /// The names in a directory, sorted. A path through symbolic links has none.
    pub fn names<'a>(&'a self, directory: &TreePath) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let children = self.children(directory).into_iter();
        children.flat_map(|children| children.keys().map(|name| &**name))
    }

    /// Whether a directory, without symbolic links in its path, has this name.
    pub(crate) fn has_name(&self, directory: &TreePath, name: &[u8]) -> bool {
        self.children(directory).is_some_and(|children| children.contains_key(name))
    }

    fn children(&self, directory: &TreePath) -> Option<&Directory> {
        let node = self.locate(directory, false).ok().and_then(|located| located.node);
        match node.map(|node| &node.kind) {
            Some(NodeKind::Directory(children)) => Some(children),
            None if directory.is_root() => Some(&self.root),
            Some(NodeKind::File(_) | NodeKind::Symlink(_) | NodeKind::Special) | None => None,
        }
    }
}

fn walk(
    directory: &Directory,
    path: &mut TreePath,
    visit: &mut dyn FnMut(&TreePath, TreeEntry<'_>) -> bool,
) -> bool {
    for (name, node) in directory {
        path.push(name);
        let mut go_on = visit(path, node.entry());
        if let NodeKind::Directory(children) = &node.kind {
            go_on = go_on && walk(children, path, visit);
        }
        path.pop();
        if !go_on {
            return false;
        }
    }
    true
}
