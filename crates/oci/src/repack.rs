//! Adds one layer with changed files on top of an image.
//!
//! Nothing of the old image is rewritten: its layers keep their digests, so that a registry need
//! not be sent them again and a node need not fetch them again. The same input gives the same
//! output, byte for byte, as long as [`Options::created`] is the same.

mod error;
mod image;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use jiff::Timestamp;

pub use error::RepackError;
use image::{ImageChange, change_image};

use crate::blob::{self, BlobSink, BlobSource};
use crate::digest::Digest;
use crate::glob::{CompressedFallback, Pattern, UnmatchedPattern};
use crate::layer::Limits;
use crate::manifest::{Descriptor, Document, Index, Manifest, Platform};
use crate::reference::Repository;
use crate::tree::{SelectedFile, TreePath};

/// An error of any type, as editors return it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Decides what becomes of a selected file.
pub type Editor<'a> = dyn FnMut(&SelectedFile) -> Result<Edit, BoxError> + 'a;

/// What becomes of a selected file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// It stays as it is.
    Keep,
    /// It gets this content.
    Replace(Vec<u8>),
}

/// How an image is repacked.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which files are selected.
    pub patterns: Vec<Pattern>,
    /// When the new layer was made: `SOURCE_DATE_EPOCH` for reproducible output, else now.
    pub created: Timestamp,
    /// The command for the history.
    pub created_by: String,
    /// The repository and tag of the old image, for the annotation `…base.name`.
    pub base_name: Option<String>,
    /// Labels that are added to the configuration of a changed image.
    pub labels: BTreeMap<String, String>,
    /// Annotations that are added to a changed manifest and its index.
    pub annotations: BTreeMap<String, String>,
    /// How much an image may cost to read.
    pub limits: Limits,
}

impl Options {
    /// Selects files; all else is as for the command that signs modules.
    #[must_use]
    pub fn new(patterns: Vec<Pattern>, created: Timestamp) -> Self {
        Self {
            patterns,
            created,
            created_by: "gantry modules sign".to_owned(),
            base_name: None,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            limits: Limits::default(),
        }
    }

    /// The same with the name of the old image.
    #[must_use]
    pub fn with_base(mut self, repository: &Repository, tag: Option<&str>) -> Self {
        self.base_name = Some(match tag {
            Some(tag) => format!("{repository}:{tag}"),
            None => repository.to_string(),
        });
        self
    }
}

/// A repacked image.
#[derive(Clone, Debug)]
pub struct Repacked {
    /// The new document; the old one, byte for byte, if no file was changed.
    pub document: Document,
    /// What became of each image: one, or those of an index that were looked into.
    pub images: Vec<RepackedImage>,
    /// Patterns `….ko` for which compressed files were taken.
    pub fallbacks: Vec<CompressedFallback>,
}

impl Repacked {
    /// Whether any file was changed.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        self.images.iter().any(RepackedImage::is_changed)
    }
}

/// What became of one image.
#[derive(Clone, Debug, PartialEq)]
pub struct RepackedImage {
    /// Its platform, if it is part of an index that names one.
    pub platform: Option<Platform>,
    /// The digest of the old manifest.
    pub old: Digest,
    /// The new manifest; the old one if no file was changed.
    pub manifest: Manifest,
    /// The selected files, sorted, and whether each was changed.
    pub files: Vec<(TreePath, bool)>,
}

impl RepackedImage {
    /// Whether any file was changed.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        self.files.iter().any(|(_, changed)| *changed)
    }
}

/// Lets `edit` change the selected files of an image, or of each Linux image of an index.
///
/// New blobs and documents are written to `sink`, the document itself last. Old blobs are not
/// copied. Each pattern must match in at least one image; images in which none matches stay as
/// they are. If any image changes, descriptions of images (attestations) are dropped from the
/// index, since they describe digests that are gone.
///
/// # Errors
///
/// [`RepackError`]; blobs that were written before stay in `sink`.
pub fn repack(
    source: &dyn BlobSource,
    sink: &mut dyn BlobSink,
    document: &Document,
    options: &Options,
    edit: &mut Editor<'_>,
) -> Result<Repacked, RepackError> {
    let mut matches = Matches::default();
    let (document, images) = match document {
        Document::Manifest(manifest) => {
            let change = change_image(source, sink, manifest, options, true, edit)?;
            matches.add(&change);
            let image = repacked(manifest, None, change);
            (Document::Manifest(image.manifest.clone()), vec![image])
        }
        Document::Index(index) => repack_index(source, sink, index, options, edit, &mut matches)?,
    };
    let unmatched = matches.unmatched(options);
    if !unmatched.is_empty() {
        return Err(RepackError::Unmatched(unmatched));
    }
    blob::put_bytes(sink, &document.descriptor(), document.bytes())?;
    Ok(Repacked { document, images, fallbacks: matches.fallbacks })
}

