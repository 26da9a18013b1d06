//! Reads the content of selected files.

use std::collections::BTreeMap;
use std::io::Read;

use super::path::TreePath;
use super::{FileNode, NodeKind, Tree};
use crate::blob::BlobSource;
use crate::layer::{
    Attributes, Budget, LayerEntry, LayerError, LayerProblem, LimitKind, read_layer_within,
};
use crate::manifest::{Config, Manifest};

/// A file of an image with its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectedFile {
    /// Its path.
    pub path: TreePath,
    /// Owner, permissions, times and extended attributes.
    pub attributes: Attributes,
    /// Its content.
    pub content: Vec<u8>,
}

impl Tree {
    /// Reads files and returns them in the order of `paths`. Paths that are no files are left
    /// out.
    ///
    /// Only the layers that have one of them are read again, each once and to its end, so that
    /// their digests are verified again.
    ///
    /// # Errors
    ///
    /// [`LayerError`] with the digest of the layer and the name of the entry.
    pub fn read_files(
        &self,
        source: &dyn BlobSource,
        manifest: &Manifest,
        config: &Config,
        paths: &[TreePath],
    ) -> Result<Vec<SelectedFile>, LayerError> {
        let mut wanted: BTreeMap<u16, BTreeMap<u32, Vec<usize>>> = BTreeMap::new();
        for (index, path) in paths.iter().enumerate() {
            if let Some(file) = self.file(path) {
                let entries = wanted.entry(file.layer).or_default();
                entries.entry(file.entry).or_default().push(index);
            }
        }
        let mut files: BTreeMap<usize, SelectedFile> = BTreeMap::new();
        let (mut budget, mut total) = (Budget::new(&self.limits), 0);
        for (number, entries) in wanted {
            let Some(layer) = manifest.layers().get(usize::from(number)) else { continue };
            let diff_id = config.diff_ids().get(usize::from(number));
            read_layer_within(source, layer, diff_id, &mut budget, &mut |entry, content| {
                let Some(indexes) = entries.get(&entry.ordinal) else { return Ok(()) };
                let bytes = self.content(entry, content, indexes.len(), &mut total)?;
                for index in indexes {
                    let file = SelectedFile {
                        path: paths[*index].clone(),
                        attributes: entry.attributes.clone(),
                        content: bytes.clone(),
                    };
                    files.insert(*index, file);
                }
                Ok(())
            })?;
        }
        Ok(files.into_values().collect())
    }

    fn content(
        &self,
        entry: &LayerEntry,
        content: &mut dyn Read,
        copies: usize,
        total: &mut u64,
    ) -> Result<Vec<u8>, LayerProblem> {
        let limits = &self.limits;
        *total = total.saturating_add(entry.size.saturating_mul(copies as u64));
        for (value, limit, kind) in [
            (entry.size, limits.file_bytes, LimitKind::FileBytes),
            (*total, limits.selected_bytes, LimitKind::SelectedBytes),
        ] {
            if value > limit {
                return Err(LayerProblem::Limit { kind, limit });
            }
        }
        let mut bytes = Vec::new();
        content.read_to_end(&mut bytes).map_err(LayerProblem::Io)?;
        if bytes.len() as u64 != entry.size {
            return Err(LayerProblem::Truncated);
        }
        Ok(bytes)
    }

    fn file(&self, path: &TreePath) -> Option<FileNode> {
        match &self.locate(path, false).ok()?.node?.kind {
            NodeKind::File(file) => Some(*file),
            NodeKind::Directory(_) | NodeKind::Symlink(_) | NodeKind::Special => None,
        }
    }
}
