//! Resolves paths within the root, through symbolic links.

use super::path::TreePath;
use super::{Directory, MAX_SYMLINKS, Node, NodeKind, Tree};

/// Why a path leads nowhere.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// The path does not start at the root.
    #[error("cannot use {0:?}: a path in an image starts with a slash")]
    NotAbsolute(String),
    /// The path cannot be that of a file.
    #[error("cannot use {path:?}: {why}")]
    Malformed {
        /// The path.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// The path leads through something that is not a directory.
    #[error("{0} is not a directory")]
    NotADirectory(TreePath),
    /// The path leads through too many symbolic links.
    #[error("{0} leads through more than {MAX_SYMLINKS} symbolic links")]
    TooManySymlinks(TreePath),
}

/// Where a path leads.
pub(super) struct Located<'tree, 'path> {
    /// The path without symbolic links; its last parts may not exist.
    pub(super) path: Vec<&'path [u8]>,
    /// What is there. The root itself is none, with an empty path.
    pub(super) node: Option<&'tree Node>,
    /// Steps that were taken.
    pub(super) steps: u64,
}

impl Tree {
    /// Follows a path. `..` in targets of links stays within the root.
    pub(super) fn locate<'tree: 'path, 'path>(
        &'tree self,
        path: &'path TreePath,
        follow_last: bool,
    ) -> Result<Located<'tree, 'path>, ResolveError> {
        // What is left to follow, the next part last.
        let mut pending: Vec<&'path [u8]> = path.names().rev().collect();
        // The way so far; a part that does not exist has no node.
        let mut way: Vec<(&'path [u8], Option<&'tree Node>)> = Vec::new();
        let (mut hops, mut steps) = (0, 0);
        while let Some(part) = pending.pop() {
            steps += 1;
            match part {
                b"" | b"." => continue,
                b".." => {
                    way.pop();
                    continue;
                }
                _ => {}
            }
            let directory: Option<&Directory> = match way.last() {
                None => Some(&self.root),
                Some((_, None)) => None,
                Some((_, Some(node))) => match &node.kind {
                    NodeKind::Directory(children) => Some(children),
                    NodeKind::File(_) | NodeKind::Special | NodeKind::Symlink(_) => {
                        let names: Vec<&[u8]> = way.iter().map(|(name, _)| *name).collect();
                        return Err(ResolveError::NotADirectory(TreePath::from_components(&names)));
                    }
                },
            };
            let node = directory.and_then(|children| children.get(part));
            match node.map(|node| &node.kind) {
                Some(NodeKind::Symlink(target)) if follow_last || !pending.is_empty() => {
                    hops += 1;
                    if hops > MAX_SYMLINKS {
                        return Err(ResolveError::TooManySymlinks(path.clone()));
                    }
                    if target.starts_with(b"/") {
                        way.clear();
                    }
                    pending.extend(target.rsplit(|byte| *byte == b'/'));
                }
                _ => way.push((part, node)),
            }
        }
        let node = way.last().and_then(|(_, node)| *node);
        Ok(Located { path: way.into_iter().map(|(name, _)| name).collect(), node, steps })
    }
}
