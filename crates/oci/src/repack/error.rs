//! Errors of repacking, by what the caller does next.

use crate::blob::BlobError;
use crate::digest::Digest;
use crate::glob::{SelectionError, UnmatchedPattern};
use crate::layer::LayerError;
use crate::manifest::DocumentError;
use crate::tree::TreePath;

use super::BoxError;

/// Why an image was not repacked.
#[derive(Debug, thiserror::Error)]
pub enum RepackError {
    /// A blob could not be read or written.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// A layer of the image is malformed, or exceeds a limit.
    #[error(transparent)]
    Layer(#[from] LayerError),
    /// A document of the image is malformed.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// Patterns match no file in any image.
    #[error("cannot select files: {}", list(.0))]
    Unmatched(Vec<UnmatchedPattern>),
    /// A pattern matches what is no file.
    #[error("cannot select files: {0}")]
    Selection(#[from] SelectionError),
    /// The index has no image for Linux.
    #[error("cannot repack the index {index}: it has no image for linux")]
    NoLinuxImage {
        /// The digest of the index.
        index: Digest,
    },
    /// The manifest is not that of an image.
    #[error("cannot repack {manifest}: its configuration has the media type {media_type:?}")]
    NotAnImage {
        /// The digest of the manifest.
        manifest: Digest,
        /// The media type of its configuration.
        media_type: String,
    },
    /// The configuration does not describe the layers of the manifest.
    #[error(
        "cannot repack {manifest}: it has {layers} layers, and its configuration {diff_ids} \
         diff_ids"
    )]
    Inconsistent {
        /// The digest of the manifest.
        manifest: Digest,
        /// The number of layers.
        layers: usize,
        /// The number of digests in the configuration.
        diff_ids: usize,
    },
    /// The editor refused a file.
    #[error("could not change {path}")]
    Edit {
        /// The file.
        path: TreePath,
        /// Why.
        source: BoxError,
    },
    /// The new layer could not be written.
    #[error("could not write the new layer")]
    Write(#[source] std::io::Error),
}

fn list(unmatched: &[UnmatchedPattern]) -> String {
    let texts: Vec<String> = unmatched.iter().map(ToString::to_string).collect();
    texts.join("; ")
}
