//! Archives that `docker save` writes, which other tools call `docker-archive`.
//!
//! Such an archive has no manifests. Its file `manifest.json` lists images with the names of their
//! configuration and layers in the archive. Layers are not compressed, so each has the digest that
//! the configuration states for it, and is verified when it is read. The manifests that are made
//! for such images are OCI's, because other tools read no others from layouts.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{LayoutError, REF_NAME};
use crate::blob::MemoryBlobs;
use crate::digest::Digest;
use crate::manifest::{Config, Descriptor, Index, MAX_CONFIG_BYTES, Manifest};
use crate::media_type::{Family, MediaType};

/// The file that lists the images.
pub(super) const MANIFEST: &str = "manifest.json";

/// The most images of an archive.
const MAX_IMAGES: usize = 1000;

/// What an archive of Docker has, in the terms of a layout.
#[derive(Debug)]
pub(super) struct DockerImages {
    /// The images, with their names.
    pub(super) index: Index,
    /// Their manifests, which the archive does not have.
    pub(super) documents: MemoryBlobs,
    /// Where configurations and layers are in the archive, and their sizes.
    pub(super) blobs: BTreeMap<Digest, (u64, u64)>,
}

/// The files of an archive.
pub(super) trait ArchiveFiles {
    /// Where a file is, and its size.
    fn place(&self, name: &str) -> Option<(u64, u64)>;

    /// Reads a file of at most `limit` bytes.
    fn read(&self, name: &str, limit: u64) -> Result<Vec<u8>, LayoutError>;
}

/// Reads the list of images, and the configuration of each.
pub(super) fn read(list: &[u8], files: &dyn ArchiveFiles) -> Result<DockerImages, LayoutError> {
    let refused = |why: &str| LayoutError::NotALayout(format!("{MANIFEST} {why}"));
    let list: Value = serde_json::from_slice(list).map_err(|_| refused("is not JSON"))?;
    let list = list.as_array().ok_or_else(|| refused("is not a list of images"))?;
    if list.len() > MAX_IMAGES {
        return Err(refused(&format!("has more than {MAX_IMAGES} images")));
    }
    let mut images =
        DockerImages { index: empty(), documents: MemoryBlobs::default(), blobs: BTreeMap::new() };
    let mut descriptors = Vec::new();
    for image in list {
        let name =
            image["Config"].as_str().ok_or_else(|| refused("has an image without Config"))?;
        let layers = image["Layers"].as_array();
        let layers = layers.ok_or_else(|| refused("has an image without Layers"))?;
        let layers: Option<Vec<&str>> = layers.iter().map(Value::as_str).collect();
        let layers = layers.ok_or_else(|| refused("has a layer whose name is not a text"))?;
        let descriptor = images.add(name, &layers, files)?;
        let tags: Vec<&str> = match image["RepoTags"].as_array() {
            Some(tags) => tags.iter().filter_map(Value::as_str).collect(),
            None => Vec::new(),
        };
        if tags.is_empty() {
            descriptors.push(descriptor.clone());
        }
        descriptors
            .extend(tags.iter().map(|tag| descriptor.clone().with_annotation(REF_NAME, tag)));
    }
    images.index = empty().with_manifests(&descriptors, &BTreeMap::new());
    Ok(images)
}

fn empty() -> Index {
    Index::new(Family::Oci, &[], &BTreeMap::new())
}

impl DockerImages {
    /// Adds an image, with a manifest that describes it.
    fn add(
        &mut self,
        config_name: &str,
        layer_names: &[&str],
        files: &dyn ArchiveFiles,
    ) -> Result<Descriptor, LayoutError> {
        let bytes = files.read(config_name, MAX_CONFIG_BYTES as u64)?;
        let config = Config::parse(&bytes)?;
        let diff_ids = config.diff_ids();
        if diff_ids.len() != layer_names.len() {
            let (stated, listed) = (diff_ids.len(), layer_names.len());
            return Err(LayoutError::NotALayout(format!(
                "{config_name} states {stated} layers, and {MANIFEST} lists {listed}"
            )));
        }
        let mut layers = Vec::new();
        for (diff_id, name) in diff_ids.iter().zip(layer_names) {
            let place = place(name, files)?;
            layers.push(Descriptor::new(MediaType::OciLayer, diff_id.clone(), place.1));
            self.blobs.insert(diff_id.clone(), place);
        }
        let descriptor = Descriptor::of(MediaType::OciConfig, &bytes);
        let place = place(config_name, files)?;
        self.blobs.insert(descriptor.digest().clone(), place);
        let manifest = Manifest::new(Family::Oci, &descriptor, &layers, &BTreeMap::new());
        self.documents.insert(manifest.bytes().to_vec());
        Ok(manifest.descriptor())
    }
}

fn place(name: &str, files: &dyn ArchiveFiles) -> Result<(u64, u64), LayoutError> {
    files.place(name).ok_or_else(|| LayoutError::NotALayout(format!("it has no file {name}")))
}