fn repack_index(
    source: &dyn BlobSource,
    sink: &mut dyn BlobSink,
    index: &Index,
    options: &Options,
    edit: &mut Editor<'_>,
    matches: &mut Matches,
) -> Result<(Document, Vec<RepackedImage>), RepackError> {
    let (mut children, mut images) = (Vec::new(), Vec::new());
    for child in index.manifests() {
        if child.is_attestation() {
            continue;
        }
        let Some(manifest) = linux_image(source, child)? else {
            children.push(child.clone());
            continue;
        };
        let change = change_image(source, sink, &manifest, options, false, edit)?;
        matches.add(&change);
        let image = repacked(&manifest, child.platform().cloned(), change);
        if image.is_changed() {
            children.push(child.with_content(&image.manifest.descriptor()));
            blob::put_bytes(sink, &image.manifest.descriptor(), image.manifest.bytes())?;
        } else {
            children.push(child.clone());
        }
        images.push(image);
    }
    if images.is_empty() {
        return Err(RepackError::NoLinuxImage { index: index.digest().clone() });
    }
    let document = if images.iter().any(RepackedImage::is_changed) {
        index.with_manifests(&children, &annotations_for(index.media_type(), options))
    } else {
        index.clone()
    };
    Ok((Document::Index(document), images))
}

/// The manifest of a child that is an image for Linux.
fn linux_image(
    source: &dyn BlobSource,
    child: &Descriptor,
) -> Result<Option<Manifest>, RepackError> {
    let other_os = child.platform().is_some_and(|platform| platform.os() != "linux");
    if other_os || !child.media_type().is_manifest() {
        return Ok(None);
    }
    let Document::Manifest(manifest) = blob::read_document(source, child)? else {
        return Ok(None);
    };
    if !image::has_image_config(&manifest) {
        // An artifact, for instance a signature.
        return Ok(None);
    }
    if child.platform().is_none() {
        let config = blob::read_config(source, manifest.config())?;
        if !matches!(config.os(), "linux" | "") {
            return Ok(None);
        }
    }
    Ok(Some(manifest))
}

/// Docker's documents have no annotations.
fn annotations_for(
    media_type: &crate::media_type::MediaType,
    options: &Options,
) -> BTreeMap<String, String> {
    match media_type.family() {
        Some(crate::media_type::Family::Oci) => options.annotations.clone(),
        Some(crate::media_type::Family::Docker) | None => BTreeMap::new(),
    }
}

fn repacked(old: &Manifest, platform: Option<Platform>, change: ImageChange) -> RepackedImage {
    RepackedImage {
        platform,
        old: old.digest().clone(),
        manifest: change.manifest.unwrap_or_else(|| old.clone()),
        files: change.files,
    }
}

/// Which patterns matched anywhere.
#[derive(Default)]
struct Matches {
    unmatched: Option<Vec<UnmatchedPattern>>,
    fallbacks: Vec<CompressedFallback>,
}

impl Matches {
    fn add(&mut self, change: &ImageChange) {
        let unmatched = match self.unmatched.take() {
            None => change.unmatched.clone(),
            Some(mut unmatched) => {
                unmatched.retain(|one| {
                    change.unmatched.iter().any(|other| other.pattern == one.pattern)
                });
                unmatched
            }
        };
        self.unmatched = Some(unmatched);
        for fallback in &change.fallbacks {
            if !self.fallbacks.contains(fallback) {
                self.fallbacks.push(fallback.clone());
            }
        }
    }

    fn unmatched(&mut self, options: &Options) -> Vec<UnmatchedPattern> {
        let without_near =
            |pattern: &Pattern| UnmatchedPattern { pattern: pattern.clone(), near: Vec::new() };
        self.unmatched.take().unwrap_or_else(|| options.patterns.iter().map(without_near).collect())
    }
}
