//! Applies a layer to the tree.

use std::collections::BTreeSet;

use super::path::TreePath;
use super::resolve::ResolveError;
use super::{Directory, FileNode, MAX_DEPTH, MAX_SYMLINKS, Node, NodeKind, Tree};
use crate::blob::BlobSource;
use crate::digest::Digest;
use crate::layer::{
    Budget, EntryKind, LayerEntry, LayerError, LayerProblem, LimitKind, read_layer_within,
};
use crate::manifest::Descriptor;

const WHITEOUT_PREFIX: &[u8] = b".wh.";

/// Marks a directory that hides what lower layers have in it.
const OPAQUE_MARKER: &[u8] = b".wh..wh..opq";

/// Names that an old storage driver kept for itself.
const STORAGE_DRIVER_PREFIX: &[u8] = b".wh..wh.";

impl Tree {
    pub(super) fn apply(
        &mut self,
        source: &dyn BlobSource,
        layer: &Descriptor,
        diff_id: Option<&Digest>,
        number: u16,
        budget: &mut Budget,
    ) -> Result<(), LayerError> {
        let mut applied = BTreeSet::new();
        read_layer_within(source, layer, diff_id, budget, &mut |entry, _| {
            self.apply_entry(entry, number, &mut applied)
        })
    }

    /// Applies one entry. `whiteouts` are those of this layer that were applied: a second one
    /// finds nothing of lower layers, and a layer full of them would take quadratic time.
    fn apply_entry(
        &mut self,
        entry: &LayerEntry,
        layer: u16,
        whiteouts: &mut BTreeSet<TreePath>,
    ) -> Result<(), LayerProblem> {
        let path = TreePath::from_layer(&entry.name)?;
        let Some((parent, name)) = path.split_last() else {
            return match entry.kind {
                EntryKind::Directory => Ok(()),
                EntryKind::File | EntryKind::HardLink | EntryKind::Symlink | EntryKind::Special => {
                    Err(LayerProblem::Name("is that of the root"))
                }
            };
        };
        if name.starts_with(WHITEOUT_PREFIX) {
            return match self.real_path(&parent) {
                Ok(parent) => self.apply_whiteout(&parent, &name, layer, whiteouts),
                // There is nothing below a file that could be hidden.
                Err(LayerProblem::NotADirectory(_)) => Ok(()),
                Err(problem) => Err(problem),
            };
        }
        let parent = self.real_path(&parent)?;
        let kind = match entry.kind {
            EntryKind::Directory => {
                let children = self.directory(&parent, layer);
                match children.get_mut(&name) {
                    Some(Node { layer: set_by, kind: NodeKind::Directory(_) }) => *set_by = layer,
                    Some(_) | None => {
                        let kind = NodeKind::Directory(Directory::new());
                        children.insert(name, Node { layer, kind });
                    }
                }
                return Ok(());
            }
            EntryKind::File => NodeKind::File(FileNode {
                layer,
                entry: entry.ordinal,
                size: entry.size,
                linked: false,
            }),
            EntryKind::Symlink => NodeKind::Symlink(entry.link.as_slice().into()),
            EntryKind::Special => NodeKind::Special,
            EntryKind::HardLink => match self.link_target(entry, &parent.join(&name))? {
                Some(kind) => kind,
                None => return Ok(()),
            },
        };
        self.directory(&parent, layer).insert(name, Node { layer, kind });
        Ok(())
    }

    /// What a hard link is another name of; none if it is a link to itself.
    fn link_target(
        &mut self,
        entry: &LayerEntry,
        own_path: &TreePath,
    ) -> Result<Option<NodeKind>, LayerProblem> {
        let refuse = |why| LayerProblem::HardLink {
            target: String::from_utf8_lossy(&entry.link).into_owned(),
            why,
        };
        let path = TreePath::from_layer(&entry.link)?;
        let Some((parent, name)) = path.split_last() else {
            return Err(refuse("is the root"));
        };
        let target = self.real_path(&parent)?.join(&name);
        if target == *own_path {
            return Ok(None);
        }
        let located = self.locate(&target, false).map_err(from_resolve)?;
        match located.node.map(|node| &node.kind) {
            Some(NodeKind::File(file)) => {
                Ok(Some(NodeKind::File(FileNode { linked: true, ..*file })))
            }
            Some(kind @ (NodeKind::Symlink(_) | NodeKind::Special)) => Ok(Some(kind.clone())),
            Some(NodeKind::Directory(_)) => Err(refuse("is a directory")),
            None => Err(refuse("does not exist")),
        }
    }

