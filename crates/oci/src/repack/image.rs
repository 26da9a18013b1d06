//! Repacks one image.

use std::collections::BTreeMap;

use super::error::RepackError;
use super::{Edit, Editor, Options};
use crate::blob::{self, BlobSink, BlobSource};
use crate::glob::{self, CompressedFallback, UnmatchedPattern};
use crate::layer::{Attributes, NewEntry, NewEntryKind, write_layer};
use crate::manifest::{Config, Descriptor, HistoryRecord, Manifest};
use crate::media_type::{Family, MediaType};
use crate::tree::{SelectedFile, Tree, TreePath};

const BASE_DIGEST: &str = "org.opencontainers.image.base.digest";
const BASE_NAME: &str = "org.opencontainers.image.base.name";

/// Attributes that hold a digest or a signature of the content, which has changed.
const CONTENT_XATTRS: [&[u8]; 2] = [b"security.ima", b"security.evm"];

/// What became of one image.
pub(super) struct ImageChange {
    /// The new manifest; none if no file was changed.
    pub(super) manifest: Option<Manifest>,
    pub(super) files: Vec<(TreePath, bool)>,
    pub(super) fallbacks: Vec<CompressedFallback>,
    pub(super) unmatched: Vec<UnmatchedPattern>,
}

pub(super) fn has_image_config(manifest: &Manifest) -> bool {
    matches!(manifest.config().media_type(), MediaType::OciConfig | MediaType::DockerConfig)
}

/// Edits the selected files and writes the new layer and configuration, but not the manifest.
pub(super) fn change_image(
    source: &dyn BlobSource,
    sink: &mut dyn BlobSink,
    manifest: &Manifest,
    options: &Options,
    all_must_match: bool,
    edit: &mut Editor<'_>,
) -> Result<ImageChange, RepackError> {
    if !has_image_config(manifest) {
        let media_type = manifest.config().media_type().to_string();
        return Err(RepackError::NotAnImage { manifest: manifest.digest().clone(), media_type });
    }
    let config = blob::read_config(source, manifest.config())?;
    let (layers, diff_ids) = (manifest.layers().len(), config.diff_ids().len());
    if layers != diff_ids {
        let manifest = manifest.digest().clone();
        return Err(RepackError::Inconsistent { manifest, layers, diff_ids });
    }
    let tree = Tree::read(source, manifest, &config, &options.limits)?;
    let expansion = glob::expand(&tree, &options.patterns)?;
    if all_must_match && !expansion.unmatched.is_empty() {
        return Err(RepackError::Unmatched(expansion.unmatched));
    }
    let selected = tree.read_files(source, manifest, &config, &expansion.files)?;
    drop(tree);
    let (mut files, mut entries) = (Vec::new(), Vec::new());
    for file in selected {
        let path = file.path.clone();
        let decided =
            edit(&file).map_err(|source| RepackError::Edit { path: path.clone(), source })?;
        // The same content again is no change: an editor need not compare.
        let replacement = match decided {
            Edit::Keep => None,
            Edit::Replace(content) => Some(content).filter(|content| *content != file.content),
        };
        files.push((path, replacement.is_some()));
        if let Some(content) = replacement {
            entries.push(changed_entry(file, content));
        }
    }
    let manifest = if entries.is_empty() {
        None
    } else {
        Some(add_layer(sink, manifest, &config, &entries, options)?)
    };
    let (fallbacks, unmatched) = (expansion.fallbacks, expansion.unmatched);
    Ok(ImageChange { manifest, files, fallbacks, unmatched })
}

fn changed_entry(file: SelectedFile, content: Vec<u8>) -> NewEntry {
    let mut attributes: Attributes = file.attributes;
    attributes.xattrs.retain(|(name, _)| !CONTENT_XATTRS.contains(&name.as_slice()));
    let path = file.path.to_tar_name();
    NewEntry { path, kind: NewEntryKind::File(content), attributes }
}

fn add_layer(
    sink: &mut dyn BlobSink,
    manifest: &Manifest,
    config: &Config,
    entries: &[NewEntry],
    options: &Options,
) -> Result<Manifest, RepackError> {
    let layer = write_layer(entries).map_err(RepackError::Write)?;
    let layer_descriptor = layer.descriptor(manifest.family());
    blob::put_bytes(sink, &layer_descriptor, &layer.content)?;
    let files = if entries.len() == 1 { "1 file" } else { &*format!("{} files", entries.len()) };
    let record = HistoryRecord {
        created: options.created,
        created_by: options.created_by.clone(),
        comment: files.to_owned(),
    };
    let mut config = config.with_layer(&layer.diff_id, &record);
    for (name, value) in &options.labels {
        config = config.with_label(name, value);
    }
    let media_type = manifest.config().media_type().clone();
    let content = Descriptor::of(media_type, config.bytes());
    let config_descriptor = manifest.config().with_content(&content);
    blob::put_bytes(sink, &config_descriptor, config.bytes())?;
    let mut layers = manifest.layers().to_vec();
    layers.push(layer_descriptor);
    let annotations = match manifest.family() {
        Family::Oci => {
            let mut annotations = options.annotations.clone();
            annotations.insert(BASE_DIGEST.to_owned(), manifest.digest().to_string());
            if let Some(name) = &options.base_name {
                annotations.insert(BASE_NAME.to_owned(), name.clone());
            }
            annotations
        }
        Family::Docker => BTreeMap::new(),
    };
    Ok(manifest.with_content(&config_descriptor, &layers, &annotations))
}