    fn apply_whiteout(
        &mut self,
        parent: &TreePath,
        name: &[u8],
        layer: u16,
        whiteouts: &mut BTreeSet<TreePath>,
    ) -> Result<(), LayerProblem> {
        let hidden = &name[WHITEOUT_PREFIX.len()..];
        let opaque = name == OPAQUE_MARKER;
        if !opaque && name.starts_with(STORAGE_DRIVER_PREFIX) {
            return Ok(());
        }
        if matches!(hidden, b"" | b"." | b"..") {
            return Err(LayerProblem::Name("hides no file"));
        }
        if !whiteouts.insert(parent.join(name)) {
            return Ok(());
        }
        let Some(children) = self.existing_directory(parent) else { return Ok(()) };
        let mut visited = 0;
        if opaque {
            children.retain(|_, node| keep_own(node, layer, &mut visited));
        } else if let Some(node) = children.get_mut(hidden)
            && !keep_own(node, layer, &mut visited)
        {
            children.remove(hidden);
        }
        self.spend_steps(visited)
    }

    /// The path of a directory without symbolic links. Parts of it may not exist.
    fn real_path(&mut self, path: &TreePath) -> Result<TreePath, LayerProblem> {
        let (path, steps) = {
            let located = self.locate(path, true).map_err(from_resolve)?;
            match located.node.map(|node| &node.kind) {
                Some(NodeKind::Directory(_)) | None => {}
                Some(NodeKind::File(_) | NodeKind::Special | NodeKind::Symlink(_)) => {
                    let path = TreePath::from_components(&located.path);
                    return Err(LayerProblem::NotADirectory(path.to_string()));
                }
            }
            (TreePath::from_components(&located.path), located.steps)
        };
        self.spend_steps(steps + 1)?;
        if path.names().len() >= MAX_DEPTH {
            let (kind, limit) = (LimitKind::Depth, MAX_DEPTH as u64);
            return Err(LayerProblem::Limit { kind, limit });
        }
        Ok(path)
    }

    fn spend_steps(&mut self, steps: u64) -> Result<(), LayerProblem> {
        self.steps = self.steps.saturating_add(steps);
        if self.steps > self.limits.resolution_steps {
            let (kind, limit) = (LimitKind::ResolutionSteps, self.limits.resolution_steps);
            return Err(LayerProblem::Limit { kind, limit });
        }
        Ok(())
    }

    /// The directory with this real path, made if it does not exist.
    fn directory(&mut self, path: &TreePath, layer: u16) -> &mut Directory {
        let mut directory = &mut self.root;
        for name in path.names() {
            let fresh = || Node { layer, kind: NodeKind::Directory(Directory::new()) };
            let node = directory.entry(name.into()).or_insert_with(fresh);
            if !matches!(node.kind, NodeKind::Directory(_)) {
                *node = fresh();
            }
            let NodeKind::Directory(children) = &mut node.kind else {
                unreachable!("it was made a directory one line above")
            };
            directory = children;
        }
        directory
    }

    fn existing_directory(&mut self, path: &TreePath) -> Option<&mut Directory> {
        let mut directory = &mut self.root;
        for name in path.names() {
            match &mut directory.get_mut(name)?.kind {
                NodeKind::Directory(children) => directory = children,
                NodeKind::File(_) | NodeKind::Special | NodeKind::Symlink(_) => return None,
            }
        }
        Some(directory)
    }
}

/// Removes what lower layers put below a node, and says whether anything of this layer is left.
fn keep_own(node: &mut Node, layer: u16, visited: &mut u64) -> bool {
    *visited += 1;
    if let NodeKind::Directory(children) = &mut node.kind {
        children.retain(|_, child| keep_own(child, layer, visited));
        if !children.is_empty() {
            node.layer = layer;
        }
    }
    node.layer == layer
}

fn from_resolve(error: ResolveError) -> LayerProblem {
    match error {
        ResolveError::NotADirectory(path) => LayerProblem::NotADirectory(path.to_string()),
        ResolveError::TooManySymlinks(_) => LayerProblem::SymlinkLoop(MAX_SYMLINKS),
        ResolveError::NotAbsolute(_) | ResolveError::Malformed { .. } => {
            LayerProblem::Name("is malformed")
        }
    }
}
